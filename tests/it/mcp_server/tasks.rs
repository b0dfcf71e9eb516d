//! The extension of tasks: a run as a task, also after a kill of the daemon.

use serde_json::{Value, json};

use super::host::{Era, HttpHost, PipeHost, failure, structured, with_tasks};
use crate::harness::{Place, Script, calls, eventually, fails, run, says};

fn place() -> Place {
    let ask = json!({ "question": "which port?", "choices": ["80", "81"] });
    Place::new(
        Script::new()
            .on("[b]", [says("b is done").held_by("go")])
            .on("[ask]", [calls("ask", ask), says("it was answered")])
            .on("[fail]", [fails("the model is down")]),
    )
}

/// The task once it has this status.
async fn until(host: &HttpHost, id: &str, status: &str) -> Value {
    eventually(&format!("task {status}"), async || {
        let task = host.request("tasks/get", json!({ "taskId": id })).await;
        let task = task["result"].clone();
        (task["status"] == status).then_some(task)
    })
    .await
}

#[test]
fn a_run_is_a_task_for_hosts_that_declare_them_and_outlives_a_kill() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern).with_capabilities(with_tasks());
        let spawn = json!({ "name": "spawn", "arguments": { "task": "[b]" } });
        let made = host.request("tools/call", spawn).await["result"].clone();
        assert_eq!(made["resultType"], "task", "{made}");
        assert_eq!(made["status"], "working");
        let id = made["taskId"].as_str().unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern).with_capabilities(with_tasks());
        until(&host, id, "working").await;
        place.let_go("go");
        let done = until(&host, id, "completed").await;
        assert_eq!(done["result"]["structuredContent"]["result"], "b is done");
        assert_eq!(done["result"]["structuredContent"]["runId"], id);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_host_without_the_extension_gets_an_ordinary_answer() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for era in Era::BOTH {
            let mut host = PipeHost::start(&place, era);
            let spawned = host.does("spawn", json!({ "task": "[b]" }));
            let got = host.request("tasks/get", json!({ "taskId": spawned["runId"] }));
            assert!(got["error"]["code"].is_i64(), "{got}");
            // A refusal is an ordinary answer, too, where tasks are known.
            let mut host = PipeHost::start_with(&place, Era::Modern, with_tasks());
            let refused = host.call("spawn", json!({ "task": " " }));
            assert!(failure(&refused).starts_with("invalid_params: "));
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_question_of_a_run_is_input_that_its_task_requires() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern).with_capabilities(with_tasks());
        let spawn = json!({ "name": "spawn", "arguments": { "task": "[ask]" } });
        let made = host.request("tools/call", spawn).await;
        let id = made["result"]["taskId"].as_str().unwrap();
        let task = until(&host, id, "input_required").await;
        let requests = task["inputRequests"].as_object().unwrap();
        let (key, form) = requests.iter().next().unwrap();
        assert_eq!(form["params"]["message"], "which port?", "{form}");
        let declined = json!({ "taskId": id, "inputResponses": { key: { "action": "decline" } } });
        let kept = host.request("tasks/update", declined).await;
        assert!(kept["error"].is_null(), "{kept}");
        until(&host, id, "input_required").await;
        let response = json!({ "action": "accept", "content": { "answer": "81" } });
        let answer = json!({ "taskId": id, "inputResponses": { key: response } });
        let taken = host.request("tasks/update", answer).await;
        assert!(taken["error"].is_null(), "{taken}");
        let done = until(&host, id, "completed").await;
        let result = json!({ "result": done["result"] });
        assert_eq!(structured(&result)["result"], "it was answered");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cancelled_task_and_a_failed_one_say_so() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern).with_capabilities(with_tasks());
        let spawn = |task: &str| json!({ "name": "spawn", "arguments": { "task": task } });
        let held = host.request("tools/call", spawn("[b]")).await;
        let held = held["result"]["taskId"].as_str().unwrap();
        let cancelled = host
            .request("tasks/cancel", json!({ "taskId": held }))
            .await;
        assert!(cancelled["error"].is_null(), "{cancelled}");
        until(&host, held, "cancelled").await;
        let failed = host.request("tools/call", spawn("[fail]")).await;
        let failed = failed["result"]["taskId"].as_str().unwrap();
        let done = until(&host, failed, "completed").await;
        assert_eq!(done["result"]["isError"], true, "{done}");
        assert_eq!(done["result"]["structuredContent"]["status"], "error");
        let missing = host.request("tasks/get", json!({ "taskId": "nope" })).await;
        assert_eq!(missing["error"]["code"], -32602, "{missing}");
        assert_eq!(daemon.stop().await, 0);
    });
}
