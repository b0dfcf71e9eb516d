//! The conversation that a model is shown, message by message: turn after turn, after a kill, in a
//! fork, and after a reset.

use serde_json::{Value, json};

use super::{messages_of, place};
use crate::harness::{Link, ModelServer, chat, run};

const TALK: &str = "agent:build:talk";

async fn turn(client: &Link, message: &str) {
    let params = json!({ "sessionKey": TALK, "message": message });
    let accepted = client.call("agent.run", params).await;
    let ended = client.ended(accepted["runId"].as_str().unwrap()).await;
    assert_eq!(ended["state"], "ok", "{ended}");
}

/// The messages after the system prompt in the latest request, each with its role.
fn shown(server: &ModelServer) -> Vec<String> {
    let request = server.requests().last().unwrap().json();
    let below = messages_of(&request)[1..].iter();
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    below
        .map(|one| format!("{}: {}", text(&one["role"]), text(&one["content"])))
        .collect()
}

#[test]
fn a_model_is_shown_its_conversation_and_no_other() {
    let server = ModelServer::start();
    let answers = (1..=13).map(|number| chat::says(&[&format!("answer {number}")]));
    server.on("[talk]", answers);
    let place = place(&server, "chat/small");
    run(async {
        let mut daemon = place.start().await;
        let mut client = daemon.client().await;
        let mut all: Vec<String> = Vec::new();
        // Long enough that most of it is cached in memory, and again after a kill.
        for number in 1..=10 {
            if number == 8 {
                daemon.kill().await;
                daemon = place.start().await;
                client = daemon.client().await;
            }
            turn(&client, &format!("[talk] {number}")).await;
            all.push(format!("user: [talk] {number}"));
            assert_eq!(shown(&server), all);
            all.push(format!("assistant: answer {number}"));
        }

        let fork = json!({ "task": "[talk] aside", "parent": TALK, "context": "fork",
                           "announce": "none" });
        let fork = client.spawn(fork).await;
        client.ended(&fork.id).await;
        all.push("user: [talk] aside".to_owned());
        assert_eq!(shown(&server), all);

        let reset = json!({ "sessionKey": TALK });
        client.call("sessions.reset", reset).await;
        turn(&client, "[talk] anew").await;
        assert_eq!(shown(&server), ["user: [talk] anew"]);
        turn(&client, "[talk] again").await;
        let again = [
            "user: [talk] anew",
            "assistant: answer 12",
            "user: [talk] again",
        ];
        assert_eq!(shown(&server), again);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
