//! The effect of a cancel on a session until new work begins there: announces wake no agent, and
//! after a person's cancel no agent may begin work.

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::time::Timestamp;

/// Value of `data.reason` if a refusal is due to a person's cancel of a session's or a child's
/// work.
pub const CANCELLED_BY_PERSON: &str = "cancelled_by_person";

/// The data field that holds this reason.
pub const REASON: &str = "reason";

/// A cancel that is in force in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// True if a person requested it.
    pub by_person: bool,
    /// When it was last requested.
    pub at: Timestamp,
}

/// Who begins work in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// A person, or a client program that acts for one.
    Person,
    /// A run, through one of its tools.
    Agent,
}

/// Allows or refuses new work in `session`; allowed work lifts the stop.
pub fn may_begin(stop: Option<Stop>, who: Initiator, session: &str) -> Result<(), Fault> {
    match (stop, who) {
        (
            Some(Stop {
                by_person: true, ..
            }),
            Initiator::Agent,
        ) => Err(Fault::new(
            Kind::Forbidden,
            format!(
                "{CANCELLED_BY_PERSON}: a person cancelled the work of session {session}, and \
                 only a person may start it again. Nothing was started"
            ),
        )
        .hint("do not retry; if the task is still needed, start it in another session")
        .with(REASON, CANCELLED_BY_PERSON)
        .with("sessionKey", session)),
        _ => Ok(()),
    }
}

/// Refuses another call of an agent by a run if a person cancelled that run's last call of it.
pub fn may_call_again(was_cancelled: bool, agent: &str) -> Result<(), Fault> {
    if !was_cancelled {
        return Ok(());
    }
    Err(Fault::new(
        Kind::Forbidden,
        format!(
            "{CANCELLED_BY_PERSON}: a person cancelled agent {agent}'s work for this run. It is \
             not called again in this run; nothing was started"
        ),
    )
    .hint("continue without it, and state in your result what is missing")
    .with(REASON, CANCELLED_BY_PERSON)
    .with("agent", agent))
}

/// The announce policy in a session with this stop: a waking one becomes `inbox`.
pub fn announced(stop: Option<Stop>, policy: AnnouncePolicy) -> AnnouncePolicy {
    match stop {
        Some(_) if policy.wakes() => AnnouncePolicy::Inbox,
        _ => policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_PERSON: Stop = Stop {
        by_person: true,
        at: Timestamp(0),
    };
    const BY_AGENT: Stop = Stop {
        by_person: false,
        at: Timestamp(0),
    };

    #[test]
    fn only_a_persons_cancel_binds_agents_and_nothing_binds_a_person() {
        for (stop, who, may) in [
            (None, Initiator::Agent, true),
            (None, Initiator::Person, true),
            (Some(BY_AGENT), Initiator::Agent, true),
            (Some(BY_AGENT), Initiator::Person, true),
            (Some(BY_PERSON), Initiator::Agent, false),
            (Some(BY_PERSON), Initiator::Person, true),
        ] {
            let allowed = may_begin(stop, who, "agent:build:a");
            assert_eq!(allowed.is_ok(), may, "{stop:?} {who:?}");
            if let Err(fault) = allowed {
                assert_eq!(fault.data[REASON], CANCELLED_BY_PERSON);
                assert!(fault.message.contains("agent:build:a"), "{fault}");
            }
        }
        assert!(may_call_again(false, "x").is_ok());
        let refused = may_call_again(true, "x").unwrap_err();
        assert_eq!(refused.data[REASON], CANCELLED_BY_PERSON);
    }

    #[test]
    fn nothing_is_announced_with_a_wake_where_work_was_cancelled() {
        for policy in AnnouncePolicy::ALL {
            assert_eq!(announced(None, *policy), *policy);
            for stop in [BY_PERSON, BY_AGENT] {
                let announced = announced(Some(stop), *policy);
                assert!(!announced.wakes(), "{policy}");
                assert_eq!(
                    announced == AnnouncePolicy::None,
                    *policy == AnnouncePolicy::None
                );
            }
        }
    }
}
