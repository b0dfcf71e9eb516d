//! Calls that tools make to the registry on behalf of a run ([`crate::contract::delegate`]). Each
//! becomes one store command, idempotent by the step's id, or a read within the caller's reach.

pub(crate) mod children;
pub(crate) mod shown;
pub(crate) mod within;

use std::sync::Arc;

use serde_json::json;

use super::drive::submit;
use super::send::{OutgoingMessage, accepted_json, run_id, step_key};
use super::{Principal, Registry};
use crate::command::{
    AnswerCall, Ask, BeginCall, EndCall, KeepOutput, KeepTurn, Sender, StepRef, WaitFor, relation,
};
use crate::contract::BoxFuture;
use crate::contract::delegate::{
    Delegate, DelegateArgs, PinnedText, QuestionArgs, RecallArgs, SendArgs, SessionRef, Site,
    SpawnArgs, ToolReply, WaitArgs,
};
use crate::contract::servers::SessionServer;
use crate::contract::skills::SkillSet;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::{PolicyTarget, Relation, Right, Who};
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::step::Intent;
use crate::kernel::run::{Run, waiting};
use crate::kernel::session::Session;
use crate::registry::api::outputs::OutputPart;
use crate::registry::api::request::CancelTarget;
use crate::store::tables::{outbox, runs, sends, sessions};

/// The run that calls, with its session and its principal, as stored.
pub(crate) struct Caller {
    pub run: Run,
    pub session: Session,
    pub who: Principal,
}

impl Registry {
    pub(super) fn caller(&self, site: Site) -> Result<Caller, Fault> {
        let found = self.inner.store.read_now(|tx| {
            let run = runs::get(tx, site.run)?;
            let session = match &run {
                Some(run) => sessions::by_id(tx, run.session)?,
                None => None,
            };
            Ok(run.zip(session))
        })?;
        let (run, session) = found.ok_or_else(|| Fault::not_found("run", site.run))?;
        Ok(Caller {
            who: Principal::of_run(run.id, run.org.clone(), run.user.clone()),
            run,
            session,
        })
    }

    async fn send_by(&self, site: Site, ask: SendArgs) -> Result<ToolReply, Fault> {
        let caller = self.caller(site)?;
        let target = self.named(&caller.who, ask.to.key.as_deref(), ask.to.label.as_deref())?;
        let outgoing = OutgoingMessage {
            who: caller.who,
            message: ask.message,
            from: Sender::Step(step_ref(site)),
            window_ms: ask.timeout_ms,
            run_timeout_ms: None,
            meta: None,
            key: Some(step_key(site.id)),
        };
        let accepted = self.submit_message(&target, outgoing).await?;
        if accepted.message.is_some() {
            return Ok(ToolReply::Now(waiting::delivered_to_client(
                &accepted.session,
            )));
        }
        if ask.timeout_ms > 0 {
            return Ok(ToolReply::Pending);
        }
        let mut told = accepted_json(&accepted);
        told["delivered"] = false.into();
        told["replied"] = false.into();
        told["note"] = "You will get the reply as a message in this session. Do not poll.".into();
        Ok(ToolReply::Now(told))
    }

    async fn wait_by(&self, site: Site, ask: WaitArgs) -> Result<ToolReply, Fault> {
        let caller = self.caller(site)?;
        let mut wanted = Vec::with_capacity(ask.runs.len());
        for text in &ask.runs {
            wanted.push(run_id(text)?);
        }
        if wanted.is_empty() {
            let own = caller.session.id;
            let open = self
                .inner
                .store
                .read_now(|tx| runs::live_children(tx, own))?;
            wanted.extend(open.into_iter().map(|run| run.id));
        }
        if wanted.is_empty() {
            let text = waiting::children(&[], true);
            return Ok(ToolReply::Now(
                serde_json::from_str(&text).map_err(Fault::internal)?,
            ));
        }
        let until = self.inner.clock.now().plus_ms(ask.timeout_ms);
        let command = WaitFor {
            by: step_ref(site),
            runs: wanted,
            any: ask.any,
            until,
        };
        self.inner.store.submit_waiting(command).await?;
        Ok(ToolReply::Pending)
    }

    async fn ask_by(&self, site: Site, ask: QuestionArgs) -> Result<ToolReply, Fault> {
        let command = Ask {
            by: step_ref(site),
            text: ask.text,
            choices: ask.choices,
            window_ms: ask.timeout_ms,
        };
        self.inner.store.submit_waiting(command).await?;
        Ok(ToolReply::Pending)
    }

    async fn cancel_by(
        &self,
        site: Site,
        run: String,
        reason: Option<String>,
    ) -> Result<ToolReply, Fault> {
        let caller = self.caller(site)?;
        let id = run_id(&run)?;
        let mut stands = Ok(Relation::Other);
        let found = self.inner.store.read_now(|tx| {
            let Some(run) = runs::get(tx, id)? else {
                return Ok(false);
            };
            if let Some(session) = sessions::by_id(tx, run.session)? {
                stands = relation(tx, caller.session.id, &session);
            }
            Ok(run.org == caller.who.org)
        })?;
        if !found || stands? != Relation::Descendant {
            return Err(Fault::not_found("descendant run", id)
                .hint("session_status lists the runs that this session has spawned"));
        }
        let done = self
            .cancel(&caller.who, CancelTarget::Run(id), reason)
            .await?;
        Ok(ToolReply::Now(json!({
            "cancelled": done.cancelled,
            "alreadyEnded": done.already_ended,
            "notEnded": done.not_ended,
        })))
    }

    fn awaited_by(&self, site: Site) -> Result<ToolReply, Fault> {
        let caller = self.caller(site)?;
        let session = caller.session.id;
        let (open, replies, waiting) = self.inner.store.read_now(|tx| {
            Ok((
                runs::count_live_children(tx, session)?,
                sends::is_unfinished(tx, session)?,
                outbox::has_waking(tx, session)?,
            ))
        })?;
        if open == 0 && !replies && !waiting {
            return Err(Fault::new(
                Kind::Conflict,
                "there is nothing to wait for: this session has no open runs, and \
                 no announce or reply is pending",
            )
            .hint("Continue, or end with your answer."));
        }
        Ok(ToolReply::Now(json!({
            "yielded": true,
            "openRuns": open,
            "note": "Your turn ends here. Their results will start your next turn.",
        })))
    }

    /// Fails unless the caller has this right on `session`.
    pub(super) fn within(
        &self,
        caller: &Caller,
        right: Right,
        session: &Session,
    ) -> Result<(), Fault> {
        let mut stands = Ok(crate::kernel::policy::Relation::Other);
        self.inner.store.read_now(|tx| {
            stands = relation(tx, caller.session.id, session);
            Ok(())
        })?;
        // A called run works in its caller's session, so the run's own agent counts here.
        let who = Who::Session {
            agent: &caller.run.agent,
            depth: caller.run.depth,
        };
        let target = PolicyTarget {
            key: &session.key,
            agent: &session.agent,
            relation: stands?,
        };
        self.inner.options().policy.may(right, who, target)
    }
}

/// A part of a stored output as text for the model, with the call that reads the next part.
fn in_words(part: OutputPart, tool_call: &str) -> String {
    let OutputPart {
        offset,
        text,
        next,
        bytes,
        kept,
    } = part;
    let end = offset + text.len() as u64;
    let rest = match next {
        Some(next) => format!("continue with output {{toolCallId: {tool_call:?}, offset: {next}}}"),
        None if kept < bytes => format!("the remaining {} bytes were not kept", bytes - kept),
        None => "end of output".to_owned(),
    };
    format!("{text}\n… bytes {offset} to {end} of {bytes}; {rest}")
}

pub(super) fn step_ref(site: Site) -> StepRef {
    StepRef {
        run: site.run,
        step: site.step,
        attempt: site.attempt,
    }
}

impl Delegate for Registry {
    fn spawn(&self, site: Site, ask: SpawnArgs) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.spawn_by(site, ask).await })
    }

    fn delegate(
        &self,
        site: Site,
        ask: DelegateArgs,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.delegate_by(site, ask).await })
    }

    fn send(&self, site: Site, ask: SendArgs) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.send_by(site, ask).await })
    }

    fn wait(&self, site: Site, ask: WaitArgs) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.wait_by(site, ask).await })
    }

    fn ask(&self, site: Site, ask: QuestionArgs) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.ask_by(site, ask).await })
    }

    fn cancel(
        &self,
        site: Site,
        run: String,
        reason: Option<String>,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.cancel_by(site, run, reason).await })
    }

    fn awaits(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.awaited_by(site) })
    }

    fn sessions(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.sessions_of(site) })
    }

    fn history(
        &self,
        site: Site,
        of: SessionRef,
        limit: u32,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.history_of(site, of, limit) })
    }

    fn status(&self, site: Site, of: SessionRef) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.status_of(site, of) })
    }

    fn keep(&self, site: Site, text: String) -> BoxFuture<'static, Result<(), Fault>> {
        let registry = self.clone();
        Box::pin(async move {
            let by = step_ref(site);
            let command = KeepOutput { by, text };
            registry.inner.store.submit_waiting(command).await?;
            Ok(())
        })
    }

    fn output(
        &self,
        site: Site,
        tool_call: String,
        offset: u64,
        most: usize,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move {
            let session = registry.caller(site)?.session.id;
            let part = registry.output_in(session, &tool_call, offset, most)?;
            Ok(ToolReply::Now(in_words(part, &tool_call).into()))
        })
    }

    fn skills(&self, site: Site) -> BoxFuture<'static, Result<SkillSet, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.pinned_skills(site) })
    }

    fn skill(&self, site: Site, name: String) -> BoxFuture<'static, Result<PinnedText, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.pinned_skill(site, &name) })
    }

    fn remember(&self, site: Site, text: String) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.remember_by(site, text).await })
    }

    fn recall(&self, site: Site, ask: RecallArgs) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.recall_by(site, &ask) })
    }

    fn keep_turn(&self, site: Site, turn: OutsideTurn) -> BoxFuture<'static, Result<(), Fault>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let by = step_ref(site);
            submit(&inner, KeepTurn { by, turn }).await
        })
    }

    fn begin_call(&self, site: Site, call: Intent) -> BoxFuture<'static, Result<(), Fault>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let (by, call) = (step_ref(site), Box::new(call));
            submit(&inner, BeginCall { by, call }).await
        })
    }

    fn answer_call(&self, site: Site) -> BoxFuture<'static, Result<(), Fault>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let by = step_ref(site);
            submit(&inner, AnswerCall { by }).await
        })
    }

    fn end_call(
        &self,
        run: RunId,
        call: StepId,
        why: String,
    ) -> BoxFuture<'static, Result<(), Fault>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { submit(&inner, EndCall { run, call, why }).await })
    }

    fn session_server(
        &self,
        site: Site,
        name: String,
    ) -> BoxFuture<'static, Result<SessionServer, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.server_of(site, &name) })
    }

    fn agents(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>> {
        let registry = self.clone();
        Box::pin(async move { registry.agents_of(site).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_one_key_whatever_it_asks_for() {
        let id = crate::kernel::ids::StepId(uuid::Uuid::from_u128(7));
        assert_eq!(step_key(id), step_key(id));
        let id = crate::kernel::ids::RunId(uuid::Uuid::from_u128(7));
        assert_eq!(run_id(&format!(" {id} ")).unwrap(), id);
        assert!(run_id("last").is_err());
    }
}
