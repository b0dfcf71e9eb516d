//! The provider tables: keys that stay secret, invalid tables, reloads.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::place;
use crate::harness::{ModelServer, Place, Reply, chat, kind_of, run};

const KEY: &str = "sk-canary-0123456789";
const HEADER: &str = "canary-header-98765";

fn with_secrets(server: &ModelServer) -> Place {
    let place = place(server, "chat/small");
    let file = place.path().join("key");
    fs::write(&file, format!("{KEY}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    place
        .with("providers.chat.api_key_file", &format!("{file:?}"))
        .with("providers.chat.headers.x-team", &format!("{HEADER:?}"))
}

/// Every file in the folder, except those that contain the secrets on purpose.
fn everything_written(place: &Place) -> Vec<u8> {
    let mut all = Vec::new();
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("key") && !path.ends_with("abide.toml") {
                all.extend(fs::read(path).unwrap_or_default());
            }
        }
    }
    all
}

#[test]
fn a_key_goes_to_the_provider_and_nowhere_else() {
    let server = ModelServer::start();
    let place = with_secrets(&server).with("providers.chat.retries", "1");
    server.on("[good]", [chat::says(&["done"])]);
    server.on(
        "[bad]",
        [
            Reply::status(500, "x"),
            Reply::status(401, &format!("bad key {KEY}")),
        ],
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let good = client.spawn(json!({ "task": "[good]" })).await;
        assert_eq!(client.ended(&good.id).await["result"], "done");
        let bad = client.spawn(json!({ "task": "[bad]" })).await;
        let ended = client.ended(&bad.id).await;
        assert_eq!(ended["error"]["kind"], "provider_auth", "{ended}");
        for request in server.requests() {
            assert_eq!(
                request.header("authorization"),
                Some(&*format!("Bearer {KEY}"))
            );
            assert_eq!(request.header("x-team"), Some(HEADER));
        }
        let config = client.call("gateway.config", json!({})).await.to_string();
        assert!(config.contains("providers.chat.headers"), "{config}");
        let check = place.command(&["config", "check"]).output().unwrap();
        let check = String::from_utf8(check.stdout).unwrap();
        assert!(check.contains("providers.chat.api_key_file"), "{check}");
        for (what, text) in [
            ("config", &config),
            ("check", &check),
            ("run", &ended.to_string()),
        ] {
            assert!(!text.contains("canary-"), "{what}: {text}");
        }
        assert_eq!(daemon.stop().await, 0);
        let written = everything_written(&place);
        for secret in [KEY, HEADER] {
            let found = written
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} was written down");
        }
    });
}

#[test]
fn a_key_that_is_missing_is_named_and_keeps_nobody_from_starting() {
    let server = ModelServer::start();
    let place =
        place(&server, "chat/small").with("providers.chat.api_key_env", "\"NO_SUCH_KEY_HERE\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let status = client.call("gateway.status", json!({})).await;
        let shown = status["providers"].as_array().unwrap();
        let chat = shown.iter().find(|one| one["name"] == "chat").unwrap();
        assert_eq!(
            (&chat["kind"], &chat["models"]),
            (&json!("openai"), &json!(["chat/*"]))
        );
        assert!(
            chat["problem"]
                .as_str()
                .unwrap()
                .contains("NO_SUCH_KEY_HERE"),
            "{chat}"
        );
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "provider_config", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("NO_SUCH_KEY_HERE"), "{message}");
        assert_eq!(server.requests().len(), 0);
    });
}

#[test]
fn a_reload_brings_other_providers_and_another_model() {
    let server = ModelServer::start();
    server.on("", vec![chat::says(&["done"]); 9]);
    let mut place = place(&server, "script/x");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "t", "agent": "explore", "model": "late/m" });
        let refused = client.refused("sessions.spawn", params.clone()).await;
        assert_eq!(kind_of(&refused), "invalid_params", "{refused}");

        place.set("providers.late.kind", "\"openai\"");
        place.set(
            "providers.late.base_url",
            &format!("{:?}", server.url("/v1")),
        );
        place.set("providers.late.models", "[\"m\"]");
        place.set("defaults.model", "\"late/m\"");
        let reloaded = client.call("gateway.reload", json!({})).await;
        let applied = reloaded["applied"].to_string();
        assert!(applied.contains("providers.late.kind"), "{reloaded}");
        assert_eq!(reloaded["needsRestart"], json!([]), "{reloaded}");
        let spawned = client.spawn(json!({ "task": "t" })).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(
            (&ended["result"], &ended["model"]),
            (&json!("done"), &json!("late/m"))
        );

        // A default model that no provider offers is refused and changes nothing.
        place.set("defaults.model", "\"late/other\"");
        let refused = client.refused("gateway.reload", json!({})).await;
        assert!(refused.to_string().contains("late/other"), "{refused}");
        let spawned = client.spawn(json!({ "task": "t" })).await;
        assert_eq!(client.ended(&spawned.id).await["model"], "late/m");
    });
}

#[test]
fn unknown_fields_of_a_table_are_reported_with_the_nearest() {
    let server = ModelServer::start();
    let place = place(&server, "chat/small")
        .with("providers.chat.stall_timout", "\"1s\"")
        .with("prices.\"chat/small.v2\".input", "0.5");
    let check = place
        .command(&["config", "check", "--json"])
        .output()
        .unwrap();
    let check: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    let warnings = check["warnings"].to_string();
    assert!(
        warnings.contains("providers.chat.stall_timeout"),
        "{warnings}"
    );
    let settings = check["settings"].as_array().unwrap();
    let of = |key: &str| settings.iter().find(|one| one["key"] == key).unwrap();
    assert_eq!(of("prices.chat/small.v2.input")["value"], 0.5);
    assert_eq!(of("providers.chat.kind")["source"], "file");
    assert_eq!(of("providers.chat.retries")["source"], "default");
    let mut command = place.command(&["config", "check"]);
    command.env("ABIDE_PROVIDERS__CHAT__RETRIES", "7");
    let check = command.output().unwrap();
    let check = String::from_utf8(check.stdout).unwrap();
    let line = check
        .lines()
        .find(|line| line.starts_with("providers.chat.retries"));
    assert!(
        line.unwrap().contains("ABIDE_PROVIDERS__CHAT__RETRIES"),
        "{check}"
    );
    let mut command = place.command(&["config", "check"]);
    command.env("ABIDE_PROVIDERS__SCRIPT__KIND", "openai");
    let refused = command.output().unwrap();
    assert!(
        String::from_utf8(refused.stderr)
            .unwrap()
            .contains("built in")
    );
}
