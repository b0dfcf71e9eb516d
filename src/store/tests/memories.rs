//! Tests of the long-term memory: stored once, in the right namespace, within its limit, and
//! found without scanning unrelated rows.

use super::plans::plan_of;
use super::{Bench, id, model, reply};
use crate::command::Remembered;
use crate::command::{ForgetMemories, RecordOutcome, Recorded, Remember, StartRun, StepRef, Then};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{MemoryId, RunId, StepId};
use crate::kernel::memory::{Memory, MemorySource, asked_words};
use crate::kernel::run::RunOrigin;
use crate::kernel::run::step::{Intent, Why};
use crate::kernel::session::message::{Compacted, OpenRun};
use crate::store::tables::{memories, runs};

fn remember(run: RunId, step: u32, text: &str) -> Remember {
    let by = StepRef {
        run,
        step,
        attempt: 1,
    };
    let text = text.to_owned();
    Remember { by, text }
}

fn kept(bench: &mut Bench, command: Remember) -> (Memory, bool) {
    let Remembered { memory, is_new } = reply(bench.run(command));
    (memory, is_new)
}

fn found(bench: &mut Bench, spaces: &[&str], query: &str) -> Vec<String> {
    let words = asked_words(query, true);
    let found = memories::search(bench.db.as_mut(), "default", spaces, &words, 50).unwrap();
    found.into_iter().map(|memory| memory.text).collect()
}

pub fn a_repeated_step_keeps_once_in_the_path_of_its_agents(mut bench: Bench) {
    let root = reply(bench.run(super::turn("agent:build:a", "one")));
    bench.started(root.run);
    let child = bench.spawned(Some(&root.session)).run;
    bench.started(child);
    let client = bench.client_session("client:a");
    let other = bench.spawned(Some(&client)).run;
    bench.started(other);

    let (own, is_new) = kept(&mut bench, remember(root.run, 1, " the port is 8080\n"));
    assert!(is_new);
    assert_eq!(
        (own.space.as_str(), own.text.as_str()),
        ("build", "the port is 8080")
    );
    let (again, _) = kept(&mut bench, remember(root.run, 1, "the port is 8080"));
    assert_eq!(again, own);
    // The same text in another namespace is another memory.
    let (below, is_new) = kept(&mut bench, remember(child, 1, "the port is 8080"));
    assert!(is_new);
    assert_eq!(below.space, "build/explore");
    // A client's session has no namespace of its own.
    let (alone, _) = kept(&mut bench, remember(other, 1, "the port is 8080"));
    assert_eq!(alone.space, "explore");

    // A run for a message from another session works for the same agents as before.
    let mut sent = runs::get(bench.db.as_mut(), child).unwrap().unwrap();
    let spaces = memories::spaces_of(bench.db.as_mut(), &sent).unwrap();
    assert_eq!(spaces.own, "build/explore");
    (sent.origin, sent.parent_run) = (RunOrigin::Send, Some(other));
    let later = memories::spaces_of(bench.db.as_mut(), &sent).unwrap();
    assert_eq!(later, spaces);

    let ids = vec![below.id, MemoryId(id())];
    for gone in [vec![below.id], Vec::new()] {
        let forget = ForgetMemories {
            org: "default".to_owned(),
            ids: ids.clone(),
        };
        assert_eq!(bench.run(forget).unwrap().0, gone);
    }
    let forget = ForgetMemories {
        org: "other".to_owned(),
        ids: vec![own.id],
    };
    assert_eq!(bench.run(forget).unwrap().0, Vec::new());
    assert_eq!(found(&mut bench, &[], "ports").len(), 2);
    assert_eq!(found(&mut bench, &["build"], "ports").len(), 1);
    assert_eq!(found(&mut bench, &["build/explore"], "ports").len(), 0);
}

pub fn what_a_summary_keeps_stands_with_it_and_a_full_memory_ends_no_turn(mut bench: Bench) {
    bench.settings.max_memories = 2;
    let run = reply(bench.run(super::turn("agent:build:a", "one"))).run;
    let shorten = |bench: &mut Bench, step: u32, texts: &[&str]| {
        let outcome = Recorded::Shortened {
            summary: Some(Box::new(("the gist".to_owned(), Compacted::default()))),
            told: "shorter".to_owned(),
            remember: texts.iter().map(|text| (*text).to_owned()).collect(),
            used: None,
        };
        let command = RecordOutcome {
            run,
            step,
            attempt: 1,
            outcome,
            then: Then::Steps(vec![Intent::compaction(StepId(id()), Why::Window)]),
        };
        bench.run(command)
    };
    let first = Intent::compaction(StepId(id()), Why::Window);
    reply(bench.run(StartRun {
        run,
        intents: vec![first],
        seen: 0,
    }));
    let done = reply(shorten(&mut bench, 1, &["one", "one", "two"]));
    assert_eq!(
        done.steps[0].result_summary.as_deref(),
        Some("shorter; 2 saved to memory")
    );
    assert!(
        shorten(&mut bench, 1, &["three"]).is_err(),
        "a second outcome"
    );
    let done = reply(shorten(&mut bench, 2, &["two", "three"]));
    assert_eq!(done.steps[0].result_summary.as_deref(), Some("shorter"));
    assert!(
        done.run.warnings[0].contains("memory.max_entries"),
        "{:?}",
        done.run.warnings
    );
    let all = memories::list(bench.db.as_mut(), "default", Some("build"), None, 10).unwrap();
    let texts: Vec<&str> = all.iter().map(|(_, one)| one.text.as_str()).collect();
    assert_eq!(texts, ["two", "one"]);
    assert!(
        all.iter()
            .all(|(_, one)| one.source == MemorySource::Compaction)
    );

    let full = bench.run(remember(run, 3, "four")).unwrap_err();
    assert_eq!(full.kind, Kind::Limit);
    assert_eq!(full.data["value"], 2);
}

pub fn a_search_reads_its_name_spaces_and_the_index_can_be_made_anew(mut bench: Bench) {
    let run = reply(bench.run(super::turn("agent:build:a", "one"))).run;
    reply(bench.run(StartRun {
        run,
        intents: (0..3).map(|_| model()).collect(),
        seen: 0,
    }));
    for (step, text) in [
        (1, "the parsers are tested"),
        (2, "a parser parses: the parser"),
        (3, "数据库在北京"),
    ] {
        kept(&mut bench, remember(run, step, text));
    }
    for time in ["as written", "made anew"] {
        // The better match first, with any form of the word.
        assert_eq!(
            found(&mut bench, &["build"], "parsing"),
            ["a parser parses: the parser", "the parsers are tested"],
            "{time}"
        );
        assert_eq!(found(&mut bench, &[], "test").len(), 1, "{time}");
        assert_eq!(
            found(&mut bench, &["build", "none"], "北京的数据"),
            ["数据库在北京"]
        );
        assert_eq!(found(&mut bench, &["none"], "parser"), [""; 0], "{time}");
        memories::index_anew(bench.db.as_mut()).unwrap();
    }
    let words = asked_words("parser", true);
    let plan = plan_of(&mut bench, |tx| {
        memories::search(tx, "default", &["build"], &words, 5).map(drop)
    });
    assert!(plan.contains("memory_words VIRTUAL TABLE INDEX"), "{plan}");
    assert!(
        plan.contains("SEARCH memories USING INTEGER PRIMARY KEY"),
        "{plan}"
    );
    for space in [None, Some("build")] {
        let plan = plan_of(&mut bench, |tx| {
            memories::list(tx, "default", space, Some(1000), 5).map(drop)
        });
        assert!(plan.contains("memories_by_"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

pub fn a_summary_names_the_runs_that_are_open(mut bench: Bench) {
    let turn = reply(bench.run(super::turn("agent:build:a", "one")));
    let first = Intent::compaction(StepId(id()), Why::Window);
    reply(bench.run(StartRun {
        run: turn.run,
        intents: vec![first],
        seen: 0,
    }));
    let open = reply(bench.run(super::spawn(Some(&turn.session)))).run;
    let over = reply(bench.run(super::spawn(Some(&turn.session)))).run;
    bench.started(over);
    bench.ended(over, "found");
    let outcome = Recorded::Shortened {
        summary: Some(Box::new(("the gist".to_owned(), Compacted::default()))),
        told: "shorter".to_owned(),
        remember: Vec::new(),
        used: None,
    };
    let done = reply(bench.run(RecordOutcome {
        run: turn.run,
        step: 1,
        attempt: 1,
        outcome,
        then: Then::Steps(vec![Intent::compaction(StepId(id()), Why::Window)]),
    }));
    let told = done.messages.iter().find_map(|one| one.compaction());
    let child = bench.row(open);
    let named = OpenRun {
        run: open,
        agent: child.agent,
        about: child.label.unwrap_or(child.title),
    };
    assert_eq!(told.unwrap().open, [named]);
}
