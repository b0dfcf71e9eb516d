//! Findings about work that does not move although it should.

use std::time::Duration;

use crate::contract::finding::{Finding, Health};
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::tables::{outbox, runs};
use crate::store::tx::{DbError, Tx};

/// A running run without activity for this long is reported: most tools end sooner.
const IDLE: Duration = Duration::from_hours(1);
/// A pending announce of this age is reported: its delivery is one commit.
const LATE: Duration = Duration::from_mins(10);
/// The maximum number of runs that are named.
const NAMED: u32 = 5;

/// Work that may be stuck.
pub(crate) struct IdleWork {
    /// Running runs without activity, those that are idle longest, and perhaps one more than are
    /// named.
    runs: Vec<RunId>,
    /// When the oldest pending announce was created.
    oldest_announce: Option<Timestamp>,
}

/// Reads what may be stuck at `now`.
pub(crate) fn read(tx: &mut dyn Tx, now: Timestamp) -> Result<IdleWork, DbError> {
    let before = Timestamp(now.0 - whole_ms(IDLE));
    Ok(IdleWork {
        runs: runs::idle_since(tx, before, NAMED + 1)?,
        oldest_announce: outbox::oldest_pending(tx)?,
    })
}

/// The findings.
pub(crate) fn findings(work: &IdleWork, now: Timestamp) -> [Finding; 2] {
    [idle_runs(&work.runs), late_announces(work, now)]
}

fn idle_runs(idle: &[RunId]) -> Finding {
    let id = "runs.idle";
    let after = humantime::format_duration(IDLE);
    let Some(first) = idle.first() else {
        let message = format!("each running run was active during the last {after}");
        return Finding::new(id, Health::Ok, message);
    };
    let named: Vec<String> = idle
        .iter()
        .take(NAMED as usize)
        .map(RunId::to_string)
        .collect();
    let more = match idle.len() > named.len() {
        true => " and more",
        false => "",
    };
    let named = named.join(", ");
    let message = format!("running without activity for more than {after}: {named}{more}");
    Finding::new(id, Health::Warn, message).fix(format!(
        "look at its steps: abide show {first}; end it: abide cancel {first}"
    ))
}

fn late_announces(work: &IdleWork, now: Timestamp) -> Finding {
    let id = "announces.age";
    let late = work.oldest_announce.map(|created| now.since(created));
    match late {
        Some(age) if u128::from(age) > LATE.as_millis() => {
            let age = humantime::format_duration(Duration::from_mins(age / 60_000));
            let message = format!("the result of a run has waited for its delivery for {age}");
            Finding::new(id, Health::Warn, message)
                .fix("see the daemon's log (abide logs --daemon); a restart delivers it")
        }
        _ => Finding::new(id, Health::Ok, "no result waits long for its delivery"),
    }
}

fn whole_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn runs(count: u128) -> Vec<RunId> {
        (1..=count).map(|n| RunId(Uuid::from_u128(n))).collect()
    }

    #[test]
    fn idle_runs_are_named_up_to_a_number() {
        assert_eq!(idle_runs(&[]).status, Health::Ok);
        let two = idle_runs(&runs(2));
        assert_eq!(two.status, Health::Warn);
        assert!(
            two.message
                .ends_with("0001, 00000000-0000-0000-0000-000000000002"),
            "{two:?}"
        );
        assert!(
            two.fix
                .unwrap()
                .contains("abide show 00000000-0000-0000-0000-000000000001")
        );
        let six = idle_runs(&runs(6));
        assert!(six.message.ends_with("0005 and more"), "{six:?}");
    }

    #[test]
    fn an_announce_is_late_after_ten_minutes() {
        let at = |created: i64| {
            let work = IdleWork {
                runs: Vec::new(),
                oldest_announce: Some(Timestamp(created)),
            };
            late_announces(&work, Timestamp(3_600_000))
        };
        assert_eq!(at(3_000_000).status, Health::Ok);
        let late = at(2_999_999);
        assert_eq!(late.status, Health::Warn);
        assert!(late.message.ends_with("for 10m"), "{late:?}");
    }
}
