//! `abide setup`, and the doctor's findings about an Ollama server: with the real binary, a real
//! settings file and a server that speaks Ollama's API.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{ModelServer, Place, Reply, Script, Terminal, chat, run, says};

/// A server with one model that calls tools and one that does not.
fn ollama() -> ModelServer {
    let server = ModelServer::start();
    server
        .page("/api/version", "", &json!({ "version": "0.12.3" }))
        .page(
            "/api/tags",
            "",
            &json!({ "models": [{ "name": "dull:1b" }, { "name": "sharp:8b" }] }),
        )
        .page("/api/ps", "", &json!({ "models": [] }))
        .page("/api/show", "dull:1b", &shown(&["completion"], ""))
        .page(
            "/api/show",
            "sharp:8b",
            &shown(&["completion", "tools"], "num_ctx 32768\n"),
        );
    server
}

fn shown(capabilities: &[&str], parameters: &str) -> Value {
    json!({
        "capabilities": capabilities,
        "parameters": parameters,
        "model_info": { "family.context_length": 40960 },
    })
}

/// A place whose settings file contains a user's comment.
fn place() -> Place {
    let place = Place::new(Script::new().on("*", [says("done")]));
    let file = place.path().join("abide.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("# by hand\n{text}")).unwrap();
    place
}

fn file(place: &Place) -> String {
    fs::read_to_string(place.path().join("abide.toml")).unwrap()
}

fn setup(place: &Place, server: &ModelServer, arguments: &[&str]) -> Output {
    place
        .command(&[&["setup", "--json"], arguments].concat())
        .env("OLLAMA_HOST", server.url(""))
        .env("OPENAI_API_KEY", "sk-canary-0123456789")
        .output()
        .unwrap()
}

fn said(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.contains("canary"), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text} {output:?}"))
}

#[test]
fn what_is_there_is_said_with_models_that_call_tools_first() {
    let (place, server) = (place(), ollama());
    let before = file(&place);
    let output = setup(&place, &server, &["--check"]);
    let found = said(&output);
    assert_eq!(found["ollama"]["version"], "0.12.3", "{found:#}");
    assert_eq!(found["ollama"]["models"][0]["name"], "sharp:8b");
    assert_eq!(found["ollama"]["models"][1]["tools"], false);
    let keys = json!([{ "provider": "openai", "variable": "OPENAI_API_KEY" }]);
    assert_eq!(found["keys"], keys);
    assert_eq!((output.status.code(), file(&place)), (Some(0), before));
}

#[test]
fn a_model_becomes_the_default_once_it_has_called_a_tool() {
    run(async {
        let (place, server) = (place(), ollama());
        let before = file(&place);
        let daemon = place.start().await;
        server.on(
            "Call the tool",
            [
                chat::calls(&[("c1", "list", r#"{"path":"."}"#)]),
                chat::says(&["two entries"]),
            ],
        );
        let output = setup(&place, &server, &["--provider", "ollama", "--yes"]);
        let done = said(&output);
        assert_eq!(output.status.code(), Some(0), "{done:#}");
        assert_eq!(
            (&done["model"], &done["toolCalls"]),
            (&json!("ollama/sharp:8b"), &json!(1))
        );
        let after = file(&place);
        let kept = before.replace("script/x", "ollama/sharp:8b");
        for line in kept.lines() {
            assert!(
                after.lines().any(|other| other == line),
                "{line} in {after}"
            );
        }
        let client = daemon.client().await;
        let status = client.call("gateway.status", json!({})).await;
        assert_eq!(status["model"], "ollama/sharp:8b", "{status:#}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_file_is_put_back_where_the_model_calls_no_tool() {
    run(async {
        let (place, server) = (place(), ollama());
        let before = file(&place);
        let daemon = place.start().await;
        server.on("Call the tool", [chat::says(&["I would call it"])]);
        let line = ["--provider", "ollama", "--model", "sharp:8b", "--yes"];
        let output = setup(&place, &server, &line);
        let failed = said(&output);
        assert_eq!(output.status.code(), Some(1), "{failed:#}");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains("without calling a tool"), "{message}");
        assert_eq!(file(&place), before);

        server.on("Call the tool", [Reply::status(404, "no such model")]);
        let failed = said(&setup(&place, &server, &line));
        let hint = failed["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("abide.toml was restored"), "{failed:#}");
        assert_eq!(file(&place), before);

        let client = daemon.client().await;
        let status = client.call("gateway.status", json!({})).await;
        assert_eq!(status["model"], "script/x", "{status:#}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn nothing_paid_without_leave_and_a_key_of_this_shell_is_not_the_daemons() {
    run(async {
        let (place, server) = (place(), ollama());
        let before = file(&place);
        let line = ["--provider", "openai", "--model", "small", "--yes"];
        let output = setup(&place, &server, &line);
        assert_eq!(output.status.code(), Some(9));
        assert_eq!(said(&output)["error"]["kind"], "paid");
        let paid = [&line[..], &["--paid"]].concat();
        let output = setup(&place, &server, &paid);
        assert_eq!(output.status.code(), Some(10), "{output:?}");
        assert_eq!(said(&output)["error"]["kind"], "no_daemon");

        let daemon = place.start().await;
        let failed = said(&setup(&place, &server, &paid));
        let text = failed["error"].to_string();
        assert!(
            text.contains("variable OPENAI_API_KEY is not set"),
            "{text}"
        );
        assert!(text.contains("abide stop && abide serve"), "{text}");
        assert_eq!(file(&place), before);
        assert_eq!(daemon.stop().await, 0);

        let dull = ["--provider", "ollama", "--model", "dull:1b", "--yes"];
        let refused = said(&setup(&place, &server, &dull));
        assert_eq!(refused["error"]["kind"], "no_tools", "{refused:#}");
    });
}

/// The findings about Ollama: id, state, message and fix.
fn findings(place: &Place) -> Vec<(String, String, String)> {
    let output = place.command(&["doctor", "--json"]).output().unwrap();
    let all = said(&output)["findings"].as_array().unwrap().clone();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let of_ollama = all
        .iter()
        .filter(|one| text(one, "id").starts_with("ollama."));
    of_ollama
        .map(|one| {
            let whole = format!("{} {}", text(one, "message"), text(one, "fix"));
            (text(one, "id"), text(one, "status"), whole)
        })
        .collect()
}

fn has(place: &Place, id: &str, status: &str, words: &str) {
    let found = findings(place);
    let fits = |(known, state, text): &(String, String, String)| {
        known == id && state == status && text.contains(words)
    };
    assert!(
        found.iter().any(fits),
        "no {id} {status} {words}: {found:#?}"
    );
}

#[test]
fn the_doctor_finds_the_traps_of_ollama() {
    let server = ollama();
    let mut place = place();
    place.set(
        "providers.ollama.base_url",
        &format!("{:?}", server.url("/v1")),
    );
    // No setting uses Ollama: the doctor sends no request.
    assert!(findings(&place).is_empty());
    assert!(server.requests().is_empty());

    place.set("defaults.model", "\"ollama/sharp:8b\"");
    has(&place, "ollama.server", "ok", "0.12.3");
    has(&place, "ollama.model", "ok", "sharp:8b");
    has(&place, "ollama.context", "ok", "32768");

    let small = json!({ "models": [{ "name": "sharp:8b", "context_length": 4096 }] });
    server.page("/api/ps", "", &small);
    has(&place, "ollama.context", "warn", "OLLAMA_CONTEXT_LENGTH");

    place.set("defaults.model", "\"ollama/dull:1b\"");
    has(
        &place,
        "ollama.tools",
        "fail",
        "does not support tool calls",
    );
    place.set("defaults.model", "\"ollama/gone\"");
    has(&place, "ollama.model", "fail", "ollama pull gone");
    server.page("/api/version", "", &json!({ "version": "0.5.1" }));
    has(&place, "ollama.server", "warn", "newer");

    let right = format!("{:?}", server.url("/v1"));
    for wrong in ["/v1/v1", "/api"] {
        place.set(
            "providers.ollama.base_url",
            &format!("{:?}", server.url(wrong)),
        );
        has(&place, "ollama.address", "fail", &right);
    }
    place.set("providers.ollama.base_url", "\"http://127.0.0.1:1/v1\"");
    has(&place, "ollama.server", "fail", "ollama serve");
}

/// The prompts that a user gets at a terminal.
#[test]
fn at_a_terminal_a_person_chooses_the_model_and_agrees_to_what_it_costs() {
    run(async {
        let (place, server) = (place(), ollama());
        let daemon = place.start().await;
        let terminal = || {
            let mut command = place.command(&["setup"]);
            command
                .env("OLLAMA_HOST", server.url(""))
                .env("OPENAI_API_KEY", "sk-canary-0123456789");
            Terminal::start(command)
        };
        let before = file(&place);
        let mut paid = terminal();
        let found = paid.until("which model? [ollama/sharp:8b] ");
        assert!(
            found.contains("sharp:8b") && found.contains("OPENAI_API_KEY"),
            "{found}"
        );
        assert!(!found.contains("canary"), "{found}");
        paid.types("openai/small\n");
        paid.until("openai/small is paid: each run costs money. Use it? (yes or no) ");
        paid.types("no\n");
        paid.until("openai/small may cost money, and that was not confirmed");
        assert_eq!(paid.end().0, 9);
        let mut wrong = terminal();
        wrong.until("which model? ");
        wrong.types("sharp\n");
        wrong.until("sharp does not have the form provider/name; nothing was changed");
        assert_eq!(wrong.end().0, 2);
        assert_eq!(file(&place), before);

        server.on(
            "Call the tool",
            [
                chat::calls(&[("c1", "list", r#"{"path":"."}"#)]),
                chat::says(&["two entries"]),
            ],
        );
        let mut usual = terminal();
        usual.until("which model? [ollama/sharp:8b] ");
        usual.types("\n");
        usual.until("setup · ");
        usual.until("list (");
        usual.until("ollama/sharp:8b called a tool and is now the default");
        assert_eq!(usual.end().0, 0, "{}", usual.seen());
        assert!(file(&place).contains("ollama/sharp:8b"));
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A local Ollama that was not started will not recover by itself, so few attempts are made.
#[test]
fn an_ollama_that_is_not_running_is_said_after_two_tries() {
    let place = place().with("providers.ollama.base_url", "\"http://127.0.0.1:9/v1\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "t", "model": "ollama/x" }))
            .await;
        let ended = client.ended(&spawned.id).await;
        let said = ended["error"]["message"].as_str().unwrap();
        assert!(said.contains("is it running? (ollama serve)"), "{said}");
        assert!(said.contains("tried 2 times"), "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}
