//! The commands that end, retry and change runs and sessions: output for users, and exit codes.

use serde_json::Value;

use crate::harness::{Place, Script, run, says};

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn abide(place: &Place, arguments: &[&str]) -> Said {
    let done = place.command(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said {
        code: done.status.code().unwrap(),
        out: text(done.stdout),
        err: text(done.stderr),
    }
}

#[test]
fn runs_and_sessions_are_ended_repeated_and_changed_from_the_command_line() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("never").held_by("never")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let top = client.session("client", "bot").await;
        let a = client
            .spawn(serde_json::json!({ "task": "[a]", "parent": top }))
            .await;
        client.ended(&a.id).await;
        client.quiet().await;

        // The help documents this.
        let help = abide(&place, &["steer", "--help"]).out.replace('\n', " ");
        let wanted = "A run that has not started or has ended is left unchanged (exit code 9)";
        assert!(help.contains(wanted), "{help}");
        let before = client.run(&a.id).await;
        let said = abide(&place, &["steer", &a.id, "left"]);
        assert_eq!(said.code, 9, "{}", said.err);
        assert!(said.err.contains("has ended"), "{}", said.err);
        assert_eq!(client.run(&a.id).await, before);
        let said = abide(&place, &["retry", &a.id]);
        assert_eq!(said.code, 0, "{}", said.err);
        client.ended(said.out.trim()).await;
        client.quiet().await;

        let b = client
            .spawn(serde_json::json!({ "task": "[b]", "parent": top, "label": "b" }))
            .await;
        client.in_state(&b.id, "running").await;
        let said = abide(&place, &["steer", "b", "left"]);
        assert_eq!(said.code, 0, "{}", said.err);
        let said = abide(&place, &["sessions", "delete", &top]);
        assert_eq!(said.code, 9, "{}", said.err);
        assert!(
            said.err.contains("--force") || said.err.contains("force"),
            "{}",
            said.err
        );
        let said = abide(&place, &["cancel", "b", "--reason", "not needed"]);
        assert_eq!(
            (said.code, said.out.contains("cancelled: ")),
            (0, true),
            "{}",
            said.err
        );
        let said = abide(&place, &["cancel", &b.id, "--json"]);
        let answer: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(answer["alreadyEnded"][0], b.id.as_str());
        let said = abide(&place, &["cancel", &top]);
        assert!(said.out.contains("nothing to cancel in"), "{}", said.out);
        assert_eq!(abide(&place, &["cancel", "nobody:here"]).code, 3);

        client.quiet().await;
        let said = abide(&place, &["inbox", "--undelivered"]);
        assert_eq!(said.out.lines().count(), 4, "{}", said.out);
        let said = abide(&place, &["sessions", "patch", &top, "--title", "talk"]);
        assert!(said.err.contains("title: talk"), "{}", said.err);
        let said = abide(&place, &["sessions", "patch", &top]);
        assert_eq!(said.code, 2, "{}", said.err);
        let said = abide(&place, &["sessions", "reset", &top]);
        assert!(said.err.contains("generation 2"), "{}", said.err);
        let said = abide(&place, &["sessions", "delete", &top]);
        assert_eq!(said.code, 0, "{}", said.err);
        let said = abide(&place, &["inbox", "--undelivered"]);
        assert!(
            said.out
                .lines()
                .skip(1)
                .all(|line| line.contains("held: gone")),
            "{}",
            said.out
        );
        let said = abide(&place, &["inbox", "--retry", &a.id]);
        assert_eq!(said.code, 9, "{}", said.err);
        let said = abide(&place, &["inbox", "--dismiss", &a.id]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(abide(&place, &["cancel", &a.id]).code, 10, "no daemon");
    });
}

#[test]
fn work_takes_a_session_a_key_a_budget_and_a_thinking_level() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let desk = "agent:build:desk";
        let first = ["run", "--session", desk, "--idempotency-key", "k", "[a]"];
        for _ in 0..2 {
            let said = abide(&place, &first);
            assert_eq!(
                (said.code, said.out.trim()),
                (0, "a is done"),
                "{}",
                said.err
            );
        }
        let rest = ["--thinking", "high", "--budget", "200k,cost=2.5", "[b]"];
        let second = [&["spawn", "--session", desk], &rest[..]].concat();
        let said = abide(&place, &second);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(
            said.err.contains("a turn of agent:build:desk"),
            "{}",
            said.err
        );
        let run = client.ended(said.out.trim()).await;
        assert_eq!(run["sessionKey"], desk);
        assert_eq!(run["budget"]["tokens"], 200_000, "{run}");
        assert_eq!(run["budget"]["costMicros"], 2_500_000, "{run}");
        assert_eq!(run["thinking"], "high", "{run}");
        // The session contains both turns, and the first one only once.
        let history = serde_json::json!({ "sessionKey": desk });
        let told = client.call("sessions.history", history).await.to_string();
        assert_eq!(told.matches("a is done").count(), 1, "{told}");
        let own = [&["run"], &rest[..]].concat();
        let said = abide(&place, &own);
        assert_eq!(
            (said.code, said.out.trim()),
            (0, "b is done"),
            "{}",
            said.err
        );

        for (arguments, what) in [
            (&["run", "--budget", "lots", "[a]"][..], "200k"),
            (
                &["run", "--session", desk, "--label", "x", "[a]"],
                "--label",
            ),
            (
                &["spawn", "--session", desk, "--parent", desk, "[a]"],
                "--parent",
            ),
            (&["run", "--thinking", "deep", "[a]"], "medium"),
        ] {
            let said = abide(&place, arguments);
            assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
            assert!(said.err.contains(what), "{arguments:?}: {}", said.err);
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
