//! The connection to the editor: reads its messages and answers them. Requests are carried out one
//! after another, in the order in which they came; only the wait for the end of a turn is not.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinSet, LocalSet};

use super::children::Children;
use super::link::{Connect, Link};
use super::permissions::Permissions;
use super::pipe::{self, Output};
use super::questions::Questions;
use super::sessions::{Begun, OpenSession, Replay};
use super::turns::{PendingPrompt, Turns};
use super::{AcpOptions, watch};
use crate::acp_protocol::answer::{Done, initialized};
use crate::acp_protocol::request::{
    CancelRequest, ClientCapabilities, Initialize, OfSession, OpenSession as OpenParams, Prompt,
};
use crate::acp_protocol::update::{Chunk, Update};
use crate::acp_protocol::{Answered, Incoming, RpcError, code, params};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::config::GetConfig;

/// Maximum number of requests that wait for those before them.
const QUEUED: usize = 1024;
/// The setting with the size of the context.
const WINDOW: &str = "sessions.window";

/// State of the connection to the editor.
pub(super) struct Editor {
    pub(super) options: AcpOptions,
    pub(super) output: Output,
    pub(super) link: Link,
    /// The open sessions, by id.
    pub(super) sessions: RefCell<HashMap<String, Rc<OpenSession>>>,
    pub(super) turns: Turns,
    /// Notified whenever a prompt is answered.
    pub(super) prompts_changed: Notify,
    pub(super) permissions: Permissions,
    pub(super) children: Children,
    pub(super) questions: Questions,
    /// Set by `initialize`.
    capabilities: OnceCell<ClientCapabilities>,
    window: Cell<Option<u64>>,
    /// Cancels that are being carried out.
    cancels: RefCell<JoinSet<()>>,
    clock: Clock,
}

/// A request that waits for those before it.
enum Queued {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Prompt(Rc<PendingPrompt>, Prompt),
}

/// Serves the editor on standard input and output until standard input ends or the editor reads no
/// more. Turns go on.
pub async fn serve(connector: impl Connect + 'static, options: AcpOptions) -> io::Result<()> {
    LocalSet::new().run_until(run(connector, options)).await
}

async fn run(connector: impl Connect + 'static, options: AcpOptions) -> io::Result<()> {
    let mut messages = pipe::messages()?;
    let editor = Rc::new(Editor {
        options,
        output: Output::open()?,
        link: Link::new(connector),
        sessions: RefCell::default(),
        turns: Turns::default(),
        prompts_changed: Notify::new(),
        permissions: Permissions::default(),
        children: Children::default(),
        questions: Questions::default(),
        capabilities: OnceCell::new(),
        window: Cell::new(None),
        cancels: RefCell::default(),
        clock: Clock::system(),
    });
    let (queue, queued) = mpsc::channel(QUEUED);
    let worker = tokio::task::spawn_local(work(Rc::clone(&editor), queued));
    loop {
        let message = tokio::select! {
            message = messages.recv() => message,
            () = editor.output.closed() => return Ok(()),
        };
        match message {
            Some(message) => editor.dispatch(message, &queue).await,
            None => break,
        }
    }
    // What was read is carried out and answered, except that the end of a turn is not waited for.
    drop(queue);
    let work = async {
        // A panic of the worker has been reported.
        let _ = worker.await;
        editor.cancels.take().join_all().await;
    };
    tokio::select! {
        () = work => {}
        () = editor.output.closed() => return Ok(()),
    }
    editor.output.flushed().await;
    Ok(())
}

/// Carries out requests in order.
async fn work(editor: Rc<Editor>, mut queued: mpsc::Receiver<Queued>) {
    while let Some(next) = queued.recv().await {
        match next {
            Queued::Prompt(prompt, params) => editor.prompt(prompt, params).await,
            Queued::Request { id, method, params } => editor.carry_out(&id, &method, params).await,
        }
    }
}

impl Editor {
    async fn dispatch(self: &Rc<Self>, message: Incoming, queue: &mpsc::Sender<Queued>) {
        match message {
            Incoming::Invalid { id, error } => self.respond(&id, Err::<Done, _>(error)).await,
            Incoming::Response { id, result } => self.output.answered(&id, result.ok()),
            Incoming::Notification { method, params } => self.notified(&method, params),
            Incoming::Request { id, method, params } => {
                if let Err(error) = self.may_be_called(&method) {
                    return self.respond(&id, Err::<Done, _>(error)).await;
                }
                let queued = match method.as_str() {
                    // It needs no daemon, and what follows needs it.
                    "initialize" => {
                        let answer = self::params(params).map(|params| self.initialize(params));
                        return self.respond(&id, answer).await;
                    }
                    "session/prompt" => match self::params::<Prompt>(params) {
                        Ok(params) => {
                            let run = RunId(self.clock.new_id());
                            let prompt = self.turns.begin(id, &params.session_id, run);
                            Queued::Prompt(prompt, params)
                        }
                        Err(error) => return self.respond(&id, Err::<Done, _>(error)).await,
                    },
                    _ => Queued::Request { id, method, params },
                };
                // The worker ends after this loop.
                let _ = queue.send(queued).await;
            }
        }
    }

    fn may_be_called(&self, method: &str) -> Answered<()> {
        match self.capabilities.get() {
            None if method != "initialize" => Err(RpcError::new(
                code::INVALID_REQUEST,
                "the first request must be initialize",
            )),
            _ => Ok(()),
        }
    }

    /// Notifications take effect at once; unknown ones are ignored.
    fn notified(self: &Rc<Self>, method: &str, params: Value) {
        let editor = Rc::clone(self);
        match method {
            "session/cancel" => {
                if let Ok(params) = self::params::<OfSession>(params) {
                    self.turns.mark_cancelled(&params.session_id);
                    self.cancels.borrow_mut().spawn_local(async move {
                        let cancelled = editor.cancel(&params.session_id).await;
                        editor.tell_cancel(&params.session_id, cancelled).await;
                    });
                }
            }
            "$/cancel_request" => {
                if let Ok(params) = self::params::<CancelRequest>(params) {
                    self.cancels.borrow_mut().spawn_local(async move {
                        editor.cancel_request(&params.request_id).await;
                    });
                }
            }
            _ => {}
        }
    }

    async fn carry_out(self: &Rc<Self>, id: &Value, method: &str, params: Value) {
        match method {
            "session/new" => {
                self.answer_session(id, read(params, |p| self.new_session(p)).await)
                    .await
            }
            "session/load" => {
                let open = |p: OpenParams| self.open_session(p, Replay::Whole);
                self.answer_session(id, read(params, open).await).await;
            }
            "session/resume" => {
                let open = |p: OpenParams| self.open_session(p, Replay::Nothing);
                self.answer_session(id, read(params, open).await).await;
            }
            "session/list" => {
                let answer = read(params, |p| self.list_sessions(p)).await;
                self.respond(id, answer).await;
            }
            "session/close" => {
                let answer = read(params, |p| self.close_session(p)).await;
                self.respond(id, answer).await;
            }
            "session/delete" => {
                let answer = read(params, |p| self.delete_session(p)).await;
                self.respond(id, answer).await;
            }
            "session/set_mode" => {
                let answer = read(params, |p| self.set_mode(p)).await;
                self.respond(id, answer).await;
            }
            "session/set_config_option" => {
                let answer = read(params, |p| self.set_config_option(p)).await;
                self.respond(id, answer).await;
            }
            _ => {
                let shown = crate::kernel::text::preview(method, 80);
                let message = format!("{shown} is not a method of this agent");
                let error = RpcError::new(code::UNKNOWN_METHOD, message);
                self.respond(id, Err::<Done, _>(error)).await;
            }
        }
    }

    /// Answers with a session, and follows it from then on.
    async fn answer_session(self: &Rc<Self>, id: &Value, begun: Answered<Begun>) {
        match begun {
            Ok(begun) => {
                self.respond(id, Ok(&begun.answer)).await;
                let key = begun.key();
                for note in &begun.notes {
                    self.note(key.as_str(), note.clone()).await;
                }
                begun.follow();
                watch::start(self);
                self.permissions.refresh(self, &key);
                self.show_children(&key).await;
                self.show_questions(&key).await;
            }
            Err(error) => self.respond(id, Err::<Done, _>(error)).await,
        }
    }

    /// Tells the user of a session something that is no part of an answer.
    pub(super) async fn note(&self, session: &str, title: String) {
        let update = match self.shows_notices() {
            true => Update::Notice {
                severity: "warning".into(),
                title,
            },
            false => Update::AgentThoughtChunk(Chunk::new(self.clock.new_id(), title)),
        };
        self.output.update(session, &update).await;
    }

    fn initialize(&self, params: Initialize) -> Value {
        // Whatever version the editor speaks, it is answered with the one that this agent does.
        let _ = params.protocol_version;
        // A repeat changes nothing.
        let _ = self.capabilities.set(params.client_capabilities);
        initialized()
    }

    async fn respond<T: Serialize>(&self, id: &Value, answered: Answered<T>) {
        self.output.respond(id, answered).await;
    }

    /// True if the editor can show a form.
    pub(super) fn shows_forms(&self) -> bool {
        let known = self
            .capabilities
            .get()
            .and_then(|known| known.elicitation.as_ref());
        known.is_some_and(|elicitation| elicitation.form.is_some())
    }

    /// True if the editor shows subagents as sessions of their own.
    pub(super) fn shows_subagents(&self) -> bool {
        let capabilities = self.capabilities.get();
        capabilities.is_some_and(|known| known.subagents.is_some())
    }

    /// True if the editor can show notices.
    pub(super) fn shows_notices(&self) -> bool {
        let capabilities = self.capabilities.get();
        capabilities.is_some_and(|known| known.session.notices.is_some())
    }

    /// Size of a session's context in tokens, if the caller may know it.
    pub(super) async fn window(&self) -> Option<u64> {
        if self.window.get().is_none() {
            let config = self.link.call(&GetConfig {}).await.ok()?;
            let setting = config.settings.into_iter().find(|one| one.key == WINDOW)?;
            self.window.set(setting.value.as_u64());
        }
        self.window.get()
    }

    /// Key of a new session; it is chosen here so that a repeated request creates one session.
    pub(super) fn new_key(&self) -> SessionKey {
        let key = format!("editor:{}", self.clock.new_id());
        SessionKey::parse(&key).expect("the parts of the key are names")
    }
}

/// Reads the parameters and carries the request out.
async fn read<P, T>(from: Value, carry_out: impl AsyncFnOnce(P) -> Answered<T>) -> Answered<T>
where
    P: DeserializeOwned,
{
    carry_out(params(from)?).await
}
