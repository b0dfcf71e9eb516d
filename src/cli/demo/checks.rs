//! Judges from a run's journal what a kill did: which steps were kept, where the run resumed, and
//! whether a step ran twice. Pure, so that the demo's verdict can be tested.

use std::collections::HashMap;

use crate::kernel::time::Timestamp;
use crate::wire::shapes::Step;

/// How a run resumed after the kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resumed {
    /// The first step of the second process.
    pub(super) at: u32,
    /// The steps that ended in the first process and were not repeated.
    pub(super) kept: Vec<u32>,
}

impl Resumed {
    /// Finds where the run resumed from its journal; `None` while it has not.
    pub(super) fn judge(now: &[Step], killed_at: Timestamp) -> Option<Resumed> {
        // A step that was open at the kill gets another attempt under the same id; otherwise a new
        // step follows.
        let at = now
            .iter()
            .filter(|step| step.attempts > 1 || step.started_at > killed_at)
            .map(|step| step.seq)
            .min()?;
        let kept = now
            .iter()
            .filter(|step| step.attempts == 1)
            .filter(|step| step.ended_at.is_some_and(|ended| ended <= killed_at))
            .map(|step| step.seq)
            .collect();
        Some(Resumed { at, kept })
    }

    /// Text for display.
    pub(super) fn text(&self) -> String {
        let kept = ranges(&self.kept);
        format!("resumed at step {}; {kept} not repeated", self.at)
    }
}

/// Checks that the steps that had ended before the kill are unchanged: same id and number, same end
/// time, same number of attempts. Returns their count.
pub(super) fn check_kept(before: &[Step], after: &[Step]) -> Result<usize, String> {
    let after: HashMap<_, _> = after.iter().map(|step| (step.step_id, step)).collect();
    let mut kept = 0;
    for step in before.iter().filter(|step| step.ended_at.is_some()) {
        let Some(now) = after.get(&step.step_id) else {
            return Err(format!("step {} is gone", step.seq));
        };
        if now.ended_at != step.ended_at || now.attempts != step.attempts || now.seq != step.seq {
            return Err(format!(
                "step {} was repeated: {} attempts, {} before the kill",
                step.seq, now.attempts, step.attempts
            ));
        }
        kept += 1;
    }
    Ok(kept)
}

/// Formats numbers as ranges: `1–3, 5`.
fn ranges(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let texts: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}–{last}"),
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KILL: Timestamp = Timestamp(10_000);

    fn step(seq: u32, started: i64, ended: Option<i64>, attempts: u32) -> Step {
        serde_json::from_value(json!({
            "stepId": format!("01936f0e-0000-7000-8000-{seq:012}"), "seq": seq, "kind": "tool",
            "tool": "grep", "state": "done", "attempts": attempts,
            "startedAt": Timestamp(started), "endedAt": ended.map(Timestamp),
        }))
        .unwrap()
    }

    #[test]
    fn an_open_step_is_where_it_goes_on() {
        let now = [
            step(1, 1_000, Some(2_000), 1),
            step(2, 2_000, Some(3_000), 1),
            step(3, 9_000, Some(12_000), 2),
            step(4, 9_000, Some(9_500), 1),
            step(5, 12_000, None, 1),
        ];
        let resumed = Resumed::judge(&now, KILL).unwrap();
        assert_eq!(
            resumed,
            Resumed {
                at: 3,
                kept: vec![1, 2, 4]
            }
        );
        assert_eq!(resumed.text(), "resumed at step 3; 1–2, 4 not repeated");
    }

    #[test]
    fn between_two_steps_the_next_one_is() {
        let now = [step(1, 1_000, Some(2_000), 1), step(2, 11_000, None, 1)];
        assert_eq!(
            Resumed::judge(&now, KILL),
            Some(Resumed {
                at: 2,
                kept: vec![1]
            })
        );
    }

    #[test]
    fn a_run_that_has_not_moved_yet_has_no_verdict() {
        let now = [step(1, 1_000, Some(2_000), 1), step(2, 9_000, None, 1)];
        assert_eq!(Resumed::judge(&now, KILL), None);
    }

    #[test]
    fn a_repeated_step_is_found() {
        let before = [step(1, 1_000, Some(2_000), 1), step(2, 9_000, None, 1)];
        let same = [
            step(1, 1_000, Some(2_000), 1),
            step(2, 9_000, Some(12_000), 2),
        ];
        assert_eq!(check_kept(&before, &same), Ok(1));
        let again = [step(1, 1_000, Some(2_000), 2)];
        assert!(check_kept(&before, &again).is_err());
        let later = [step(1, 1_000, Some(2_500), 1)];
        assert!(check_kept(&before, &later).is_err());
        assert!(check_kept(&before, &[]).is_err());
    }
}
