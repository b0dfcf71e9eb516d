//! The beginning of every model call of a planner: its own prompt and skills, then the instructions
//! of the current node. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::delegations::tool_results;
use crate::harness::{ModelServer, Reply, chat, run};
use crate::providers;
use crate::skills::put;

/// An answer that consists of this plan.
fn plans(plan: &Value) -> Reply {
    chat::says(&[&plan.to_string()])
}

#[test]
fn a1_prompt_and_skills_are_the_base_of_each_call_of_a_plan_and_of_whom_it_delegates_to() {
    let server = ModelServer::start();
    let acts = json!({
        "steps": [{ "tool": "skill", "arguments": { "name": "counting" } }],
        "requires_delegation": false,
    });
    let delegates = json!({
        "steps": [], "requires_delegation": true, "delegate_to": "helper", "task": "look",
    });
    server.on_agent(
        "boss",
        [
            chat::says(&["that is no plan"]),
            plans(&acts),
            chat::says(&["one more\nNEXT: PLAN"]),
            plans(&delegates),
            chat::says(&["known\nNEXT: RESPOND"]),
            chat::says(&["boss is done"]),
        ],
    );
    server.on_agent("helper", [chat::says(&["helper is done"])]);
    let place = providers::place(&server, "chat/big")
        .with_agent(
            "boss",
            "mode: primary\nstrategy: plan\ntools: [read, skill]\nskills: [counting]\nallow_agents: \
             [helper]",
        )
        .with_agent("helper", "mode: subagent\ntools: [skill]\nskills: [sorting]");
    for name in ["counting", "sorting"] {
        let folder = format!("skills/{name}");
        put(
            &place.work(),
            &folder,
            &format!("For {name}."),
            "Use your fingers.",
        );
    }
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:boss:a", "agent": "boss" });
        client.call("sessions.create", params).await;
        let turn = client.turn("agent:boss:a", "count and look").await;
        let ended = client.ended(&turn.id).await;
        assert_eq!(ended["result"], "boss is done", "{ended}");
        let answers = tool_results(&client, "agent:boss:a").await;
        assert!(answers[0].to_string().contains("fingers"), "{answers:?}");
        assert_eq!(answers[1]["result"], "helper is done");
        assert_eq!(daemon.stop().await, 0);
    });
    let of_boss = server.prompts_of("boss");
    let nodes = [
        "one JSON object",
        "one JSON object",
        "NEXT: RESPOND",
        "one JSON object",
        "NEXT: RESPOND",
        "Now answer the latest message",
    ];
    assert_eq!(of_boss.len(), nodes.len());
    for (number, (system, words)) in of_boss.iter().zip(nodes).enumerate() {
        let (base, instruction) = system.rsplit_once("\n\n---\n\n").unwrap();
        assert!(base.starts_with("Do it.\n\n"), "{number}: {base}");
        assert!(base.contains("For counting."), "{number}: {base}");
        assert!(!base.contains("For sorting."), "{number}: {base}");
        assert!(instruction.contains(words), "{number}: {instruction}");
        // All of them have the same base.
        assert_eq!(
            base,
            of_boss[0].rsplit_once("\n\n---\n\n").unwrap().0,
            "{number}"
        );
    }
    let of_helper = server.prompts_of("helper");
    let [system] = &of_helper[..] else {
        panic!("one call: {of_helper:?}");
    };
    assert!(system.starts_with("Do it.\n\n"), "{system}");
    assert!(system.contains("For sorting."), "{system}");
    assert!(
        !system.contains("For counting."),
        "its caller's are not its own: {system}"
    );
}
