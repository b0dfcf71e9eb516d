//! Sample values for the tests of this and other modules.

use uuid::Uuid;

use super::ids::{AgentId, RunId, SessionId, SessionKey};
use super::run::{AnnouncePolicy, Lane, Requester, Run, RunOrigin};
use super::time::Timestamp;

/// A run right after a spawn for a client-owned parent session.
pub fn queued(announce: AnnouncePolicy) -> Run {
    let id = RunId(Uuid::from_u128(1));
    let session = SessionId(Uuid::from_u128(2));
    let agent = AgentId::parse("explore").expect("it is one");
    let key = SessionKey::child(&agent, session);
    Run {
        user: "admin".to_owned(),
        requester: Some(Requester {
            session: SessionId(Uuid::from_u128(3)),
            key: SessionKey::parse("client:a").expect("it is one"),
            generation: 1,
        }),
        model: "offline/search".to_owned(),
        lane: Lane::Subagent,
        depth: 1,
        limit_ms: Some(10_000),
        announce,
        ..Run::queued(
            id,
            "default",
            (session, key),
            agent,
            RunOrigin::Spawn,
            Timestamp(0),
        )
    }
}
