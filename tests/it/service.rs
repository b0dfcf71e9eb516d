//! The daemon under a service manager: its messages, its folder, its stop timeout.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};

use abide::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Place, Script, TEST_TIMEOUT, run, says};

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

#[test]
fn keys_that_the_service_manager_gives_replace_those_of_the_state_folder() {
    run(async {
        let managed = place();
        let credentials = managed.path().join("credentials");
        fs::create_dir(&credentials).unwrap();
        let give = |name: &str, text: &str| fs::write(credentials.join(name), text).unwrap();
        give("abide-env-key", "any secret text\n");
        give("abide-gateway-key", &format!("{}\n", "7".repeat(64)));
        let variables = [("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())];
        let mut managed = Managed::start(managed, &variables);
        managed.notifications_until("READY=1");
        let state = managed.place.state();
        assert!(state.join("token").exists());
        for key in ["env.key", "gateway.key"] {
            assert!(!state.join(key).exists(), "{key}");
        }
        managed.terminate();
        assert_eq!(managed.daemon.wait().unwrap().code(), Some(0));

        // One that cannot be used is an error, so that no other key takes its place.
        for (name, text) in [("abide-gateway-key", "no key"), ("abide-env-key", "")] {
            give(name, text);
            let mut command = managed.place.command(&["serve"]);
            let output = command.envs(variables).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(78), "{error}");
            assert!(error.contains(name), "{error}");
            give("abide-gateway-key", &"7".repeat(64));
        }
    });
}
