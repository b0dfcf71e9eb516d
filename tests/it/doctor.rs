//! `abide doctor` and `gateway.doctor`: their findings with the daemon up and down.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Place, Script, damaged, run, says};

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

fn doctor(place: &Place, arguments: &[&str]) -> (i32, Value) {
    let mut line = vec!["doctor", "--json"];
    line.extend(arguments);
    let output = place.command(&line).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    (output.status.code().unwrap(), said)
}

fn finding<'a>(said: &'a Value, id: &str) -> &'a Value {
    let all = said["findings"].as_array().unwrap();
    let found = all.iter().find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {said:#}"))
}

fn status<'a>(said: &'a Value, id: &str) -> &'a str {
    finding(said, id)["status"].as_str().unwrap()
}

#[test]
fn a_fresh_machine_is_well() {
    let place = place();
    let (code, said) = doctor(&place, &[]);
    assert_eq!((code, &said["ok"]), (0, &json!(true)), "{said:#}");
    assert_eq!(status(&said, "store.integrity"), "skip");
    assert!(!place.state().exists(), "looking made a folder");
}

#[test]
fn up_and_down_it_finds_the_same_store() {
    run(async {
        let place = place().with("storage.check_after", "\"1ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "a" })).await;
        client.ended(&a.id).await;
        damaged(&place.database(), "UPDATE runs SET warnings = '{'");
        client.call("runs.list", json!({})).await;
        // The full check reads every table while the daemon works.
        let said = crate::harness::eventually("the full check", || async {
            let said = client.call("gateway.doctor", json!({})).await;
            let checked = finding(&said, "store.integrity")["message"].clone();
            let set_aside = status(&said, "store.quarantine") == "warn";
            (checked.as_str().unwrap().contains("every table") && set_aside).then_some(said)
        })
        .await;
        assert_eq!(said["ok"], true, "{said:#}");
        let quarantine = finding(&said, "store.quarantine")["message"]
            .as_str()
            .unwrap();
        assert!(quarantine.contains("1 of runs"), "{quarantine}");

        let (code, outside) = doctor(&place, &[]);
        assert_eq!(code, 0, "{outside:#}");
        assert_eq!(status(&outside, "daemon.answers"), "ok");
        assert_eq!(status(&outside, "store.quarantine"), "warn");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);

        let (code, down) = doctor(&place, &[]);
        assert_eq!(code, 0, "{down:#}");
        assert_eq!(status(&down, "store.quarantine"), "warn");
        assert_eq!(status(&down, "daemon.last_end"), "ok");
        assert_eq!(status(&down, "gateway.port"), "ok");
    });
}

#[test]
fn what_has_failed_is_said_with_what_to_do() {
    run(async {
        let place = place().with("storage.min_free", "\"9000000 GiB\"");
        let daemon = place.start().await;
        daemon.kill().await;
        let mut bytes = fs::read(place.database()).unwrap();
        bytes[..4096].fill(0);
        fs::write(place.database(), bytes).unwrap();
        let _ = fs::remove_file(place.state().join("abide.db-wal"));
        let token = place.state().join("token");
        fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut place = place;
        let address = taken.local_addr().unwrap().to_string();
        place.set("gateway.listen", &format!("{address:?}"));
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, &said["ok"]), (1, &json!(false)), "{said:#}");
        for id in [
            "store.integrity",
            "folder.permissions",
            "disk.space",
            "gateway.port",
        ] {
            let found = finding(&said, id);
            assert_eq!(found["status"], "fail", "{found}");
            assert!(!found["fix"].as_str().unwrap().is_empty(), "{found}");
        }
        // Only permissions are repaired, and only on request.
        let (_, said) = doctor(&place, &["--fix"]);
        assert_eq!(status(&said, "folder.permissions"), "ok");
        assert_eq!(status(&said, "store.integrity"), "fail");
        let mode = fs::metadata(&token).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // An invalid setting is a finding and does not hide the others.
        place.set("lanes.main", "\"many\"");
        let (code, said) = doctor(&place, &[]);
        assert_eq!(code, 1);
        assert_eq!(status(&said, "config"), "fail");
        // Text output fits the screen.
        let output = place.command(&["doctor"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        assert!(text.contains("FAIL store.integrity"), "{text}");
    });
}

#[test]
fn the_socket_is_looked_at_up_and_down_and_after_a_kill() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let socket = place.state().join("abide.sock");
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, status(&said, "gateway.socket")), (0, "ok"));
        let message = finding(&said, "gateway.socket")["message"].clone();
        let message = message.as_str().unwrap();
        assert!(message.contains("accepts connections"), "{message}");

        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, status(&said, "gateway.socket")), (1, "fail"));
        let fix = finding(&said, "gateway.socket")["fix"].clone();
        assert!(fix.as_str().unwrap().contains("chmod 600"), "{fix}");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();

        daemon.kill().await;
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, status(&said, "gateway.socket")), (0, "warn"));
        let fix = finding(&said, "gateway.socket")["fix"].clone();
        assert!(fix.as_str().unwrap().contains("replaces it"), "{fix}");

        fs::remove_file(&socket).unwrap();
        let (_, said) = doctor(&place, &[]);
        assert_eq!(status(&said, "gateway.socket"), "ok");
        let daemon = place.start().await;
        fs::remove_file(&socket).unwrap();
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, status(&said, "gateway.socket")), (1, "fail"));
        assert_eq!(daemon.stop().await, 0);
        fs::write(&socket, "").unwrap();
        let (code, said) = doctor(&place, &[]);
        assert_eq!((code, status(&said, "gateway.socket")), (1, "fail"));
    });
}

#[test]
fn a_folder_whose_path_is_too_long_for_a_socket_is_told_of() {
    let mut place = place();
    let deep = place.path().join("long/".repeat(25)).join("state");
    let state = deep.to_str().unwrap();
    let (code, said) = doctor(&place, &["--state-dir", state]);
    assert_eq!((code, status(&said, "gateway.socket")), (0, "warn"));
    let found = finding(&said, "gateway.socket");
    assert!(
        found["message"].as_str().unwrap().contains("too long"),
        "{found}"
    );
    assert!(
        found["fix"].as_str().unwrap().contains("--socket"),
        "{found}"
    );
    // A socket path that is too long prevents every start.
    place.set("gateway.socket", &format!("{:?}", deep.join("a.sock")));
    let (code, said) = doctor(&place, &[]);
    assert_eq!((code, status(&said, "gateway.socket")), (1, "fail"));
}

/// An upgrade of the binary is detected, with a hint what to do.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_was_replaced_under_its_daemon_is_named() {
    let place = Place::new(Script::new());
    let usual = place.command(&["serve"]);
    let program = place.path().join("abide");
    let copy = |to: &std::path::Path| fs::copy(usual.get_program(), to).unwrap();
    copy(&program);
    let mut command = std::process::Command::new(&program);
    command.arg("serve").env_clear().stdin(Stdio::null());
    for (name, value) in usual.get_envs() {
        command.env(name, value.unwrap());
    }
    run(async {
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let status = client.call("gateway.status", json!({})).await;
        assert!(!status.to_string().contains("was replaced"), "{status}");
        let new = place.path().join("abide.new");
        copy(&new);
        fs::rename(new, &program).unwrap();
        let status = client.call("gateway.status", json!({})).await;
        assert!(
            status.to_string().contains("abide was replaced"),
            "{status}"
        );
        let found = client.call("gateway.doctor", json!({})).await.to_string();
        assert!(found.contains("abide stop --restart"), "{found}");
        fs::remove_file(&program).unwrap();
        let status = client.call("gateway.status", json!({})).await;
        assert!(status.to_string().contains("abide was removed"), "{status}");
        assert_eq!(daemon.stop().await, 0);
    });
}
