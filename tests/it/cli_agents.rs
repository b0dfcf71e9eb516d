//! `abide agents` and `abide trust` on the command line.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::agents::{place, write};
use crate::harness::{Place, run};

fn abide(place: &Place, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = place.command(arguments);
    command.current_dir(folder);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn agents_are_checked_without_a_daemon() {
    let place = place();
    let folder = place.path().join("files");
    write(&folder, "good.md", "tools: [read, web]\n", "x");
    fs::write(folder.join("bad.toml"), "description = \n").unwrap();
    let (code, out, _) = abide(&place, &folder, &["agents", "check", "good.md"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("good.md: agent good"), "{out}");
    assert!(out.contains("no tool web"), "{out}");
    let (code, out, _) = abide(&place, &folder, &["agents", "check", "good.md", "bad.toml"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("bad.toml:1: not TOML"), "{out}");
    let json_form = ["agents", "check", "bad.toml", "none.md", "--json"];
    let (code, out, _) = abide(&place, &folder, &json_form);
    assert_eq!(code, 1);
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["ok"], &lines[0]["line"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(lines[1]["ok"], false);
    // The other subcommands report that no daemon is running.
    let (code, _, error) = abide(&place, &folder, &["agents"]);
    assert_eq!(code, 10, "{error}");
    assert!(error.contains("abide serve"), "{error}");
}

#[test]
fn a_gate_that_names_a_tool_which_the_agent_does_not_have_is_found_with_its_line() {
    let place = place();
    let folder = place.path().join("files");
    let check = |name: &str, fields: &str| {
        write(&folder, name, fields, "x");
        abide(&place, &folder, &["agents", "check", name])
    };
    let fields = "tools: [read, write]\ngate:\n  read: allow\n  write: deny\n  shell: ask\n";
    let (code, out, _) = check("block.md", fields);
    assert_eq!(code, 0, "{out}");
    assert_eq!(out.matches("block.md:").count(), 2, "{out}");
    let warning = "   block.md:7: gate: the agent does not have the tool shell, so this rule has \
                   no effect; add shell to tools, or remove the rule\n";
    assert!(out.contains(warning), "{out}");
    // On one line, as a pattern, under the name of another program, and of a program.
    for (fields, found) in [
        (
            "tools: [read]\ngate: {read: ask, fetch: deny}\n",
            "inline.md:4: gate: the agent",
        ),
        (
            "tools: [read]\ngate: {\"sessions_*\": ask}\n",
            "does not have the tool sessions_*",
        ),
        (
            "tools: [read]\ngate: {Bash: ask}\n",
            "inline.md:4: gate: the agent does not have",
        ),
        (
            "tools: [read, shell]\ngate: {\"*\": ask, sh*: deny, files__read: ask}\n",
            "ok inline",
        ),
        ("gate: {write: ask, task: ask}\n", "ok inline"),
        (
            "runner: command\ncommand: {argv: [sh]}\ngate: {command: ask}\n",
            "ok inline",
        ),
    ] {
        let (code, out, _) = check("inline.md", fields);
        assert_eq!(code, 0, "{fields}: {out}");
        assert!(out.contains(found), "{fields}: {out}");
        let is_good = found.starts_with("ok");
        assert_eq!(
            !out.contains("gate: the agent does not have"),
            is_good,
            "{out}"
        );
    }
    // A restriction of a tool that does not exist would be none.
    let (code, out, _) = check("none.md", "gate:\n  shel: ask\n");
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("none.md:3: gate: tool \"shel\" is unknown"),
        "{out}"
    );
    assert!(out.contains("did you mean \"shell\"?"), "{out}");
    let (_, out, _) = check("none.md", "gate: {qqq: deny}\n");
    assert!(
        out.contains("correct the name or remove it; the tools are read, "),
        "{out}"
    );
}

#[test]
fn agents_and_trust_from_the_command_line() {
    run(async {
        let place = place();
        let project = place.path().join("project");
        fs::create_dir_all(project.join(".git")).unwrap();
        write(
            &project.join(".abide/agents"),
            "deploy.md",
            "env: {A: b}\n",
            "deploy",
        );
        write(&place.path().join("made"), "helper.md", "", "helper");
        let daemon = place.start().await;
        let ask = |arguments: &[&str]| abide(&place, &project, arguments);

        let (code, out, error) = ask(&["agents"]);
        assert_eq!(code, 0, "{error}");
        assert!(out.contains("deploy"), "{out}");
        assert!(out.contains("! it uses env"), "{out}");
        let (code, out, _) = ask(&["agents", "list", "--for", "task", "--json"]);
        assert_eq!(code, 0);
        let listed: Value = serde_json::from_str(&out).unwrap();
        assert!(listed["agents"].to_string().contains("explore"), "{out}");

        let (code, _, error) = ask(&["spawn", "[a]", "--agent", "deploy"]);
        assert_eq!(code, 9, "{error}");
        assert!(error.contains("abide trust"), "{error}");
        let (code, out, error) = ask(&["trust", "."]);
        assert_eq!(code, 0, "{error}");
        assert!(out.contains(".abide/agents/deploy.md: env"), "{out}");
        let (code, _, error) = ask(&["spawn", "[a]", "--agent", "deploy"]);
        assert_eq!(code, 0, "{error}");
        let (_, out, _) = ask(&["trust", "--list"]);
        assert!(out.contains("trusted"), "{out}");
        write(
            &project.join(".abide/agents"),
            "deploy.md",
            "env: {A: c}\n",
            "deploy",
        );
        let (_, out, _) = ask(&["trust", "--list", "--json"]);
        assert!(out.contains("\"changed\""), "{out}");
        let (code, out, _) = ask(&["trust", ".", "--revoke"]);
        assert_eq!(code, 0, "{out}");
        let (code, _, error) = ask(&["trust", ".", "--revoke"]);
        assert_eq!(code, 3, "{error}");
        let (code, _, error) = ask(&["trust", ".abide"]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("name that folder"), "{error}");

        let (code, out, error) = ask(&["agents", "create", "-f", "../made/helper.md"]);
        assert_eq!(code, 0, "{error}");
        assert!(out.contains("helper is stored"), "{out}");
        let (code, out, _) = ask(&["agents", "show", "helper"]);
        assert_eq!(code, 0);
        assert!(out.contains("stored (revision 1)"), "{out}");
        assert_eq!(ask(&["agents", "delete", "helper"]).0, 0);
        assert_eq!(ask(&["agents", "delete", "helper"]).0, 3);
        let (code, _, error) = ask(&["agents", "show", "exlpore"]);
        assert_eq!(code, 3);
        assert!(error.contains("did you mean explore?"), "{error}");
        assert_eq!(ask(&["agents", "reload"]).0, 0);
        let client = daemon.client().await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_new_agents_file_is_written_once_and_counts_at_once() {
    run(async {
        // No file notification arrives in time.
        let place = place()
            .with("agents.watch", "\"poll\"")
            .with("agents.poll_each", "\"1h\"");
        let daemon = place.start().await;
        let ask = |arguments: &[&str]| abide(&place, place.path(), arguments);
        let new = ["agents", "new", "fresh", "--description", "Says: \"hello\""];
        let (code, out, told) = ask(&new);
        assert_eq!(code, 0, "{told}");
        assert!(
            out.trim().ends_with(".config/abide/agents/fresh.md"),
            "{out}"
        );
        assert!(told.contains("abide run --agent fresh"), "{told}");
        let (code, out, told) = ask(&["run", "--agent", "fresh", "[a]"]);
        assert_eq!((code, out.trim()), (0, "a is done"), "{told}");
        let (code, out, _) = ask(&["agents", "check", ".config/abide/agents/fresh.md"]);
        assert_eq!(code, 0, "{out}");
        assert_eq!(out.lines().count(), 1, "no warning: {out}");
        let (_, out, _) = ask(&["agents", "show", "fresh", "--json"]);
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(shown["description"], "Says: \"hello\"");
        // A second `new` does not overwrite the existing file.
        fs::write(place.path().join(".config/abide/agents/fresh.md"), "mine").unwrap();
        let (code, _, told) = ask(&new);
        assert_eq!(code, 9, "{told}");
        let kept = fs::read_to_string(place.path().join(".config/abide/agents/fresh.md"));
        assert_eq!(kept.unwrap(), "mine");
        assert_eq!(ask(&["agents", "new", "../out"]).0, 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_new_agent_of_a_project_is_opened_in_the_editor_and_checked() {
    let place = place();
    let mut command = place.command(&["agents", "new", "local", "--project", "--edit"]);
    let Output { status, stdout, .. } = command
        .env("PATH", "/usr/bin:/bin")
        .env("EDITOR", "sed -i 's/# thinking/thinkin/'")
        .output()
        .unwrap();
    let out = String::from_utf8(stdout).unwrap();
    assert_eq!(status.code(), Some(0), "{out}");
    assert!(out.contains("did you mean \"thinking\"?"), "{out}");
    assert!(place.path().join(".abide/agents/local.md").exists());
    // Without an editor, no file is written.
    let (code, _, told) = abide(&place, place.path(), &["agents", "new", "b", "--edit"]);
    assert_eq!(code, 2, "{told}");
    assert!(!place.path().join(".config/abide/agents/b.md").exists());
}
