//! Tests of turns and their journal.

use super::{Bench, Recorded, Then, answer, model, reply, text, tool, turn};
use crate::command::{RecordOutcome, StartRun};
use crate::kernel::fault::Kind;
use crate::kernel::ids::SessionKey;
use crate::kernel::run::step::{EffectClass as Class, StepState};
use crate::kernel::run::{CancelRequest, Outcome, PauseReason, Run, RunError, RunState};
use crate::kernel::session::message::{Block, MessageKind};
use crate::kernel::time::Timestamp;
use crate::store::tables::{runs, steps};

pub fn inputs_enter_the_transcript_when_their_turn_begins(mut bench: Bench) {
    let key = SessionKey::parse("agent:build:a").unwrap();
    let first = reply(bench.run(turn(key.as_str(), "one")));
    let second = reply(bench.run(turn(key.as_str(), "two")));
    assert!(first.created && !second.created);
    assert_eq!(bench.transcript(&key).len(), 0);
    bench.started(first.run);
    bench.ended(first.run, "answer one");
    bench.started(second.run);
    bench.ended(second.run, "answer two");
    let said: Vec<(i64, String)> = bench
        .transcript(&key)
        .iter()
        .map(|message| {
            (
                message.seq,
                crate::kernel::session::message::plain_text(&message.content),
            )
        })
        .collect();
    let expected = ["one", "answer one", "two", "answer two"];
    assert_eq!(
        said,
        (1..).zip(expected.map(str::to_owned)).collect::<Vec<_>>()
    );
}

/// A started run whose model has requested these calls.
fn calls(bench: &mut Bench, calls: &[&str]) -> (crate::kernel::ids::RunId, SessionKey) {
    let child = bench.spawned(None);
    bench.started(child.run);
    let blocks = calls
        .iter()
        .map(|call| Block::ToolCall {
            id: (*call).to_owned(),
            name: "grep".to_owned(),
            arguments: serde_json::json!({}),
        })
        .collect();
    let intents = calls.iter().map(|call| tool(call, Class::Read)).collect();
    let asked = reply(bench.run(RecordOutcome {
        run: child.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks,
            used: super::used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::Steps(intents),
    }));
    assert_eq!(asked.run.steps, 1 + calls.len() as u32);
    (child.run, child.session)
}

pub fn outcomes_of_parallel_calls_are_kept_each(mut bench: Bench) {
    let (run, session) = calls(&mut bench, &["a", "b", "c"]);
    // They end in another order than they were requested.
    for (step, then) in [
        (4, Then::Wait),
        (2, Then::Wait),
        (3, Then::Steps(vec![model()])),
    ] {
        reply(bench.run(RecordOutcome {
            run,
            step,
            attempt: 1,
            outcome: Recorded::ToolResult {
                text: format!("of {step}"),
                is_error: step == 2,
            },
            then,
        }));
    }
    let row = bench.row(run);
    assert_eq!((row.loops, row.tool_calls, row.steps), (1, 3, 5));
    let transcript = bench.transcript(&session);
    let kinds: Vec<MessageKind> = transcript.iter().map(|message| message.kind).collect();
    use MessageKind::{Text, ToolCall, ToolResult};
    assert_eq!(kinds, [Text, ToolCall, ToolResult, ToolResult, ToolResult]);
    let answered: Vec<_> = transcript
        .iter()
        .filter_map(|m| m.tool_call.as_deref())
        .collect();
    assert_eq!(answered, ["c", "a", "b"]);
    let journal = steps::after(bench.db.as_mut(), run, 0, 10).unwrap();
    assert_eq!(journal[1].state, StepState::Failed);
    assert_eq!(journal[4].seen_up_to, Some(5));
}

pub fn a_second_start_changes_nothing(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    let before = bench.rows();
    let again = StartRun {
        run,
        intents: vec![model()],
        seen: 0,
    };
    assert_eq!(bench.run(again).unwrap_err().kind, Kind::Conflict);
    assert_eq!(bench.rows(), before);
}

pub fn a_second_outcome_changes_nothing(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    bench.run(answer(run, 1, "found")).unwrap();
    let before = bench.rows();
    assert_eq!(
        bench.run(answer(run, 1, "another")).unwrap_err().kind,
        Kind::Conflict
    );
    assert_eq!(bench.rows(), before);
    assert_eq!(bench.row(run).result.as_deref(), Some("found"));
}

pub fn too_many_waiting_turns_are_refused(mut bench: Bench) {
    for message in ["1", "2", "3"] {
        bench.run(turn("agent:build:a", message)).unwrap();
    }
    let before = bench.rows();
    let fault = bench.run(turn("agent:build:a", "4")).unwrap_err();
    assert_eq!(
        (fault.kind, &fault.data["limit"]),
        (Kind::Limit, &"max_queued_turns".into())
    );
    assert_eq!(bench.rows(), before);
    bench.run(turn("agent:build:b", "1")).unwrap();
}

pub fn g1_11_a_child_writes_on_after_its_parent_ended(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "go")));
    bench.started(root.run);
    let child = bench.spawned(Some(&root.session));
    bench.started(child.run);
    bench.ended(root.run, "I have asked for it");
    let ended = bench.ended(child.run, "found");
    assert_eq!(ended.messages[0].content, text("found"));
    assert_eq!(bench.row(child.run).state.as_str(), "ok");
}

pub fn the_steps_of_a_run_that_ended_have_an_outcome(mut bench: Bench) {
    let (run, _) = calls(&mut bench, &["a", "b"]);
    reply(bench.run(RecordOutcome {
        run,
        step: 2,
        attempt: 1,
        outcome: Recorded::ToolResult {
            text: "found".to_owned(),
            is_error: false,
        },
        then: Then::Fail(crate::kernel::run::RunError::new("x", "y")),
    }));
    let journal = steps::after(bench.db.as_mut(), run, 0, 10).unwrap();
    let states: Vec<StepState> = journal.iter().map(|step| step.state).collect();
    assert_eq!(
        states,
        [StepState::Done, StepState::Done, StepState::Failed]
    );
    assert!(
        journal[2]
            .error
            .as_deref()
            .unwrap()
            .contains("the run ended")
    );
}

/// Only changed columns are written, so each is changed alone, in both directions.
pub fn each_thing_that_a_move_changes_stands_in_the_row(mut bench: Bench) {
    let child = bench.spawned(None);
    let changes: [fn(&mut Run); 21] = [
        |run| run.used_ms = 7,
        |run| run.counting_since = Some(Timestamp(8)),
        |run| run.loops = 9,
        |run| run.tool_calls = 10,
        |run| run.steps = 11,
        |run| run.usage.model_calls = 12,
        |run| run.usage.input_tokens = 13,
        |run| run.usage.output_tokens = 14,
        |run| run.usage.cost_micros = 15,
        |run| run.last_activity_at = Timestamp(16),
        |run| run.state = RunState::Running,
        |run| run.state = RunState::Paused(PauseReason::Approval),
        |run| run.started_at = Some(Timestamp(17)),
        |run| run.not_before = Some(Timestamp(18)),
        |run| run.recoveries = 19,
        |run| run.warnings = vec!["mind the gap".to_owned()],
        |run| run.result = Some("it is done".to_owned()),
        |run| run.error = Some(RunError::new("provider", "nobody answered")),
        |run| run.cancel = Some(cancel(false, None)),
        |run| run.cancel = Some(cancel(true, Some("no need"))),
        |run| {
            run.state = RunState::Ended(Outcome::Ok);
            run.ended_at = Some(Timestamp(20));
        },
    ];
    let first = bench.row(child.run);
    assert_ne!(first.last_activity_at, Timestamp(16));
    for (number, change) in changes.iter().enumerate() {
        let before = bench.row(child.run);
        let mut changed = before.clone();
        change(&mut changed);
        assert_ne!(changed, before, "change {number}");
        for mut next in [changed, before] {
            let is = bench.row(child.run);
            next.ver = is.ver + 1;
            let written = runs::update(bench.db.as_mut(), &is, &next).unwrap();
            assert_eq!(written, Some(next.ver));
            assert_eq!(bench.row(child.run), next, "change {number}");
            if next.state.is_terminal() {
                // A terminal state cannot be left.
                break;
            }
        }
    }
    let stale = runs::update(bench.db.as_mut(), &first, &first).unwrap();
    assert_eq!(stale, None, "somebody has changed it since");
}

fn cancel(inherited: bool, reason: Option<&str>) -> CancelRequest {
    CancelRequest {
        by: "admin".to_owned(),
        at: Timestamp(21),
        reason: reason.map(str::to_owned),
        inherited,
        by_person: false,
    }
}
