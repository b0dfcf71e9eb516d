//! Makes sessions.

use serde_json::json;

use super::Reply;
use super::context::Context;
use crate::kernel::action::EventKind;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, SessionId, SessionKey};
use crate::kernel::run::Usage;
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::kernel::thinking::Thinking;
use crate::store::{db_fault, sessions};

/// A new session or run needs its ids minted before the command, so that a repeat of the
/// command makes the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The tenant.
    pub org: String,
    /// Its address; made from agent and id if unset.
    pub key: Option<SessionKey>,
    /// Who answers in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// A name for look-ups.
    pub label: Option<String>,
    /// A heading for people.
    pub title: Option<String>,
    /// How much the model of its turns thinks; the agent's habit if unset.
    pub thinking: Option<Thinking>,
    /// The folder that its tools see.
    pub cwd: Option<String>,
    /// Give the session that is there (agent and owner being the same) instead of refusing.
    pub get_existing: bool,
}

/// The session is there, new or as it was.
pub fn create(context: &mut Context<'_>, new: NewSession) -> Result<Reply, Fault> {
    let key = new.key.clone().unwrap_or_else(|| match new.owner {
        Owner::Agent => SessionKey::root(&new.agent, new.id),
        Owner::Client => SessionKey::client(new.id),
    });
    if let Some(found) = sessions::by_key(context.tx, &new.org, &key).map_err(db_fault)? {
        let same = found.agent == new.agent && found.owner == new.owner;
        if new.get_existing && same {
            return Ok(Reply::Session(Box::new(found), false));
        }
        return Err(taken(&found, same));
    }
    let session = root(context, &new, key);
    insert(context, &session)?;
    Ok(Reply::Session(Box::new(session), true))
}

fn taken(found: &Session, same: bool) -> Fault {
    let fault = Fault::new(
        Kind::Conflict,
        format!(
            "session {} is there already (agent {}, owner {})",
            found.key, found.agent, found.owner
        ),
    )
    .with("sessionKey", found.key.as_str());
    if same {
        fault.hint("use it as it is (ifExists: get), or choose another key")
    } else {
        fault.hint("choose another key: agent and owner of a session do not change")
    }
}

fn root(context: &Context<'_>, new: &NewSession, key: SessionKey) -> Session {
    Session {
        id: new.id,
        org: new.org.clone(),
        key,
        generation: 1,
        owner: new.owner,
        agent: new.agent.clone(),
        parent: None,
        parent_key: None,
        root: new.id,
        depth: 0,
        label: new.label.clone(),
        title: new.title.clone(),
        model: None,
        thinking: new.thinking,
        cwd: new.cwd.clone(),
        messages: 0,
        fork: None,
        mode: SessionMode::Session,
        cleanup: Cleanup::Keep,
        archived_at: None,
        usage: Usage::default(),
        created_at: context.now.wall,
        updated_at: context.now.wall,
        ver: 1,
    }
}

/// A root session for a turn that found none.
pub fn for_turn(
    context: &mut Context<'_>,
    org: &str,
    id: SessionId,
    key: &SessionKey,
    agent: &AgentId,
) -> Result<Session, Fault> {
    let new = NewSession {
        id,
        org: org.to_owned(),
        key: Some(key.clone()),
        owner: Owner::Agent,
        agent: agent.clone(),
        label: None,
        title: None,
        thinking: None,
        cwd: None,
        get_existing: true,
    };
    let session = root(context, &new, key.clone());
    insert(context, &session)?;
    Ok(session)
}

/// The session is in the table, and the event log says so.
pub fn insert(context: &mut Context<'_>, session: &Session) -> Result<(), Fault> {
    let seq = context.take_seq()?;
    sessions::insert(context.tx, seq, session).map_err(db_fault)?;
    context.emit_session(
        EventKind::SessionCreated,
        session,
        json!({
            "key": session.key,
            "agent": session.agent,
            "owner": session.owner,
            "parent": session.parent_key,
        }),
    );
    Ok(())
}
