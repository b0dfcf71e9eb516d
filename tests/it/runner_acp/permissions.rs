//! What an outside agent asks before it acts: its agent's gate decides, then people.

use serde_json::{Value, json};

use super::played::{heard, lines};
use super::{calls_of, go, place};
use crate::harness::{Link, Place, eventually, run};

/// The open approval.
pub(super) async fn open(client: &Link) -> Value {
    eventually("an approval", async || {
        let listed = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        listed["approvals"].as_array().unwrap().first().cloned()
    })
    .await
}

pub(super) async fn decide(client: &Link, approval: &Value, decision: &str) {
    let params = json!({ "id": approval["id"], "decision": decision });
    client.call("approvals.resolve", params).await;
}

pub(super) fn ask(id: &str, command: &str) -> Value {
    json!({ "ask": {
        "toolCallId": id, "title": format!("Run {command}"), "kind": "execute", "status": "pending",
        "rawInput": { "command": command },
    } })
}

pub(super) fn decisions(place: &Place) -> Vec<Value> {
    let lines = lines(place, "decisions");
    let read = |line: &String| {
        let outcome: Value = serde_json::from_str(line).unwrap();
        outcome["optionId"].clone()
    };
    lines.iter().map(read).collect()
}

#[test]
fn rules_decide_without_a_person() {
    run(async {
        let gate = "gate: {shell: [{decision: deny}, {match: \"git *\", decision: allow}]}";
        let place = place("", gate);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let edit = json!({ "ask": { "toolCallId": "e", "title": "Edit", "kind": "edit", "content": [
            { "type": "diff", "path": place.work().join("a.txt"), "oldText": "x", "newText": "y" },
        ] } });
        let task = json!([ask("a", "git status"), ask("b", "rm -rf /"), edit, { "say": "over" }]);
        let spawned = go(&client, &task).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "over", "{ended}");
        assert_eq!(decisions(&place), ["yes", "no", "yes"]);
        assert_eq!(lines(&place, "effects"), ["a", "e"]);
        let calls = calls_of(&client, &spawned.id).await;
        let shown: Vec<_> = calls
            .iter()
            .map(|call| (&call["tool"], &call["state"]))
            .collect();
        assert_eq!(
            json!(shown),
            json!([["shell", "done"], ["shell", "failed"], ["edit", "done"]]),
            "{calls:?}"
        );
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn people_decide_where_a_rule_says_so_and_meanwhile_the_run_is_paused() {
    run(async {
        for (decision, option) in [("allow", "yes"), ("deny", "no")] {
            let place = place("", "");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let task = json!([{ "say": "I ask." }, ask("a", "make"), { "say": "over" }]);
            let spawned = go(&client, &task).await;
            let approval = open(&client).await;
            assert_eq!(approval["tool"], "shell", "{approval}");
            assert_eq!(approval["arguments"]["command"], "make", "{approval}");
            client.in_state(&spawned.id, "paused").await;
            decide(&client, &approval, decision).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "over", "{decision}: {ended}");
            assert_eq!(decisions(&place), [option]);
            assert_eq!(
                lines(&place, "effects").len(),
                usize::from(decision == "allow")
            );
            assert_eq!(lines(&place, "starts").len(), 1);
            assert_eq!(daemon.stop().await, 0);
            heard(&place);
        }
    });
}

#[test]
fn one_call_is_never_allowed_by_a_permission_for_all_of_its_kind() {
    run(async {
        let place = place("standing", "gate: {shell: allow}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, &json!([ask("a", "make"), { "say": "over" }])).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(decisions(&place), ["no"]);
        assert_eq!(lines(&place, "effects"), Vec::<String>::new());
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls[0]["state"], "failed", "{calls:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_rule_judges_the_path_that_the_agent_named_and_not_what_is_shown_of_it() {
    run(async {
        let place = place("", "gate: {edit: allow}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        // The value of a variable is masked wherever it is shown.
        let edit = json!({ "ask": { "toolCallId": "e", "title": "Edit", "kind": "edit", "content": [
            { "type": "diff", "path": "/srv/kept-elsewhere/a.txt", "oldText": "x", "newText": "y" },
        ] } });
        let task = json!([edit, { "say": "over" }]).to_string();
        let spawned = client
            .spawn(json!({
                "task": task, "agent": "outside", "env": { "DATA": "/srv/kept-elsewhere" },
            }))
            .await;
        let approval = open(&client).await;
        assert!(
            approval["why"].as_str().unwrap().contains("outside"),
            "{approval}"
        );
        assert!(
            !approval.to_string().contains("kept-elsewhere"),
            "{approval}"
        );
        decide(&client, &approval, "deny").await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(decisions(&place), ["no"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_no_rule_can_judge_is_asked() {
    run(async {
        let place = place("", "gate: {shell: allow, edit: allow, write: allow}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let unknown = json!({ "ask": { "toolCallId": "u", "title": "Run it", "kind": "execute" } });
        let outside = json!({ "ask": {
            "toolCallId": "o", "title": "Delete", "kind": "delete", "locations": [{ "path": "/etc/x" }],
        } });
        let spawned = go(&client, &json!([unknown, outside, { "say": "over" }])).await;
        for says in ["does not say", "outside"] {
            let approval = open(&client).await;
            assert!(
                approval["why"].as_str().unwrap().contains(says),
                "{approval}"
            );
            decide(&client, &approval, "deny").await;
        }
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(decisions(&place), ["no", "no"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cancel_answers_what_the_agent_asked() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, &json!([ask("a", "make"), { "hang": 1 }])).await;
        open(&client).await;
        client.in_state(&spawned.id, "paused").await;
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["status"], "cancelled");
        let listed = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        assert_eq!(listed["approvals"], json!([]));
        assert_eq!(lines(&place, "effects"), Vec::<String>::new());
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}
