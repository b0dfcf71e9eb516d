//! The limits of spawning, as pure checks of counts that the store read in the same transaction.

use crate::kernel::fault::{Fault, Kind};

/// The limits that apply to one spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnLimits {
    /// Maximum depth below a root session.
    pub max_depth: u32,
    /// Maximum number of open runs of one requesting session, if a client requests them.
    pub max_children: u32,
    /// Maximum number of open runs of one requesting session, if its own runs request them.
    pub max_run_children: u32,
    /// Maximum number of descendants of one root run, including ended ones.
    pub max_total: u32,
    /// Maximum number of unacknowledged announces of one client-owned session.
    pub max_unacked: u32,
    /// Maximum number of undelivered announces of one agent-owned session; from half of it a
    /// warning is returned.
    pub max_undelivered: u32,
    /// Maximum number of queued turns in one session.
    pub max_queued_turns: u32,
}

/// The current counts that the limits are checked against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpawnCounts {
    /// The depth that the new session would have.
    pub depth: u32,
    /// Open runs of the requesting session.
    pub children: u32,
    /// Descendants of the root run so far; `None` unless a run makes the request.
    pub total: Option<u32>,
    /// Announces of the requesting session that are unacknowledged (client-owned) or undelivered
    /// (agent-owned).
    pub backlog: u32,
    /// True if the requesting session belongs to a client.
    pub client_owned: bool,
}

/// Refuses a spawn that would exceed a limit; the fault names the limit, its value, what counts and
/// how to free capacity. Returns a warning when the backlog is at half of its limit.
pub fn check_spawn(limits: &SpawnLimits, counts: &SpawnCounts) -> Result<Option<String>, Fault> {
    check_depth(limits, counts.depth)?;
    if let Some(total) = counts.total {
        if counts.children >= limits.max_run_children {
            return Err(refusal(
                "max_children",
                limits.max_run_children,
                "open runs that this session requested",
                "wait for one of them (sessions_wait), or raise defaults.max_children",
            ));
        }
        check_total(limits, total)?;
    } else if counts.children >= limits.max_children {
        return Err(refusal(
            "max_client_children",
            limits.max_children,
            "open runs that this session requested",
            "wait for one of them (agent.wait), or raise defaults.max_client_children",
        ));
    }
    if counts.client_owned {
        if counts.backlog >= limits.max_unacked {
            return Err(refusal(
                "undelivered_backlog",
                limits.max_unacked,
                "announces in this session's inbox that are not acknowledged",
                "acknowledge them with sessions.ack",
            ));
        }
    } else if counts.backlog >= limits.max_undelivered {
        return Err(refusal(
            "undelivered_backlog",
            limits.max_undelivered,
            "undelivered announces of this session",
            "end its turn: they are delivered between turns",
        ));
    } else if counts.backlog * 2 >= limits.max_undelivered {
        return Ok(Some(format!(
            "this session has {} undelivered announces; at {} spawning is refused",
            counts.backlog, limits.max_undelivered
        )));
    }
    Ok(None)
}

/// Refuses a session deeper than the maximum depth.
pub fn check_depth(limits: &SpawnLimits, depth: u32) -> Result<(), Fault> {
    if depth > limits.max_depth {
        return Err(refusal(
            "max_spawn_depth",
            limits.max_depth,
            "levels below the root session",
            "spawn from an ancestor session, or raise defaults.max_spawn_depth",
        ));
    }
    Ok(())
}

/// Refuses a run beyond the maximum number under one root run, so that runs that spawn runs cannot
/// continue without end.
pub fn check_total(limits: &SpawnLimits, total: u32) -> Result<(), Fault> {
    if total >= limits.max_total {
        return Err(refusal(
            "max_total_children",
            limits.max_total,
            "runs spawned and messages sent under this root run, including ended ones",
            "start a new turn in the root session, or raise defaults.max_total_children",
        ));
    }
    Ok(())
}

/// Refuses a turn beyond the maximum number of queued turns.
pub fn check_queued_turns(limits: &SpawnLimits, queued: u32) -> Result<(), Fault> {
    if queued >= limits.max_queued_turns {
        return Err(refusal(
            "max_queued_turns",
            limits.max_queued_turns,
            "queued turns in this session",
            "wait for one of them (agent.wait)",
        ));
    }
    Ok(())
}

fn refusal(limit: &str, value: u32, counts: &str, free: &str) -> Fault {
    Fault::new(
        Kind::Limit,
        format!("limit {limit} = {value} reached; what counts: {counts}. Nothing was created"),
    )
    .hint(free)
    .with("limit", limit)
    .with("value", value)
    .with("counts", counts)
    .with("free", free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_depth: u32) -> SpawnLimits {
        SpawnLimits {
            max_depth,
            max_children: 2,
            max_run_children: 1,
            max_total: 3,
            max_unacked: 3,
            max_undelivered: 4,
            max_queued_turns: 1,
        }
    }

    #[test]
    fn g4_4_depth_n_allows_exactly_n_levels() {
        for max_depth in [0, 1, 2] {
            for depth in 1..=3 {
                let counts = SpawnCounts {
                    depth,
                    ..SpawnCounts::default()
                };
                let allowed = check_spawn(&limits(max_depth), &counts).is_ok();
                assert_eq!(
                    allowed,
                    depth <= max_depth,
                    "limit {max_depth}, level {depth}"
                );
            }
        }
    }

    #[test]
    fn g4_6_runs_are_bounded_apart_from_clients_and_in_all() {
        let counts = |children, total| SpawnCounts {
            depth: 1,
            children,
            total,
            ..SpawnCounts::default()
        };
        let limit = |counts| {
            let fault = check_spawn(&limits(1), &counts).err()?;
            Some(fault.data["limit"].as_str().unwrap_or_default().to_owned())
        };
        assert_eq!(limit(counts(1, None)), None);
        assert_eq!(limit(counts(1, Some(0))).as_deref(), Some("max_children"));
        assert_eq!(limit(counts(0, Some(2))), None);
        assert_eq!(
            limit(counts(0, Some(3))).as_deref(),
            Some("max_total_children")
        );
    }

    #[test]
    fn a_refusal_names_limit_value_count_and_way_out() {
        let counts = SpawnCounts {
            depth: 1,
            children: 2,
            ..SpawnCounts::default()
        };
        let fault = check_spawn(&limits(1), &counts).unwrap_err();
        assert_eq!(fault.kind, Kind::Limit);
        for field in ["limit", "value", "counts", "free"] {
            assert!(fault.data.contains_key(field), "{field}");
        }
        for (client_owned, backlog, refused, warned) in [
            (true, 2, false, false),
            (true, 3, true, false),
            (false, 1, false, false),
            (false, 2, false, true),
            (false, 3, false, true),
            (false, 4, true, false),
        ] {
            let counts = SpawnCounts {
                backlog,
                client_owned,
                ..SpawnCounts::default()
            };
            let checked = check_spawn(&limits(1), &counts);
            assert_eq!(checked.is_err(), refused, "{counts:?}");
            assert_eq!(matches!(checked, Ok(Some(_))), warned, "{counts:?}");
        }
        assert!(check_queued_turns(&limits(1), 0).is_ok());
        assert!(check_queued_turns(&limits(1), 1).is_err());
    }
}
