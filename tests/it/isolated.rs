//! Sealed subagents: each call is a new run that knows only its context pack, only its result is
//! reported outside, and it writes only where it may. Tests are named after their requirements.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::agents::config;
use crate::delegations::{children, tool_results, until_ended};
use crate::harness::{
    Daemon, Link, ModelServer, Place, Reply, Script, TEST_TIMEOUT, calls, chat, eventually, run,
    says,
};
use crate::providers;

const HOST: &str = "agent:host:a";

async fn turn(client: &Link, text: &str) -> String {
    let params = json!({ "key": HOST, "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn(HOST, text).await.id
}

/// A call of `subagent_writer`.
fn asks(id: &str, task: &str) -> Reply {
    let arguments = json!({ "task_summary": task }).to_string();
    chat::calls(&[(id, "subagent_writer", &arguments)])
}

fn place(server: &ModelServer) -> Place {
    providers::place(server, "chat/big")
        .with_agent(
            "host",
            "mode: primary\ntools: []\nlinked_agents: [{agent: writer, session: own}]",
        )
        .with_agent("writer", "mode: subagent\ntools: [read]")
}

/// The roles of a request's messages.
fn roles(request: &Value) -> Vec<&str> {
    let said = request["messages"].as_array().unwrap().iter();
    said.map(|message| message["role"].as_str().unwrap())
        .collect()
}

#[test]
fn c2_each_call_is_a_fresh_run_that_knows_nothing_of_the_one_before() {
    let server = ModelServer::start();
    server.on_agent(
        "host",
        [
            asks("c1", "first job"),
            asks("c2", "second job"),
            chat::says(&["host is done"]),
        ],
    );
    server.on_agent(
        "writer",
        [
            chat::calls(&[("k1", "read", "{\"path\":\"notes.txt\"}")]),
            chat::says(&["one came out"]),
            chat::says(&["two came out"]),
        ],
    );
    let place = place(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        assert_eq!(client.ended(&id).await["result"], "host is done");
        let kids = children(&client, HOST).await;
        assert_eq!(kids.len(), 2);
        assert_ne!(kids[0]["sessionKey"], kids[1]["sessionKey"]);
        assert_ne!(kids[0]["runId"], kids[1]["runId"]);
        assert_eq!(daemon.stop().await, 0);
    });
    let requests = server.requests_of("writer");
    assert_eq!(requests.len(), 3);
    let second = &requests[2];
    assert_eq!(roles(second), ["system", "user"], "{second}");
    let text = second.to_string();
    assert!(text.contains("second job"), "{text}");
    // The pack contains the host's result, but not the inner work of the first child.
    for inner in ["k1", "beta", "first job"] {
        assert!(!text.contains(inner), "{inner}: {text}");
    }
}

#[test]
fn c3_one_pack_is_built_a_call_whatever_is_killed() {
    let server = ModelServer::start();
    server.on_agent(
        "host",
        [
            asks("c1", "first job"),
            asks("c2", "second job"),
            chat::says(&["host is done"]),
        ],
    );
    server.on_agent(
        "writer",
        [
            chat::says(&["never heard"]).held_by("never"),
            chat::says(&["one came out"]),
            chat::says(&["two came out"]),
        ],
    );
    let place = place(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        server.until_model_called(2);
        let before = packs(&client).await;
        assert_eq!(before.as_object().unwrap().len(), 1, "{before}");
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&id).await["result"], "host is done");
        let after = packs(&client).await;
        assert_eq!(after.as_object().unwrap().len(), 2, "{after}");
        assert_eq!(after["c1"], before["c1"]);
        assert_eq!(daemon.stop().await, 0);
    });
    let requests = server.requests_of("writer");
    assert_eq!(requests[0]["messages"], requests[1]["messages"]);
}

/// The context packs in the host's session: in one entry, by call id.
async fn packs(client: &Link) -> Value {
    let params = json!({ "sessionKey": HOST });
    let history = client.call("sessions.history", params).await;
    let entries = history["messages"].as_array().unwrap().iter();
    let mut packs = entries
        .map(|entry| entry["metadata"]["delegation_context"].clone())
        .filter(|pack| !pack.is_null());
    let found = packs.next().unwrap();
    assert_eq!(packs.next(), None, "{history}");
    found
}

/// All events of `GET /events` from the beginning of the log to the end of this run.
fn streamed(daemon: &Daemon, query: &str, run: &str) -> Vec<Value> {
    let address = daemon.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let token = daemon.token();
    let request = format!(
        "GET /events?since=0{query} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut heard = String::new();
    let mut bytes = [0; 4096];
    loop {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the stream ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let whole = heard.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        let events: Vec<Value> = whole
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect();
        let is_end = |event: &Value| event["kind"] == "run.ended" && event["runId"] == run;
        if events.iter().any(is_end) {
            return events;
        }
    }
}

#[test]
fn c2_no_event_tells_outside_what_a_sealed_child_does() {
    let server = ModelServer::start();
    server.on_agent(
        "host",
        [asks("c1", "the job"), chat::says(&["host is done"])],
    );
    server.on_agent(
        "writer",
        [
            chat::calls(&[("k1", "read", "{\"path\":\"notes.txt\"}")]),
            chat::says(&["musing ", "aloud"]),
        ],
    );
    let place = place(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let all = json!({ "since": 0, "deltas": true });
        let mut feed = client.subscribe(all).await;
        let id = turn(&client, "begin").await;
        assert_eq!(client.ended(&id).await["result"], "host is done");
        let kid = children(&client, HOST).await.remove(0);
        for events in [
            until_ended(&mut feed, &id).await,
            streamed(&daemon, "&deltas=true", &id),
        ] {
            let of_kid: Vec<&Value> = events
                .iter()
                .filter(|event| event["runId"] == kid["runId"])
                .collect();
            assert!(!of_kid.is_empty(), "it has a log of its own");
            for event in of_kid {
                assert_eq!(event["sessionKey"], kid["sessionKey"], "{event}");
            }
            let outer: Vec<&Value> = events
                .iter()
                .filter(|event| event["sessionKey"] == HOST)
                .filter(|event| event["runId"] == id.as_str())
                .collect();
            let tells = |event: &&&Value| {
                let text = event["data"].to_string();
                ["k1", "notes.txt", "musing"]
                    .iter()
                    .any(|one| text.contains(one))
            };
            // Its result is the outcome of the call, and no other event reports on it.
            let kinds: Vec<&str> = outer
                .iter()
                .filter(tells)
                .map(|event| event["kind"].as_str().unwrap())
                .collect();
            assert!(
                kinds.iter().all(|kind| *kind == "tool.completed"),
                "{kinds:?}"
            );
            let count = |prefix: &str| {
                let kinds = outer.iter().map(|event| event["kind"].as_str().unwrap());
                kinds.filter(|kind| kind.starts_with(prefix)).count()
            };
            for prefix in ["tool.progress", "sub_agent.", "delegation."] {
                assert_eq!(count(prefix), 0, "{prefix}");
            }
            assert_eq!((count("tool.started"), count("tool.completed")), (1, 1));
        }
        // Subscribers of the host's session or run receive no events of the child.
        for query in [format!("&sessionKey={HOST}"), format!("&runId={id}")] {
            let events = streamed(&daemon, &format!("{query}&deltas=true"), &id);
            let inner = |event: &&Value| {
                event["runId"] == kid["runId"] || event["sessionKey"] == kid["sessionKey"]
            };
            assert_eq!(events.iter().filter(inner).count(), 0, "{query}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_calls_at_once_never_mix_and_the_host_sees_one_result_each_in_its_order() {
    let tasks = ["alder", "birch", "cedar", "dogwood"];
    let server = ModelServer::start();
    let arguments = tasks.map(|task| json!({ "task_summary": format!("job {task}") }).to_string());
    let ids = ["c1", "c2", "c3", "c4"];
    let all: Vec<(&str, &str, &str)> = ids
        .iter()
        .zip(&arguments)
        .map(|(id, arguments)| (*id, "subagent_writer", arguments.as_str()))
        .collect();
    for task in tasks {
        let own = format!("out of {task}");
        // The text of this child's own first message, which occurs in no request of the other
        // children.
        let first = format!("\"content\":\"job {task}");
        server.on(&first, [chat::says(&[&own]).held_by(task)]);
    }
    server.on_agent("host", [chat::calls(&all), chat::says(&["host is done"])]);
    let place = place(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        server.until_model_called(5);
        let kids = children(&client, HOST).await;
        for task in tasks.iter().rev() {
            server.let_go(task);
            let kid = kids
                .iter()
                .find(|kid| kid["title"].as_str().unwrap().contains(task))
                .unwrap();
            let ended = client.ended(kid["runId"].as_str().unwrap()).await;
            assert_eq!(ended["result"], format!("out of {task}"));
        }
        assert_eq!(client.ended(&id).await["result"], "host is done");
        assert_eq!(tool_results(&client, HOST).await.len(), tasks.len());
        assert_eq!(daemon.stop().await, 0);
    });
    for request in server.requests_of("writer") {
        let text = request["messages"].to_string();
        let named = tasks
            .iter()
            .filter(|task| text.contains(&format!("job {task}")));
        assert_eq!(named.count(), 1, "{text}");
    }
    let requests = server.requests_of("host");
    assert_eq!(requests.len(), 2);
    let results: Vec<(&str, &str)> = requests[1]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let id = message["tool_call_id"].as_str().unwrap();
            (id, message["content"].as_str().unwrap())
        })
        .collect();
    assert_eq!(results.len(), tasks.len(), "exactly one result a call");
    for ((id, text), (call, task)) in results.iter().zip(ids.iter().zip(tasks)) {
        assert_eq!(id, call);
        assert!(text.contains(&format!("out of {task}")), "{id}: {text}");
    }
}

#[test]
fn c2_one_that_cannot_be_asked_any_more_is_unavailable_and_nothing_fails_in_the_host() {
    let server = ModelServer::start();
    server.on_agent(
        "host",
        [
            asks("c1", "the job").held_by("away"),
            chat::says(&["host is done"]),
        ],
    );
    let place = place(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        server.until_model_called(1);
        std::fs::remove_file(config(&place).join("writer.md")).unwrap();
        eventually("no writer", async || {
            let writer = json!({ "agent": "writer" });
            let found = client.attempt("agents.get", &writer).await;
            found.is_err().then_some(())
        })
        .await;
        server.let_go("away");
        assert_eq!(client.ended(&id).await["result"], "host is done");
        let answers = tool_results(&client, HOST).await;
        let [answer] = &answers[..] else {
            panic!("exactly one result: {answers:?}");
        };
        assert_eq!(answer["unavailable"], true, "{answer}");
        assert_eq!(answer["kind"], "not_found", "{answer}");
        assert_eq!(answer["subagent"], "writer");
        assert_eq!(answer["supervisor"], "host");
        assert_eq!(answer["last"], true);
        let steps = client.call("runs.steps", json!({ "runId": id })).await;
        let steps = steps["steps"].as_array().unwrap();
        assert!(
            steps.iter().all(|step| step["state"] == "done"),
            "{steps:?}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_programs_of_who_may_write_in_its_own_folder_alone_are_not_started() {
    let command = "echo x > out.txt; mkdir -p subagents/worker && echo x > subagents/worker/in.txt";
    let write = |path: &str| calls("write", json!({ "path": path, "content": "x" }));
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("shell", json!({ "command": command })),
                    write("subagents/worker/../../up.txt"),
                    write("subagents/other/its.txt"),
                    write("subagents/worker/in.txt"),
                    says("kid is done"),
                ],
            )
            .on(
                "[host]",
                [
                    calls("subagent_worker", json!({ "task_summary": "[kid]" }))
                        .and("subagent_program", json!({ "task_summary": "go" })),
                    says("host is done"),
                ],
            ),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\nlinked_agents:\n  - {agent: worker, session: own, write_scope: \
         own}\n  - {agent: program, session: own, write_scope: own}",
    )
    .with_agent(
        "worker",
        "mode: subagent\ntools: [shell, write]\ngate: {shell: allow}",
    )
    .with_agent(
        "program",
        "mode: subagent\nrunner: command\ncommand: {argv: [/bin/sh, -c, 'echo x > program.txt']}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "[host]").await;
        assert_eq!(client.ended(&id).await["result"], "host is done");
        let kids = children(&client, HOST).await;
        let kid = |agent: &str| kids.iter().find(|kid| kid["agent"] == agent).unwrap();
        let worker = kid("worker")["sessionKey"].as_str().unwrap();
        let answers = tool_results(&client, worker).await;
        assert_eq!(answers.len(), 4, "{answers:?}");
        for (number, refused) in answers[..3].iter().enumerate() {
            let text = refused.as_str().unwrap();
            assert!(text.contains("access_denied"), "{number}: {text}");
            assert!(text.contains("subagents/worker/"), "{number}: {text}");
        }
        let results = tool_results(&client, HOST).await;
        let of = |agent: &str| results.iter().find(|one| one["subagent"] == agent).unwrap();
        assert_eq!(of("worker")["result"], "kid is done");
        assert_eq!(of("program")["unavailable"], true, "{results:?}");
        let why = of("program")["error"].as_str().unwrap();
        assert!(why.contains("access_denied"), "{why}");
        for outside in [
            "out.txt",
            "up.txt",
            "program.txt",
            "subagents/other/its.txt",
        ] {
            assert!(!place.work().join(outside).exists(), "{outside}");
        }
        assert!(place.work().join("subagents/worker/in.txt").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}
