//! A service from its installation to its removal, under systemd and launchd.

use std::fs;

use serde_json::{Value, json};

use super::manager::{Kind, ScriptedManager, told};
use super::{client, place};
use crate::harness::{Link, run};
use crate::house::root;

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
        assert!(variables(&manager).contains(&"LISTEN_FDS=2".to_owned()));
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

        // The sockets are back after it.
        assert_eq!(listening(&manager), false);
        let restarted = manager.abide(&["service", "restart", "--json"]);
        assert_eq!(restarted.json()["restarted"], true, "{}", restarted.err);
        assert_eq!(listening(&manager), true);
        assert!(variables(&manager).contains(&"LISTEN_FDS=2".to_owned()));
        let calls = manager.calls();
        let reset = calls.rfind("reset-failed abide.service").unwrap();
        assert!(
            reset < calls.rfind("restart --no-block").unwrap(),
            "{calls}"
        );
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
}

/// Whether the manager listens for the service.
fn listening(manager: &ScriptedManager) -> Value {
    let shown = manager.abide(&["service", "status", "--json"]).json();
    shown["service"]["listening"].clone()
}

/// The finding of `abide doctor` on the unit.
fn doctor(manager: &ScriptedManager) -> Option<Value> {
    let found = manager.abide(&["doctor", "--json"]).json();
    let findings = found["findings"].as_array().unwrap().clone();
    findings.into_iter().find(|one| one["id"] == "service.unit")
}

#[test]
fn a_stop_with_runs_ends_the_runs_of_every_org_also_if_the_daemon_is_down() {
    run(async {
        let manager = ScriptedManager::new(place(), Kind::Systemd);
        // Nothing is there yet that could be open.
        assert_eq!(manager.abide(&["service", "install", "--yes"]).code, 0);
        let made = [
            "tokens", "create", "--org", "other", "--user", "eve", "--scope", "read,run",
        ];
        let made = manager.abide(&[&made[..], &["--json"]].concat());
        assert_eq!(made.code, 0, "{}", made.err);
        let secret = made.json()["secret"].as_str().unwrap().to_owned();
        let shown = manager.abide(&["service", "status", "--json"]).json();
        let url = shown["daemon"]["url"].as_str().unwrap();
        let (owner, other) = (
            client(&manager).await,
            Link::with_token(url, &secret).await.unwrap(),
        );
        let mut held = Vec::new();
        for link in [&owner, &other, &other] {
            let task = json!({ "task": "[held]", "agent": "explore" });
            let run = link.spawn(task).await;
            link.in_state(&run.id, "running").await;
            held.push(run.id);
        }
        assert_eq!(manager.abide(&["service", "stop"]).code, 0);
        let states = |manager: &ScriptedManager| {
            let book = manager.place().book();
            held.iter()
                .map(|id| book.runs[id].state.clone())
                .collect::<Vec<_>>()
        };
        assert!(!states(&manager).contains(&"cancelled".to_owned()));
        let stopped = manager.abide(&["service", "stop", "--with-runs"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        assert!(
            stopped
                .err
                .contains("it is started to cancel the runs that are open"),
            "{}",
            stopped.err
        );
        assert!(
            stopped.out.contains("3 runs were cancelled"),
            "{}",
            stopped.out
        );
        assert_eq!(states(&manager), ["cancelled"; 3]);
        assert_eq!(manager.pid(), 0);
        let stopped = manager.abide(&["service", "stop", "--with-runs"]);
        assert!(stopped.out.contains("no run was open"), "{}", stopped.out);
    });
}

#[test]
fn a_second_installation_keeps_what_was_chosen_and_says_so() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let mut first = manager.command(&["service", "install", "--yes", "--socket-activation"]);
    first.env("ABIDE_LANES__MAIN", "5");
    let first = told(&mut first);
    assert_eq!(first.code, 0, "{}", first.err);
    let unit = fs::read_to_string(manager.unit()).unwrap();

    let again = manager.unnamed(&["service", "install", "--yes"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(fs::read_to_string(manager.unit()).unwrap(), unit);
    let state = format!("state folder {}", manager.place().state().display());
    for kept in [
        &*state,
        "settings in ",
        "ABIDE_LANES__MAIN=5",
        "--socket-activation",
    ] {
        let line = format!("kept     {kept}");
        assert!(again.err.contains(&line), "{kept}: {}", again.err);
    }
    assert_eq!(listening(&manager), true);

    // A choice replaces what was recorded; an empty variable drops it.
    let print = ["service", "install", "--print", "--json"];
    let mut other = manager.command(&[&print[..], &["--socket-activation=false"]].concat());
    other.env("ABIDE_LANES__MAIN", "");
    let other = told(&mut other).json();
    assert_eq!(other["kept"], json!([]));
    assert_eq!(other["plan"]["listen"], json!(null));
    assert_eq!(
        other["plan"]["environment"]["ABIDE_LANES__MAIN"],
        json!(null)
    );
    let fresh = manager.unnamed(&[&print[..], &["--fresh"]].concat()).json();
    assert_eq!(fresh["kept"], json!([]));
    for gone in ["listen", "stateDir", "config"] {
        assert_eq!(fresh["plan"][gone], json!(null), "{fresh}");
    }
}

#[test]
fn nothing_is_guessed_about_a_unit_that_was_written_by_hand() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let unit = manager.unit();
    fs::create_dir_all(unit.parent().unwrap()).unwrap();
    fs::create_dir_all(manager.place().state()).unwrap();
    fs::write(&unit, "[Service]\nExecStart=/bin/true\n").unwrap();
    let found = doctor(&manager).unwrap();
    assert_eq!(found["status"], "warn", "{found}");
    let message = found["message"].as_str().unwrap();
    assert!(
        message.contains("was not written by abide service install"),
        "{message}"
    );
    let shown = manager.unnamed(&["service", "status"]);
    assert_eq!(shown.code, 10, "{}", shown.err);
    for command in [
        &["service", "restart"][..],
        &["service", "stop", "--with-runs"],
    ] {
        let refused = manager.unnamed(&[command, &["--json"]].concat());
        assert_eq!(refused.code, 9, "{command:?}: {}", refused.err);
        assert_eq!(refused.json()["error"]["kind"], "unknown_folder");
    }
    let installed = manager.unnamed(&["service", "install", "--print"]);
    assert!(
        installed.err.contains("nothing of it is kept"),
        "{}",
        installed.err
    );
    let removed = manager.unnamed(&["service", "uninstall"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(!removed.err.contains("rm -r"), "{}", removed.err);
    assert!(
        removed.err.contains("where they are is not known"),
        "{}",
        removed.err
    );
    assert!(!unit.exists());
}

#[test]
fn the_unit_of_a_package_is_found_and_left_to_the_package() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let share = manager.place().path().join("share");
    let unit = share.join("systemd/user/abide.service");
    fs::create_dir_all(unit.parent().unwrap()).unwrap();
    let shipped = root().join("packaging/systemd/user/abide.service");
    let shipped = fs::read_to_string(shipped).unwrap();
    fs::write(
        &unit,
        shipped.replace("%h/.cargo/bin/abide", "/usr/bin/abide"),
    )
    .unwrap();
    let abide = |arguments: &[&str]| {
        let mut command = manager.command(arguments);
        command
            .env("XDG_DATA_DIRS", &share)
            .env_remove("ABIDE_STATE_DIR");
        told(&mut command)
    };
    let shown = abide(&["service", "status"]);
    assert_eq!(shown.code, 10, "{}", shown.err);
    let line = format!("{} (of a package)", unit.display());
    assert!(shown.out.contains(&line), "{}", shown.out);
    assert!(!shown.err.contains("was not written by"), "{}", shown.err);
    let found = abide(&["doctor", "--json"]).json();
    let findings = found["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["id"] == "service.unit");
    assert_eq!(found.unwrap()["status"], "ok");
    let removed = abide(&["service", "uninstall"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(
        removed.out.contains("belongs to a package"),
        "{}",
        removed.out
    );
    assert!(unit.exists());
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

        // launchd is still busy with the earlier process.
        fs::write(manager.folder().join("busy"), "2\n").unwrap();
        let restarted = manager.abide(&["service", "restart"]);
        assert_eq!(restarted.code, 0, "{}", restarted.err);
        assert_ne!(manager.pid(), first);
        assert_eq!(manager.calls().matches("launchctl bootstrap").count(), 4);
        let logs = manager.abide(&["service", "logs"]);
        assert!(logs.out.contains("ready"), "{} {}", logs.out, logs.err);
        let stopped = manager.abide(&["service", "stop"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        assert_eq!(manager.abide(&["service", "status"]).code, 10);
        assert_eq!(manager.abide(&["service", "uninstall"]).code, 0);
        assert!(!list.exists());
        for (refused, code, why) in [
            ("--system", 9, "no machine-wide service for launchd"),
            ("--socket-activation", 2, "socket activation is for systemd"),
        ] {
            let told = manager.abide(&["service", "install", "--yes", refused]);
            assert_eq!(told.code, code, "{}", told.err);
            assert!(told.err.contains(why), "{}", told.err);
        }
    });
}
