//! Lists of runs: rows and columns, counts, truncation, and the list that is redrawn.

use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, Terminal, calls, run, says};
use crate::home::{CommandOutput, output_of};

const LONG: &str = "a-label-that-is-much-longer-than-any-column-of-a-table-would-be-on-a-screen-\
                    of-eighty-columns";

fn abide(place: &Place, arguments: &[&str]) -> CommandOutput {
    output_of(&mut place.command(arguments))
}

/// A daemon with `count` finished runs, the last of them with a long label.
async fn with_runs(count: usize) -> (Place, Daemon, Vec<String>) {
    let child = json!({ "task": "[kid]", "agent": "explore", "label": "kid" });
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[held]", [says("held is done").held_by("go")])
            .on(
                "[boss]",
                [calls("sessions_spawn", child), says("boss is done")],
            )
            .on("[kid]", [says("kid is done")])
            .on_announce("kid is done", [says("noted")]),
    );
    let daemon = place.start().await;
    let client = daemon.client().await;
    let mut ids = Vec::new();
    for number in 1..=count {
        let label = if number == count {
            LONG.to_owned()
        } else {
            format!("n{number}")
        };
        let params = json!({ "task": "[a]", "label": label });
        let spawned = client.spawn(params).await;
        client.ended(&spawned.id).await;
        ids.push(spawned.id);
    }
    client.quiet().await;
    (place, daemon, ids)
}

#[test]
fn a_list_says_how_many_of_how_many_it_shows() {
    run(async {
        let (place, daemon, ids) = with_runs(18).await;
        for (arguments, rows, sum) in [
            (&["ps"][..], 15, "15 of 18 runs; all: abide ps --all\n"),
            (&["ps", "--all"], 18, "18 runs\n"),
            (
                &["ps", "--limit", "3"],
                3,
                "3 of 18 runs; all: abide ps --all\n",
            ),
            (&["ps", "--state", "ok", "-n", "2"], 2, "2 of 18 runs\n"),
            (&["ps", "--tree", &ids[0]], 1, "1 run\n"),
        ] {
            let listed = abide(&place, arguments);
            assert_eq!(listed.code, 0, "{arguments:?}: {}", listed.err);
            assert_eq!(
                listed.out.lines().count(),
                rows + 1,
                "{arguments:?}: {}",
                listed.out
            );
            assert_eq!(listed.err, sum, "{arguments:?}");
        }
        let listed = abide(&place, &["ps", "--limit", "2", "--json"]);
        let listed: Value = serde_json::from_str(&listed.out).unwrap();
        assert_eq!(listed["total"], 18, "{listed}");
        assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
        let none = abide(&place, &["ps", "--state", "error"]);
        assert_eq!(
            (none.out.as_str(), none.err.as_str()),
            ("", "no run matches; list all: abide ps --all\n")
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn ids_columns_and_templates_are_for_scripts() {
    run(async {
        let (place, daemon, ids) = with_runs(2).await;
        let newest_first = format!("{}\n{}\n", ids[1], ids[0]);
        assert_eq!(abide(&place, &["ps", "-q"]).out, newest_first);
        for format in [
            "{id}\\t{state}\\t{label}",
            "{{.ID}}\\t{{.State}}\\t{{.Label}}",
        ] {
            let listed = abide(&place, &["ps", "--format", format]);
            let wanted = format!("{}\tok\t{LONG}\n{}\tok\tn1\n", ids[1], ids[0]);
            assert_eq!((listed.out, listed.err.as_str()), (wanted, ""), "{format}");
        }
        let listed = abide(&place, &["ps", "--format", "id,state,agent"]);
        let rows: Vec<Vec<&str>> = listed
            .out
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["ID", "STATE", "AGENT"]);
        assert_eq!(rows[1], [&ids[1], "ok", "explore"]);
        let listed = abide(&place, &["ps", "--format", "json"]);
        let first: Value = serde_json::from_str(listed.out.lines().next().unwrap()).unwrap();
        assert_eq!(first["runId"], ids[1].as_str());
        let refused = abide(&place, &["ps", "--format", "{nothing}"]);
        assert_eq!(refused.code, 2);
        assert!(
            refused.err.contains("there is no column"),
            "{}",
            refused.err
        );
        assert!(refused.err.contains("run, id, state"), "{}", refused.err);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn nothing_is_cut_in_a_pipe_and_rows_keep_to_the_screen_at_a_terminal() {
    run(async {
        let (place, daemon, ids) = with_runs(1).await;
        let piped = abide(&place, &["ps"]);
        assert!(piped.out.contains(LONG), "{}", piped.out);
        assert!(!piped.out.contains('…'), "{}", piped.out);

        let (_, shown) = Terminal::start(place.command(&["ps"])).end();
        assert!(shown.contains('…') && !shown.contains(LONG), "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        let (_, shown) = Terminal::start(place.command(&["ps", "--no-trunc"])).end();
        assert!(shown.contains(LONG) && shown.contains(&ids[0]), "{shown}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_tree_of_a_child_is_what_is_below_it_and_not_its_roots() {
    run(async {
        let (place, daemon, _) = with_runs(1).await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        client.ended(&boss.id).await;
        client.quiet().await;
        let kid = abide(&place, &["ps", "--tree", "kid", "-q"]);
        assert_eq!(kid.out.lines().count(), 1, "{}", kid.out);
        let all = abide(&place, &["ps", "--tree", &boss.id, "-q"]);
        assert!(all.out.contains(kid.out.trim()), "{}", all.out);
        assert!(all.out.contains(&boss.id), "{}", all.out);
        assert!(!kid.out.contains(&boss.id), "{}", kid.out);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_watched_list_is_redrawn_as_runs_change_and_refused_without_a_terminal() {
    run(async {
        let (place, daemon, _) = with_runs(1).await;
        let client = daemon.client().await;
        let mut watched = Terminal::start(place.command(&["ps", "--watch"]));
        watched.until_seen(|seen| seen.contains("1 run"));
        let held = client
            .spawn(json!({ "task": "[held]", "label": "held" }))
            .await;
        let is_at_work = |seen: &str| {
            let mut rows = seen.lines().filter(|row| row.contains(&held.id[28..]));
            rows.any(|row| row.contains(" running "))
        };
        watched.until_seen(|seen| seen.contains("2 runs") && is_at_work(seen));
        place.let_go("go");
        watched.until_seen(|seen| seen.contains("2 runs") && !is_at_work(seen));
        // It is one list, redrawn in place.
        assert_eq!(
            watched.seen().matches("STATE").count(),
            1,
            "{}",
            watched.seen()
        );
        watched.interrupt();
        assert_eq!(watched.end().0, 0);

        let refused = abide(&place, &["ps", "--watch"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("abide events"), "{}", refused.err);
        assert_eq!(daemon.stop().await, 0);
    });
}
