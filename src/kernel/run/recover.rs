//! Decides how an open run without an executor is recovered: after a kill, or after its drive task
//! was lost.

use super::event::RunEvent;
use super::outside::OutsideTurn;
use super::step::{EffectClass, Step, StepKind, StepState};
use crate::kernel::ids::StepId;
use crate::kernel::run::{OnUncertain, PauseReason, Run, RunError, RunState};
use crate::kernel::time::Timestamp;

/// Maximum number of attempts of a step whose effect stays uncertain and may be repeated.
const DOUBTED_ATTEMPTS: u32 = 3;

/// The settings of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPolicy {
    /// Open runs whose last activity is older are closed, in milliseconds; runs that wait for a
    /// person are exempt.
    pub max_age_ms: u64,
    /// Maximum number of recoveries in the middle of a step without a finished step in between.
    pub max_attempts: u32,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy {
            max_age_ms: 7 * 24 * 3600 * 1000,
            max_attempts: 5,
        }
    }
}

/// How a run lost its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// An earlier daemon process was killed.
    Killed,
    /// An earlier daemon process shut down in order, but before this run had parked.
    Drained,
    /// The task that drove it panicked or ended, in this process.
    Executor,
    /// A drain stopped waiting for it, in this process, which continues.
    CutOff,
}

/// How one open step is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFate {
    /// Its effect has not begun: it is carried out now.
    Perform,
    /// Its effect may have begun, and may be repeated.
    Repeat,
    /// Its effect may have begun outside this process, under a keeper, on a node or in a session of
    /// an outside agent: it is carried out again, which continues it.
    Continue,
    /// Its effect may have happened and must not be repeated: the model is told that it is
    /// uncertain.
    Uncertain,
    /// As [`StepFate::Uncertain`], but a person must decide whether it happened.
    Review,
    /// It is not carried out: it keeps waiting for its external outcome.
    Attach,
}

/// How one open run is recovered.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryPlan {
    /// The event for the run state machine.
    pub event: RunEvent,
    /// What happens to its open steps, in call order. Empty when the run ends.
    pub steps: Vec<(StepId, StepFate)>,
    /// Its end is announced without waking the requester's model.
    pub is_quiet: bool,
}

/// Decides how `run` is recovered, whose open steps are `open` in call order. `now` is the time by
/// which its age counts.
pub fn recover(
    run: &Run,
    open: &[Step],
    loss: Loss,
    policy: RecoveryPolicy,
    now: Timestamp,
) -> RecoveryPlan {
    // A kill proves nothing about a run that was not executing a step. A drive task that fails by
    // itself does, even before its first step: without a count it would fail again for ever.
    let counts = match loss {
        Loss::Killed => {
            run.state == RunState::Running && open.iter().any(|step| step.waits.is_none())
        }
        Loss::Executor => matches!(run.state, RunState::Running | RunState::Queued),
        Loss::Drained | Loss::CutOff => false,
    };
    let recoveries = run.recoveries + u32::from(counts);
    if run.cancel.is_none() {
        let too_often = counts && recoveries > policy.max_attempts;
        let end = too_old(run, open, loss, policy, now)
            .or_else(|| too_often.then(|| failed_too_often(loss, recoveries, policy)))
            .or_else(|| ends_lost(run, open));
        if let Some(end) = end {
            return end;
        }
    }
    // A run with a requested cancel ends here: its steps are not tried again. Effects that may have
    // happened are still reported.
    let of_run = |step: &Step| match (run.cancel.is_some(), fate(step, run.on_uncertain)) {
        (false, fate) => Some(fate),
        (true, _) if may_have_happened(step) => Some(StepFate::Uncertain),
        (true, _) => None,
    };
    let steps = open
        .iter()
        // The outcome of a lost program is reported with the end of its run.
        .filter(|step| !is_lost_program(step, run))
        .filter_map(|step| Some((step.id, of_run(step)?)))
        .collect();
    RecoveryPlan {
        event: RunEvent::Recovered {
            counts,
            delay_ms: if counts { delay_ms(recoveries) } else { 0 },
        },
        steps,
        is_quiet: false,
    }
}

/// The end of a run that was idle for too long, unless it waits for a person.
fn too_old(
    run: &Run,
    open: &[Step],
    loss: Loss,
    policy: RecoveryPolicy,
    now: Timestamp,
) -> Option<RecoveryPlan> {
    let idle = now.since(run.last_activity_at);
    let may_age = matches!(loss, Loss::Killed | Loss::Drained) && !waits_for_person(run, open);
    (may_age && idle > policy.max_age_ms).then(|| {
        let message = format!(
            "the run had been idle for {} when the daemon restarted (recovery.max_age {})",
            duration(idle),
            duration(policy.max_age_ms)
        );
        ends("too_old", message, true)
    })
}

fn failed_too_often(loss: Loss, recoveries: u32, policy: RecoveryPolicy) -> RecoveryPlan {
    let what = match loss {
        Loss::Executor => "the task that drove the run failed",
        _ => "the daemon stopped during the same step",
    };
    let most = policy.max_attempts;
    let message = format!("{what} {recoveries} times (recovery.max_attempts {most})");
    ends("recovery_attempts", message, false)
}

/// The end of a run whose program was lost: no model is involved that could check whether its work
/// was done.
fn ends_lost(run: &Run, open: &[Step]) -> Option<RecoveryPlan> {
    let step = open.iter().find(|step| is_lost_program(step, run))?;
    let error = lost_program(step.seq, "the daemon stopped while it ran");
    Some(ends(&error.kind, error.message, false))
}

/// The error of a run whose program was lost in step `seq`; `why` is a clause.
pub fn lost_program(seq: u32, why: &str) -> RunError {
    let message = format!(
        "the agent's program of step {seq} was lost: {why}. Its work may be complete, partial or \
         missing, and it was not started again"
    );
    RunError::new("uncertain", message)
}

/// True if it waits for a person, whatever else it waits for; such a run is never closed by age.
fn waits_for_person(run: &Run, open: &[Step]) -> bool {
    let paused = run.state.pause().is_some_and(PauseReason::is_for_person);
    let waits = open.iter().filter_map(|step| step.waits);
    paused
        || waits
            .into_iter()
            .any(|wait| wait.kind.pause().is_for_person())
}

/// How one open step is recovered.
pub fn fate(step: &Step, on_uncertain: OnUncertain) -> StepFate {
    if step.waits.is_some() {
        return StepFate::Attach;
    }
    match (step.kind, step.effect, step.state) {
        (StepKind::Model | StepKind::Compaction, ..) => StepFate::Repeat,
        // The session of an outside agent is stored before the agent is prompted.
        (StepKind::Command, EffectClass::Once, StepState::Started)
            if OutsideTurn::of(step).is_some_and(|turn| turn.session.is_none()) =>
        {
            StepFate::Repeat
        }
        (StepKind::Command, EffectClass::Once, StepState::Started)
            if OutsideTurn::of(step).is_some_and(|turn| turn.reopens.is_some()) =>
        {
            StepFate::Continue
        }
        (_, EffectClass::Once, StepState::Started) => match on_uncertain {
            OnUncertain::Report => StepFate::Uncertain,
            OnUncertain::Review => StepFate::Review,
            OnUncertain::Retry => StepFate::Repeat,
        },
        (_, EffectClass::Kept, StepState::Started) => StepFate::Continue,
        (_, EffectClass::Once | EffectClass::Kept, _) => StepFate::Perform,
        _ => StepFate::Repeat,
    }
}

/// How a step goes on that was carried out without learning whether its effect happened.
pub fn doubted(step: &Step, on_uncertain: OnUncertain) -> StepFate {
    match on_uncertain {
        OnUncertain::Review => StepFate::Review,
        OnUncertain::Retry if step.attempts < DOUBTED_ATTEMPTS => StepFate::Repeat,
        OnUncertain::Report | OnUncertain::Retry => StepFate::Uncertain,
    }
}

/// True if its effect may have happened, unless the step waits.
fn may_have_happened(step: &Step) -> bool {
    let acts = !matches!(step.kind, StepKind::Model | StepKind::Compaction);
    let began = step.effect.is_once() && step.state == StepState::Started;
    acts && began && step.waits.is_none()
}

/// True for the agent's program that was running when the executor was lost and whose effect no
/// person reviews.
fn is_lost_program(step: &Step, run: &Run) -> bool {
    let on_uncertain = match run.cancel {
        // A run with a requested cancel is not reviewed.
        Some(_) => OnUncertain::Report,
        None => run.on_uncertain,
    };
    step.kind == StepKind::Command && fate(step, on_uncertain) == StepFate::Uncertain
}

/// The first recovery continues immediately, the next ones after 1, 5, 25 … seconds.
fn delay_ms(recoveries: u32) -> u64 {
    match recoveries {
        0 | 1 => 0,
        n => 1000 * 5u64.saturating_pow((n - 2).min(6)),
    }
}

fn ends(kind: &str, message: String, quietly: bool) -> RecoveryPlan {
    RecoveryPlan {
        event: RunEvent::Interrupted(RunError::new(kind, message)),
        steps: Vec::new(),
        is_quiet: quietly,
    }
}

fn duration(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_secs(ms / 1000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run::{AnnouncePolicy, CancelRequest};
    use crate::kernel::sample::queued;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn step(kind: StepKind, effect: EffectClass, state: StepState) -> Step {
        Step {
            id: StepId(Uuid::from_u128(9)),
            run: crate::kernel::ids::RunId(Uuid::from_u128(1)),
            seq: 1,
            kind,
            tool: None,
            tool_call: None,
            asked_by: None,
            effect,
            state,
            input: Value::Null,
            seen_up_to: None,
            message_seq: None,
            params_summary: None,
            result_summary: None,
            error: None,
            attempts: 1,
            started_at: NOW,
            ended_at: None,
            waits: None,
            used: None,
        }
    }

    fn run_in(state: RunState, recoveries: u32) -> Run {
        let mut run = queued(AnnouncePolicy::Inbox);
        run.state = state;
        run.recoveries = recoveries;
        run.last_activity_at = NOW;
        run
    }

    fn model() -> Step {
        step(StepKind::Model, EffectClass::Read, StepState::Intended)
    }

    #[test]
    fn each_open_step_has_the_fate_of_its_class() {
        use EffectClass::{Idempotent, Kept, Once, Read};
        use StepState::{Intended, Started};
        for (kind, effect, state, expected) in [
            (StepKind::Model, Read, Intended, StepFate::Repeat),
            (StepKind::Tool, Read, Intended, StepFate::Repeat),
            (StepKind::Tool, Read, Started, StepFate::Repeat),
            (StepKind::Tool, Idempotent, Started, StepFate::Repeat),
            (StepKind::Tool, Once, Intended, StepFate::Perform),
            (StepKind::Tool, Once, Started, StepFate::Uncertain),
            (StepKind::Tool, Kept, Intended, StepFate::Perform),
            (StepKind::Tool, Kept, Started, StepFate::Continue),
            // Of a store that an earlier version has written.
            (StepKind::Command, Once, Intended, StepFate::Perform),
            (StepKind::Command, Once, Started, StepFate::Uncertain),
            (StepKind::Command, Kept, Intended, StepFate::Perform),
            (StepKind::Command, Kept, Started, StepFate::Continue),
        ] {
            assert_eq!(
                fate(&step(kind, effect, state), OnUncertain::Report),
                expected,
                "{kind} {effect} {state}"
            );
        }
        for (turn, state, expected) in [
            (json!({ "agent": "a" }), Intended, StepFate::Perform),
            (json!({ "agent": "a" }), Started, StepFate::Repeat),
            (
                json!({ "agent": "a", "session": "s" }),
                Intended,
                StepFate::Perform,
            ),
            (
                json!({ "agent": "a", "session": "s" }),
                Started,
                StepFate::Uncertain,
            ),
            (
                json!({ "agent": "a", "session": "s", "reopens": "load" }),
                Started,
                StepFate::Continue,
            ),
        ] {
            let mut prompt = step(StepKind::Command, Once, state);
            prompt.input = json!({ "acp": turn });
            assert_eq!(
                fate(&prompt, OnUncertain::Report),
                expected,
                "{}",
                prompt.input
            );
        }
        let began = step(StepKind::Tool, Once, Started);
        assert_eq!(fate(&began, OnUncertain::Review), StepFate::Review);
        assert_eq!(fate(&began, OnUncertain::Retry), StepFate::Repeat);
        // The process that keeps the effect knows how it ended.
        let began = step(StepKind::Tool, Kept, Started);
        for on_uncertain in OnUncertain::ALL {
            assert_eq!(fate(&began, *on_uncertain), StepFate::Continue);
        }
    }

    #[test]
    fn a_doubted_effect_is_repeated_only_if_allowed_and_not_for_ever() {
        let mut began = step(StepKind::Tool, EffectClass::Kept, StepState::Started);
        assert_eq!(doubted(&began, OnUncertain::Report), StepFate::Uncertain);
        assert_eq!(doubted(&began, OnUncertain::Review), StepFate::Review);
        assert_eq!(doubted(&began, OnUncertain::Retry), StepFate::Repeat);
        began.attempts = DOUBTED_ATTEMPTS;
        assert_eq!(doubted(&began, OnUncertain::Review), StepFate::Review);
        assert_eq!(doubted(&began, OnUncertain::Retry), StepFate::Uncertain);
    }

    #[test]
    fn a_run_that_lost_its_program_in_the_middle_ends_as_uncertain() {
        let policy = RecoveryPolicy::default();
        let mut run = run_in(RunState::Running, 0);
        let program = |state| step(StepKind::Command, EffectClass::Once, state);
        for loss in [Loss::Killed, Loss::Drained, Loss::Executor, Loss::CutOff] {
            let lost = recover(&run, &[program(StepState::Started)], loss, policy, NOW);
            let is_uncertain = |error: &RunError| error.kind == "uncertain";
            assert!(
                matches!(&lost.event, RunEvent::Interrupted(error) if is_uncertain(error)),
                "{loss:?}"
            );
            assert!(!lost.is_quiet);
            let before = recover(&run, &[program(StepState::Intended)], loss, policy, NOW);
            assert!(
                matches!(before.event, RunEvent::Recovered { .. }),
                "{loss:?}"
            );
            assert_eq!(before.steps[0].1, StepFate::Perform);
        }
        let open = [program(StepState::Started)];
        run.on_uncertain = OnUncertain::Review;
        let plan = recover(&run, &open, Loss::Killed, policy, NOW);
        assert_eq!(plan.steps[0].1, StepFate::Review);
        run.cancel = Some(CancelRequest {
            by: "operator".to_owned(),
            at: NOW,
            reason: None,
            inherited: false,
            by_person: false,
        });
        let plan = recover(&run, &open, Loss::Killed, policy, NOW);
        assert!(matches!(plan.event, RunEvent::Recovered { .. }));
        assert_eq!(plan.steps, []);
    }

    #[test]
    fn a_step_that_waits_is_attached_to_again_and_counts_for_nothing() {
        let mut waiting = step(StepKind::Tool, EffectClass::Idempotent, StepState::Intended);
        waiting.waits = Some(crate::kernel::run::step::StepWait {
            kind: crate::kernel::run::step::WaitKind::Reply,
            until: Some(NOW),
        });
        assert_eq!(fate(&waiting, OnUncertain::Review), StepFate::Attach);
        let policy = RecoveryPolicy::default();
        let run = run_in(RunState::Running, 0);
        let plan = recover(&run, &[waiting], Loss::Killed, policy, NOW);
        assert!(matches!(
            plan.event,
            RunEvent::Recovered { counts: false, .. }
        ));
    }

    #[test]
    fn a_run_is_carried_on_at_once_then_later_and_later_then_given_up() {
        let policy = RecoveryPolicy::default();
        let mut delays = Vec::new();
        for recoveries in 0..5 {
            let run = run_in(RunState::Running, recoveries);
            match recover(&run, &[model()], Loss::Killed, policy, NOW).event {
                RunEvent::Recovered {
                    counts: true,
                    delay_ms,
                } => delays.push(delay_ms),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(delays, [0, 1000, 5000, 25_000, 125_000]);
        let run = run_in(RunState::Running, 5);
        let plan = recover(&run, &[model()], Loss::Killed, policy, NOW);
        assert!(
            matches!(&plan.event, RunEvent::Interrupted(error) if error.kind == "recovery_attempts")
        );
        assert!(!plan.is_quiet);
    }

    #[test]
    fn only_a_kill_in_the_middle_of_its_own_step_counts() {
        let policy = RecoveryPolicy::default();
        let counts = |run: &Run, open: &[Step], loss| {
            matches!(
                recover(run, open, loss, policy, NOW).event,
                RunEvent::Recovered { counts: true, .. }
            )
        };
        assert!(counts(
            &run_in(RunState::Running, 0),
            &[model()],
            Loss::Killed
        ));
        assert!(!counts(
            &run_in(RunState::Running, 0),
            &[model()],
            Loss::Drained
        ));
        assert!(!counts(&run_in(RunState::Running, 0), &[], Loss::Killed));
        for state in [
            RunState::Queued,
            RunState::Settling,
            RunState::Paused(PauseReason::Child),
        ] {
            assert!(
                !counts(&run_in(state, 0), &[model()], Loss::Killed),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_task_that_fails_by_itself_is_given_up_in_the_end() {
        let policy = RecoveryPolicy::default();
        // Also before its first step: otherwise it would fail and start for ever.
        for state in [RunState::Running, RunState::Queued] {
            let last = run_in(state, policy.max_attempts);
            let plan = recover(&last, &[], Loss::Executor, policy, NOW);
            let says = "the task that drove the run failed 6 times";
            assert!(
                matches!(&plan.event, RunEvent::Interrupted(why) if why.message.contains(says)),
                "{state:?}"
            );
            // Its age does not matter: the daemon was running all the time.
            let old = run_in(state, 0);
            let plan = recover(&old, &[], Loss::Executor, policy, NOW.plus_ms(u64::MAX / 4));
            assert!(
                matches!(plan.event, RunEvent::Recovered { counts: true, .. }),
                "{state:?}"
            );
        }
    }

    #[test]
    fn g1_2_a_run_that_is_too_old_is_closed_quietly() {
        let policy = RecoveryPolicy {
            max_age_ms: 1000,
            ..RecoveryPolicy::default()
        };
        for state in [RunState::Queued, RunState::Running, RunState::Settling] {
            let run = run_in(state, 0);
            let plan = recover(&run, &[model()], Loss::Killed, policy, NOW.plus_ms(1001));
            assert!(matches!(&plan.event, RunEvent::Interrupted(error) if error.kind == "too_old"));
            assert!(plan.is_quiet && plan.steps.is_empty());
            let plan = recover(&run, &[model()], Loss::Killed, policy, NOW.plus_ms(1000));
            assert!(matches!(plan.event, RunEvent::Recovered { .. }));
        }
    }

    #[test]
    fn a_run_that_waits_for_a_person_never_ends_by_its_age() {
        let policy = RecoveryPolicy::default();
        let later = NOW.plus_ms(u64::MAX / 4);
        let ends = |run: &Run, open: &[Step]| {
            let plan = recover(run, open, Loss::Killed, policy, later);
            matches!(plan.event, RunEvent::Interrupted(_))
        };
        for (reason, is_for_person) in [
            (PauseReason::Approval, true),
            (PauseReason::Review, true),
            (PauseReason::Input, true),
            (PauseReason::Child, false),
            (PauseReason::Reply, false),
        ] {
            let run = run_in(RunState::Paused(reason), 0);
            assert_eq!(ends(&run, &[]), !is_for_person, "{reason:?}");
        }
        // Also a run that was busy with another call of the same answer.
        let mut waiting = step(StepKind::Tool, EffectClass::Once, StepState::Intended);
        waiting.waits = Some(crate::kernel::run::step::StepWait {
            kind: crate::kernel::run::step::WaitKind::Approval,
            until: Some(NOW),
        });
        assert!(!ends(&run_in(RunState::Running, 0), &[model(), waiting]));
        assert!(ends(&run_in(RunState::Running, 0), &[model()]));
    }

    #[test]
    fn a_step_of_a_cancelled_run_has_no_other_try() {
        let mut run = run_in(RunState::Running, 0);
        run.cancel = Some(CancelRequest {
            by: "operator".to_owned(),
            at: NOW,
            reason: None,
            inherited: false,
            by_person: false,
        });
        for effect in [EffectClass::Once, EffectClass::Kept] {
            let uncertain = step(StepKind::Tool, effect, StepState::Started);
            let open = [model(), uncertain.clone()];
            for on_uncertain in OnUncertain::ALL {
                run.on_uncertain = *on_uncertain;
                let plan = recover(&run, &open, Loss::Killed, RecoveryPolicy::default(), NOW);
                assert_eq!(plan.steps, [(uncertain.id, StepFate::Uncertain)]);
            }
        }
    }

    proptest! {
        #[test]
        fn every_open_run_can_take_its_recovery(
            state in prop::sample::select(vec![
                RunState::Queued, RunState::Running, RunState::Settling,
                RunState::Paused(PauseReason::Approval),
            ]),
            recoveries in 0u32..8,
            steps in 0usize..3,
            loss in prop::sample::select(vec![Loss::Killed, Loss::Drained, Loss::Executor]),
            age in 0u64..3000,
            effect in prop::sample::select(EffectClass::ALL.to_vec()),
            progress in prop::sample::select(vec![StepState::Intended, StepState::Started]),
            on_uncertain in prop::sample::select(OnUncertain::ALL.to_vec()),
        ) {
            let mut run = run_in(state, recoveries);
            run.on_uncertain = on_uncertain;
            let mut open = vec![model(); steps];
            open.push(step(StepKind::Tool, effect, progress));
            let policy = RecoveryPolicy { max_age_ms: 2000, max_attempts: 5 };
            let now = NOW.plus_ms(age);
            let plan = recover(&run, &open, loss, policy, now);
            let moment = crate::kernel::time::Moment { wall: now, steady: now };
            // What may have happened is repeated only if the agent says so or its keeper answers.
            for (_, fate) in plan.steps.iter().filter(|(id, _)| *id == open[steps].id && steps == 0) {
                let began = effect.is_once() && progress == StepState::Started;
                let is_repeated = matches!(fate, StepFate::Repeat | StepFate::Perform);
                prop_assert!(!(began && is_repeated) || on_uncertain == OnUncertain::Retry);
            }
            let applied = crate::kernel::run::machine::apply(&run, plan.event, moment);
            prop_assert!(applied.is_ok());
            // No run is left running without an executor.
            prop_assert_ne!(applied.unwrap().run.state, RunState::Running);
        }
    }
}
