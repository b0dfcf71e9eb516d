//! The commands that end, repeat and change: what a person sees, and the exit codes.

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

        // As its help says.
        let help = abide(&place, &["steer", "--help"]).out.replace('\n', " ");
        let wanted = "A run that has not begun or has ended takes nothing and is left as it is \
                      (exit code 9)";
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
        assert!(said.out.contains("nothing was open"), "{}", said.out);
        assert_eq!(abide(&place, &["cancel", "nobody:here"]).code, 3);

        client.quiet().await;
        let said = abide(&place, &["inbox", "--undelivered"]);
        assert_eq!(said.out.lines().count(), 4, "{}", said.out);
        assert!(
            said.out.lines().all(|line| line.chars().count() <= 80),
            "{}",
            said.out
        );
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
