//! Prompts: each is a turn of the daemon, and stays pending until that turn has ended. The turn goes
//! on without the editor; only a cancel by the editor ends it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::commands;
use super::editor::Editor;
use super::prompt;
use super::sessions::OpenSession;
use crate::acp_protocol::answer::{Prompted, StopReason};
use crate::acp_protocol::request::Prompt;
use crate::acp_protocol::{Answered, RpcError, code};
use crate::kernel::event::RunEnded;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::RunError;
use crate::kernel::text::preview;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::lifecycle::{CancelRun, PatchSession};
use crate::wire::runs::{GetRun, ListRuns, State, Turn};

/// Maximum number of characters of a title that is made from a prompt.
const TITLE: usize = 80;

/// A prompt that is not answered yet.
pub(super) struct PendingPrompt {
    /// Id of the editor's request.
    request: Value,
    session: String,
    run: RunId,
    is_accepted: Cell<bool>,
    is_cancelled: Cell<bool>,
    /// True once the transcript has the prompt's own text.
    is_echoed: Cell<bool>,
    ended: RefCell<Option<oneshot::Sender<Answered<TurnEnd>>>>,
    end: RefCell<Option<oneshot::Receiver<Answered<TurnEnd>>>>,
}

/// How a turn has ended.
#[derive(Debug)]
pub(super) struct TurnEnd {
    /// The outcome of the run; `None`: its session was deleted.
    state: Option<String>,
    error: Option<RunError>,
}

/// All prompts that are not answered yet.
#[derive(Default)]
pub(super) struct Turns(RefCell<Vec<Rc<PendingPrompt>>>);

impl Turns {
    /// Registers a prompt when it is read, so that a cancel which follows finds it.
    pub(super) fn begin(&self, request: Value, session: &str, run: RunId) -> Rc<PendingPrompt> {
        let (sender, receiver) = oneshot::channel();
        let prompt = Rc::new(PendingPrompt {
            request,
            session: session.to_owned(),
            run,
            is_accepted: Cell::new(false),
            is_cancelled: Cell::new(false),
            is_echoed: Cell::new(false),
            ended: RefCell::new(Some(sender)),
            end: RefCell::new(Some(receiver)),
        });
        self.0.borrow_mut().push(Rc::clone(&prompt));
        prompt
    }

    /// The editor cancels the prompts of this session.
    pub(super) fn mark_cancelled(&self, session: &str) {
        for prompt in self.of_session(session) {
            prompt.is_cancelled.set(true);
        }
    }

    fn of_run(&self, run: RunId) -> Option<Rc<PendingPrompt>> {
        let prompts = self.0.borrow();
        prompts.iter().find(|prompt| prompt.run == run).cloned()
    }

    /// The prompts of a session.
    fn of_session(&self, session: &str) -> Vec<Rc<PendingPrompt>> {
        let prompts = self.0.borrow();
        let its = prompts.iter().filter(|prompt| prompt.session == session);
        its.cloned().collect()
    }

    fn by_request(&self, request: &Value) -> Option<Rc<PendingPrompt>> {
        let prompts = self.0.borrow();
        prompts
            .iter()
            .find(|prompt| prompt.request == *request)
            .cloned()
    }

    /// True for the run of a prompt that is not answered yet.
    pub(super) fn is_own(&self, run: RunId) -> bool {
        self.of_run(run).is_some()
    }

    /// True for the first message of a prompt of this editor, which shows it already.
    pub(super) fn is_echo(&self, run: RunId) -> bool {
        self.of_run(run)
            .is_some_and(|prompt| !prompt.is_echoed.replace(true))
    }

    /// The run has ended.
    pub(super) fn ended(&self, run: RunId, ended: RunEnded) {
        if let Some(prompt) = self.of_run(run) {
            prompt.finish(Ok(TurnEnd {
                state: Some(ended.state.into_owned()),
                error: ended.error,
            }));
        }
    }

    /// The session was deleted.
    pub(super) fn session_deleted(&self, session: &str) {
        for prompt in self.of_session(session) {
            prompt.finish(Ok(TurnEnd {
                state: None,
                error: None,
            }));
        }
    }

    /// The session is not followed any more, because it could not be opened again: the end of its
    /// turns would not be seen. A prompt that is not accepted is refused when its turn comes.
    pub(super) fn lost(&self, session: &str, error: &RpcError) {
        let message = format!(
            "the session is no longer open: {}. The turn goes on; session/load shows it",
            error.message
        );
        let error = RpcError {
            message,
            ..error.clone()
        };
        for prompt in self.of_session(session) {
            if prompt.is_accepted.get() {
                prompt.finish(Err(error.clone()));
            }
        }
    }

    fn forget(&self, prompt: &Rc<PendingPrompt>) {
        self.0.borrow_mut().retain(|one| !Rc::ptr_eq(one, prompt));
    }
}

impl PendingPrompt {
    fn finish(&self, end: Answered<TurnEnd>) {
        if let Some(ended) = self.ended.take() {
            // Without a receiver the prompt was answered already.
            let _ = ended.send(end);
        }
    }

    async fn ended(&self) -> Answered<TurnEnd> {
        match self.end.take() {
            Some(end) => end.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }
}

impl Editor {
    /// Carries out a prompt. The daemon has stored the turn once this returns, or the prompt is
    /// answered; otherwise its answer follows by itself.
    pub(super) async fn prompt(self: &Rc<Self>, prompt: Rc<PendingPrompt>, params: Prompt) {
        if let Err(error) = self.submit(&prompt, params).await {
            self.answer_prompt(&prompt, Err(error)).await;
            return;
        }
        let editor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let end = prompt.ended().await;
            let answer = end.and_then(|end| answer(&prompt, end));
            editor.answer_prompt(&prompt, answer).await;
        });
    }

    async fn answer_prompt(&self, prompt: &Rc<PendingPrompt>, answer: Answered<StopReason>) {
        self.turns.forget(prompt);
        let answer = answer.map(|stop_reason| Prompted {
            stop_reason,
            usage: None,
        });
        self.output.respond(&prompt.request, answer).await;
        self.prompts_changed.notify_waiters();
    }

    async fn submit(&self, prompt: &Rc<PendingPrompt>, params: Prompt) -> Answered<()> {
        let session = self.session(&params.session_id)?;
        let text = prompt::text(&params.prompt)?;
        if prompt.is_cancelled.get() {
            prompt.finish(Ok(TurnEnd {
                state: None,
                error: None,
            }));
            return Ok(());
        }
        self.name_session(&session, &text).await;
        let request = Turn {
            session_key: session.key.clone(),
            message: commands::expanded(&session, text),
            agent: None,
            run_id: Some(prompt.run),
            model: None,
            thinking: None,
            run_timeout: None,
            budget: None,
            env: None,
            idempotency_key: Some(prompt.run.to_string()),
            meta: None,
        };
        self.link.call(&request).await?;
        prompt.is_accepted.set(true);
        if prompt.is_cancelled.get() {
            let cancelled = self.cancel_run(prompt.run).await;
            self.tell_cancel(&prompt.session, cancelled).await;
        }
        Ok(())
    }

    /// Gives a session without a title the beginning of its first prompt.
    async fn name_session(&self, session: &Rc<OpenSession>, text: &str) {
        if session.has_title.replace(true) {
            return;
        }
        let request = PatchSession {
            title: Some(Some(preview(text, TITLE))),
            ..PatchSession::unchanged(session.key.clone())
        };
        // A session without a title is not worth an error.
        let _ = self.link.call(&request).await;
    }

    /// Cancels the turns of a session, also those that other clients have started; of the editor's
    /// prompts only those that are marked as cancelled, since the others were read later.
    pub(super) async fn cancel(&self, session: &str) -> Answered<()> {
        let prompts = self.turns.of_session(session).into_iter();
        // Each that is not accepted yet is cancelled when it is.
        let marked = prompts.filter(|prompt| prompt.is_cancelled.get() && prompt.is_accepted.get());
        let mut runs: Vec<RunId> = marked.map(|prompt| prompt.run).collect();
        let mut cancelled: Answered<()> = Ok(());
        if let Ok(session) = self.session(session) {
            let request = ListRuns {
                session_key: Some(session.key.clone()),
                states: State::OPEN.to_vec(),
                limit: PageSize(PAGE_LIMIT),
                ..ListRuns::default()
            };
            match self.link.call(&request).await {
                Ok(page) => runs.extend(page.runs.iter().map(|run| run.run_id)),
                Err(error) => cancelled = Err(error),
            }
        }
        let is_meant = |run: &RunId| {
            let prompt = self.turns.of_run(*run);
            prompt.is_none_or(|prompt| prompt.is_cancelled.get())
        };
        runs.retain(is_meant);
        runs.sort_unstable();
        runs.dedup();
        for run in runs {
            cancelled = cancelled.and(self.cancel_run(run).await);
        }
        cancelled
    }

    /// Cancels the turns of a session and waits until its prompts are answered.
    pub(super) async fn cancel_and_wait(&self, session: &str) -> Answered<()> {
        // A prompt that was read later is not accepted yet, and is refused when its turn comes.
        for prompt in self.turns.of_session(session) {
            if prompt.is_accepted.get() {
                prompt.is_cancelled.set(true);
            }
        }
        self.cancel(session).await?;
        let is_running = || {
            let mut prompts = self.turns.of_session(session).into_iter();
            prompts.any(|prompt| prompt.is_accepted.get())
        };
        while is_running() {
            self.prompts_changed.notified().await;
        }
        Ok(())
    }

    /// Cancels one prompt by the id of its request; other requests are answered soon anyway.
    pub(super) async fn cancel_request(&self, request: &Value) {
        if let Some(prompt) = self.turns.by_request(request) {
            prompt.is_cancelled.set(true);
            if prompt.is_accepted.get() {
                let cancelled = self.cancel_run(prompt.run).await;
                self.tell_cancel(&prompt.session, cancelled).await;
            }
        }
    }

    /// Tells the user if a cancel has failed: no answer says so.
    pub(super) async fn tell_cancel(&self, session: &str, cancelled: Answered<()>) {
        if let Err(error) = cancelled {
            let text = format!("the turn was not cancelled: {}", error.message);
            self.note(session, text).await;
        }
    }

    async fn cancel_run(&self, run: RunId) -> Answered<()> {
        let request = CancelRun {
            run_id: run,
            reason: Some("cancelled in the editor".to_owned()),
        };
        match self.link.call(&request).await {
            Ok(_) => Ok(()),
            // A run that was deleted meanwhile needs no cancel.
            Err(error) if error.code == code::NOT_FOUND => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the prompts of a session whose runs have ended while no events arrived.
    pub(super) async fn settle(&self, session: &SessionKey) {
        for prompt in self.turns.of_session(session.as_str()) {
            if !prompt.is_accepted.get() {
                continue;
            }
            let found = self.link.call(&GetRun { run_id: prompt.run }).await;
            match found {
                Ok(run) if !run.is_open() => prompt.finish(Ok(TurnEnd {
                    state: Some(run.state.into_owned()),
                    error: run.error,
                })),
                Err(error) if error.code == code::NOT_FOUND => prompt.finish(Ok(TurnEnd {
                    state: None,
                    error: None,
                })),
                _ => {}
            }
        }
    }
}

/// The answer to a prompt whose turn has ended.
fn answer(prompt: &PendingPrompt, end: TurnEnd) -> Answered<StopReason> {
    let kind = end.error.as_ref().map(|error| error.kind.as_str());
    match (end.state.as_deref(), kind) {
        (Some("ok"), _) => Ok(StopReason::EndTurn),
        (Some("cancelled"), _) => Ok(StopReason::Cancelled),
        _ if prompt.is_cancelled.get() => Ok(StopReason::Cancelled),
        (None, _) => Err(gone()),
        (_, Some("max_loops")) => Ok(StopReason::MaxTurnRequests),
        (_, Some("refused")) => Ok(StopReason::Refusal),
        (Some(state), kind) => {
            let why = end.error.as_ref().map(|error| error.message.as_str());
            let message = why.unwrap_or("the turn has not ended ok");
            let data = json!({ "state": state, "kind": kind, "runId": prompt.run });
            Err(RpcError::new(code::INTERNAL, message).with(data))
        }
    }
}

fn gone() -> RpcError {
    RpcError::new(code::NOT_FOUND, "the session of the turn was deleted")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_prompt_of_a_session_that_is_lost_is_answered() {
        let clock = Clock::system();
        let turns = Turns::default();
        let begin = |request: i64, session: &str, is_accepted: bool| {
            let prompt = turns.begin(json!(request), session, RunId(clock.new_id()));
            prompt.is_accepted.set(is_accepted);
            prompt
        };
        let lost = begin(1, "editor:a", true);
        let later = begin(2, "editor:a", false);
        let other = begin(3, "editor:b", true);
        turns.lost("editor:a", &RpcError::new(code::NOT_FOUND, "no folder"));
        let error = lost.ended().now_or_never().unwrap().unwrap_err();
        assert_eq!(error.code, code::NOT_FOUND);
        assert!(error.message.contains("no folder"), "{}", error.message);
        assert!(later.ended().now_or_never().is_none());
        assert!(other.ended().now_or_never().is_none());
    }
}
