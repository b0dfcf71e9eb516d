//! Messages to sessions: finds the target, submits one store command, and waits for the reply.

use std::time::Duration;

use super::{Principal, Registry};
use crate::command::{Accepted, Key, SendMessage, Sender, WindowOver};
use crate::contract::catalog::Overrides;
use crate::contract::commit::PendingWait;
use crate::kernel::delegation::announce::RESULT_LIMIT;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::{RunState, waiting};
use crate::kernel::session::{Session, send};
use crate::kernel::text::prefix;
use crate::store::tables::sessions;
use crate::store::tx::{DbError, Tx};
use crate::wire::sessions::{Send, Sent};

/// A message with its resolved options, ready to submit to a target.
pub(super) struct OutgoingMessage {
    /// Tenant and user of the turn that answers.
    pub who: Principal,
    /// The message text.
    pub message: String,
    /// The sender.
    pub from: Sender,
    /// Maximum time to wait for the reply, in milliseconds.
    pub window_ms: u64,
    /// Time limit of the turn, in milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Client metadata, returned unchanged.
    pub meta: Option<serde_json::Value>,
    /// Idempotency key.
    pub key: Option<Key>,
}

impl Registry {
    /// Sends a message to a session. Once this returns, the message is stored; the answer reports
    /// delivery and reply separately.
    pub async fn send(&self, who: &Principal, mut request: Send) -> Result<Sent, Fault> {
        // A repeat may wait longer, so the timeout is not part of what its key stands for.
        let window = std::mem::take(&mut request.wait_timeout).0;
        let key = request.session_key.as_ref().map(SessionKey::as_str);
        let target = self.named(who, key, request.label.as_deref())?;
        let key = request.idempotency_key.as_deref();
        let key = self.key(who, target.key.as_str(), key, &request)?;
        let has_sender = request.from.is_some();
        let known = self.known(key.as_ref())?;
        let accepted = match known {
            Some(accepted) => accepted,
            None => {
                let outgoing = OutgoingMessage {
                    who: who.clone(),
                    message: request.message,
                    from: request.from.map_or(Sender::Client, Sender::Session),
                    window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
                    run_timeout_ms: request.run_timeout.map(|limit| limit.0),
                    meta: request.meta,
                    key,
                };
                self.submit_message(&target, outgoing).await?
            }
        };
        if accepted.message.is_some() {
            return Ok(Sent {
                run_id: None,
                session_key: accepted.session,
                status: "delivered".to_owned(),
                delivered: true,
                replied: false,
                reply: None,
                error: None,
            });
        }
        self.reply(who, accepted, window, has_sender).await
    }

    /// Submits a message to `target`.
    pub(super) async fn submit_message(
        &self,
        target: &Session,
        outgoing: OutgoingMessage,
    ) -> Result<Accepted, Fault> {
        let overrides = Overrides {
            model: target.model.as_deref(),
            thinking: target.thinking,
            given: &[],
            served: &[],
        };
        let (folder, named) = (target.cwd.as_deref(), target.agent.as_str());
        let agent = self
            .inner
            .resolve_in(target.id, &target.org, folder, Some(named), overrides)
            .await?;
        let run = self.new_run(
            &outgoing.who,
            None,
            agent,
            None,
            &outgoing.message,
            outgoing.run_timeout_ms,
            outgoing.meta,
            outgoing.key,
        )?;
        let command = SendMessage {
            org: outgoing.who.org,
            run,
            target: target.id,
            message: outgoing.message,
            from: outgoing.from,
            window_ms: outgoing.window_ms,
        };
        self.inner.store.submit(command).await
    }

    /// Waits for the reply; one that comes after the timeout is delivered to the sender later.
    async fn reply(
        &self,
        who: &Principal,
        accepted: Accepted,
        window: Duration,
        has_sender: bool,
    ) -> Result<Sent, Fault> {
        let id = accepted.run;
        if window.is_zero() {
            let detail = self.run(who, id).await?;
            let open = !detail.run.state.is_terminal();
            let mut answer = answer(detail.run);
            if open {
                "accepted".clone_into(&mut answer.status);
            }
            return Ok(answer);
        }
        let waited = self.wait(who, vec![id], true, window).await?;
        if !waited.done && has_sender && !self.is_draining() {
            // From here on a reply is delivered only to the sender's session; the rows then show
            // whether it came earlier.
            let window = PendingWait::Call(id);
            self.inner
                .store
                .submit_waiting(WindowOver { window })
                .await?;
        }
        Ok(answer(self.run(who, id).await?.run))
    }

    /// Finds the target session. Empty texts count as unset, and key and label may name the same
    /// session.
    pub(super) fn named(
        &self,
        who: &Principal,
        key: Option<&str>,
        label: Option<&str>,
    ) -> Result<Session, Fault> {
        let key = key.map(str::trim).filter(|key| !key.is_empty());
        let label = label.map(str::trim).filter(|label| !label.is_empty());
        let by_key = match key {
            Some(text) => {
                let key =
                    SessionKey::parse(text).map_err(|fault| Fault::params("sessionKey", fault))?;
                let found = self
                    .inner
                    .store
                    .read_now(|tx| sessions::by_key(tx, &who.org, &key))?;
                Some(found.ok_or_else(|| Fault::not_found("session", &key))?)
            }
            None => None,
        };
        let Some(label) = label else {
            return by_key.ok_or_else(|| Fault::params("sessionKey", "pass sessionKey or label"));
        };
        let labelled = self
            .inner
            .store
            .read_now(|tx| called(tx, &who.org, label))?;
        match (by_key, &labelled[..]) {
            (Some(session), found) => {
                if found.is_empty() || found.iter().any(|one| one.id == session.id) {
                    return Ok(session);
                }
                Err(Fault::new(
                    Kind::Conflict,
                    format!(
                        "sessionKey is {}, but label {label:?} belongs to another session ({}). Nothing was \
                         sent",
                        session.key, found[0].key
                    ),
                )
                .hint("pass only one of them"))
            }
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(Fault::not_found("session labelled", label)),
            (None, several) => {
                let keys: Vec<String> = several.iter().map(|one| one.key.to_string()).collect();
                Err(Fault::new(
                    Kind::Conflict,
                    format!("several sessions have label {label:?}. Nothing was sent"),
                )
                .hint("pass the sessionKey of one")
                .with("sessionKeys", keys))
            }
        }
    }
}

fn called(tx: &mut dyn Tx, org: &str, label: &str) -> Result<Vec<Session>, DbError> {
    let query = sessions::ListQuery {
        org: org.to_owned(),
        label: Some(label.to_owned()),
        limit: 10,
        ..sessions::ListQuery::default()
    };
    let found = sessions::list(tx, &query)?;
    Ok(found.into_iter().map(|(_, session)| session).collect())
}

/// Builds the answer from the run's state.
fn answer(run: crate::kernel::run::Run) -> Sent {
    let reply = send::reply(&run).map(|text| prefix(text, RESULT_LIMIT).to_owned());
    Sent {
        run_id: Some(run.id),
        delivered: run.started_at.is_some(),
        replied: reply.is_some(),
        reply,
        status: waiting::status(&run).to_owned(),
        error: match run.state {
            RunState::Ended(_) => run.error,
            _ => None,
        },
        session_key: run.session_key,
    }
}

/// Idempotency key of a step's request: the step's id, independent of the parameters.
pub(super) fn step_key(step: crate::kernel::ids::StepId) -> Key {
    Key {
        scope: "step".to_owned(),
        key: step.to_string(),
        digest: Vec::new(),
    }
}

/// A retried step generates a new run id, but its key returns the run of the first attempt.
pub(super) fn accepted_json(accepted: &Accepted) -> serde_json::Value {
    serde_json::json!({
        "status": "accepted",
        "runId": accepted.run,
        "sessionKey": accepted.session,
    })
}

/// Parses a run id from a model's tool call.
pub(super) fn run_id(text: &str) -> Result<RunId, Fault> {
    text.trim()
        .parse()
        .map_err(|fault| Fault::params("runIds", fault))
}
