//! Tests of open runs without an executor.

use std::time::Duration;

use super::{Bench, Recorded, Then, TurnEnd, answer, reply, tool};
use crate::command::{
    BeginBoot, BeginEffect, Conclude, EndBoot, Park, RecordOutcome, Recover, StartRun, Touch,
};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::Kind;
use crate::kernel::ids::BootId;
use crate::kernel::run::RunState;
use crate::kernel::run::recover::Loss;
use crate::kernel::run::step::{EffectClass as Class, StepState};
use crate::kernel::session::message::MessageKind;
use crate::store::tables::steps;

fn recover(run: crate::kernel::ids::RunId) -> Recover {
    Recover {
        run,
        loss: Loss::Killed,
        aged_at: None,
    }
}

pub fn a_read_is_repeated_and_a_late_outcome_refused(mut bench: Bench) {
    let child = bench.spawned(None);
    bench.started(child.run);
    let (_, effects) = bench.run(recover(child.run)).unwrap();
    let row = bench.row(child.run);
    assert_eq!((row.state, row.recoveries), (RunState::Queued, 1));
    assert!(
        effects.iter().any(
            |effect| matches!(effect, CommitEffect::Enqueue(t) if t.run == child.run && t.first)
        )
    );
    // An executor that was presumed dead answers: too late.
    let fault = bench.run(answer(child.run, 1, "late")).unwrap_err();
    assert_eq!(fault.kind, Kind::Conflict);
    let again = bench.started(child.run);
    assert_eq!(
        (again.steps.len(), again.steps[0].attempts, again.run.steps),
        (1, 2, 1)
    );
    let ended = reply(bench.run(RecordOutcome {
        run: child.run,
        step: 1,
        attempt: 2,
        outcome: Recorded::Answer {
            blocks: super::text("found"),
            used: super::used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::EndTurn(TurnEnd {
            text: Some("found".to_owned()),
            more: Vec::new(),
        }),
    }));
    assert_eq!((ended.run.state.as_str(), ended.run.recoveries), ("ok", 0));
    let kinds: Vec<MessageKind> = bench
        .transcript(&child.session)
        .iter()
        .map(|m| m.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            MessageKind::Text,
            MessageKind::RestartNotice,
            MessageKind::Text
        ]
    );
}

pub fn a_once_effect_that_began_is_uncertain(mut bench: Bench) {
    let child = bench.spawned(None);
    let run = child.run;
    let intents = vec![
        tool("a", Class::Once),
        tool("b", Class::Once),
        tool("c", Class::Read),
    ];
    reply(bench.run(StartRun {
        run,
        intents,
        seen: 0,
    }));
    reply(bench.run(BeginEffect {
        run,
        step: 1,
        attempt: 1,
    }));
    bench.run(recover(run)).unwrap();
    let journal = steps::after(bench.db.as_mut(), run, 0, 10).unwrap();
    let states: Vec<(StepState, u32)> = journal.iter().map(|s| (s.state, s.attempts)).collect();
    assert_eq!(
        states,
        [
            (StepState::Uncertain, 1),
            (StepState::Intended, 2),
            (StepState::Intended, 2)
        ]
    );
    // The uncertain outcome is the result of that same tool call for the model.
    let transcript = bench.transcript(&child.session);
    let told = transcript
        .iter()
        .find(|m| m.kind == MessageKind::ToolResult)
        .unwrap();
    assert_eq!(told.tool_call.as_deref(), Some("a"));
    assert!(format!("{:?}", told.content).contains("uncertain"));
    // The call that did not begin is executed now; a repeat of the first is refused.
    assert_eq!(
        bench
            .run(BeginEffect {
                run,
                step: 1,
                attempt: 1
            })
            .unwrap_err()
            .kind,
        Kind::Conflict
    );
}

/// Begins the next boot and returns its id.
fn boot(bench: &mut Bench) -> BootId {
    let boot = BootId(super::id());
    bench.run(BeginBoot { boot, pid: 1 }).unwrap();
    boot
}

/// Advances the clock by `seconds` and records that the process is alive.
fn lived(bench: &mut Bench, boot: BootId, seconds: u64) {
    bench.clock.advance(Duration::from_secs(seconds));
    bench.run(Touch { boot }).unwrap();
}

pub fn time_counts_as_far_as_each_killed_process_lived(mut bench: Bench) {
    let first = boot(&mut bench);
    let run = bench.spawned(None).run;
    bench.started(run);
    lived(&mut bench, first, 3);
    // This second is not recorded.
    bench.clock.advance(Duration::from_secs(1));
    let mut used = 3_000;
    for _ in 0..4 {
        bench.clock.advance(Duration::from_secs(3600));
        let next = boot(&mut bench);
        // A process that is killed before it recovers the run does not change its time.
        bench.clock.advance(Duration::from_secs(60));
        let next = match used {
            3_000 => boot(&mut bench),
            _ => next,
        };
        bench.run(recover(run)).unwrap();
        assert_eq!(bench.row(run).used_ms, used);
        bench.started(run);
        lived(&mut bench, next, 5);
        lived(&mut bench, next, 5);
        used += 10_000;
    }
    // A clean end counts up to that moment.
    let last = boot(&mut bench);
    bench.run(recover(run)).unwrap();
    bench.started(run);
    bench.clock.advance(Duration::from_secs(2));
    bench.run(EndBoot { boot: last }).unwrap();
    bench.clock.advance(Duration::from_secs(3600));
    boot(&mut bench);
    assert_eq!(bench.row(run).used_ms, used + 2_000);
}

pub fn time_away_does_not_count(mut bench: Bench) {
    let first = boot(&mut bench);
    let run = bench.spawned(None).run;
    bench.started(run);
    lived(&mut bench, first, 10);
    bench.clock.advance(Duration::from_secs(3600));
    boot(&mut bench);
    bench.run(recover(run)).unwrap();
    assert_eq!(bench.row(run).used_ms, 10_000);
    bench.started(run);
    bench.clock.advance(Duration::from_secs(49));
    let why = crate::command::Conclusion::TimedOut;
    let early = bench
        .run(Conclude {
            run,
            why: why.clone(),
        })
        .unwrap_err();
    assert_eq!(early.kind, Kind::Conflict);
    bench.clock.advance(Duration::from_secs(1));
    reply(bench.run(Conclude { run, why }));
    assert_eq!(bench.row(run).state.as_str(), "timeout");
}

pub fn a_sleep_of_the_machine_does_not_count(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    bench.clock.advance(Duration::from_secs(10));
    bench.clock.sleep(Duration::from_secs(2 * 3600));
    let why = crate::command::Conclusion::TimedOut;
    let early = bench.run(Conclude { run, why }).unwrap_err();
    assert_eq!(early.kind, Kind::Conflict, "{early}");
    bench.ended(run, "found");
    let row = bench.row(run);
    assert_eq!((row.state.as_str(), row.used_ms), ("ok", 10_000));
    // The timestamps that users see are wall-clock times.
    let lived = row.ended_at.unwrap().since(row.created_at);
    assert_eq!(lived, (2 * 3600 + 10) * 1000);
}

pub fn g1_2_a_run_that_is_too_old_is_told_quietly(mut bench: Bench) {
    let root = super::reply(bench.run(super::turn("agent:build:a", "go")));
    bench.started(root.run);
    let child = bench.spawned(Some(&root.session));
    bench.ended(root.run, "asked");
    bench.clock.advance(Duration::from_secs(8 * 24 * 3600));
    let (run, loss) = (child.run, Loss::Killed);
    let aged_at = Some(bench.clock.now());
    let command = Recover { run, loss, aged_at };
    bench.run(command).unwrap();
    let row = bench.row(child.run);
    assert_eq!(row.state.as_str(), "interrupted");
    assert_eq!(row.error.unwrap().kind, "too_old");
    // Delivered, but as `inbox`: no model call is made for it.
    assert_eq!(
        bench.count("SELECT count(*) FROM outbox WHERE policy = 'inbox'"),
        1
    );
}

pub fn parked_steps_go_on_as_they_stand(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    reply(bench.run(Park { run }));
    bench.run(recover(run)).unwrap();
    let row = bench.row(run);
    assert_eq!((row.state, row.recoveries), (RunState::Queued, 0));
    let again = bench.started(run);
    assert_eq!((again.steps[0].attempts, again.run.steps), (1, 1));
}
