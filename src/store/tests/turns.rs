//! Turns and their journal.

use super::{Bench, Recorded, Then, accepted, after, answer, model, text, tool, turn};
use crate::kernel::fault::Kind;
use crate::kernel::ids::SessionKey;
use crate::kernel::message::{Block, MessageKind};
use crate::kernel::step::{Effect as Class, StepState};
use crate::store::{Command, steps};

pub fn inputs_enter_the_transcript_when_their_turn_begins(mut bench: Bench) {
    let key = SessionKey::parse("agent:build:a").unwrap();
    let first = accepted(bench.run(turn(key.as_str(), "one")));
    let second = accepted(bench.run(turn(key.as_str(), "two")));
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
                crate::kernel::message::plain_text(&message.content),
            )
        })
        .collect();
    let expected = ["one", "answer one", "two", "answer two"];
    assert_eq!(
        said,
        (1..).zip(expected.map(str::to_owned)).collect::<Vec<_>>()
    );
}

/// A started run whose model has asked for these calls.
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
    let asked = after(bench.run(Command::RecordOutcome {
        run: child.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks,
            used: super::used(),
            warnings: Vec::new(),
        },
        then: Then::Steps(intents),
    }));
    assert_eq!(asked.run.steps, 1 + calls.len() as u32);
    (child.run, child.session)
}

pub fn outcomes_of_parallel_calls_are_kept_each(mut bench: Bench) {
    let (run, session) = calls(&mut bench, &["a", "b", "c"]);
    // They end in another order than they were asked.
    for (step, then) in [
        (4, Then::Wait),
        (2, Then::Wait),
        (3, Then::Steps(vec![model()])),
    ] {
        after(bench.run(Command::RecordOutcome {
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
    let again = Command::StartRun {
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
    let root = accepted(bench.run(turn("agent:build:a", "go")));
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
    after(bench.run(Command::RecordOutcome {
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
