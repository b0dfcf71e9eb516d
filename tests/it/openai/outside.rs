//! The official clients of the OpenAI API. Where they cannot be installed, the test prints a note.

use std::process::Command;

use serde_json::{Value, json};

use super::place;
use crate::harness::{peers, run};
use crate::house::root;

/// What a client program prints.
async fn told(mut command: Command) -> Value {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|error| {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {text}\n{err}")
    })
}

/// Takes some 5 s if python is installed.
#[test]
fn the_official_python_client_is_served() {
    let python = match peers::python() {
        Ok(folder) => folder.join("bin/python"),
        Err(why) => return peers::skipped("the OpenAI client on Python", &why),
    };
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut client = Command::new(python);
        client
            .arg(root().join("tests/it/openai/peers/client.py"))
            .args([&format!("{}/v1", daemon.url()), daemon.token()]);
        let told = told(client).await;
        for field in ["chat", "stream", "response", "again", "response_stream"] {
            assert_eq!(told[field], "it was found", "{field}: {told}");
        }
        assert_eq!(told["follow"], "more is said", "{told}");
        assert_eq!(told["finish"], "stop");
        assert_eq!(told["same"], true, "{told}");
        assert_eq!(told["conversation"], true);
        assert_eq!(told["metadata"], json!({ "for": "test" }));
        assert_eq!(told["cancelled"], "cancelled", "{told}");
        assert!(
            told["reasoning"].as_str().unwrap().starts_with("grep "),
            "{told}"
        );
        assert!(
            told["models"]
                .as_array()
                .unwrap()
                .contains(&json!("abide/build"))
        );
        let events = told["events"].as_array().unwrap();
        assert!(
            events.contains(&json!("response.output_text.delta")),
            "{told}"
        );
        let errors = &told["errors"];
        assert_eq!(
            errors["model"],
            json!(["NotFoundError", 404, "model_not_found"])
        );
        assert_eq!(errors["tools"][1], 400, "{told}");
        assert_eq!(errors["failed"][0], "InternalServerError", "{told}");
        assert_eq!(errors["missing"][1], 404, "{told}");
        assert_eq!(errors["previous"][1], 400, "{told}");
        assert_eq!(errors["token"][0], "AuthenticationError", "{told}");
        assert_eq!(daemon.stop().await, 0);
        peers::announce("the official OpenAI client on Python was served");
    });
}

/// Takes some 5 s if node is installed.
#[test]
fn the_official_node_client_is_served() {
    let folder = match peers::node("clients") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the OpenAI client on Node", &why),
    };
    run(async {
        let place = place();
        let daemon = place.start().await;
        // Modules are looked for beside the script.
        let script = folder.join("client.mjs");
        std::fs::copy(root().join("tests/it/openai/peers/client.mjs"), &script).unwrap();
        let mut client = Command::new("node");
        client
            .arg(script)
            .args([&format!("{}/v1", daemon.url()), daemon.token()]);
        let told = told(client).await;
        for field in ["chat", "stream", "response", "final"] {
            assert_eq!(told[field], "it was found", "{field}: {told}");
        }
        assert_eq!(told["follow"], "more is said", "{told}");
        assert_eq!(told["failed"], json!([404, "model_not_found"]));
        assert_eq!(daemon.stop().await, 0);
        peers::announce("the official OpenAI client on Node was served");
    });
}
