//! Creates sessions.

use super::SessionAfter;
use serde_json::json;

use super::context::Context;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, SessionId, SessionKey};
use crate::kernel::run::Usage;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::store::tables::sessions;

/// A new session. Its id is generated before the command, so that a repeat creates the same
/// session.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The tenant.
    pub org: String,
    /// Its key; derived from agent and id if unset.
    pub key: Option<SessionKey>,
    /// Whether an agent or a client answers in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// Label for look-ups.
    pub label: Option<String>,
    /// Title for display.
    pub title: Option<String>,
    /// Thinking level of its turns; the agent's default if unset.
    pub thinking: Option<Thinking>,
    /// Working folder of its tools.
    pub cwd: Option<String>,
    /// True to return an existing session (same agent and owner) instead of refusing.
    pub get_existing: bool,
}

/// Once this returns, the session exists, new or unchanged.
pub fn create(context: &mut Context<'_>, new: NewSession) -> Result<SessionAfter, Fault> {
    let key = new.key.clone().unwrap_or_else(|| match new.owner {
        Owner::Agent => SessionKey::root(&new.agent, new.id),
        Owner::Client => SessionKey::client(new.id),
    });
    if let Some(found) = sessions::by_key(context.tx, &new.org, &key)? {
        let same = found.agent == new.agent && found.owner == new.owner;
        if new.get_existing && same {
            return Ok(SessionAfter {
                session: found,
                is_new: false,
            });
        }
        return Err(taken(&found, same));
    }
    let session = root(context, &new, key);
    insert(context, &session)?;
    Ok(SessionAfter {
        session,
        is_new: true,
    })
}

fn taken(found: &Session, same: bool) -> Fault {
    let fault = Fault::new(
        Kind::Conflict,
        format!(
            "session {} already exists (agent {}, owner {})",
            found.key, found.agent, found.owner
        ),
    )
    .with("sessionKey", found.key.as_str());
    if same {
        fault.hint("use the existing session (ifExists: get), or choose another key")
    } else {
        fault.hint("choose another key: agent and owner of a session cannot change")
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

/// Once this returns, a new root session exists for a turn that found none.
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

/// Once this returns, the session is stored, with an event.
pub fn insert(context: &mut Context<'_>, session: &Session) -> Result<(), Fault> {
    let seq = context.take_seq()?;
    sessions::insert(context.tx, seq, session)?;
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
