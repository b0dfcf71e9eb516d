//! A judge from outside: an agent that others have written, with a model server that is played.
//! Where it cannot be installed, the tests print a note.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::go;
use crate::harness::peers::{self, skipped};
use crate::harness::{ModelServer, Place, Reply, Script, eventually, run};

fn program() -> Result<PathBuf, String> {
    let folder = peers::node("agents")?;
    let program = folder.join("node_modules/@zed-industries/codex-acp-linux-x64/bin/codex-acp");
    match program.exists() {
        true => Ok(program),
        false => Err("it is not published for this system".to_owned()),
    }
}

/// A place with the agent; with `server` it is set up to use that model server.
fn place(program: &std::path::Path, server: Option<&ModelServer>) -> Place {
    let argv = json!([program]);
    let fields = format!("runner: acp\ncommand: {{argv: {argv}}}");
    let place = Place::new(Script::new()).with_agent("outside", &fields);
    if let Some(server) = server {
        let folder = place.path().join(".codex");
        fs::create_dir_all(&folder).unwrap();
        let url = server.url("/v1");
        let settings = format!(
            "model = \"played\"\nmodel_provider = \"played\"\n[model_providers.played]\nname = \
             \"played\"\nbase_url = {url:?}\nwire_api = \"responses\"\nrequires_openai_auth = false\n"
        );
        fs::write(folder.join("config.toml"), settings).unwrap();
    }
    place
}

/// A streamed answer of the model.
fn answers(text: &str) -> Reply {
    let message = |content: Value| json!({ "type": "message", "id": "m", "role": "assistant", "content": content });
    let events = [
        json!({ "type": "response.created", "response": { "id": "r" } }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": message(json!([])) }),
        json!({
            "type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0,
            "delta": text,
        }),
        json!({
            "type": "response.output_item.done", "output_index": 0,
            "item": message(json!([{ "type": "output_text", "text": text }])),
        }),
        json!({ "type": "response.completed", "response": { "id": "r", "usage": {
            "input_tokens": 12, "input_tokens_details": null, "output_tokens": 3,
            "output_tokens_details": null, "total_tokens": 15,
        } } }),
    ];
    Reply::stream(events.map(|event| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    }))
}

#[test]
fn an_agent_of_others_goes_on_after_a_kill_in_the_middle_of_its_turn() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skipped("an outside agent that others have written", &why),
    };
    run(async {
        let server = ModelServer::start();
        server.on(
            "the needle",
            [answers("never").stalls_after(1), answers("It is done.")],
        );
        let place = place(&program, Some(&server));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, &json!("find the needle")).await;
        eventually("the model's request", async || {
            (!server.requests().is_empty()).then_some(())
        })
        .await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "ok", "{ended}");
        assert!(
            ended["result"].as_str().unwrap().ends_with("It is done."),
            "{ended}"
        );
        let asked = server.requests();
        let last = &asked.last().unwrap().body;
        assert!(
            last.contains("Your previous turn in this session was interrupted"),
            "{last}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_of_others_that_is_not_signed_in_says_how() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skipped("an outside agent that is not signed in", &why),
    };
    run(async {
        let place = place(&program, None);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, &json!("hello")).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "unauthorized", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("Login with ChatGPT"), "{message}");
        assert_eq!(daemon.stop().await, 0);
    });
}
