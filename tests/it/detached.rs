//! What `serve --detach` leaves behind: a daemon that keeps nothing of the shell that started it,
//! and a single daemon after repeated starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::home::{CommandOutput, Home, output_of};

const SERVE: &str = "\"$abide\" serve --detach --json --state-dir state --listen 127.0.0.1:0";

/// Runs a shell line in this home to its end.
fn shell(home: &Home, line: &str) -> CommandOutput {
    let mut command = home.program("/bin/bash");
    command.args(["-euc", line]);
    command.env("PATH", "/usr/bin:/bin");
    output_of(command.env("abide", env!("CARGO_BIN_EXE_abide")))
}

fn stop(home: &Home) {
    let stopped = home.abide(&["stop", "--state-dir", "state"]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
}

#[test]
fn a_daemon_in_the_background_keeps_no_descriptor_of_the_shell() {
    let home = Home::new();
    // The substitution ends when the last process has closed the pipe, which is descriptor 9; a
    // lock is released when the last process has closed its file.
    let line = format!(
        "exec 200>lock; flock -n 200; out=$({SERVE} 9>&1); exec 200>&-; flock -n lock true; \
         echo \"$out\""
    );
    let done = shell(&home, &line);
    assert_eq!(done.code, 0, "{}", done.err);
    let endpoint: Value = serde_json::from_str(&done.out).unwrap();
    assert!(endpoint["pid"].is_u64(), "{endpoint}");
    stop(&home);
}

#[test]
#[cfg(target_os = "linux")]
fn a_daemon_in_the_background_does_not_stay_in_the_folder_it_was_started_in() {
    let home = Home::new();
    fs::create_dir(home.path().join("away")).unwrap();
    fs::write(home.path().join("away/c.toml"), "[lanes]\nmain = 3\n").unwrap();
    // A path relative to that folder is still found.
    let line = format!(
        "cd away; {} --config c.toml",
        SERVE.replace("--state-dir state", "--state-dir ../state")
    );
    let done = shell(&home, &line);
    assert_eq!(done.code, 0, "{}", done.err);
    let endpoint: Value = serde_json::from_str(&done.out).unwrap();
    let folder = fs::read_link(format!("/proc/{}/cwd", endpoint["pid"])).unwrap();
    assert_eq!(folder, home.path().join("state").canonicalize().unwrap());
    let shown = home.abide(&["config", "show", "--state-dir", "state", "--json"]);
    assert!(shown.out.contains("away/c.toml"), "{}", shown.out);
    stop(&home);

    // The same with the environment variable.
    let line = format!(
        "cd away; ABIDE_CONFIG=c.toml {}",
        SERVE.replace("--state-dir state", "--state-dir ../state")
    );
    let done = shell(&home, &line);
    assert_eq!(done.code, 0, "{}", done.err);
    stop(&home);
}

#[test]
fn several_that_ask_for_a_daemon_at_once_get_one_and_the_same() {
    let home = Home::new();
    let line = format!(
        "asked=(); for n in 1 2 3 4; do {SERVE} & asked+=($!); done; \
         for one in \"${{asked[@]}}\"; do wait \"$one\"; done"
    );
    let done = shell(&home, &line);
    assert_eq!(done.code, 0, "{}", done.err);
    let pids: Vec<u64> = done
        .out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["pid"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(pids.len(), 4, "{}", done.out);
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    stop(&home);
    let again = home.abide(&["stop", "--state-dir", "state"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.err.contains("nothing to stop"), "{}", again.err);
}

#[test]
fn an_empty_folder_that_others_may_read_becomes_a_state_folder_of_its_owner() {
    let home = Home::new();
    let state = home.path().join("state");
    fs::create_dir(&state).unwrap();
    let mode = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o755);
    let done = shell(&home, SERVE);
    assert_eq!(done.code, 0, "{}", done.err);
    let about = fs::metadata(&state).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o700);
    stop(&home);
    // A folder with other files is not taken over, and nothing is written there.
    fs::remove_dir_all(&state).unwrap();
    fs::create_dir(&state).unwrap();
    mode(0o755);
    fs::write(state.join("letter"), "text").unwrap();
    let done = shell(&home, SERVE);
    assert_eq!(done.code, 77, "{}{}", done.out, done.err);
    assert!(done.out.contains("has other files"), "{}", done.out);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
}
