//! The daemon as a service: its messages to the service manager, and the files that install it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use abide::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Place, Script, TEST_TIMEOUT, run, says};
use crate::house::root;

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done").held_by("go")]))
}

/// A minimal service manager, and a daemon under it.
struct Managed {
    socket: UnixDatagram,
    daemon: Child,
    place: Place,
}

impl Managed {
    fn start(place: Place, variables: &[(&str, &str)]) -> Managed {
        let path = place.path().join("notify");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let log = fs::File::create(place.path().join("daemon.log")).unwrap();
        let mut command = place.command(&["serve"]);
        command.env("NOTIFY_SOCKET", &path).stderr(log);
        command.envs(variables.iter().copied());
        let daemon = command.stdout(Stdio::null()).spawn().unwrap();
        Managed {
            socket,
            daemon,
            place,
        }
    }

    /// The next notification, split into lines.
    fn next_notification(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// All notifications up to and including the one with this line.
    fn notifications_until(&self, line: &str) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        loop {
            let told = self.next_notification();
            let found = told.iter().any(|told| told == line);
            all.push(told);
            if found {
                return all;
            }
        }
    }

    async fn client(&self) -> Client {
        let socket = self.place.state().join("abide.sock");
        Client::connect_socket(&socket).await.unwrap()
    }

    fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.daemon.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Kills the daemon as a crash would; returns its folder.
    fn kill(mut self) -> Place {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        let fresh = Place::new(Script::new());
        std::mem::replace(&mut self.place, fresh)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn has(messages: &[Vec<String>], line: &str) -> bool {
    messages.iter().flatten().any(|told| told == line)
}

#[test]
fn the_service_manager_is_told_of_start_drain_and_end() {
    run(async {
        let first = Managed::start(place(), &[]);
        first.notifications_until("READY=1");
        let client = first.client().await;
        let task = json!({ "task": "[a]", "agent": "explore" });
        let _: Value = client.call("sessions.spawn", task).await.unwrap();
        let place = first.kill();

        let mut managed = Managed::start(place, &[]);
        let told = managed.notifications_until("READY=1");
        // Before a phase that may take long, the daemon sends its status and extends the timeout.
        assert_eq!(told[0][0], "STATUS=opening the store");
        assert!(told[0][1].starts_with("EXTEND_TIMEOUT_USEC="), "{told:?}");
        assert!(has(&told, "STATUS=restoring: 0 of 0 open runs"), "{told:?}");
        let ready = told.last().unwrap();
        assert_eq!(ready[1], "STATUS=ready; 1 open runs were restored");
        let client = managed.client().await;
        let status: Value = client.call("gateway.status", json!({})).await.unwrap();
        assert_eq!(status["phase"], "ready", "ready is what it was told to be");

        // A drain that resumes is not a stop.
        let order = json!({ "then": "resume", "timeout": 0 });
        let _: Value = client.call("gateway.drain", order).await.unwrap();
        let told = managed.notifications_until("STATUS=ready");
        assert!(has(&told, "STATUS=draining, then ready again"), "{told:?}");
        assert!(!has(&told, "STOPPING=1"), "{told:?}");

        managed.terminate();
        let told = managed.next_notification();
        assert_eq!(told, ["STOPPING=1", "STATUS=draining, then stopping"]);
        // 20 s for the drain and 10 s for what comes after it.
        assert_eq!(
            managed.next_notification(),
            ["EXTEND_TIMEOUT_USEC=30000000"]
        );
        managed.place.let_go("go");
        assert_eq!(managed.daemon.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn the_watchdog_is_fed_only_while_the_writer_works() {
    run(async {
        let managed = Managed::start(
            place(),
            &[
                ("WATCHDOG_USEC", "200000"),
                ("ABIDE_FAILPOINTS", "store.create_session.begin=hang"),
            ],
        );
        managed.notifications_until("READY=1");
        for _ in 0..3 {
            managed.notifications_until("WATCHDOG=1");
        }
        // The writer's thread is blocked from here on.
        let client = managed.client().await;
        let asked = tokio::spawn(async move {
            let _: Result<Value, _> = client.call("sessions.create", json!({})).await;
        });
        // Two consecutive notifications have only the status and no `WATCHDOG=1`.
        let silence = "STATUS=the store or the registry does not answer";
        let told = tokio::task::spawn_blocking(move || {
            managed.notifications_until(silence);
            [managed.next_notification(), managed.next_notification()]
        });
        for message in told.await.unwrap() {
            assert_eq!(message, [silence]);
        }
        asked.abort();
    });
}

#[test]
fn the_watchdog_is_fed_only_while_the_registrys_loop_works() {
    run(async {
        let managed = Managed::start(
            place(),
            &[
                ("WATCHDOG_USEC", "200000"),
                ("ABIDE_FAILPOINTS", "registry.enqueue=hang"),
                // One thread is blocked with the loop; the second keeps the other work running.
                ("TOKIO_WORKER_THREADS", "2"),
            ],
        );
        managed.notifications_until("READY=1");
        for _ in 0..3 {
            managed.notifications_until("WATCHDOG=1");
        }
        // The run is accepted, and the loop blocks where it would give it a slot.
        let client = managed.client().await;
        let task = json!({ "task": "[a]", "agent": "explore" });
        let accepted: Value = client.call("sessions.spawn", task).await.unwrap();
        let silence = "STATUS=the store or the registry does not answer";
        let told = tokio::task::spawn_blocking(move || {
            managed.notifications_until(silence);
            (
                [managed.next_notification(), managed.next_notification()],
                managed,
            )
        });
        let (told, managed) = told.await.unwrap();
        for message in told {
            assert_eq!(message, [silence]);
        }
        // systemd kills an unresponsive daemon; the next process has the run.
        let managed = Managed::start(managed.kill(), &[]);
        managed.notifications_until("READY=1");
        managed.place.let_go("go");
        let client = managed.client().await;
        let params = json!({ "runId": accepted["runId"], "waitTimeout": 60 });
        let waited: Value = client.call("agent.wait", params).await.unwrap();
        assert_eq!(waited["runs"][0]["result"], "a is done", "{waited}");
    });
}

#[test]
fn a_drain_leaves_the_supervisor_no_reason_to_kill() {
    run(async {
        for (variables, configured, expected) in [
            (&[("ABIDE_STOP_TIMEOUT", "90s")][..], None, 80_000),
            (&[("ABIDE_STOP_TIMEOUT", "90s")][..], Some("\"1h\""), 80_000),
            (&[][..], Some("\"1h\""), 3_600_000),
            (&[][..], None, 20_000),
        ] {
            let mut place = place();
            if let Some(configured) = configured {
                place.set("gateway.drain_timeout", configured);
            }
            let mut managed = Managed::start(place, variables);
            managed.notifications_until("READY=1");
            let client = managed.client().await;
            let order = json!({ "then": "stop" });
            let begun: Value = client.call("gateway.drain", order).await.unwrap();
            assert_eq!(begun["timeoutMs"], expected);
            assert_eq!(managed.daemon.wait().unwrap().code(), Some(0));
        }
        let nonsense = place();
        let mut command = nonsense.command(&["serve"]);
        let output = command.env("ABIDE_STOP_TIMEOUT", "soon").output().unwrap();
        assert_eq!(output.status.code(), Some(78));
    });
}

#[test]
fn the_folder_that_a_service_manager_made_is_the_daemons_and_no_clients() {
    let home = crate::home::Home::new();
    let made = home.path().join("made");
    let mut command = home.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.env("STATE_DIRECTORY", format!("{}:/elsewhere", made.display()));
    let mut daemon = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = BufReader::new(daemon.stdout.take().unwrap());
    out.read_line(&mut ready).unwrap();
    assert!(made.join("abide.db").exists(), "{ready}");
    let mut client = home.command(&["status"]);
    client.env("STATE_DIRECTORY", &made);
    assert_eq!(client.output().unwrap().status.code(), Some(10));
    let found = home.abide(&["stop", "--state-dir", made.to_str().unwrap()]);
    assert_eq!(found.code, 0, "{}", found.err);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

fn packaged(name: &str) -> String {
    fs::read_to_string(root().join("packaging").join(name)).unwrap()
}

/// The units, and whether they are for a user's service manager.
const UNITS: &[(&str, bool)] = &[
    ("systemd/abide.service", false),
    ("systemd/user/abide.service", true),
    (NODE_UNIT, true),
];
/// The unit of a node, which has no drain and no requested restart.
const NODE_UNIT: &str = "systemd/user/abide-node.service";

/// The values of a key in a unit.
fn values<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(move |(name, _)| *name == key)
        .map(|(_, value)| value)
}

fn seconds(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap()
}

#[test]
fn the_units_say_what_the_program_does() {
    for (name, _) in UNITS {
        let unit = packaged(name);
        let start = values(&unit, "ExecStart").next().unwrap();
        let (program, line) = start.split_once(' ').unwrap();
        assert!(
            program.starts_with('/') || program.starts_with("%h/"),
            "{program}"
        );
        let line: Vec<&str> = line.split(' ').collect();
        assert!(accepts(&line), "{name}: {start}");
        let value = |key| values(&unit, key).next().unwrap();
        assert_eq!(value("Type"), "notify");
        if *name == NODE_UNIT {
            assert_eq!(value("RestartPreventExitStatus"), "9 11 77 78");
            continue;
        }
        // The daemon is given the same timeout that systemd applies.
        let stop = seconds(values(&unit, "TimeoutStopSec").next().unwrap());
        let told = values(&unit, "Environment")
            .find_map(|value| value.strip_prefix("ABIDE_STOP_TIMEOUT="))
            .unwrap();
        assert_eq!(seconds(told), stop, "{name}");
        assert_eq!(value("RestartForceExitStatus"), "79");
        assert_eq!(value("SuccessExitStatus"), "79");
        assert_eq!(value("RestartPreventExitStatus"), "77 78");
    }
    assert!(
        !accepts(&["serve", "--no-such-option"]),
        "this check checks"
    );
}

/// Does the command line of the binary accept these arguments?
fn accepts(line: &[&str]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    // The arguments before `--help` are parsed first, so help is printed only if they are valid.
    command.args(line).arg("--help").stdin(Stdio::null());
    command.output().unwrap().status.success()
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let analyze = Command::new("systemd-analyze").arg("--version").output();
    if !analyze.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no systemd-analyze here");
        return;
    }
    for (name, user) in UNITS {
        // systemd-analyze checks that the program exists, and it is not installed here.
        let unit = packaged(name);
        let start = values(&unit, "ExecStart").next().unwrap();
        let (program, _) = start.split_once(' ').unwrap();
        let unit = unit.replace(
            &format!("ExecStart={program}"),
            &format!("ExecStart={}", env!("CARGO_BIN_EXE_abide")),
        );
        let file = folder.path().join("abide.service");
        fs::write(&file, &unit).unwrap();
        let verify = |file: &Path| {
            let mut command = Command::new("systemd-analyze");
            command.arg("verify").args(user.then_some("--user"));
            command.arg(file).env("XDG_RUNTIME_DIR", folder.path());
            let output = command.output().unwrap();
            (
                output.status.success(),
                String::from_utf8(output.stderr).unwrap(),
            )
        };
        let (good, said) = verify(&file);
        assert!(good && !said.contains("abide.service"), "{name}: {said}");
        fs::write(&file, unit.replace("Type=notify", "Type=tape")).unwrap();
        let (_, said) = verify(&file);
        assert!(said.contains("abide.service"), "this check checks: {said}");
    }
}

#[test]
fn the_launchd_files_are_well_formed_and_start_the_program() {
    for label in ["org.abide.daemon", "org.abide.node"] {
        let text = packaged(&format!("launchd/{label}.plist"));
        let found = elements(&text);
        let after = |key: &str| {
            let at = found
                .iter()
                .position(|(name, text)| name == "key" && text == key);
            &found[at.unwrap_or_else(|| panic!("no {key}")) + 1..]
        };
        let arguments: Vec<&str> = after("ProgramArguments")
            .iter()
            .take_while(|(name, _)| name == "string")
            .map(|(_, text)| text.as_str())
            .collect();
        assert!(arguments[0].ends_with("/abide"), "{arguments:?}");
        assert!(accepts(&arguments[1..]), "{arguments:?}");
        assert_eq!(after("Label")[0].1, label);
        assert_eq!(after("ABIDE_SUPERVISOR")[0].1, "launchd");
        if label == "org.abide.daemon" {
            let stop = seconds(&after("ExitTimeOut")[0].1);
            assert_eq!(seconds(&after("ABIDE_STOP_TIMEOUT")[0].1), stop);
        }
    }
    for broken in [
        "</dict></plist>",
        "<plist><dict></plist>",
        "<a>&</a>",
        "<a><b></a></b>",
    ] {
        let read = std::panic::catch_unwind(|| elements(broken));
        assert!(read.is_err(), "taken for well-formed: {broken}");
    }
}

/// The elements that contain only text, in order. Panics on mismatched tags or an unescaped
/// ampersand: the file is then invalid XML.
fn elements(xml: &str) -> Vec<(String, String)> {
    let mut rest = xml;
    let mut open: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    let mut text = "";
    while let Some(start) = rest.find('<') {
        text = if start > 0 { &rest[..start] } else { text };
        assert!(!text.contains('&') || text.contains(';'), "{text}");
        rest = &rest[start..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->").unwrap() + 3..];
            continue;
        }
        let end = rest.find('>').unwrap();
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            if matches!(name, "key" | "string" | "integer") {
                found.push((name.to_owned(), text.to_owned()));
            }
        } else {
            open.push(tag.split(' ').next().unwrap());
            text = "";
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    found
}

#[test]
fn everything_packaged_is_looked_at() {
    let mut found = Vec::new();
    let mut folders = vec![root().join("packaging")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root().join("packaging")).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    let looked_at = [
        // Run manually: it builds everything from scratch.
        "first-minutes",
        "launchd/org.abide.daemon.plist",
        "launchd/org.abide.node.plist",
        "systemd/abide.service",
        "systemd/user/abide-node.service",
        "systemd/user/abide.service",
    ];
    assert_eq!(found, looked_at);
}
