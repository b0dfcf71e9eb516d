//! Sample values for the tests of this and other modules.

use uuid::Uuid;

use super::ids::{AgentId, RunId, SessionId, SessionKey};
use super::run::{
    AnnouncePolicy, Lane, OnUncertain, Pins, Requester, Run, RunOrigin, RunState, Usage,
};
use super::time::Timestamp;
use crate::kernel::run::budget::Spent;

/// A run right after a spawn for a client-owned parent session.
pub fn queued(announce: AnnouncePolicy) -> Run {
    let id = RunId(Uuid::from_u128(1));
    let session = SessionId(Uuid::from_u128(2));
    let agent = AgentId::parse("explore").expect("it is one");
    Run {
        id,
        org: "default".to_owned(),
        user: "admin".to_owned(),
        session,
        session_key: SessionKey::child(&agent, session),
        generation: 1,
        requester: Some(Requester {
            session: SessionId(Uuid::from_u128(3)),
            key: SessionKey::parse("client:a").expect("it is one"),
            generation: 1,
        }),
        parent_run: None,
        root_run: id,
        root_session: session,
        retry_of: None,
        on_uncertain: OnUncertain::Report,
        delegated: None,
        origin: RunOrigin::Spawn,
        agent,
        label: None,
        title: String::new(),
        model: "offline/search".to_owned(),
        thinking: None,
        lane: Lane::Subagent,
        depth: 1,
        cwd: None,
        state: RunState::Queued,
        cancel: None,
        error: None,
        result: None,
        limit_ms: Some(10_000),
        budget: None,
        spent: Spent::default(),
        used_ms: 0,
        counting_since: None,
        recoveries: 0,
        not_before: None,
        announce,
        loops: 0,
        tool_calls: 0,
        steps: 0,
        usage: Usage::default(),
        meta: None,
        pins: Pins::default(),
        env: Vec::new(),
        warnings: Vec::new(),
        trace_id: String::new(),
        created_at: Timestamp(0),
        started_at: None,
        ended_at: None,
        last_activity_at: Timestamp(0),
        ver: 1,
    }
}
