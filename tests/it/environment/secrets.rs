//! Masking of secrets in the output of runs, programs and providers.

use serde_json::{Value, json};

use super::{WORKER, traces};
use crate::harness::{ModelServer, Place, Reply, Script, calls, fails, run, says};
use crate::providers;

#[test]
fn a_secret_that_a_program_or_a_model_says_is_taken_out_wherever_it_would_be_seen() {
    let long = "yes $A_TOKEN | head -c 200000";
    let script = Script::new()
        .on(
            "[tools]",
            [
                calls(
                    "shell",
                    json!({ "command": "echo $A_TOKEN; echo $A_TOKEN >&2; exit 3" }),
                )
                .and("shell", json!({ "command": long })),
                says("the model says canary-token-1").in_pieces(3, 1000, "never"),
            ],
        )
        .on("[fails]", [fails("401: bad key canary-token-1")]);
    let program = "runner: command\nenv: {A_TOKEN: null}\n\
                   command: {argv: [/bin/sh, -c, 'echo said $A_TOKEN'], progress: text}";
    let failing = "runner: command\nenv: {A_TOKEN: null}\n\
                   command: {argv: [/bin/sh, -c, 'echo $A_TOKEN >&2; exit 1']}";
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with_agent("program", program)
        .with_agent("failing", failing);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut said = Vec::new();
        for (task, agent) in [
            ("[tools]", "worker"),
            ("[fails]", "worker"),
            ("[run]", "program"),
            ("[run]", "failing"),
        ] {
            let env = json!({ "A_TOKEN": "canary-token-1" });
            let params = json!({ "task": task, "agent": agent, "env": env });
            let spawned = client.spawn(params).await;
            said.push(client.ended(&spawned.id).await);
            let id = json!({ "runId": spawned.id });
            said.push(client.call("runs.steps", id).await);
            let history = json!({ "sessionKey": spawned.session });
            said.push(client.call("sessions.history", history).await);
        }
        assert_eq!(said[0]["result"], "the model says [secret:A_TOKEN]");
        let results = said[2].to_string();
        assert!(results.contains("[secret:A_TOKEN]"), "{results}");
        assert!(said[3]["error"].to_string().contains("[secret:A_TOKEN]"));
        assert_eq!(said[6]["result"], "said [secret:A_TOKEN]");
        assert!(said[9]["error"].to_string().contains("[secret:A_TOKEN]"));
        for one in &said {
            assert!(!one.to_string().contains("canary-token-1"), "{one}");
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        // The script contains the value that its model sends; values that the daemon passed are
        // masked in the other files.
        let mut traces = traces(&place, &["canary-token-1".to_owned()]);
        traces.retain(|one| !one.ends_with("script.json"));
        assert_eq!(traces, [""; 0]);
    });
}

/// The parts of at least four characters that a cut may leave of the secret.
fn parts(secret: &str) -> Vec<String> {
    let last = secret.len() - 4;
    (0..=last).map(|at| secret[at..at + 4].to_owned()).collect()
}

/// Bytes of a command's output kept from the beginning, and as many from the end.
const HALF: usize = 15 * 1024;
/// The same for a program that is an agent, which sets this limit below.
const HALF_OF_AGENT: usize = 1024;
/// Bytes at the end of a failed program's output that its error repeats.
const LAST: usize = 2000;

#[test]
fn of_a_secret_across_a_cut_no_part_is_left_on_either_side() {
    let secret = "Zq7-Wk9-Xv3-Yj5";
    // Prints `count` zeros.
    let zeros = |count: usize| format!("printf %0{count}d 0");
    let told = "printf %s $A_TOKEN";
    // Nine characters of it are left at the end of the first half, and nine at the beginning of the
    // second.
    let cut = |half: usize| {
        let (side, middle) = (zeros(half - 9), zeros(3 * half));
        format!("{side}; {told}; {middle}; {told}; {side}")
    };
    let script = Script::new().on(
        "[tools]",
        [
            calls("shell", json!({ "command": cut(HALF) })),
            says("done"),
        ],
    );
    let program = |line: &str| {
        format!(
            "runner: command\nenv: {{A_TOKEN: null}}\ncommand:\n  argv: [/bin/sh, -c, \"{line}\"]\n  \
             progress: text\n  output_limit: {}",
            2 * HALF_OF_AGENT
        )
    };
    let failing = format!("({told}; {}) >&2; exit 1", zeros(LAST - 9));
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with_agent("program", &program(&cut(HALF_OF_AGENT)))
        .with_agent("failing", &program(&failing).replace("2048", "8192"));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut said = Vec::new();
        for (task, agent) in [
            ("[tools]", "worker"),
            ("[run]", "program"),
            ("[run]", "failing"),
        ] {
            let env = json!({ "A_TOKEN": secret });
            let spawned = client
                .spawn(json!({ "task": task, "agent": agent, "env": env }))
                .await;
            said.push(client.ended(&spawned.id).await.to_string());
            let history = json!({ "sessionKey": spawned.session, "tools": true });
            said.push(client.call("sessions.history", history).await.to_string());
        }
        // The cut was at the intended position.
        for one in [&said[1], &said[2], &said[4]] {
            assert!(
                one.contains("[secret:A_TOKEN]") && one.contains('…'),
                "{one}"
            );
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let parts = parts(secret);
        for one in &said {
            let found = parts.iter().find(|part| one.contains(part.as_str()));
            assert_eq!(found, None, "{one}");
        }
        assert_eq!(traces(&place, &parts), [""; 0]);
    });
}

/// A provider's refusal repeats what it was sent: a value of the run, and its own key; the text is
/// cut in the middle of one.
#[test]
fn what_a_provider_says_in_a_refusal_has_no_secret_anywhere_also_after_a_kill() {
    let (secret, key) = ("Zq7-Wk9-Xv3-Yj5", "Hb2.Nc4.Mt6.Rf8");
    let server = ModelServer::start();
    let dots = |text: &str, until: usize| ".".repeat(until - text.len());
    let words = format!("no {secret} for {key}: ");
    // At most 500 characters of a provider's text are repeated.
    let cut = |value: &str| format!("{words}{}{value}{}", dots(&words, 490), ".".repeat(100));
    server.on(
        "[job]",
        [
            Reply::status(500, &cut(secret)),
            Reply::status(503, &words).held_by("kill"),
            Reply::status(500, &cut(key)),
            Reply::status(400, &cut(secret)),
        ],
    );
    let place = providers::place(&server, "chat/small")
        .with("providers.chat.api_key_env", "\"KEY_OF_CHAT\"")
        .with_agent("worker", WORKER);
    run(async {
        let start = async || {
            let mut command = place.command(&["serve"]);
            command.env("KEY_OF_CHAT", key).env("ABIDE_LOG", "debug");
            place.start_command(command).await.unwrap()
        };
        let daemon = start().await;
        let client = daemon.client().await;
        let env = json!({ "A_TOKEN": secret });
        let spawned = client
            .spawn(json!({ "task": "[job]", "agent": "worker", "env": env }))
            .await;
        server.until_model_called(2);
        daemon.kill().await;
        server.let_go("kill");

        let daemon = start().await;
        let client = daemon.client().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "provider_request", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        for shown in [
            "no [secret:A_TOKEN] for [secret:authorization]",
            "[secret:A_TOKEN]…",
        ] {
            assert!(message.contains(shown), "{message}");
        }
        let id = json!({ "runId": spawned.id });
        let steps = client.call("runs.steps", id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(server.requests().len(), 4);
        assert!(place.log().contains("an attempt of a model call failed"));
        let parts = [parts(secret), parts(key)].concat();
        let said: Vec<Value> = vec![ended, steps];
        for one in &said {
            let one = one.to_string();
            let found = parts.iter().find(|part| one.contains(part.as_str()));
            assert_eq!(found, None, "{one}");
        }
        assert_eq!(traces(&place, &parts), [""; 0]);
    });
}
