//! Special files in a workspace, and file systems that do not respond: they block neither the tools
//! that read them nor anything else.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::harness::{Faults, Link, Place, Script, calls, eventually, run, says};

fn pipe(path: &Path) {
    mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap();
}

/// The tool results in this session.
async fn tool_results(client: &Link, session: &str) -> Vec<String> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn pipes_without_a_writer_hold_up_no_call_and_no_stop() {
    let every = |tool: &str| match tool {
        "list" => json!({ "path": ".", "depth": 8 }),
        "glob" => json!({ "pattern": "*.rs" }),
        "grep" => json!({ "pattern": "alpha" }),
        _ => json!({ "path": "pipe" }),
    };
    let mut answer = calls("list", every("list"));
    for tool in ["glob", "grep", "read"] {
        answer = answer.and(tool, every(tool));
    }
    for (tool, rest) in [
        ("write", json!({ "path": "pipe", "content": "x" })),
        (
            "edit",
            json!({ "path": "pipe", "old_text": "a", "new_text": "b" }),
        ),
        ("skill", json!({ "name": "odd", "path": "pipe" })),
    ] {
        answer = answer.and(tool, rest);
    }
    let place = Place::new(Script::new().on("[look]", [answer, says("done")])).with_agent(
        "worker",
        "mode: primary\ntools: [list, glob, grep, read, write, edit, skill]\ngate: {write: allow, \
         edit: allow}",
    );
    let work = place.work();
    fs::create_dir_all(work.join(".git/info")).unwrap();
    crate::skills::put(&work, "skills/odd", "An odd one.", "Look.");
    for name in [
        ".ignore",
        ".gitignore",
        ".git/info/exclude",
        "src/.gitignore",
        "pipe",
        "AGENTS.md",
        "skills/odd/pipe",
    ] {
        pipe(&work.join(name));
    }
    fs::create_dir_all(work.join("skills/piped")).unwrap();
    pipe(&work.join("skills/piped/SKILL.md"));
    fs::create_dir_all(work.join(".abide/agents")).unwrap();
    pipe(&work.join(".abide/agents/piped.md"));
    pipe(&place.path().join(".config/abide/agents/piped.md"));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[look]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        let told = tool_results(&client, &spawned.session).await;
        assert_eq!(told.len(), 7, "{told:?}");
        let has = |parts: &[&str]| {
            let fits = |text: &&String| parts.iter().all(|part| text.contains(part));
            assert!(told.iter().any(|text| fits(&text)), "{parts:?}: {told:?}");
        };
        has(&[
            "src/one.rs",
            "src/two.rs",
            ".gitignore was skipped: it is not a regular file",
        ]);
        has(&["notes.txt:1: alpha", ".git/info/exclude was skipped"]);
        has(&["pipe: it is not a regular file"]);
        has(&["of skill odd: it is not a regular file"]);
        let status = client.call("gateway.status", json!({})).await;
        assert!(
            !status.to_string().contains("are stuck in the file system"),
            "{status}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A file system that never responds, for every call: the failpoint blocks each thread that was
/// started for a file.
fn unanswered() -> (Place, Faults) {
    let read = calls("read", json!({ "path": "notes.txt" }));
    let place = Place::new(Script::new().on("[look]", [read, says("done")]))
        .with_agent("worker", "mode: primary\ntools: [read]")
        .with("runner.tool_timeout", "\"1s\"");
    (place, Faults::ordered("file_work.calls=hang@1+"))
}

#[test]
fn calls_that_no_file_system_answers_end_at_their_limit_and_nothing_else_waits_for_them() {
    let (place, faults) = unanswered();
    run(async {
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let mut runs = Vec::new();
        for _ in 0..600 {
            let params = json!({ "task": "[look]", "agent": "worker" });
            runs.push(client.spawn(params).await);
        }
        // Every other call is answered meanwhile.
        let other = daemon.client().await;
        let status: Value = eventually("a notice", async || {
            let status = other.call("gateway.status", json!({})).await;
            status
                .to_string()
                .contains("are stuck in the file system")
                .then_some(status)
        })
        .await;
        assert!(
            status["notices"].to_string().contains("tool calls"),
            "{status}"
        );
        other.call("runs.list", json!({})).await;
        other.call("agents.list", json!({})).await;
        other.call("skills.list", json!({})).await;
        let found = other.call("gateway.doctor", json!({})).await;
        assert!(found.to_string().contains("files.answer"), "{found}");
        let ended = client.ended(&runs[0].id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        let told = tool_results(&client, &runs[0].session).await;
        assert!(
            told[0].contains("was stopped after 1s") || told[0].contains("not called"),
            "{told:?}"
        );
        daemon.terminate();
        daemon.terminate();
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_pipe_or_a_file_of_others_in_the_stores_place_is_refused_at_once() {
    use std::os::unix::fs::{PermissionsExt, chown};

    for what in ["pipe", "other's", "writable", "log"] {
        let place = Place::new(Script::new());
        fs::create_dir_all(place.state()).unwrap();
        fs::set_permissions(place.state(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(place.state().join("token"), "0123456789abcdef0123").unwrap();
        let database = place.database();
        match what {
            "pipe" => pipe(&database),
            "log" => pipe(&place.state().join("abide.db-wal")),
            _ => fs::write(&database, "").unwrap(),
        }
        if what == "writable" {
            fs::set_permissions(&database, fs::Permissions::from_mode(0o666)).unwrap();
        }
        if what == "other's" && chown(&database, Some(65534), None).is_err() {
            // Only root can create one.
            continue;
        }
        let started = place.command(&["serve"]).output().unwrap();
        let told = String::from_utf8(started.stderr).unwrap();
        assert_eq!(started.status.code(), Some(77), "{what}: {told}");
        let why = match what {
            "other's" => "it is owned by user 65534",
            "writable" => "other users can write to it (mode 666)",
            _ => "it is a pipe or a device",
        };
        assert!(told.contains(why), "{what}: {told}");
        assert!(!told.contains("empty one is created"), "{what}: {told}");
        let doctor = place.command(&["doctor"]).output().unwrap();
        let told = String::from_utf8(doctor.stdout).unwrap();
        assert!(told.contains("store.integrity"), "{what}: {told}");
    }
}

#[test]
fn settings_that_every_user_may_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new(Script::new());
    let file = place.path().join("abide.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let started = place.command(&["serve"]).output().unwrap();
    let told = String::from_utf8(started.stderr).unwrap();
    assert_eq!(started.status.code(), Some(78), "{told}");
    assert!(
        told.contains("any user can write to it (mode 666)"),
        "{told}"
    );
}
