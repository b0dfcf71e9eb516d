//! A service from its installation to its removal, under systemd and launchd.

use std::fs;

use serde_json::json;

use super::manager::{Kind, ScriptedManager, told};
use crate::harness::{Link, Place, Script, run, says};

fn place() -> Place {
    Place::new(Script::new().on("[held]", [says("held is done").held_by("go")]))
        .with("gateway.drain_timeout", "\"0s\"")
}

/// A connection to the service's daemon.
async fn client(manager: &ScriptedManager) -> Link {
    let socket = manager.place().state().join("abide.sock");
    Link::local(&socket).await.unwrap()
}

/// The variables of the service's daemon.
fn variables(manager: &ScriptedManager) -> Vec<String> {
    let environ = fs::read(format!("/proc/{}/environ", manager.pid())).unwrap();
    let parts = environ.split(|byte| *byte == 0);
    parts
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

#[test]
fn a_service_is_installed_verified_shown_and_removed_and_its_state_stays() {
    let place = place()
        .with("providers.chat.base_url", "\"http://127.0.0.1:9/v1\"")
        .with("providers.chat.api_key_env", "\"KEY_OF_CHAT\"");
    let manager = ScriptedManager::new(place, Kind::Systemd);
    let (state, unit) = (manager.place().state(), manager.unit());
    let mut install = manager.command(&["service", "install", "--yes"]);
    install.env("ABIDE_LANES__MAIN", "5");
    install.env("KEY_OF_CHAT", "secret");
    let installed = told(&mut install);
    assert_eq!(installed.code, 0, "{}", installed.err);
    let pid = manager.pid();
    assert!(
        installed.out.contains(&format!("process {pid}")),
        "{}",
        installed.out
    );
    // What is recorded was shown, and reaches the daemon; secrets are named and left out.
    let path = format!("PATH={}", manager.folder().join("bin").display());
    assert!(installed.err.contains(&path), "{}", installed.err);
    assert!(
        installed.err.contains("no place for secrets: KEY_OF_CHAT"),
        "{}",
        installed.err
    );
    assert!(
        installed.err.contains("lingering is off"),
        "{}",
        installed.err
    );
    let has = variables(&manager);
    assert!(
        has.contains(&path) && has.contains(&"ABIDE_LANES__MAIN=5".to_owned()),
        "{has:?}"
    );
    assert!(!fs::read_to_string(&unit).unwrap().contains("secret\""));
    // It is the shipped unit.
    let text = fs::read_to_string(&unit).unwrap();
    assert!(
        text.contains("KillMode=process") && text.contains("WatchdogSec=60"),
        "{text}"
    );

    let shown = manager.abide(&["service", "status", "--json"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let shown = shown.json();
    assert_eq!(shown["service"]["enabled"], true);
    assert_eq!(shown["service"]["pid"], pid);
    assert_eq!(shown["daemon"]["pid"], pid);
    assert_eq!(shown["lingering"], false);
    assert_eq!(shown["drift"], json!(null));
    let text = manager.abide(&["service", "status"]);
    assert!(
        text.out.contains("at login, and it ends at logout"),
        "{}",
        text.out
    );
    assert!(text.out.contains("programs of runs go on"), "{}", text.out);

    let logs = manager.abide(&["service", "logs", "-n", "3", "--follow"]);
    assert_eq!(logs.code, 0, "{}", logs.err);
    let asked = "journalctl --user --unit abide.service --lines 3 --output cat --follow";
    assert!(manager.calls().contains(asked), "{}", manager.calls());
    assert!(logs.out.contains("ready"), "{}", logs.out);

    let removed = manager.abide(&["service", "uninstall"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(!unit.exists() && manager.pid() == 0);
    assert!(state.join("abide.db").exists() && state.join("env.key").exists());
    let kept = format!("sessions, runs, keys and tokens in {}", state.display());
    assert!(removed.err.contains(&kept), "{}", removed.err);
    assert!(
        removed.err.contains(&format!("rm -r {}", state.display())),
        "{}",
        removed.err
    );
    let again = manager.abide(&["service", "uninstall", "--json"]);
    assert_eq!(
        (again.code, again.json()["uninstalled"].clone()),
        (0, json!(false))
    );
    assert_eq!(manager.abide(&["service", "status"]).code, 3);
}

#[test]
fn lingering_is_switched_on_where_it_is_asked_for() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let installed = manager.abide(&["service", "install", "--yes", "--linger", "--json"]);
    assert_eq!(installed.json()["lingering"], true, "{}", installed.err);
    let shown = manager.abide(&["service", "status"]);
    assert!(shown.out.contains("also without a login"), "{}", shown.out);
    assert!(!shown.err.contains("loginctl"), "{}", shown.err);
}

#[test]
fn a_stop_keeps_the_runs_and_with_runs_it_cancels_all_of_them_first() {
    run(async {
        let manager = ScriptedManager::new(place(), Kind::Systemd);
        let command = [
            "service",
            "install",
            "--yes",
            "--json",
            "--socket-activation",
        ];
        let installed = manager.abide(&command);
        assert_eq!(installed.code, 0, "{}", installed.err);
        let client = client(&manager).await;
        let task = json!({ "task": "[held]", "agent": "explore" });
        let held = client.spawn(task).await;
        client.in_state(&held.id, "running").await;
        let stopped = manager.abide(&["service", "stop"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        assert!(
            stopped.out.contains("all accepted work is kept"),
            "{}",
            stopped.out
        );
        assert_ne!(manager.place().book().runs[&held.id].state, "cancelled");
        // The socket would start it again.
        let calls = manager.calls();
        let socket = calls.find("stop abide.socket").unwrap();
        assert!(
            socket < calls.rfind("stop abide.service").unwrap(),
            "{calls}"
        );
        assert_eq!(manager.abide(&["service", "status"]).code, 10);

        let restarted = manager.abide(&["service", "restart", "--json"]);
        assert_eq!(restarted.json()["restarted"], true, "{}", restarted.err);
        let stopped = manager.abide(&["service", "stop", "--with-runs", "--json"]);
        assert_eq!(
            stopped.json(),
            json!({ "stopped": true, "cancelled": 1 }),
            "{}",
            stopped.err
        );
        assert_eq!(manager.place().book().runs[&held.id].state, "cancelled");
        assert_eq!(manager.pid(), 0);
    });
}

#[test]
fn a_unit_that_was_changed_is_found_and_written_again() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let doctor = |manager: &ScriptedManager| {
        let found = manager.abide(&["doctor", "--json"]).json();
        let findings = found["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|one| one["id"] == "service.unit")
    };
    assert_eq!(doctor(&manager), None);
    assert_eq!(manager.abide(&["service", "install", "--yes"]).code, 0);
    assert_eq!(doctor(&manager).unwrap()["status"], "ok");
    let text = fs::read_to_string(manager.unit()).unwrap();
    let changed = text.replace("KillMode=process", "KillMode=control-group");
    fs::write(manager.unit(), changed).unwrap();
    let found = doctor(&manager).unwrap();
    assert_eq!(found["status"], "warn", "{found}");
    let message = "the installed unit differs from what this version of abide would write";
    for command in [
        &["service", "status"][..],
        &["service", "restart"],
        &["status"],
    ] {
        let told = manager.abide(command);
        assert_eq!(told.code, 0, "{}", told.err);
        assert!(told.err.contains(message), "{command:?}: {}", told.err);
    }
    assert_eq!(manager.abide(&["service", "install", "--yes"]).code, 0);
    assert_eq!(doctor(&manager).unwrap()["status"], "ok");

    // A unit of another origin is not judged by its lines.
    fs::write(manager.unit(), "[Service]\nExecStart=/bin/true\n").unwrap();
    assert!(doctor(&manager).is_none_or(|found| found["status"] == "warn"));
}

#[test]
fn under_launchd_a_service_has_the_same_commands() {
    run(async {
        let manager = ScriptedManager::new(place(), Kind::Launchd);
        let installed = manager.abide(&["service", "install", "--yes"]);
        assert_eq!(installed.code, 0, "{}", installed.err);
        let agents = manager.place().path().join("Library/LaunchAgents");
        let list = agents.join("org.abide.daemon.plist");
        let text = fs::read_to_string(&list).unwrap();
        assert!(text.contains("<key>AbandonProcessGroup</key>"), "{text}");
        let path = format!("PATH={}", manager.folder().join("bin").display());
        assert!(variables(&manager).contains(&path));
        let first = manager.pid();
        let shown = manager.abide(&["service", "status", "--json"]).json();
        assert_eq!(shown["daemon"]["pid"], first, "{shown}");
        assert_eq!(shown["manager"], "launchd");

        let restarted = manager.abide(&["service", "restart"]);
        assert_eq!(restarted.code, 0, "{}", restarted.err);
        assert_ne!(manager.pid(), first);
        let logs = manager.abide(&["service", "logs"]);
        assert!(logs.out.contains("ready"), "{} {}", logs.out, logs.err);
        let stopped = manager.abide(&["service", "stop"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        assert_eq!(manager.abide(&["service", "status"]).code, 10);
        assert_eq!(manager.abide(&["service", "uninstall"]).code, 0);
        assert!(!list.exists());
        for refused in ["--system", "--socket-activation"] {
            let told = manager.abide(&["service", "install", "--yes", refused]);
            assert!([2, 9].contains(&told.code), "{}", told.err);
        }
    });
}
