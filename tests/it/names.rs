//! The meaning of names: `@last`, ids, suffixes of ids, labels and keys in every command that takes
//! a run or a session, and names of agents over RPC and in tools.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, Terminal, calls, eventually, run, says};
use crate::home::{CommandOutput, output_of};

/// Runs the binary with this `ABIDE_TERMINAL`.
fn at(place: &Place, terminal: &str, arguments: &[&str]) -> CommandOutput {
    output_of(place.command(arguments).env("ABIDE_TERMINAL", terminal))
}

/// A shell at a terminal of its own, with `abide` as a command.
fn shell(place: &Place, script: &str) -> Terminal {
    let abide = place.command(&[]);
    let mut command = Command::new("/usr/bin/setsid");
    command
        .args(["--ctty", "/bin/sh", "-c", script])
        .env_clear();
    for (name, value) in abide.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("abide", env!("CARGO_BIN_EXE_abide"));
    command.current_dir(place.work());
    Terminal::start(command)
}

fn bosses() -> Place {
    let child = json!({ "task": "[kid]", "agent": "explore" });
    Place::new(
        Script::new()
            .on(
                "[boss]",
                [calls("sessions_spawn", child), says("boss is done")],
            )
            .on("[kid]", [says("kid is done")])
            .on_announce("kid is done", [says("noted")])
            .on("[other]", [says("other is done")]),
    )
}

#[test]
#[cfg(target_os = "linux")]
fn last_is_the_newest_run_of_the_own_terminal_also_after_a_restart() {
    run(async {
        let place = bosses();
        let daemon = place.start().await;
        let script = "\"$abide\" spawn --agent build '[boss]' && echo spawned && read go && \
                      \"$abide\" wait @last";
        let mut one = shell(&place, script);
        one.until("spawned\n");
        let mut other = shell(&place, "\"$abide\" wait @last");
        let (code, shown) = other.end();
        assert_eq!(code, 3, "{shown}");
        assert!(shown.contains("started from this terminal"), "{shown}");
        assert!(shown.contains("abide run"), "{shown}");
        let client = daemon.client().await;
        client.quiet().await;
        // A run that an agent started, and the turn after its end, are newer.
        let listed = client.call("runs.list", json!({})).await;
        assert!(listed["runs"].as_array().unwrap().len() >= 2, "{listed}");

        // Other terminals, and a program without one, have their own `@last`.
        let spawned = at(&place, "x", &["run", "[other]"]);
        assert_eq!(spawned.code, 0, "{}", spawned.err);
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        one.types("\n");
        let (code, shown) = one.end();
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("boss is done"), "{shown}");
        let last = at(&place, "x", &["wait", "@last"]);
        assert_eq!((last.code, last.out.as_str()), (0, "other is done\n"));
        let last = at(&place, "y", &["wait", "@last"]);
        assert_eq!(last.code, 3, "{}", last.err);
        let wanted = "started under this ABIDE_TERMINAL";
        assert!(last.err.contains(wanted), "{}", last.err);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_chat_and_a_spawn_with_meta_of_its_own_start_counts_as_well() {
    run(async {
        let place = bosses();
        let daemon = place.start().await;
        let meta = ["spawn", "[other]", "--meta", "{\"ticket\":7}"];
        let spawned = at(&place, "x", &meta);
        assert_eq!(spawned.code, 0, "{}", spawned.err);
        let id = spawned.out.trim();
        let shown = daemon.client().await.run(id).await;
        assert_eq!(shown["meta"]["ticket"], 7, "{shown}");
        let last = at(&place, "x", &["wait", "@last", "--json"]);
        let waited: Value = serde_json::from_str(&last.out).unwrap();
        assert_eq!(waited["runs"][0]["runId"], id);

        let mut chat = place.command(&["chat"]);
        chat.env("ABIDE_TERMINAL", "x").stdin(Stdio::piped());
        chat.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut chat = chat.spawn().unwrap();
        std::io::Write::write_all(&mut chat.stdin.take().unwrap(), b"[other] again\n").unwrap();
        assert!(chat.wait_with_output().unwrap().status.success());
        let last = at(&place, "x", &["history", "@last"]);
        assert!(last.out.contains("[other] again"), "{}", last.out);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Every command that takes a run or session; `NAME` is replaced by the name under test.
const COMMANDS: &[&[&str]] = &[
    &["wait", "NAME"],
    &["attach", "NAME"],
    &["steer", "NAME", "text"],
    &["cancel", "NAME"],
    &["cancel", "NAME", "--all"],
    &["retry", "NAME"],
    &["review", "NAME", "done"],
    &["env", "NAME"],
    &["logs", "NAME"],
    &["logs", "--follow", "NAME"],
    &["history", "NAME"],
    &["inbox", "NAME"],
    &["inbox", "--retry", "NAME"],
    &["inbox", "--dismiss", "NAME"],
    &["ps", "--tree", "NAME"],
    &["usage", "--tree", "NAME"],
    &["events", "--run", "NAME"],
    &["events", "--tree", "NAME"],
    &["events", "--session", "NAME"],
    &["send", "NAME", "text"],
    &["send", "--from", "NAME", "agent:build:chat", "text"],
    &["run", "--session", "NAME", "[other]"],
    &["spawn", "--session", "NAME", "[other]"],
    &["spawn", "--parent", "NAME", "[other]"],
    &["chat", "NAME"],
    &["chat", "--session", "NAME"],
    &["skills", "refresh", "NAME"],
    &["sessions", "patch", "NAME", "--title", "x"],
    &["sessions", "reset", "NAME"],
    &["sessions", "delete", "NAME"],
    &["sessions", "compact", "NAME"],
];

fn named<'a>(command: &[&'a str], name: &'a str) -> Vec<&'a str> {
    let word = |word: &&'a str| if *word == "NAME" { name } else { *word };
    command.iter().map(word).collect()
}

#[test]
fn the_table_has_every_command_that_takes_a_run_or_a_session() {
    let place = bosses();
    let pages = |words: &[&str]| at(&place, "x", &[words, &["--help"]].concat()).out;
    // Command names are indented by two blanks.
    let names = |page: &str| -> Vec<String> {
        page.lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
            .map(|(name, _)| name.to_owned())
            .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()))
            .collect()
    };
    let top = names(&pages(&[]));
    assert!(top.len() > 30, "{top:?}");
    let mut lines: Vec<Vec<String>> = Vec::new();
    for name in &top {
        lines.push(vec![name.clone()]);
        let below = names(&pages(&[name]));
        lines.extend(below.into_iter().map(|sub| vec![name.clone(), sub]));
    }
    let takes = |page: &str| {
        ["<RUN", "[RUN", "<SESSION", "[SESSION"]
            .iter()
            .any(|value| page.contains(value))
    };
    for line in lines {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let page = pages(&words);
        // A line that only looks like a command has no help page.
        let Some((_, options)) = page.split_once("Usage:") else {
            continue;
        };
        let is_there = COMMANDS.iter().any(|command| command.starts_with(&words));
        assert!(
            is_there || !takes(options),
            "{words:?} is missing in the table"
        );
    }
}

#[test]
fn every_command_refuses_the_same_names_in_the_same_words() {
    run(async {
        let place = bosses();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..2 {
            let spawned = client
                .spawn(json!({ "task": "[other]", "label": "twice" }))
                .await;
            client.ended(&spawned.id).await;
        }
        client.quiet().await;
        let before = client.call("runs.list", json!({})).await;
        for command in COMMANDS {
            let refused = at(&place, "x", &named(command, "nothing"));
            assert_eq!(refused.code, 3, "{command:?}: {}", refused.err);
            let wanted = "no run or session matches \"nothing\"";
            assert!(refused.err.contains(wanted), "{command:?}: {}", refused.err);

            let refused = at(&place, "x", &named(command, "twice"));
            assert_eq!(refused.code, 2, "{command:?}: {}", refused.err);
            let wanted = "2 runs or sessions match \"twice\"; nothing was done";
            assert!(refused.err.contains(wanted), "{command:?}: {}", refused.err);
            for entry in before["runs"].as_array().unwrap() {
                let id = entry["runId"].as_str().unwrap();
                assert!(refused.err.contains(&id[28..]), "{}", refused.err);
            }

            let refused = at(&place, "x", &named(command, "@last"));
            assert_eq!(refused.code, 3, "{command:?}: {}", refused.err);
            let wanted = "no kept run was started under this ABIDE_TERMINAL";
            assert!(refused.err.contains(wanted), "{command:?}: {}", refused.err);
        }
        let after = client.call("runs.list", json!({})).await;
        assert_eq!(before, after, "nothing was done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_form_of_a_name_means_the_same_run_and_session() {
    run(async {
        let place = bosses();
        let daemon = place.start().await;
        let done = at(&place, "x", &["run", "[other]", "--label", "unique"]);
        assert_eq!(done.code, 0, "{}", done.err);
        let client = daemon.client().await;
        let only = client.call("runs.list", json!({})).await["runs"][0].clone();
        let id = only["runId"].as_str().unwrap();
        let key = only["sessionKey"].as_str().unwrap();
        let end = &key[key.len() - 8..];
        for name in [id, &id[28..], &id[..18], "unique", key, end, "@last"] {
            for (command, shown) in [
                (&["wait", "NAME"][..], "other is done\n"),
                (&["history", "NAME"], "other is done"),
                (&["logs", "NAME"], "model script/x"),
                (&["ps", "--no-trunc", "--tree", "NAME"], "unique"),
                (&["cancel", "NAME"], "\n"),
                (
                    &["sessions", "patch", "NAME", "--json", "--title", "t"],
                    key,
                ),
            ] {
                let answer = at(&place, "x", &named(command, name));
                assert_eq!(answer.code, 0, "{name} {command:?}: {}", answer.err);
                assert!(
                    answer.out.contains(shown),
                    "{name} {command:?}: {}",
                    answer.out
                );
            }
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A command that keeps running; it is killed on drop.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_session_is_attached_to_by_its_end_and_a_run_by_its_label() {
    run(async {
        let place = bosses();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("agent", "talk").await;
        let turn = client.turn(&root, "[other]").await;
        client.ended(&turn.id).await;
        let attach = |name: &str| {
            let out = std::fs::File::create(place.path().join("attached")).unwrap();
            let mut command = place.command(&["attach", name]);
            Going(
                command
                    .stdout(out.try_clone().unwrap())
                    .stderr(out)
                    .spawn()
                    .unwrap(),
            )
        };
        for name in ["talk", &root, &root[root.len() - 8..]] {
            let _going = attach(name);
            eventually(name, async || {
                let text = std::fs::read_to_string(place.path().join("attached")).unwrap();
                text.contains(&format!("{root} is idle")).then_some(())
            })
            .await;
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The agents of the runs that were spawned from this session.
async fn agents_below(client: &Link, parent: &str) -> Vec<String> {
    let listed = client.call("runs.list", json!({ "parent": parent })).await;
    let mut agents: Vec<String> = listed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["agent"].as_str().unwrap().to_owned())
        .collect();
    agents.reverse();
    agents
}

#[test]
fn a_name_of_an_agent_is_read_alike_by_the_protocol_and_by_the_tools() {
    let spawn = |agent: &str| json!({ "task": "[kid]", "agent": agent });
    let names = [" explore ", "explore", "", "  "];
    let place = Place::new(
        Script::new()
            .on(
                "[boss]",
                names
                    .iter()
                    .map(|name| calls("sessions_spawn", spawn(name)))
                    .chain([
                        calls("sessions_spawn", spawn("exp lore")),
                        says("boss is done"),
                    ]),
            )
            .on("[kid]", [says("kid is done")])
            .on_announce("kid is done", [says("noted")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        for name in names {
            let asked = json!({ "task": "[kid]", "agent": name, "parent": root });
            client.call("sessions.spawn", asked).await;
        }
        // Without a name: the default agent, and for a tool the caller's own.
        let expected = ["explore", "explore", "build", "build"];
        assert_eq!(agents_below(&client, &root).await, expected);
        let refused = client.refused("sessions.spawn", spawn("exp lore")).await;
        assert_eq!(crate::harness::kind_of(&refused), "not_found");
        let found = client
            .call("agents.get", json!({ "agent": " explore " }))
            .await;
        assert_eq!(found["name"], "explore", "{found}");

        let boss = client.turn("agent:build:a", "[boss]").await;
        client.ended(&boss.id).await;
        assert_eq!(agents_below(&client, "agent:build:a").await, expected);
        let history = json!({ "sessionKey": "agent:build:a", "tools": true });
        let told = client.call("sessions.history", history).await.to_string();
        assert!(
            told.contains("no agent \\\\\"exp lore\\\\\"") || told.contains("exp lore"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
