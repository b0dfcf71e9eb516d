//! Tests of calls with an uncertain outcome, for agents that require a user's review; and of
//! finding runs by their meta.

use serde_json::json;

use super::{Bench, reply, spawn, tool};
use crate::command::{
    BeginEffect, Cancel, CancelTarget, DoubtEffect, RecordOutcome, Recover, Resolve, StartRun,
    StepRef, Verdict,
};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::Kind;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::recover::Loss;
use crate::kernel::run::step::{EffectClass as Class, Step, StepState};
use crate::kernel::run::{OnUncertain, Outcome, PauseReason, RunState};
use crate::kernel::session::message::MessageKind;
use crate::store::tables::read::RunQuery;
use crate::store::tables::{read, runs, steps};

/// A run interrupted by a kill during a call that must not be repeated.
fn cut_off(bench: &mut Bench, on_uncertain: OnUncertain, others: &[Class]) -> RunId {
    let mut spawn = spawn(None);
    spawn.run.agent.on_uncertain = on_uncertain;
    let run = reply(bench.run(spawn)).run;
    let calls = [Class::Once].into_iter().chain(others.iter().copied());
    let intents = calls
        .enumerate()
        .map(|(place, class)| tool(&place.to_string(), class))
        .collect();
    reply(bench.run(StartRun {
        run,
        intents,
        seen: 0,
    }));
    begin(bench, run, 1).unwrap();
    killed(bench, run);
    run
}

fn begin(bench: &mut Bench, run: RunId, attempt: u32) -> Result<(), Kind> {
    let step = 1;
    let begun = bench.run(BeginEffect { run, step, attempt });
    begun.map(drop).map_err(|fault| fault.kind)
}

fn killed(bench: &mut Bench, run: RunId) -> Vec<CommitEffect> {
    let loss = Loss::Killed;
    let aged_at = None;
    let command = Recover { run, loss, aged_at };
    bench.run(command).unwrap().1
}

fn first_step(bench: &mut Bench, run: RunId) -> Step {
    steps::get(bench.db.as_mut(), run, 1).unwrap().unwrap()
}

fn say(bench: &mut Bench, run: RunId, step: StepId, verdict: Verdict) -> Result<(), Kind> {
    let said = Resolve {
        org: "default".to_owned(),
        run,
        step,
        verdict,
        by: "ann".to_owned(),
    };
    let resolved = bench.run(said);
    resolved.map(drop).map_err(|fault| fault.kind)
}

fn told(bench: &mut Bench, run: RunId) -> String {
    let session = bench.row(run).session_key;
    let transcript = bench.transcript(&session);
    let told = transcript.iter();
    let told = told.filter(|message| message.kind == MessageKind::ToolResult);
    format!(
        "{:?}",
        told.map(|message| &message.content).collect::<Vec<_>>()
    )
}

pub fn a_call_in_review_holds_its_run_until_a_person_has_said(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[]);
    let step = first_step(&mut bench, run);
    for _ in 0..2 {
        assert_eq!(bench.row(run).state, RunState::Paused(PauseReason::Review));
        // The exact call is shown, and cannot be executed.
        let shown = read::run(bench.db.as_mut(), run).unwrap().unwrap();
        assert_eq!(shown.reviews[0].id, step.id);
        assert_eq!(shown.reviews[0].input, step.input);
        // Another kill changes nothing.
        killed(&mut bench, run);
    }
    assert_eq!(told(&mut bench, run), "[]");
    let result = Some("3 rows".to_owned());
    say(&mut bench, run, step.id, Verdict::Done(result.clone())).unwrap();
    assert_eq!(bench.row(run).state, RunState::Queued);
    assert_eq!(first_step(&mut bench, run).state, StepState::Done);
    let told = told(&mut bench, run);
    assert!(told.contains("ann") && told.contains("3 rows"), "{told}");
    // A verdict is final.
    for verdict in [Verdict::Done(result), Verdict::NotDone, Verdict::Abort] {
        assert_eq!(say(&mut bench, run, step.id, verdict), Err(Kind::Conflict));
    }
    assert_eq!(begin(&mut bench, run, 1), Err(Kind::Conflict));
}

pub fn what_a_person_says_has_not_happened_is_carried_out_once_more(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[]);
    let step = first_step(&mut bench, run);
    say(&mut bench, run, step.id, Verdict::NotDone).unwrap();
    assert_eq!(bench.row(run).state, RunState::Queued);
    let again = first_step(&mut bench, run);
    assert_eq!(
        (again.state, again.attempts, again.waits),
        (StepState::Intended, 2, None)
    );
    bench.started(run);
    // A late executor of the first attempt must not begin the call.
    assert_eq!(begin(&mut bench, run, 1), Err(Kind::Conflict));
    begin(&mut bench, run, 2).unwrap();
    // The next kill requires another review.
    killed(&mut bench, run);
    assert_eq!(bench.row(run).state, RunState::Paused(PauseReason::Review));
}

pub fn a_review_that_ends_its_run_leaves_the_call_uncertain(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[]);
    let step = first_step(&mut bench, run);
    say(&mut bench, run, step.id, Verdict::Abort).unwrap();
    let row = bench.row(run);
    assert_eq!(row.state, RunState::Ended(Outcome::Interrupted));
    assert_eq!(row.error.unwrap().kind, "uncertain");
    assert_eq!(first_step(&mut bench, run).state, StepState::Uncertain);
}

pub fn a_cancelled_review_is_uncertain_too(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[]);
    bench
        .run(Cancel {
            org: "default".to_owned(),
            target: CancelTarget::Run(run),
            by: "ann".to_owned(),
            by_person: true,
            reason: None,
        })
        .unwrap();
    assert_eq!(bench.row(run).state, RunState::Ended(Outcome::Cancelled));
    assert_eq!(first_step(&mut bench, run).state, StepState::Uncertain);
}

pub fn other_calls_of_the_answer_go_on_before_a_review(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[Class::Read]);
    assert_eq!(bench.row(run).state, RunState::Queued);
    reply(bench.run(StartRun {
        run,
        intents: Vec::new(),
        seen: 100,
    }));
    let step = first_step(&mut bench, run);
    reply(bench.run(RecordOutcome {
        run,
        step: 2,
        attempt: 2,
        outcome: super::Recorded::ToolResult {
            text: "read".to_owned(),
            is_error: false,
        },
        then: super::Then::Wait,
    }));
    assert_eq!(bench.row(run).state, RunState::Paused(PauseReason::Review));
    say(&mut bench, run, step.id, Verdict::NotDone).unwrap();
    assert_eq!(bench.row(run).state, RunState::Queued);
}

pub fn a_review_is_settled_also_while_other_calls_are_at_work(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Review, &[Class::Read]);
    reply(bench.run(StartRun {
        run,
        intents: Vec::new(),
        seen: 100,
    }));
    let step = first_step(&mut bench, run);
    let said = Resolve {
        org: "default".to_owned(),
        run,
        step: step.id,
        verdict: Verdict::NotDone,
        by: "ann".to_owned(),
    };
    let (_, effects) = bench.run(said).unwrap();
    // An effect notifies the holder of the run that there is more to do.
    assert!(
        effects.contains(&CommitEffect::Released(run)),
        "{effects:?}"
    );
    reply(bench.run(RecordOutcome {
        run,
        step: 2,
        attempt: 2,
        outcome: super::Recorded::ToolResult {
            text: "read".to_owned(),
            is_error: false,
        },
        then: super::Then::Wait,
    }));
    assert_eq!(bench.row(run).state, RunState::Running);
    begin(&mut bench, run, 2).unwrap();
}

pub fn an_agent_may_want_an_uncertain_call_repeated(mut bench: Bench) {
    let run = cut_off(&mut bench, OnUncertain::Retry, &[]);
    assert_eq!(bench.row(run).state, RunState::Queued);
    bench.started(run);
    assert_eq!(begin(&mut bench, run, 1), Err(Kind::Conflict));
    begin(&mut bench, run, 2).unwrap();
}

pub fn runs_are_found_by_the_fields_of_their_meta(mut bench: Bench) {
    let mut made = Vec::new();
    for meta in [
        json!({ "chat": "42", "thread": 7, "vip": true }),
        json!({ "chat": "42", "thread": 8 }),
        json!({ "chat": 42, "tags": ["chat"] }),
        json!("42"),
    ] {
        let mut spawn = spawn(None);
        spawn.run.meta = Some(meta);
        made.push(reply(bench.run(spawn)).run);
    }
    bench.spawned(None);
    let found = |bench: &mut Bench, fields: &[(&str, &str)]| {
        let query = RunQuery {
            org: "default".to_owned(),
            meta: fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            limit: 10,
            ..RunQuery::default()
        };
        let page = read::runs(bench.db.as_mut(), &query).unwrap();
        page.iter().map(|shown| shown.run.id).collect::<Vec<_>>()
    };
    assert_eq!(found(&mut bench, &[("chat", "t42")]), [made[1], made[0]]);
    assert_eq!(found(&mut bench, &[("chat", "i42")]), [made[2]]);
    let both = [("chat", "t42"), ("thread", "i7"), ("vip", "true")];
    assert_eq!(found(&mut bench, &both), [made[0]]);
    assert_eq!(found(&mut bench, &[("tags", "tchat")]), []);
    assert_eq!(bench.count("SELECT count(*) FROM run_meta"), 6);
    // A removed run is not found, and leaves no rows.
    for run in &made {
        runs::remove(bench.db.as_mut(), *run).unwrap();
    }
    assert_eq!(bench.count("SELECT count(*) FROM run_meta"), 0);
}

/// A call whose effect another process keeps, which has begun.
fn begun_elsewhere(bench: &mut Bench, on_uncertain: OnUncertain) -> RunId {
    let mut spawn = spawn(None);
    spawn.run.agent.on_uncertain = on_uncertain;
    let run = reply(bench.run(spawn)).run;
    reply(bench.run(StartRun {
        run,
        intents: vec![tool("a", Class::Kept)],
        seen: 0,
    }));
    begin(bench, run, 1).unwrap();
    run
}

fn doubt(bench: &mut Bench, run: RunId, attempt: u32, is_reviewed: bool) -> Result<(), Kind> {
    let doubt = DoubtEffect {
        by: StepRef {
            run,
            step: 1,
            attempt,
        },
        why: "node mac was lost".to_owned(),
        is_reviewed,
        is_lost: false,
    };
    bench.run(doubt).map(drop).map_err(|fault| fault.kind)
}

pub fn a_call_that_is_kept_elsewhere_continues_after_a_kill(mut bench: Bench) {
    for on_uncertain in OnUncertain::ALL {
        let run = begun_elsewhere(&mut bench, *on_uncertain);
        killed(&mut bench, run);
        let step = first_step(&mut bench, run);
        assert_eq!(
            (step.state, step.attempts, step.waits),
            (StepState::Started, 2, None)
        );
        assert_eq!(bench.row(run).state, RunState::Queued);
    }
}

pub fn a_call_that_ends_in_doubt_is_reviewed_or_repeated(mut bench: Bench) {
    let run = begun_elsewhere(&mut bench, OnUncertain::Review);
    doubt(&mut bench, run, 1, true).unwrap();
    assert_eq!(bench.row(run).state, RunState::Paused(PauseReason::Review));
    let step = first_step(&mut bench, run);
    assert_eq!(step.error.as_deref(), Some("node mac was lost"));
    killed(&mut bench, run);
    assert_eq!(bench.row(run).state, RunState::Paused(PauseReason::Review));
    say(&mut bench, run, step.id, Verdict::NotDone).unwrap();
    let step = first_step(&mut bench, run);
    assert_eq!(
        (step.state, step.attempts, step.error),
        (StepState::Intended, 2, None)
    );
    assert_eq!(doubt(&mut bench, run, 1, true), Err(Kind::Conflict));

    let run = begun_elsewhere(&mut bench, OnUncertain::Retry);
    doubt(&mut bench, run, 1, false).unwrap();
    assert_eq!(bench.row(run).state, RunState::Running);
    let step = first_step(&mut bench, run);
    assert_eq!((step.state, step.attempts), (StepState::Started, 2));
    // Nothing keeps the effect any more: the next attempt begins it.
    let lost = DoubtEffect {
        by: StepRef {
            run,
            step: 1,
            attempt: 2,
        },
        why: "its keeper was killed".to_owned(),
        is_reviewed: false,
        is_lost: true,
    };
    reply(bench.run(lost));
    let step = first_step(&mut bench, run);
    assert_eq!((step.state, step.attempts), (StepState::Intended, 3));
}

pub fn a_call_that_ends_in_doubt_is_reported(mut bench: Bench) {
    let run = begun_elsewhere(&mut bench, OnUncertain::Report);
    reply(bench.run(RecordOutcome {
        run,
        step: 1,
        attempt: 1,
        outcome: super::Recorded::Uncertain {
            why: "node mac was lost".to_owned(),
        },
        then: super::Then::Wait,
    }));
    assert_eq!(first_step(&mut bench, run).state, StepState::Uncertain);
    let told = told(&mut bench, run);
    assert!(told.contains("uncertain: node mac was lost"), "{told}");
}
