//! Outside agents (`runner: acp`) with the real daemon: a played agent over real pipes, and what
//! becomes of its turns, its calls and its requests.

mod codex;
mod dropped;
mod files;
mod permissions;
pub(crate) mod played;
mod repeated;
mod restarts;
mod terminals;

use serde_json::{Value, json};

use self::played::{heard, lines, prompts, with_agent};
use crate::harness::{Link, Place, Script, Spawned, eventually, run};
use crate::processes::is_alive;

pub(crate) fn place(manner: &str, fields: &str) -> Place {
    with_agent(Place::new(Script::new()), manner, fields)
}

/// Spawns a run in which the agent does this.
async fn go(client: &Link, actions: &Value) -> Spawned {
    client
        .spawn(json!({ "task": actions.to_string(), "agent": "outside" }))
        .await
}

/// The ended run of an agent that does this.
async fn end_of(manner: &str, fields: &str, actions: Value) -> (Place, Value) {
    let place = place(manner, fields);
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawned = go(&client, &actions).await;
    let run = client.ended(&spawned.id).await;
    assert_eq!(daemon.stop().await, 0);
    (place, run)
}

/// The steps of a run, without the prompt.
async fn calls_of(client: &Link, run: &str) -> Vec<Value> {
    let shown = client.call("runs.steps", json!({ "runId": run })).await;
    let steps = shown["steps"].as_array().unwrap().iter();
    let calls = steps.filter(|step| step["kind"] == "tool");
    calls.cloned().collect()
}

#[test]
fn a_prompt_is_answered_by_the_last_message_of_the_turn() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([
            { "think": "hm" },
            { "say": "I will look." },
            { "call": { "toolCallId": "c1", "title": "list", "kind": "search", "status": "in_progress" } },
            { "done": { "toolCallId": "c1", "status": "completed", "content": [
                { "type": "content", "content": { "type": "text", "text": "two files" } },
            ] } },
            { "plan": [{ "content": "look", "priority": "high", "status": "completed" }] },
            { "say": "There are " }, { "say": "two files." },
        ]);
        let spawned = go(&client, &task).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "ok", "{ended}");
        assert_eq!(ended["result"], "There are two files.");
        assert_eq!(ended["model"], "acp");
        assert_eq!(ended["usage"]["inputTokens"], 12, "{ended}");
        let calls = calls_of(&client, &spawned.id).await;
        let shown: Vec<_> = calls
            .iter()
            .map(|call| (&call["tool"], &call["state"]))
            .collect();
        assert_eq!(
            json!(shown),
            json!([["grep", "done"], ["todo", "done"]]),
            "{calls:?}"
        );
        assert_eq!(calls[0]["resultSummary"], "two files", "{calls:?}");
        // The transcript has the task and the answer.
        let history = json!({ "sessionKey": spawned.session, "tools": true });
        let history = client.call("sessions.history", history).await;
        assert_eq!(
            history["messages"].as_array().unwrap().len(),
            2,
            "{history}"
        );
        assert_eq!(daemon.stop().await, 0);
        let heard = heard(&place);
        let methods: Vec<_> = heard
            .iter()
            .map(|message| message["method"].as_str().unwrap())
            .collect();
        assert_eq!(methods, ["initialize", "session/new", "session/prompt"]);
        let folder = place.work().canonicalize().unwrap();
        assert_eq!(heard[1]["params"]["cwd"], folder.to_str().unwrap());
        // The text of the agent's file comes first.
        assert!(
            prompts(&place)[0].starts_with("Do it.\n["),
            "{:?}",
            prompts(&place)
        );
        for pid in lines(&place, "starts") {
            assert!(!is_alive(pid.parse().unwrap()), "nothing of it is left");
        }
    });
}

#[test]
fn an_agent_that_fails_is_reported_in_its_own_words() {
    run(async {
        for (manner, actions, kind, says) in [
            ("fails", json!([]), "exit", "no licence was found"),
            ("banner", json!([]), "exit", "no message of the protocol"),
            ("newer", json!([]), "acp", "version 9"),
            (
                "auth",
                json!([]),
                "unauthorized",
                "Its ways to sign in: API key (Set KEY)",
            ),
            ("", json!([{ "die": 1 }]), "exit", "out of luck"),
            (
                "",
                json!([{ "line": "oops" }, { "hang": 1 }]),
                "exit",
                "oops",
            ),
            ("", json!([{ "stop": "refusal" }]), "refused", "refused"),
        ] {
            let (_place, ended) = end_of(manner, "", actions).await;
            assert_eq!(ended["status"], "error", "{manner}: {ended}");
            assert_eq!(ended["error"]["kind"], kind, "{manner}: {ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains(says), "{manner}: {ended}");
            assert!(message.contains("/bin/sh"), "{manner}: {ended}");
        }
        let (_place, ended) =
            end_of("", "", json!([{ "say": "half" }, { "stop": "max_tokens" }])).await;
        assert_eq!(
            (&ended["status"], &ended["result"]),
            (&json!("ok"), &json!("half")),
            "{ended}"
        );
        assert!(
            ended["warnings"].to_string().contains("token limit"),
            "{ended}"
        );
    });
}

#[test]
fn a_cancel_is_told_to_the_agent_and_then_its_program_is_gone() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for (actions, is_polite) in [
            (json!([{ "effect": "begun" }, { "until": "never" }]), true),
            (json!([{ "effect": "begun" }, { "hang": 1 }]), false),
        ] {
            let before = lines(&place, "effects").len();
            let spawned = go(&client, &actions).await;
            eventually("the agent at work", async || {
                (lines(&place, "effects").len() > before).then_some(())
            })
            .await;
            client
                .call("runs.cancel", json!({ "runId": spawned.id }))
                .await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["status"], "cancelled", "{is_polite}: {ended}");
            for pid in lines(&place, "starts") {
                assert!(!is_alive(pid.parse().unwrap()), "{is_polite}");
            }
        }
        assert_eq!(lines(&place, "cancels").len(), 2);
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn a_run_over_its_time_limit_ends_with_its_agent() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([{ "hang": 1 }]).to_string();
        let params = json!({ "task": task, "agent": "outside", "runTimeout": 0.3 });
        let spawned = client.spawn(params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "timeout", "{ended}");
        eventually("the end of the agent", async || {
            let starts = lines(&place, "starts");
            let mut alive = starts.iter().filter(|pid| is_alive(pid.parse().unwrap()));
            alive.next().is_none().then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_session_of_an_outside_agent_takes_one_turn_after_another() {
    run(async {
        for (manner, session) in [
            ("load", "s1"),
            ("resume", "s1"),
            ("", "s2"),
            ("load forgets", "s2"),
        ] {
            let place = place(manner, "");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawn = json!({ "task": "one", "agent": "outside", "mode": "session" });
            let first = client.spawn(spawn).await;
            assert_eq!(client.ended(&first.id).await["result"], "heard: one");
            let send = json!({ "sessionKey": first.session, "message": "two" });
            let second = Spawned::of(&client.call("sessions.send", send).await);
            assert_eq!(client.ended(&second.id).await["result"], "heard: two");
            assert_eq!(daemon.stop().await, 0);
            let heard = heard(&place);
            let prompts: Vec<_> = heard
                .iter()
                .filter(|one| one["method"] == "session/prompt")
                .collect();
            assert_eq!(
                prompts[1]["params"]["sessionId"], session,
                "{manner}: {heard:?}"
            );
            // A new session is told what was said.
            let told = prompts[1]["params"]["prompt"].to_string();
            assert_eq!(
                told.contains("heard: one"),
                session == "s2",
                "{manner}: {told}"
            );
        }
    });
}
