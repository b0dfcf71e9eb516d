//! Connections of strangers and of other users: they take no capacity from the owner, from running
//! work or from an orderly stop, however few files the daemon may open.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::harness::{Daemon, Link, Place, Script, calls, eventually, run, says};

const STRANGERS: usize = 1100;
const OTHERS: usize = 4300;
const NOBODY: u32 = 65534;

/// A run that opens many pipes once it is released.
fn place() -> Place {
    let wait = "echo up > up; while [ ! -e go ]; do sleep 0.01; done; ";
    let pipes = "for i in 1 2 3 4 5 6 7 8; do echo $i | cat | cat; done";
    Place::new(
        Script::new()
            .on(
                "[go]",
                [
                    calls("shell", json!({ "command": format!("{wait}{pipes}") })),
                    calls("grep", json!({ "pattern": "alpha" })),
                    calls("shell", json!({ "command": pipes })),
                    says("all of it was done"),
                ],
            )
            .on(
                "[limit]",
                [
                    calls("shell", json!({ "command": "ulimit -S -n; ulimit -H -n" })),
                    says("read"),
                ],
            ),
    )
    .with_agent("worker", "tools: [shell, grep]\ngate: {shell: allow}")
}

/// A daemon with these limits of open files.
async fn start(place: &Place, soft: u64, hard: u64) -> Daemon {
    let plain = place.command(&["serve"]);
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!(
            "ulimit -S -n {soft}; ulimit -H -n {hard}; exec \"$0\" serve"
        ))
        .arg(plain.get_program())
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(place.path())
        .stdin(Stdio::null());
    place.start_command(command).await.unwrap()
}

/// Raises this process's limit of open files for the test; false if the system does not allow it.
#[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
fn may_open(count: usize) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let wanted = count as u64 + 200;
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return true;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    let done = setrlimit(Resource::Nofile, raised).is_ok();
    if !done {
        println!("skipped: this process may not open {wanted} files");
    }
    done
}

fn strangers(daemon: &Daemon) -> Vec<TcpStream> {
    let address = daemon.url().strip_prefix("http://").unwrap();
    let connect = |_| TcpStream::connect(address).unwrap();
    (0..STRANGERS).map(connect).collect()
}

/// Holds many connections to the socket as another user, until it is dropped.
struct Others(Child);

impl Others {
    #[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
    fn connect(place: &Place) -> Option<Others> {
        if !rustix::process::geteuid().is_root() {
            println!("other users: skipped, only root can become one");
            return None;
        }
        let socket = place.state().join("abide.sock");
        for open in [place.path(), &place.state()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o711)).unwrap();
        }
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        let many = format!(
            "$| = 1; my $n = 0; for (1..{OTHERS}) {{ \
             my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]); $n++ if $s; push @all, $s }} \
             print \"$n\\n\"; <STDIN>;"
        );
        let mut child = Command::new("perl")
            .args(["-MIO::Socket::UNIX", "-e", &many])
            .arg(&socket)
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut count = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut count).unwrap();
        assert!(count.trim().parse::<usize>().unwrap() > 0, "{count}");
        Some(Others(child))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that the owner can connect over TCP and over the socket.
async fn owner_is_answered(place: &Place, daemon: &Daemon) {
    let over_tcp = daemon.client().await;
    over_tcp.call("gateway.status", json!({})).await;
    let over_socket = Link::local(&place.state().join("abide.sock"))
        .await
        .unwrap();
    over_socket.call("runs.list", json!({})).await;
    let said = place.command(&["ps"]).output().unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

fn strangers_take_nothing_away(files: u64) {
    if !may_open(STRANGERS + OTHERS) {
        return;
    }
    run(async {
        let place = place();
        let daemon = start(&place, files, files).await;
        let client = daemon.client().await;
        let worker = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        eventually("a command at work", async || {
            place.work().join("up").exists().then_some(())
        })
        .await;
        let mut strangers = strangers(&daemon);
        owner_is_answered(&place, &daemon).await;
        // The first stranger got the reason for its disconnection.
        let mut told = String::new();
        let _ = strangers[0].read_to_string(&mut told);
        assert!(told.contains("without the token are open"), "{told:?}");
        let others = Others::connect(&place);
        owner_is_answered(&place, &daemon).await;

        fs::write(place.work().join("go"), "").unwrap();
        let ended = client.ended(&worker.id).await;
        assert_eq!(ended["result"], "all of it was done", "{ended}");
        let params = json!({ "sessionKey": worker.session, "tools": true });
        let history = client.call("sessions.history", params).await.to_string();
        assert_eq!(history.matches("exit status 0").count(), 2, "{history}");
        assert!(history.contains("notes.txt"), "{history}");
        assert!(
            !daemon.logged().contains("Too many open files"),
            "{}",
            daemon.logged()
        );
        drop(client);
        assert_eq!(daemon.stop().await, 0);
        drop((strangers, others));
    });
}

#[test]
fn with_128_files_strangers_and_other_users_take_nothing_away() {
    strangers_take_nothing_away(128);
}

#[test]
fn with_1024_files_strangers_and_other_users_take_nothing_away() {
    strangers_take_nothing_away(1024);
}

#[test]
fn the_soft_limit_is_raised_for_the_daemon_and_programs_get_their_own_back() {
    run(async {
        let place = place();
        let daemon = start(&place, 256, 4096).await;
        let limits = format!("/proc/{}/limits", daemon.pid());
        if let Ok(limits) = fs::read_to_string(limits) {
            let files = limits
                .lines()
                .find(|line| line.starts_with("Max open files"));
            let numbers: Vec<&str> = files.unwrap().split_whitespace().skip(3).collect();
            assert_eq!(numbers[..2], ["4096", "4096"]);
        }
        let told = async |client: &Link| {
            let worker = client
                .spawn(json!({ "task": "[limit]", "agent": "worker" }))
                .await;
            assert_eq!(client.ended(&worker.id).await["result"], "read");
            let params = json!({ "sessionKey": worker.session, "tools": true });
            client.call("sessions.history", params).await.to_string()
        };
        let client = daemon.client().await;
        let said = told(&client).await;
        assert!(said.contains(r"stdout:\n256\n4096"), "{said}");
        // The daemon that replaces this process starts with the original limits.
        let before = client.call("gateway.status", json!({})).await;
        client
            .call("gateway.drain", json!({ "then": "restart" }))
            .await;
        drop(client);
        let client = eventually("the next boot", async || {
            let file = fs::read_to_string(place.state().join("endpoint.json")).ok()?;
            let endpoint: serde_json::Value = serde_json::from_str(&file).ok()?;
            if endpoint["bootId"] == before["bootId"] {
                return None;
            }
            Link::local(&place.state().join("abide.sock")).await
        })
        .await;
        let said = told(&client).await;
        assert!(said.contains(r"stdout:\n256\n4096"), "{said}");
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}
