//! Waiting is always visible: a run that needs a user's input is shown with the command that
//! provides it, an idle session says so, and a client that looks for a stopped daemon reports it.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Daemon, Link, Place, Script, Terminal, calls, eventually, run, says};
use crate::home::{CommandOutput, output_of};

fn abide(place: &Place, arguments: &[&str]) -> CommandOutput {
    output_of(&mut place.command(arguments))
}

/// Agents whose runs wait for an approval, an answer, a value and a review.
fn place() -> Place {
    let ask = json!({ "question": "which port?" });
    let command = |text: &str| json!({ "command": text });
    let place = Place::new(
        Script::new()
            .on(
                "[touch]",
                [calls("shell", command("true")), says("touched")],
            )
            .on("[ask]", [calls("ask", ask), says("deployed")])
            .on(
                "[value]",
                [calls("shell", command("true")), says("value was there")],
            )
            .on(
                "[review]",
                [
                    calls("shell", command("touch begun\nsleep 4000")),
                    says("reviewed"),
                ],
            )
            .on("[a]", [says("a is done")])
            .on("[held]", [says("held is done").held_by("go")]),
    )
    .with("approvals.timeout", "\"1h\"");
    let secret = place.path().join("secret");
    for (file, fields) in [
        (
            "careful.md",
            "tools: [shell]\ngate: {shell: ask}\n".to_owned(),
        ),
        (
            "worker.md",
            "tools: [shell]\ngate: {shell: allow}\non_uncertain: review\n".to_owned(),
        ),
        (
            "lacking.md",
            format!(
                "tools: [shell]\ngate: {{shell: allow}}\nenv: {{A_TOKEN: {{from: \"file:{}\"}}}}\n",
                secret.display()
            ),
        ),
    ] {
        write(&config(&place), file, &fields, "Work.");
    }
    place
}

async fn in_review(client: &Link, id: &str) {
    eventually("the review", async || {
        (client.run(id).await["needsReview"] == true).then_some(())
    })
    .await;
}

/// One waiting run of each kind, with the expected notice and command.
async fn waiting(place: &Place) -> (Daemon, Vec<(String, &'static str, &'static str, String)>) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawn = async |agent: &str, task: &str| {
        let params = json!({ "task": task, "agent": agent });
        client.spawn(params).await.id
    };
    let review = spawn("worker", "[review]").await;
    eventually("the command", async || {
        place.work().join("begun").exists().then_some(())
    })
    .await;
    daemon.kill().await;
    place.kill_keepers().await;
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawn = async |agent: &str, task: &str| {
        let params = json!({ "task": task, "agent": agent });
        client.spawn(params).await.id
    };
    let approval = spawn("careful", "[touch]").await;
    let question = spawn("build", "[ask]").await;
    let value = spawn("lacking", "[value]").await;
    in_review(&client, &review).await;
    for id in [&approval, &question, &value] {
        client.in_state(id, "paused").await;
    }
    let digits = |id: &str| id[28..].to_owned();
    let shown = client.run(&approval).await;
    let approval_id = digits(shown["approvals"][0]["id"].as_str().unwrap());
    let shown = client.run(&question).await;
    let question_id = digits(shown["questions"][0]["id"].as_str().unwrap());
    let waiting = vec![
        (
            approval,
            "approval",
            "wants to call shell",
            format!("abide approvals allow|deny {approval_id}"),
        ),
        (
            question,
            "question",
            "which port?",
            format!("abide answer {question_id}"),
        ),
        (
            value.clone(),
            "value",
            "has no value for A_TOKEN",
            format!("abide env {} A_TOKEN=", digits(&value)),
        ),
        (
            review.clone(),
            "review",
            "needs a review",
            format!("abide review {} done|not-done|abort", digits(&review)),
        ),
    ];
    (daemon, waiting)
}

#[test]
fn without_a_terminal_what_needs_a_person_is_named_and_the_exit_code_is_8() {
    run(async {
        let place = place();
        let (daemon, waiting) = waiting(&place).await;
        for (id, kind, what, command) in &waiting {
            for verb in ["wait", "attach"] {
                let ended = abide(&place, &[verb, id]);
                assert_eq!(ended.code, 8, "{verb} {kind}: {}", ended.err);
                assert!(ended.err.contains(what), "{verb} {kind}: {}", ended.err);
                assert!(ended.err.contains(command), "{verb} {kind}: {}", ended.err);

                let ended = abide(&place, &[verb, id, "--json"]);
                assert_eq!(ended.code, 8, "{verb} {kind}: {}", ended.err);
                let need = ended
                    .out
                    .lines()
                    .map(|line| serde_json::from_str::<Value>(line).unwrap())
                    .find_map(|line| line.get("needsPerson").cloned())
                    .unwrap_or_else(|| panic!("{verb} {kind}: {}", ended.out));
                assert_eq!(need["kind"], *kind);
                assert_eq!(need["runId"], id.as_str());
                let named = need["command"].as_str().unwrap();
                assert!(named.starts_with(command), "{need}");
            }
        }
        let ended = abide(&place, &["run", "--agent", "careful", "[touch]"]);
        assert_eq!(ended.code, 8, "{}", ended.err);
        assert!(
            ended.err.contains("abide approvals allow|deny "),
            "{}",
            ended.err
        );
        // The run is unchanged and still waits for a user's decision.
        let (id, ..) = &waiting[0];
        assert_eq!(daemon.client().await.run(id).await["state"], "paused");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_that_is_followed_does_not_ask_for_its_siblings_and_names_its_approval() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let top = client.session("client", "bot").await;
        let spawn = async |agent: &str, task: &str| {
            let params = json!({ "task": task, "agent": agent, "parent": top });
            let id = client.spawn(params).await.id;
            client.in_state(&id, "paused").await;
            id
        };
        let approval = spawn("careful", "[touch]").await;
        let question = spawn("build", "[ask]").await;
        let attached = abide(&place, &["attach", &question]);
        assert_eq!(attached.code, 8, "{}", attached.err);
        assert!(attached.err.contains("which port?"), "{}", attached.err);
        assert!(!attached.err.contains("wants to call"), "{}", attached.err);

        // The parent session shows the need of both.
        let attached = abide(&place, &["attach", &top]);
        assert_eq!(attached.code, 8, "{}", attached.err);
        assert!(attached.err.contains("which port?"), "{}", attached.err);
        assert!(attached.err.contains("wants to call"), "{}", attached.err);

        let digits = &approval[28..];
        let shown = abide(&place, &["approvals", "show", digits]);
        assert!(shown.out.contains("wants to call shell"), "{}", shown.err);
        let allowed = abide(&place, &["approvals", "allow", digits]);
        assert_eq!(allowed.code, 0, "{}", allowed.err);
        client.ended(&approval).await;
        // The run no longer has an open approval.
        let allowed = abide(&place, &["approvals", "allow", digits]);
        assert_eq!(allowed.code, 3, "{}", allowed.err);
        drop(daemon);
    });
}

#[test]
fn at_a_terminal_a_wait_names_what_is_needed_and_goes_on() {
    run(async {
        let place = place();
        let (daemon, waiting) = waiting(&place).await;
        let (id, _, what, command) = &waiting[0];
        let mut wait = Terminal::start(place.command(&["wait", id]));
        wait.until(what);
        wait.until(command);
        let client = daemon.client().await;
        let shown = client.run(id).await;
        let decided = json!({ "id": shown["approvals"][0]["id"], "decision": "allow" });
        client.call("approvals.resolve", decided).await;
        let (code, shown) = wait.end();
        assert_eq!((code, shown.contains("touched")), (0, true), "{shown}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_that_goes_on_is_waited_for_although_another_one_needs_a_person() {
    run(async {
        let place = place();
        let (daemon, waiting) = waiting(&place).await;
        let client = daemon.client().await;
        let held = client
            .spawn(json!({ "task": "[held]", "agent": "build" }))
            .await;
        client.in_state(&held.id, "running").await;
        let (id, _, what, _) = &waiting[0];
        let mut any = place.command(&["wait", "--any", id, &held.id]);
        let any = any
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        place.let_go("go");
        let ended = any.wait_with_output().unwrap();
        let notes = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{notes}");
        let all = abide(&place, &["wait", id, &held.id]);
        assert_eq!(all.code, 8, "{}", all.err);
        assert!(all.err.contains(what), "{}", all.err);
        assert!(all.out.contains("held is done"), "{}", all.out);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_idle_session_says_that_it_is_idle_and_what_to_do() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = client.turn("agent:build:talk", "[a]").await;
        client.ended(&turn.id).await;
        let mut look = Terminal::start(place.command(&["attach", "agent:build:talk"]));
        look.until("agent:build:talk is idle: no work is open");
        look.until("abide send agent:build:talk ");
        client.turn("agent:build:talk", "[a] again").await;
        look.until("a is done");
        look.interrupt();
        assert_eq!(look.end().0, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_session_whose_background_child_works_waits_and_is_not_idle() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let child = json!({ "task": "[held]", "agent": "build", "parent": root });
        let child = client.spawn(child).await;
        client.in_state(&child.id, "running").await;
        let state = async || {
            let session = client
                .call("sessions.get", json!({ "sessionKey": root }))
                .await;
            session["state"].as_str().unwrap().to_owned()
        };
        assert_eq!(state().await, "waiting");
        let listed = abide(&place, &["sessions"]);
        let row = listed
            .out
            .lines()
            .find(|row| row.contains(" root"))
            .unwrap();
        assert!(row.contains(" waiting "), "{}", listed.out);
        let mut look = Terminal::start(place.command(&["attach", &root]));
        look.until("waits for 1 child run: abide ps");
        place.let_go("go");
        client.ended(&child.id).await;
        assert_eq!(state().await, "idle");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_wait_says_at_once_that_the_daemon_was_stopped_and_finds_the_next_one() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client
            .spawn(json!({ "task": "[held]", "agent": "build" }))
            .await;
        client.in_state(&held.id, "running").await;
        let mut wait = Terminal::start(place.command(&["wait", &held.id]));
        wait.until(&held.id[28..]);
        let stopped = abide(&place, &["stop", "--timeout", "0"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        drop(daemon);
        wait.until("the connection to the daemon was lost; retrying for up to 60 s");
        wait.until("the daemon was stopped; all accepted work is kept");
        wait.until("start it: abide serve --detach");
        let daemon = place.start().await;
        place.let_go("go");
        let (code, shown) = wait.end();
        assert_eq!((code, shown.contains("held is done")), (0, true), "{shown}");
        assert_eq!(daemon.stop().await, 0);
    });
}
