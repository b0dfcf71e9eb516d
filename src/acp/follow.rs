//! Follows the events of one session and turns them into updates. After a lost connection it resumes
//! from its cursor, so that nothing is missing and nothing is sent twice.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use serde::de::DeserializeOwned;

use super::calls::Calls;
use super::editor::Editor;
use super::link::RETRY;
use super::stream::{Streams, TextChannel};
use super::{children, history};
use crate::acp_protocol::update::{Chunk, ToolCallUpdate, ToolContent, Update};
use crate::acp_protocol::{Answered, RpcError, code};
use crate::client::EventSubscription;
use crate::kernel::event::{
    MessageAdded, RunEnded, SessionUpdated, StepMoved, SubAgentPartial, ToolProgress,
};
use crate::kernel::ids::{MessageId, RunId, SessionKey};
use crate::kernel::session::message::plain_text;
use crate::wire::events::{
    Event, LAGGED, Lagged, MessageText, SNAPSHOT, Snapshot, SubscribeEvents,
};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::GetRun;
use crate::wire::sessions::{GetHistory, GetSession, History};
use crate::wire::shapes::{Message, Session};

/// The events of one session, as updates for the editor.
pub(super) struct Follower {
    editor: Rc<Editor>,
    key: SessionKey,
    /// The session as it was when it was opened.
    session: Session,
    request: SubscribeEvents,
    events: EventSubscription,
    /// Position of the last transcript entry that was sent.
    seen: i64,
    streams: Streams,
    calls: Calls,
    /// Runs that a call of another agent in this session has started; they are content of that call.
    nested: HashMap<RunId, bool>,
    /// Tokens of the context, and whether the editor lacks the present number.
    context: Option<u64>,
    /// The run with which it ends.
    until: Option<RunId>,
}

impl Follower {
    /// Subscribes to the session. Its present state is known once this returns.
    pub(super) async fn open(editor: &Rc<Editor>, key: &SessionKey) -> Answered<Follower> {
        let mut request = SubscribeEvents {
            session_key: Some(key.clone()),
            deltas: true,
            ..SubscribeEvents::default()
        };
        loop {
            let mut events = editor.link.subscribe(&mut request).await?;
            let snapshot: Snapshot = match events.next().await {
                Some(Ok(event)) if event.kind == SNAPSHOT => data(&event)
                    .ok_or_else(|| RpcError::new(code::INTERNAL, "the snapshot is unreadable"))?,
                Some(Ok(event)) => {
                    let message = format!("{} comes instead of the snapshot", event.kind);
                    return Err(RpcError::new(code::INTERNAL, message));
                }
                Some(Err(error)) => return Err(error.into()),
                // The connection was lost in this moment.
                None => continue,
            };
            let session = snapshot.sessions.iter().find(|one| one.key == *key);
            let session = session.cloned().ok_or_else(|| {
                RpcError::new(code::NOT_FOUND, format!("there is no session {key}"))
            })?;
            request.since = u64::try_from(snapshot.cursor).ok();
            request.store_id = Some(snapshot.store_id);
            return Ok(Follower {
                editor: Rc::clone(editor),
                key: key.clone(),
                seen: session.messages,
                calls: Calls::new(session.cwd.clone().unwrap_or_default()),
                session,
                request,
                events,
                streams: Streams::default(),
                nested: HashMap::new(),
                context: None,
                until: None,
            });
        }
    }

    /// The session as it was when it was opened.
    pub(super) fn session(&self) -> Session {
        self.session.clone()
    }

    /// The editor has the whole history once this returns.
    pub(super) async fn replay(&mut self) -> Answered<()> {
        let up_to = self.seen;
        self.seen = 0;
        self.catch_up(up_to, true).await?;
        self.calls.forget_results();
        self.tell_usage().await;
        Ok(())
    }

    /// Follows the session until it is closed or deleted.
    pub(super) async fn run(mut self) {
        if let Ok(session) = self.editor.session(self.key.as_str()) {
            self.editor.tell_commands(&session).await;
        }
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    let is_renewed = event.kind == SNAPSHOT;
                    if self.take(event).await.is_break() {
                        return;
                    }
                    // The event of its end may be among those that are no longer kept.
                    if is_renewed && self.is_over().await == Ok(true) {
                        return;
                    }
                }
                // A later daemon may send events of another shape.
                Some(Err(_)) => {}
                None => self.resume().await,
            }
        }
    }

    /// Sends the transcript of a subagent and follows its session until this run has ended.
    pub(super) async fn run_until(mut self, run: RunId) -> Answered<()> {
        self.until = Some(run);
        self.replay().await?;
        if !self.is_over().await? {
            self.run().await;
        }
        Ok(())
    }

    /// True if the run with which it ends has ended; one that ends later has its event.
    async fn is_over(&self) -> Answered<bool> {
        let Some(run) = self.until else {
            return Ok(false);
        };
        let found = self.editor.link.call(&GetRun { run_id: run }).await;
        match found {
            Ok(run) => Ok(!run.is_open()),
            Err(error) if error.code == code::NOT_FOUND => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Subscribes again from the last cursor, as soon as a daemon answers.
    async fn resume(&mut self) {
        self.events = self.editor.link.subscribe_at_last(&mut self.request).await;
    }

    async fn take(&mut self, event: Event) -> ControlFlow<()> {
        match event.kind.as_str() {
            SNAPSHOT => self.renewed(&event).await,
            LAGGED => {
                if let Some(lagged) = data::<Lagged>(&event) {
                    self.request.since = u64::try_from(lagged.resume_from).ok();
                }
            }
            "message.delta" | "message.partial" | "message.reset" => self.text(&event).await,
            "message.added" => {
                if let Some(added) = data::<MessageAdded>(&event) {
                    self.added(added.seq).await;
                }
            }
            "tool.started" | "tool.completed" => self.moved(&event).await,
            "tool.progress" => {
                if let (Some(run), Some(moved)) = (event.run_id, data::<ToolProgress>(&event)) {
                    let update = self.calls.progress(run, &moved);
                    self.send(update).await;
                }
            }
            "sub_agent.partial" => {
                if let (Some(run), Some(piece)) = (event.run_id, data::<SubAgentPartial>(&event)) {
                    let update = self.calls.partial(run, &piece);
                    self.send(update).await;
                }
            }
            "run.ended" => {
                self.ended(&event).await;
                if self.until.is_some() && event.run_id == self.until {
                    return ControlFlow::Break(());
                }
            }
            "session.updated" => self.updated(&event).await,
            "session.deleted" => {
                let key = self.key.as_str();
                self.editor.turns.session_deleted(key);
                // It also aborts this task, which ends anyway.
                self.editor.leave(key);
                return ControlFlow::Break(());
            }
            _ => {}
        }
        if let Some(cursor) = event.cursor {
            self.request.since = u64::try_from(cursor).ok();
        }
        ControlFlow::Continue(())
    }

    /// The events of the meantime are no longer kept: the transcript and the runs tell what happened.
    async fn renewed(&mut self, event: &Event) {
        let Some(snapshot) = data::<Snapshot>(event) else {
            return;
        };
        self.request.since = u64::try_from(snapshot.cursor).ok();
        self.request.store_id = Some(snapshot.store_id);
        let session = snapshot
            .sessions
            .into_iter()
            .find(|one| one.key == self.key);
        if let Some(session) = session {
            self.added(session.messages).await;
        }
        self.editor.settle(&self.key).await;
    }

    async fn send(&self, updates: impl IntoIterator<Item = Update>) {
        for update in updates {
            self.editor.output.update(self.key.as_str(), &update).await;
        }
    }

    async fn text(&mut self, event: &Event) {
        let Some(text) = data::<MessageText>(event) else {
            return;
        };
        if self.is_nested(text.run_id).await {
            return;
        }
        let message = text.message_id;
        if !self.streams.knows(message) {
            // Pieces may overtake the events of what is before them.
            self.catch_up_before(message).await;
        }
        match event.kind.as_str() {
            "message.delta" => match self.streams.delta(&text) {
                Some((TextChannel::Answer, text)) => self.say(message, text).await,
                Some((TextChannel::Thinking, text)) => {
                    let chunk = Update::AgentThoughtChunk(Chunk::new(message, text));
                    self.send([chunk]).await;
                }
                None => {}
            },
            "message.partial" => {
                if let Some(text) = self.streams.partial(&text) {
                    self.say(message, text).await;
                }
            }
            _ => self.streams.reset(message),
        }
    }

    async fn say(&self, message: MessageId, text: String) {
        let chunk = Update::AgentMessageChunk(Chunk::new(message, text));
        self.send([chunk]).await;
    }

    /// The transcript has entries up to this position.
    async fn added(&mut self, seq: i64) {
        while let Err(error) = self.catch_up(seq, false).await {
            if error.code == code::NOT_FOUND {
                // The session was deleted; its event follows.
                return;
            }
            // A daemon that is reachable may fail again at once.
            tokio::time::sleep(RETRY).await;
            self.editor.link.client_at_last().await;
        }
    }

    /// Sends the entries that the transcript has before this message; without an answer, their events
    /// follow. The message itself may be stored already, but not all of its pieces are in it: its
    /// thoughts are not.
    async fn catch_up_before(&mut self, next: MessageId) {
        let Ok(page) = self.unseen().await else {
            return;
        };
        for message in page.messages.iter().take_while(|one| one.id != next) {
            self.seen = message.seq;
            self.show(message, false).await;
        }
    }

    /// The next entries of the transcript after the last one that was sent.
    async fn unseen(&self) -> Answered<History> {
        let request = GetHistory {
            session_key: self.key.clone(),
            before: None,
            after: Some(self.seen),
            tools: None,
            limit: PageSize(PAGE_LIMIT),
        };
        self.editor.link.call(&request).await
    }

    /// Sends the entries after the last one that was sent, up to this position.
    async fn catch_up(&mut self, up_to: i64, is_replay: bool) -> Answered<()> {
        while self.seen < up_to {
            let page = self.unseen().await?;
            if page.messages.is_empty() {
                self.seen = up_to;
            }
            for message in page.messages {
                if message.seq > up_to {
                    // Its event follows, after the pieces of its text.
                    return Ok(());
                }
                self.seen = message.seq;
                self.show(&message, is_replay).await;
            }
        }
        Ok(())
    }

    /// Sends an entry of the transcript.
    async fn show(&mut self, message: &Message, is_replay: bool) {
        let run = message.run_id;
        if let Some(tokens) = history::context_tokens(message) {
            self.context = Some(tokens);
        }
        if let Some(text) = history::answer(message)
            && let Some(rest) = self.streams.stored(message.id, text)
        {
            self.say(message.id, rest).await;
        }
        let is_prompt = (&*message.role, &*message.kind) == ("user", "text");
        // In a replay it is shown and counts all the same: what the run takes up later is no echo.
        let is_echo = is_prompt && run.is_some_and(|run| self.editor.turns.is_echo(run));
        if is_echo && !is_replay {
            return;
        }
        if &*message.kind == "announce"
            && let Some(run) = run.filter(|run| self.editor.children.knows(*run))
        {
            let update = ToolCallUpdate {
                tool_call_id: children::call_id(run),
                content: Some(vec![ToolContent::text(plain_text(&message.content))]),
                ..ToolCallUpdate::default()
            };
            return self.send([Update::ToolCallUpdate(update)]).await;
        }
        let notices = self.editor.shows_notices();
        let updates = history::updates(message, &mut self.calls, notices);
        self.send(updates).await;
    }

    async fn moved(&mut self, event: &Event) {
        let (Some(run), Some(step)) = (event.run_id, data::<StepMoved>(event)) else {
            return;
        };
        // Steps of a plan's delegates come as progress of the call.
        if step.source.is_some() || self.is_nested(run).await {
            return;
        }
        let updates = self.calls.moved(run, &step);
        self.send(updates).await;
    }

    async fn ended(&mut self, event: &Event) {
        let (Some(run), Some(ended)) = (event.run_id, data::<RunEnded>(event)) else {
            return;
        };
        self.calls.ended(run);
        if self.nested.remove(&run) == Some(true) {
            return;
        }
        self.tell_usage().await;
        self.editor.turns.ended(run, ended);
    }

    /// Tells how full the context is, if that is known.
    async fn tell_usage(&mut self) {
        let (Some(used), Some(size)) = (self.context.take(), self.editor.window().await) else {
            return;
        };
        self.send([Update::UsageUpdate { used, size }]).await;
    }

    /// The session has another title, agent, model, thinking level or folder.
    async fn updated(&mut self, event: &Event) {
        let Some(changed) = data::<SessionUpdated>(event) else {
            return;
        };
        let request = GetSession {
            session_key: self.key.clone(),
        };
        let Ok(session) = self.editor.link.call(&request).await else {
            return;
        };
        let has = |name: &str| changed.changed.iter().any(|field| field == name);
        if has("title") {
            self.send([Update::SessionInfoUpdate {
                title: session.title.clone(),
                updated_at: serde_json::to_value(session.updated_at).unwrap_or_default(),
            }])
            .await;
        }
        if has("agent") {
            self.send([Update::CurrentModeUpdate {
                current_mode_id: session.agent.to_string(),
            }])
            .await;
        }
        if (has("model") || has("thinking"))
            && let Ok(config_options) = self.editor.config(&session).await
        {
            self.send([Update::ConfigOptionUpdate { config_options }])
                .await;
        }
        if let Ok(open) = self.editor.session(self.key.as_str()) {
            open.has_title.set(session.title.is_some());
            if has("cwd") {
                let folder = session.cwd.clone().unwrap_or_default();
                open.folder.borrow_mut().clone_from(&folder);
                self.calls.move_to(folder);
            }
            if has("agent") || has("cwd") {
                self.editor.tell_commands(&open).await;
            }
        }
    }

    /// True for a run of an agent that was called into this session.
    async fn is_nested(&mut self, run: RunId) -> bool {
        if self.editor.turns.is_own(run) {
            return false;
        }
        if let Some(nested) = self.nested.get(&run) {
            return *nested;
        }
        let Ok(found) = self.editor.link.call(&GetRun { run_id: run }).await else {
            return false;
        };
        let mode = found.delegated.as_ref().map(|call| &*call.mode);
        let is_nested = mode == Some("call");
        self.nested.insert(run, is_nested);
        is_nested
    }
}

pub(super) fn data<T: DeserializeOwned>(event: &Event) -> Option<T> {
    T::deserialize(&event.data).ok()
}
