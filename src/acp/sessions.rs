//! Sessions: new, loaded, resumed, listed, closed, deleted. A session's id is its key in the daemon.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use tokio::task::AbortHandle;

use super::editor::Editor;
use super::follow::Follower;
use super::servers::ServersTaken;
use crate::acp_protocol::answer::{Done, OpenedSession, SessionInfo, SessionPage};
use crate::acp_protocol::request::{
    ListSessions, McpServer, NewSession, OfSession, OpenSession as Named,
};
use crate::acp_protocol::update::Command;
use crate::acp_protocol::{Answered, RpcError, code};
use crate::kernel::ids::SessionKey;
use crate::kernel::text::preview;
use crate::wire::lifecycle::{DeleteSession, PatchSession};
use crate::wire::sessions::{Create, GetSession, SessionKind};
use crate::wire::shapes::Session;

/// Sessions in one page of `session/list`.
const LISTED: u32 = 50;

/// A session that the editor has opened.
pub(super) struct OpenSession {
    pub(super) key: SessionKey,
    /// Working folder.
    pub(super) folder: RefCell<String>,
    pub(super) has_title: Cell<bool>,
    /// True if it may have MCP servers of the editor.
    pub(super) has_servers: Cell<bool>,
    /// Commands that the editor was told.
    pub(super) commands: RefCell<Vec<Command>>,
    /// The task that turns its events into updates.
    follower: RefCell<Option<AbortHandle>>,
}

impl OpenSession {
    fn of(session: &Session, folder: String) -> Self {
        OpenSession {
            key: session.key.clone(),
            folder: RefCell::new(folder),
            has_title: Cell::new(session.title.is_some()),
            has_servers: Cell::new(false),
            commands: RefCell::default(),
            follower: RefCell::default(),
        }
    }
}

/// How an existing session is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// The whole history is sent before the answer.
    Whole,
    /// Nothing of it is sent.
    Nothing,
}

impl Editor {
    /// A session that is open.
    pub(super) fn session(&self, id: &str) -> Answered<Rc<OpenSession>> {
        let sessions = self.sessions.borrow();
        sessions.get(id).cloned().ok_or_else(|| {
            let message = format!(
                "session {} is not open; open it with session/load, or make one with session/new",
                preview(id, 80)
            );
            RpcError::new(code::NOT_FOUND, message)
        })
    }

    /// The session is not open once this returns: nothing follows it, and nothing is asked in it.
    pub(super) fn leave(&self, id: &str) {
        let session = self.sessions.borrow_mut().remove(id);
        if let Some(follower) = session.and_then(|session| session.follower.take()) {
            follower.abort();
        }
        self.permissions.forget(id);
        self.questions.forget(id);
        self.children.forget(id);
    }

    /// Creates a session.
    pub(super) async fn new_session(self: &Rc<Self>, params: NewSession) -> Answered<Begun> {
        let cwd = absolute(&params.cwd)?;
        let request = Create {
            agent: self.options.agent.clone(),
            key: Some(self.new_key()),
            cwd: Some(cwd.to_owned()),
            ..Create::default()
        };
        let created = self.link.call(&request).await?;
        let key = created.session.key;
        let follower = Follower::open(self, &key).await?;
        let servers = match params.mcp_servers {
            Some(servers) if !servers.is_empty() => self.set_servers(&key, servers).await,
            _ => ServersTaken::default(),
        };
        self.begin(follower, Some(key), servers).await
    }

    /// Opens an existing session in the folder of the editor.
    pub(super) async fn open_session(
        self: &Rc<Self>,
        params: Named,
        replay: Replay,
    ) -> Answered<Begun> {
        let cwd = absolute(&params.cwd)?;
        let key = key(&params.session_id)?;
        let found = self
            .link
            .call(&GetSession {
                session_key: key.clone(),
            })
            .await?;
        if found.cwd.as_deref() != Some(cwd) {
            let request = PatchSession {
                cwd: Some(Some(cwd.to_owned())),
                ..PatchSession::unchanged(key.clone())
            };
            self.link.call(&request).await?;
        }
        // A session that is opened twice is followed once.
        self.leave(key.as_str());
        let begun = self.reopen(&key, replay, params.mcp_servers).await;
        if let Err(error) = &begun {
            // Nothing follows the turns of the session any more.
            self.turns.lost(key.as_str(), error);
        }
        begun
    }

    async fn reopen(
        self: &Rc<Self>,
        key: &SessionKey,
        replay: Replay,
        servers: Option<Vec<McpServer>>,
    ) -> Answered<Begun> {
        let mut follower = Follower::open(self, key).await?;
        if replay == Replay::Whole {
            follower.replay().await?;
        }
        // A turn of this editor may have ended between the two followers.
        self.settle(key).await;
        // Those of the session are replaced, also by none.
        let servers = match servers {
            Some(servers) => self.set_servers(key, servers).await,
            None => ServersTaken::default(),
        };
        self.begin(follower, None, servers).await
    }

    /// The session is open once this returns.
    async fn begin(
        self: &Rc<Self>,
        follower: Follower,
        new: Option<SessionKey>,
        servers: ServersTaken,
    ) -> Answered<Begun> {
        let session = follower.session();
        let choices = self.choices(&session).await?;
        let opened = Rc::new(OpenSession::of(
            &session,
            session.cwd.clone().unwrap_or_default(),
        ));
        opened.has_servers.set(servers.has_servers);
        let id = session.key.to_string();
        self.sessions.borrow_mut().insert(id, Rc::clone(&opened));
        Ok(Begun {
            answer: OpenedSession {
                session_id: new.map(String::from),
                modes: choices.modes,
                config_options: choices.config,
            },
            follower,
            opened,
            notes: servers.notes,
        })
    }

    /// Lists root sessions with a working folder, newest first.
    pub(super) async fn list_sessions(&self, params: ListSessions) -> Answered<SessionPage> {
        let cwd = params.cwd.as_deref().map(absolute).transpose()?;
        let request = crate::wire::sessions::ListSessions {
            kind: Some(SessionKind::Main),
            cwd: cwd.map(str::to_owned),
            limit: crate::wire::input::PageSize(LISTED),
            cursor: params.cursor,
            ..Default::default()
        };
        let page = self.link.call(&request).await?;
        let shown = page.sessions.into_iter().filter_map(|session| {
            let is_shown = &*session.owner == "agent";
            Some(SessionInfo {
                session_id: session.key.to_string(),
                cwd: session.cwd.filter(|_| is_shown)?,
                title: session.title.or(session.label),
                updated_at: serde_json::to_value(session.updated_at).unwrap_or_default(),
            })
        });
        Ok(SessionPage {
            sessions: shown.collect(),
            next_cursor: page.next_cursor,
        })
    }

    /// Cancels the turns of a session, removes the editor's MCP servers from it and follows it no
    /// more. It stays open if a turn cannot be cancelled or the servers cannot be removed.
    pub(super) async fn close_session(&self, params: OfSession) -> Answered<Done> {
        let session = self.session(&params.session_id)?;
        self.cancel_and_wait(&params.session_id).await?;
        self.remove_servers(&session).await?;
        self.leave(&params.session_id);
        Ok(Done::default())
    }

    /// Deletes a session with its transcript; its open runs are cancelled first.
    pub(super) async fn delete_session(&self, params: OfSession) -> Answered<Done> {
        self.turns.mark_cancelled(&params.session_id);
        let request = DeleteSession {
            session_key: key(&params.session_id)?,
            force: true,
        };
        match self.link.call(&request).await {
            Ok(_) => {}
            // A repeat, or a session that was deleted elsewhere.
            Err(error) if error.code == code::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        self.turns.session_deleted(&params.session_id);
        self.leave(&params.session_id);
        Ok(Done::default())
    }
}

/// A session that is about to be answered.
pub(super) struct Begun {
    pub(super) answer: OpenedSession,
    follower: Follower,
    opened: Rc<OpenSession>,
    /// What the user should know of the editor's MCP servers.
    pub(super) notes: Vec<String>,
}

impl Begun {
    pub(super) fn key(&self) -> SessionKey {
        self.opened.key.clone()
    }

    /// Follows the session. Its answer was sent before, so that no update comes earlier.
    pub(super) fn follow(self) {
        let task = tokio::task::spawn_local(self.follower.run());
        *self.opened.follower.borrow_mut() = Some(task.abort_handle());
    }
}

pub(super) fn key(id: &str) -> Answered<SessionKey> {
    SessionKey::parse(id).map_err(|error| RpcError::new(code::NOT_FOUND, error.to_string()))
}

fn absolute(cwd: &str) -> Answered<&str> {
    match Path::new(cwd).is_absolute() {
        true => Ok(cwd),
        false => Err(RpcError::params("cwd: an absolute path is expected")),
    }
}
