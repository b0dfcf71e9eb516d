//! What a sealed child shares with its host and what it does not: memory, tools, permissions.

use serde_json::{Value, json};

use super::{children, host_turn, tool_results};
use crate::agents::config;
use crate::harness::{Link, ModelServer, Place, Script, calls, chat, run, says};

const HOST: &str = "agent:host:a";

/// All entries of a session's transcript.
async fn transcript(client: &Link, session: &str) -> Vec<Value> {
    let params = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", params).await;
    history["messages"].as_array().unwrap().clone()
}

#[test]
fn c4_subagent_memory_isolation() {
    let keep = |text: &str| calls("memory_save", json!({ "text": text }));
    let look = |query: &str| calls("memory_search", json!({ "query": query }));
    let sealed = |task: &str| calls("subagent_writer", json!({ "task_summary": task }));
    let place = Place::new(
        Script::new()
            .on("[two]", [look("tide"), says("two is done")])
            .on(
                "[one]",
                [
                    keep("the writer's tide comes at nine"),
                    says("one says quartz"),
                ],
            )
            .on(
                "[host]",
                [
                    keep("the host's tide comes at six"),
                    sealed("[one] tide"),
                    sealed("[two] tide"),
                    look("tide"),
                    says("host is done"),
                ],
            ),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: [memory_save, memory_search]\n\
         linked_agents: [{agent: writer, session: own}]",
    )
    .with_agent(
        "writer",
        "mode: subagent\ntools: [memory_save, memory_search]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = host_turn(&client, "[host] the word is basalt").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let kids = children(&client, HOST).await;
        let (two, one) = (&kids[0]["sessionKey"], &kids[1]["sessionKey"]);
        assert_ne!(one, two, "each call is a fresh run");

        // Short-term memory: the child has the host's context pack and, of an earlier child, only
        // what the host knew; the host has only the child's result.
        let first = transcript(&client, one.as_str().unwrap()).await;
        let second = transcript(&client, two.as_str().unwrap()).await;
        let given = |entries: &[Value]| entries[0]["content"][0]["text"].to_string();
        assert!(given(&first).contains("basalt"), "{first:?}");
        assert_eq!(first[0]["role"], "user");
        let inputs = first.iter().filter(|entry| entry["role"] == "user");
        assert_eq!(inputs.count(), 1, "{first:?}");
        assert!(given(&second).contains("quartz"), "the host was told");
        let own = transcript(&client, HOST).await;
        let of_kids: Vec<&Value> = own
            .iter()
            .filter(|entry| entry["childRunId"].is_string())
            .collect();
        assert!(of_kids.is_empty(), "{of_kids:?}");
        for entry in &own {
            let said = entry["content"].to_string();
            assert!(!said.contains("the writer's tide"), "{said}");
        }

        // Long-term memory: one store with separate namespaces; a child reads its host's, a host
        // does not read its child's.
        let texts = |told: &Value| -> Vec<String> {
            let found = told["memories"].as_array().unwrap().iter();
            let mut texts: Vec<String> = found
                .map(|one| one["text"].as_str().unwrap().to_owned())
                .collect();
            texts.sort();
            texts
        };
        let by_two = tool_results(&client, two.as_str().unwrap()).await;
        assert_eq!(
            texts(&by_two[0]),
            [
                "the host's tide comes at six",
                "the writer's tide comes at nine"
            ]
        );
        let by_host = tool_results(&client, HOST).await;
        assert_eq!(texts(&by_host[3]), ["the host's tide comes at six"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Writes an agent whose prompt no other agent's tools mention.
fn write(place: &Place, name: &str, fields: &str, prompt: &str) {
    let text = format!("---\ndescription: {name}.\n{fields}\n---\n{prompt}\n");
    std::fs::create_dir_all(config(place)).unwrap();
    std::fs::write(config(place).join(format!("{name}.md")), text).unwrap();
}

/// The names of the tools that a request offers.
fn offered(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn c1_subagent_allowlist_schema() {
    let server = ModelServer::start();
    let task = json!({ "task_summary": "write it" }).to_string();
    server
        .on("You are the writer", [chat::says(&["it is written"])])
        .on(
            "You are the host",
            [
                chat::calls(&[("c1", "subagent_writer", &task)]),
                chat::says(&["host is done"]),
            ],
        );
    let mut place = Place::new(Script::new());
    for (field, value) in [
        ("kind", "openai".to_owned()),
        ("base_url", server.url("/v1")),
    ] {
        place.set(&format!("providers.chat.{field}"), &format!("{value:?}"));
    }
    let place = place.with("defaults.model", "\"chat/big\"");
    let host = "mode: primary\ntools: [read]\nlinked_agents: [{agent: writer, session: own}]";
    write(&place, "host", host, "You are the host.");
    let writer = "mode: subagent\ntools: [write, edit]";
    write(&place, "writer", writer, "You are the writer.");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = host_turn(&client, "go").await;
        let ended = client.ended(&turn.id).await;
        assert_eq!(ended["result"], "host is done", "{ended}");

        // Each agent has the tools of its own definition, and the host one tool for its subagent.
        let listed = client.call("tools.list", json!({ "agent": "host" })).await;
        let tools = listed["tools"].as_array().unwrap();
        let schema = tools
            .iter()
            .find(|tool| tool["name"] == "subagent_writer")
            .unwrap_or_else(|| panic!("{listed}"));
        let parameters = &schema["parameters"];
        assert_eq!(parameters["required"], json!(["task_summary"]));
        assert_eq!(parameters["additionalProperties"], false);
        assert!(schema["description"].as_str().unwrap().contains("writer"));
        let requests: Vec<Value> = server.requests().iter().map(|one| one.json()).collect();
        assert_eq!(offered(&requests[0]), ["read", "subagent_writer"]);
        assert_eq!(offered(&requests[1]), ["write", "edit"]);
        let sent = requests[0]["tools"].as_array().unwrap();
        assert_eq!(sent[1]["function"]["parameters"], *parameters);

        // The child's tool list is its own: a different list of the host removes nothing from it.
        let bare = "mode: primary\ntools: []\nlinked_agents: [{agent: writer, session: own}]";
        write(&place, "host", bare, "You are the host.");
        client.call("agents.reload", json!({})).await;
        let names = |listed: &Value| -> Vec<String> {
            let tools = listed["tools"].as_array().unwrap().iter();
            tools
                .map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let listed = client.call("tools.list", json!({ "agent": "host" })).await;
        assert_eq!(names(&listed), ["subagent_writer"]);
        let params = json!({ "agent": "writer" });
        let listed = client.call("tools.list", params).await;
        assert_eq!(names(&listed), ["write", "edit"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_subagent_permissions() {
    let kid = || {
        [
            calls("read", json!({ "path": "notes.txt" })),
            calls("list", json!({ "path": "." })),
            calls("glob", json!({ "pattern": "*.txt" })),
            says("kid is done"),
        ]
    };
    let place = Place::new(Script::new().on("[kid]", kid()).on("[alone]", kid()).on(
        "[host]",
        [
            calls("subagent_writer", json!({ "task_summary": "[kid]" })),
            says("host is done"),
        ],
    ))
    .with_agent(
        "host",
        "mode: primary\ntools: []\ngate: {read: deny, list: allow}\n\
         linked_agents: [{agent: writer, session: own}]",
    )
    .with_agent(
        "writer",
        "mode: all\ntools: [read, list, glob]\ngate: {read: allow, list: deny}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = host_turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let kid = &children(&client, HOST).await[0];
        // The host's gate rules apply unchanged and only narrow: the child's own `allow` does not
        // override them, nor the other way round.
        let under = tool_results(&client, kid["sessionKey"].as_str().unwrap()).await;
        let words = |answer: &Value| answer.as_str().unwrap().to_owned();
        assert!(words(&under[0]).starts_with("denied"), "{under:?}");
        assert!(words(&under[0]).contains("agent host"), "{under:?}");
        assert!(words(&under[1]).contains("agent writer"), "{under:?}");
        assert!(words(&under[2]).contains("notes.txt"), "{under:?}");
        // They are the host's rules: without the host, the writer has only its own.
        let params = json!({ "task": "[alone]", "agent": "writer" });
        let alone = client.spawn(params).await;
        client.ended(&alone.id).await;
        let free = tool_results(&client, &alone.session).await;
        assert!(words(&free[0]).contains("alpha"), "{free:?}");
        assert!(words(&free[1]).contains("agent writer"), "{free:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}
