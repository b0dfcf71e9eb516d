//! Tests of usage sums: complete, and read without scanning the history.

use std::time::Duration;

use super::plans::plan_of;
use super::{Bench, id, reply, text};
use crate::command::{RecordOutcome, Recorded, Then, TurnEnd};
use crate::contract::commit::CommitEffect;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::step::ModelUsage;
use crate::kernel::run::usage::{HOUR, Tally, UsageBy};
use crate::kernel::run::{Outcome, RunError, RunState, Usage};
use crate::kernel::time::Timestamp;
use crate::store::tables::usage;
use crate::store::tables::usage::Only;

fn answer(run: RunId, model: &str, cost_micros: u64) -> RecordOutcome {
    let said = Some("said".to_owned());
    RecordOutcome {
        run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text("said"),
            used: Some(ModelUsage {
                model: model.to_owned(),
                usage: Usage {
                    model_calls: 1,
                    input_tokens: 100,
                    output_tokens: 10,
                    cost_micros,
                },
            }),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::EndTurn(TurnEnd {
            text: said,
            more: Vec::new(),
        }),
    }
}

fn all(bench: &mut Bench, by: UsageBy, only: &Only) -> Vec<(String, Tally)> {
    let always = (Timestamp(0), Timestamp(HOUR * 1000));
    let sums = usage::summary(bench.db.as_mut(), "default", by, always, only).unwrap();
    sums.into_iter().collect()
}

pub fn what_ends_is_counted_once_with_all_that_it_used(mut bench: Bench) {
    let first = reply(bench.run(super::turn("agent:build:a", "one")));
    bench.started(first.run);
    bench.run(answer(first.run, "other/y", 5)).unwrap();
    let again = answer(first.run, "other/y", 5);
    assert!(bench.run(again).is_err(), "a second outcome");
    let second = bench.spawned(Some(&first.session));
    bench.started(second.run);
    bench.ended(second.run, "");

    let build = all(&mut bench, UsageBy::Agent, &Only::default());
    let names: Vec<&str> = build.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["build", "explore"]);
    let tally = &build[0].1;
    assert_eq!(
        (tally.ok, tally.failed, tally.used.input_tokens),
        (1, 0, 100)
    );
    assert_eq!(tally.used.cost_micros, 5);
    // A turn without a final text counts as failed.
    assert_eq!((build[1].1.ok, build[1].1.failed), (0, 1));

    // Usage is counted for the model that answered, not for the model of the run.
    let models = all(&mut bench, UsageBy::Model, &Only::default());
    let calls = |(name, tally): &(String, Tally)| (name.clone(), tally.used.model_calls);
    assert_eq!(
        models.iter().map(calls).collect::<Vec<_>>(),
        [("other/y".to_owned(), 1), ("script/x".to_owned(), 1)]
    );

    let tree = Only {
        tree: Some(first.run),
        ..Only::default()
    };
    let by_runs = all(&mut bench, UsageBy::Agent, &tree);
    assert_eq!(by_runs, build[..1]);
    let sessions = all(&mut bench, UsageBy::Session, &Only::default());
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert_eq!(
        all(&mut bench, UsageBy::Org, &Only::default())[0].1.calls(),
        2
    );
    // Other hours have none of it.
    let later = (Timestamp(HOUR), Timestamp(HOUR * 9));
    let none = usage::summary(bench.db.as_mut(), "default", UsageBy::Org, later, &tree);
    assert!(none.unwrap().is_empty());
}

pub fn an_answer_that_was_of_no_use_is_counted_all_the_same(mut bench: Bench) {
    let run = reply(bench.run(super::turn("agent:build:a", "one"))).run;
    bench.started(run);
    let RecordOutcome { outcome, .. } = answer(run, "other/y", 5);
    let error = RunError::new("context_overflow", "no shorter");
    let failed = reply(bench.run(RecordOutcome {
        run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Failed {
            error: error.clone(),
            used: outcome.used().cloned(),
        },
        then: Then::Fail(error),
    }));
    assert_eq!(failed.run.state, RunState::Ended(Outcome::Error));
    assert_eq!(failed.run.usage.cost_micros, 5);
    assert_eq!(failed.steps[0].used.as_ref(), outcome.used());
    let models = all(&mut bench, UsageBy::Model, &Only::default());
    let (name, tally) = &models[0];
    assert_eq!((name.as_str(), tally.used), ("other/y", failed.run.usage));
}

pub fn a_passed_threshold_is_told_once_an_hour(mut bench: Bench) {
    bench.settings.thresholds.cost_micros = Some(8);
    let told =
        |bench: &mut Bench| bench.count("SELECT count(*) FROM events WHERE kind = 'usage.alert'");
    for (place, expected) in [("a", 0), ("b", 1), ("c", 1)] {
        let key = format!("agent:build:{place}");
        let run = reply(bench.run(super::turn(&key, "one"))).run;
        bench.started(run);
        let (_, effects) = bench.run(answer(run, "script/x", 5)).unwrap();
        assert!(effects.contains(&CommitEffect::Ended(run)));
        assert_eq!(told(&mut bench), expected, "{place}");
    }
    bench.clock.advance(Duration::from_secs(3600));
    let run = reply(bench.run(super::turn("agent:build:d", "one"))).run;
    bench.started(run);
    bench.run(answer(run, "script/x", 9)).unwrap();
    assert_eq!(told(&mut bench), 2);
}

pub fn a_summary_reads_the_hours_and_runs_that_it_is_asked_for(mut bench: Bench) {
    let hours = (Timestamp(0), Timestamp(HOUR));
    for (by, only, index) in [
        (
            UsageBy::Agent,
            Only::default(),
            "SEARCH usage_runs USING PRIMARY KEY",
        ),
        (UsageBy::Session, Only::default(), "runs_by_end"),
        (
            UsageBy::Agent,
            Only {
                session: Some(SessionId(id())),
                ..Only::default()
            },
            "runs_by_session",
        ),
        (
            UsageBy::Agent,
            Only {
                tree: Some(RunId(id())),
                ..Only::default()
            },
            "runs_by_root",
        ),
    ] {
        let plan = plan_of(&mut bench, |tx| {
            usage::summary(tx, "default", by, hours, &only).map(drop)
        });
        assert!(plan.contains(index), "{only:?}: {plan}");
        assert!(!plan.contains("SCAN runs"), "{only:?}: {plan}");
    }
}
