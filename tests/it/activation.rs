//! Socket activation: the daemon serves sockets that were opened before it, passed as descriptors.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use abide::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Place, Script, TEST_TIMEOUT, eventually, run};

/// Gives its first two arguments as `LISTEN_FDS` and `LISTEN_PID` (its own if empty), moves standard
/// input and output to the first two passed descriptors, and becomes the program.
const PASS: &str = r#"export LISTEN_FDS="$1" LISTEN_PID="${2:-$$}"; shift 2
exec 3<&0 4<&1 0</dev/null 1>/dev/null; exec "$@""#;

/// The command that starts the daemon with these descriptors.
fn with_sockets(place: &Place, sockets: Vec<OwnedFd>, count: &str, pid: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    let abide = env!("CARGO_BIN_EXE_abide");
    command.args(["-c", PASS, "sh", count, pid, abide, "serve"]);
    let daemon = place.command(&[]);
    command.env_clear();
    for (name, value) in daemon.get_envs() {
        command.env(name, value.unwrap());
    }
    let mut sockets = sockets.into_iter();
    command.stdin(sockets.next().map_or(Stdio::null(), Stdio::from));
    command.stdout(sockets.next().map_or(Stdio::null(), Stdio::from));
    command.current_dir(place.path());
    command
}

/// The sockets of a service manager for a daemon of this place.
struct ManagersSockets {
    tcp: TcpListener,
    unix: UnixListener,
    path: PathBuf,
}

impl ManagersSockets {
    fn open(place: &Place) -> ManagersSockets {
        let state = place.state();
        fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        let path = state.join("abide.sock");
        ManagersSockets {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            unix: UnixListener::bind(&path).unwrap(),
            path,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.tcp.local_addr().unwrap())
    }

    /// Starts a daemon with both.
    fn start(&self, place: &Place) -> Activated {
        let sockets = vec![
            self.tcp.try_clone().unwrap().into(),
            self.unix.try_clone().unwrap().into(),
        ];
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(place.path().join("daemon.log"));
        let mut command = with_sockets(place, sockets, "2", "");
        Activated(command.stderr(log.unwrap()).spawn().unwrap())
    }
}

/// A daemon with passed sockets; it is killed on drop.
struct Activated(Child);

impl Activated {
    fn ended(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection over TCP; a read that gets nothing fails in time.
fn over_tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// The same over the Unix socket.
fn over_unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Sends a request.
fn ask(stream: &mut impl Write) -> io::Result<()> {
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())
}

/// Reads the answer to it.
fn has_answer(mut stream: impl Read) -> bool {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// Asks over a connection, and reads the answer.
fn is_answered(mut stream: impl Read + Write) -> bool {
    ask(&mut stream).is_ok() && has_answer(stream)
}

/// Waits until the daemon is ready, over its Unix socket.
async fn status(sockets: &ManagersSockets) -> (Client, Value) {
    let client = Client::connect_socket(&sockets.path).await.unwrap();
    loop {
        let status: Value = client.call("gateway.status", json!({})).await.unwrap();
        if status["phase"] == "ready" {
            return (client, status);
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn connections_wait_in_passed_sockets_over_starts_and_restarts() {
    run(async {
        let place = Place::new(Script::new());
        let sockets = ManagersSockets::open(&place);
        for then in ["stop", "restart"] {
            let tcp = over_tcp(sockets.tcp.local_addr().unwrap());
            let unix = over_unix(&sockets.path);
            let mut daemon = sockets.start(&place);
            assert!(is_answered(tcp) && is_answered(unix));
            let (client, status) = status(&sockets).await;
            assert_eq!(status["url"], sockets.url());
            assert_eq!(status["socket"], sockets.path.to_str().unwrap());
            assert_eq!(inheritable_sockets(daemon.0.id()), Vec::<String>::new());
            // The sockets stay with the service manager, which starts the next process.
            let order = json!({ "then": then });
            let _: Value = client.call("gateway.drain", order).await.unwrap();
            let code = if then == "stop" { 0 } else { 79 };
            assert_eq!(daemon.ended(), Some(code));
            let file = fs::symlink_metadata(&sockets.path).unwrap();
            assert!(file.file_type().is_socket());
        }
    });
}

#[test]
fn a_connection_that_was_accepted_before_the_stop_is_answered_after_it() {
    run(async {
        let place = Place::new(Script::new());
        let sockets = ManagersSockets::open(&place);
        let mut daemon = sockets.start(&place);
        let (client, _) = status(&sockets).await;
        let tcp = || over_tcp(sockets.tcp.local_addr().unwrap());
        let unix = || over_unix(&sockets.path);
        let mut early = (tcp(), unix());
        // Connections are accepted in their order, so the early ones are, once later ones are answered.
        assert!(is_answered(tcp()) && is_answered(unix()));
        let order = json!({ "then": "stop" });
        let _: Value = client.call("gateway.drain", order).await.unwrap();
        // The stop has reached the connections once it has closed this one.
        let ping = async || client.call::<_, Value>("gateway.ping", json!({})).await;
        while ping().await.is_ok() {}
        // Both are sent before an answer is read, which may take longer than the daemon waits for a request.
        ask(&mut early.0).unwrap();
        ask(&mut early.1).unwrap();
        assert!(has_answer(early.0) && has_answer(early.1));
        assert_eq!(daemon.ended(), Some(0));
    });
}

#[test]
fn every_request_over_passed_sockets_is_answered_once_while_daemons_come_and_go() {
    run(async {
        let place = Place::new(Script::new());
        let sockets = ManagersSockets::open(&place);
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (path, is_over) = (sockets.path.clone(), Arc::clone(&is_over));
                let address = sockets.tcp.local_addr().unwrap();
                let answered = Arc::new(AtomicU32::new(0));
                let counted = Arc::clone(&answered);
                let asking = std::thread::spawn(move || {
                    let mut asked = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        asked += 1;
                        let good = match number % 2 {
                            0 => is_answered(over_tcp(address)),
                            _ => is_answered(over_unix(&path)),
                        };
                        counted.fetch_add(u32::from(good), Ordering::Relaxed);
                    }
                    asked
                });
                (answered, asking)
            })
            .collect();
        let counts = || -> Vec<u32> {
            let counts = clients.iter();
            counts
                .map(|(count, _)| count.load(Ordering::Relaxed))
                .collect()
        };
        // Each client gets an answer from each daemon, so that each stop comes amid requests.
        let each_is_answered = async || {
            let before = counts();
            eventually("an answer for each client", async || {
                let now = counts();
                let is_more = now.iter().zip(&before).all(|(now, before)| now > before);
                is_more.then_some(())
            })
            .await;
        };
        for _ in 0..5 {
            let mut daemon = sockets.start(&place);
            let (client, _) = status(&sockets).await;
            each_is_answered().await;
            let order = json!({ "then": "restart" });
            let _: Value = client.call("gateway.drain", order).await.unwrap();
            assert_eq!(daemon.ended(), Some(79));
        }
        // The last daemon answers those that still wait.
        let mut daemon = sockets.start(&place);
        let (client, _) = status(&sockets).await;
        each_is_answered().await;
        is_over.store(true, Ordering::Relaxed);
        for (answered, asking) in clients {
            let asked = tokio::task::spawn_blocking(|| asking.join().unwrap()).await;
            let (asked, answered) = (asked.unwrap(), answered.load(Ordering::Relaxed));
            assert!(asked > 5, "{asked}");
            assert_eq!(answered, asked);
        }
        let _: Value = client
            .call("gateway.drain", json!({ "then": "stop" }))
            .await
            .unwrap();
        assert_eq!(daemon.ended(), Some(0));
    });
}

/// The sockets of a process that its programs would inherit.
fn inheritable_sockets(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let inherited = names.filter(|name| {
        let target = fs::read_link(format!("/proc/{pid}/fd/{name}")).unwrap_or_default();
        let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}")).unwrap_or_default();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.unwrap_or("2000000").trim(), 8).unwrap();
        target.to_string_lossy().starts_with("socket:") && flags & 0o2_000_000 == 0
    });
    inherited.collect()
}

#[test]
fn the_first_command_starts_the_daemon_through_its_socket() {
    run(async {
        let place = Place::new(Script::new());
        let sockets = ManagersSockets::open(&place);
        // There is nothing to stop, and nothing is started for it.
        let stopped = place.command(&["stop"]).output().unwrap();
        assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped));
        sockets.unix.set_nonblocking(true).unwrap();
        let waiting = sockets.unix.accept();
        assert_eq!(waiting.unwrap_err().kind(), ErrorKind::WouldBlock);
        // Waits at the socket until the daemon answers, whichever of both starts first.
        let command = place
            .command(&["status", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut daemon = sockets.start(&place);
        let output = tokio::task::spawn_blocking(|| command.wait_with_output().unwrap());
        let output = output.await.unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["pid"], daemon.0.id());
        daemon.terminate();
        assert_eq!(daemon.ended(), Some(0));

        // A socket that a killed process left behind starts nothing.
        drop(sockets);
        let output = place.command(&["status"]).output().unwrap();
        assert_eq!(output.status.code(), Some(10), "{}", text(&output));
        assert!(
            text(&output).contains("no daemon runs on"),
            "{}",
            text(&output)
        );
    });
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn sockets_that_cannot_be_served_are_refused_and_nothing_is_started() {
    let place = Place::new(Script::new());
    let tcp = |address| OwnedFd::from(TcpListener::bind(address).unwrap());
    let (connected, _other) = UnixStream::pair().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (sockets, count, said) in [
        (
            vec![tcp("127.0.0.1:0"), tcp("127.0.0.1:0")],
            "2",
            "descriptor 4 is a second socket of its kind",
        ),
        (
            vec![tcp("0.0.0.0:0")],
            "1",
            "gateway.tls_cert_file and gateway.tls_key_file",
        ),
        (
            vec![udp.into()],
            "1",
            "descriptor 3 is no listening stream socket",
        ),
        (
            vec![connected.into()],
            "1",
            "descriptor 3 is no listening stream socket",
        ),
        (
            vec![tcp("127.0.0.1:0")],
            "many",
            "LISTEN_FDS cannot be used",
        ),
        (vec![tcp("127.0.0.1:0")], "99", "LISTEN_FDS cannot be used"),
    ] {
        let output = with_sockets(&place, sockets, count, "").output().unwrap();
        let error = text(&output);
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains(said), "{error}");
        assert!(error.contains("Nothing was started"), "{error}");
        assert!(!place.state().join("endpoint.json").exists());
    }
}

#[test]
fn sockets_that_were_passed_to_another_process_are_not_touched() {
    run(async {
        let place = Place::new(Script::new());
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets = vec![other.try_clone().unwrap().into()];
        let daemon = place
            .start_command(with_sockets(&place, sockets, "1", "1"))
            .await;
        let daemon = daemon.unwrap();
        let taken = format!("http://{}", other.local_addr().unwrap());
        assert_ne!(daemon.url(), taken);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn doctor_finds_no_fault_in_a_socket_at_which_systemd_waits() {
    run(async {
        let place = Place::new(Script::new());
        let state = place.state();
        fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        // Stands for systemd, which is known by the name of its process.
        let other = Place::new(Script::new());
        let program = other.path().join("systemd-test");
        fs::hard_link(env!("CARGO_BIN_EXE_abide"), &program)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_abide"), &program).map(drop))
            .unwrap();
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--socket")
            .arg(state.join("abide.sock"));
        command.env_clear().current_dir(other.path());
        for (name, value) in other.command(&[]).get_envs() {
            command.env(name, value.unwrap());
        }
        let manager = other.start_command(command).await.unwrap();
        let doctor = place.command(&["doctor", "--json"]).output();
        let found: Value = serde_json::from_slice(&doctor.unwrap().stdout).unwrap();
        let findings = found["findings"].as_array().unwrap();
        let socket = findings.iter().find(|one| one["id"] == "gateway.socket");
        let message = socket.unwrap()["message"].as_str().unwrap();
        assert!(message.starts_with("systemd listens on"), "{message}");
        assert_eq!(found["ok"], true, "{found}");
        assert_eq!(manager.stop().await, 0);
    });
}
