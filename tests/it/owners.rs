//! Decisions over the Unix socket: allowed for a user with the token, and for no program of a run,
//! however it hides its origin.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use abide::client::Client;
use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, calls, eventually, run, says};
use crate::tenants::{ALL, user_of};

/// The uid of an unprivileged user.
const NOBODY: u32 = 65534;

/// Sends the request in a file over the socket, as a process that hides in one way or another.
const PEER: &str = r#"
use strict;
use IO::Socket::UNIX;
use POSIX ();
my ($way, $out, $socket, $request) = @ARGV;

sub text { open(my $file, '<', $_[0]) or die $_[0]; local $/; my $text = <$file>; close($file); $text }
sub note { open(my $file, '>', "$out.new") or die; print $file $_[0]; close($file); rename("$out.new", $out) }
sub connected { IO::Socket::UNIX->new(Peer => $socket) or die "no connection: $!" }
sub lives {
    return 0 unless kill(0, $_[0]);
    open(my $stat, '<', "/proc/$_[0]/stat") or return 1;
    return <$stat> !~ /\) [ZX] /;
}
sub gone { my ($pid) = @_; select(undef, undef, undef, 0.005) while lives($pid) }
sub ask {
    my ($stream, $head) = @_;
    my $body = text($request);
    my $length = length($body);
    print $stream "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        . "Content-Type: application/json\r\nContent-Length: $length\r\n" . ($head || '') . "\r\n$body";
    $stream->flush();
    local $/;
    note(scalar <$stream>);
    POSIX::_exit(0);
}
sub detached {
    # Twice, in a session of its own, with nothing in its environment.
    if (fork()) { wait(); POSIX::_exit(0) }
    POSIX::setsid();
    my $middle = $$;
    if (fork()) { POSIX::_exit(0) }
    gone($middle);
    %ENV = ();
    exec($^X, $0, @_, $out, $socket, $request);
}

if ($way eq 'plain') { ask(connected()) }
if ($way eq 'token') {
    (my $file = $socket) =~ s/abide\.sock$/token/;
    chomp(my $token = text($file));
    ask(connected(), "Authorization: Bearer $token\r\n");
}
if ($way eq 'handed') {
    my $stream = connected();
    if (fork()) { wait(); POSIX::_exit(0) }
    ask($stream);
}
if ($way eq 'dead') {
    my $stream = connected();
    my $opener = $$;
    if (fork()) { POSIX::_exit(0) }
    gone($opener);
    ask($stream);
}
if ($way eq 'dead-before') {
    # The daemon stands still until the opener is gone.
    my $daemon = text('daemon.pid');
    kill('STOP', $daemon);
    select(undef, undef, undef, 0.005) until text("/proc/$daemon/stat") =~ /\) T /;
    my $stream = connected();
    my $opener = $$;
    if (fork()) { POSIX::_exit(0) }
    gone($opener);
    kill('CONT', $daemon);
    ask($stream);
}
if ($way eq 'detached') { detached('plain') }
if ($way eq 'detached-token') { detached('token') }
if ($way eq 'detached-dead') { detached('dead-before') }
if ($way eq 'hidden') { detached('undumpable') }
if ($way eq 'undumpable') {
    my $number = (POSIX::uname())[4] eq 'x86_64' ? 157 : 167;
    syscall($number, 4, 0, 0, 0, 0);
    ask(connected());
}
die "no way $way";
"#;

const ITS_RUN: &str = "a program that run";
const UNPROVEN: &str = "it cannot be proved";

/// Every way of hiding, and the acceptable answers to it.
const WAYS: &[(&str, &[&str])] = &[
    ("plain", &[ITS_RUN]),
    ("token", &[ITS_RUN]),
    ("handed", &[ITS_RUN]),
    // A busy daemon may accept the connection only after its opener is gone.
    ("dead", &[ITS_RUN, UNPROVEN]),
    // One of its threads may have accepted just before it stopped.
    ("dead-before", &[UNPROVEN, ITS_RUN]),
    // What leaves its tree comes back to the keeper of its program.
    ("detached", &[ITS_RUN]),
    ("detached-token", &[ITS_RUN]),
    // The daemon may have noticed its end already.
    ("detached-dead", &[ITS_RUN, UNPROVEN]),
    ("hidden", &[ITS_RUN]),
];

#[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
pub(crate) fn has_perl() -> bool {
    let found = Command::new("perl")
        .args(["-MIO::Socket::UNIX", "-e", "1"])
        .status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("skipped: there is no perl");
    }
    found
}

/// An agent that runs one command, and one whose reads need a decision.
pub(crate) fn place(command: &str) -> Place {
    place_of(json!({ "command": command }))
}

/// As [`place`], with these arguments of `shell`.
fn place_of(arguments: Value) -> Place {
    Place::new(
        Script::new()
            .on("[go]", [calls("shell", arguments), says("done")])
            .on(
                "[look]",
                [calls("read", json!({ "path": "notes.txt" })), says("read")],
            ),
    )
    .with_agent("worker", "tools: [shell]\ngate: {shell: allow}")
    .with_agent("careful", "tools: [read]\ngate: {read: ask}")
}

/// Changes the owner of everything in `folder`.
fn give(folder: &Path, uid: u32) {
    chown(folder, Some(uid), Some(uid)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => give(&path, uid),
            false => chown(&path, Some(uid), Some(uid)).unwrap(),
        }
    }
}

async fn start_as(place: &Place, uid: Option<u32>) -> Daemon {
    let mut command = place.command(&["serve"]);
    if let Some(uid) = uid {
        give(place.path(), uid);
        command.uid(uid).gid(uid);
    }
    place.start_command(command).await.unwrap()
}

/// As root: root and an unprivileged user; otherwise only the current user.
#[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
fn users() -> Vec<Option<u32>> {
    match rustix::process::geteuid().is_root() {
        true => vec![None, Some(NOBODY)],
        false => {
            println!("as root: skipped, this is an ordinary user");
            vec![None]
        }
    }
}

fn no_program_of_a_run_decides(uid: Option<u32>) {
    let abide = env!("CARGO_BIN_EXE_abide");
    let mut lines = String::from("while [ ! -s request ]; do sleep 0.01; done\n");
    for (way, _) in WAYS {
        lines.push_str(&format!(
            "perl peer.pl {way} {way}.out \"$ABIDE_SOCKET\" request > {way}.err 2>&1\n\
             while [ ! -s {way}.out ]; do sleep 0.01; done\n"
        ));
    }
    // The command line itself, which presents the token, started where no mark of the run is left.
    lines.push_str(&format!(
        "state=$(dirname \"$ABIDE_SOCKET\")\n\
         (setsid sh -c 'sleep 0.05; env -i {abide} rpc approvals.resolve \"$(cat params)\" \
         --state-dir '\"$state\"' > cli.out 2>&1; echo $? > cli.code' &)\n\
         while [ ! -s cli.code ]; do sleep 0.01; done\n"
    ));
    run(async {
        let place = place("sh ways.sh");
        let work = place.work();
        fs::write(work.join("peer.pl"), PEER).unwrap();
        fs::write(work.join("ways.sh"), &lines).unwrap();
        let daemon = start_as(&place, uid).await;
        fs::write(work.join("daemon.pid"), daemon.pid().to_string()).unwrap();
        let client = daemon.client().await;
        let held = client
            .spawn(json!({ "task": "[look]", "agent": "careful" }))
            .await;
        client.in_state(&held.id, "paused").await;
        let open = client.call("approvals.list", json!({})).await;
        let id = open["approvals"][0]["id"].as_str().unwrap().to_owned();
        let params = json!({ "id": id, "decision": "allow" });
        fs::write(work.join("params"), params.to_string()).unwrap();
        let request =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "approvals.resolve", "params": params });
        fs::write(work.join("request.new"), request.to_string()).unwrap();
        fs::rename(work.join("request.new"), work.join("request")).unwrap();
        let worker = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let ended = client.ended(&worker.id).await;
        assert_eq!(ended["status"], "ok", "{ended}");
        for (way, says) in WAYS {
            let said = fs::read_to_string(work.join(format!("{way}.out"))).unwrap();
            assert!(
                said.contains("forbidden") && says.iter().any(|says| said.contains(says)),
                "{way}: {said}"
            );
        }
        let said = fs::read_to_string(work.join("cli.out")).unwrap();
        let code = fs::read_to_string(work.join("cli.code")).unwrap();
        assert_eq!(code.trim(), "9", "{said}");

        // Nothing was decided, and no audit row records a decision.
        assert_eq!(client.run(&held.id).await["state"], "paused");
        let decided = json!({ "method": "approvals.resolve" });
        let audit = client.call("gateway.audit", decided.clone()).await;
        assert_eq!(audit["entries"], json!([]));
        client.call("approvals.resolve", params).await;
        assert_eq!(client.ended(&held.id).await["result"], "read");
        let audit = client.call("gateway.audit", decided).await;
        assert_eq!(audit["entries"][0]["principal"], "owner", "{audit}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn no_program_of_a_run_decides_anything_over_the_socket_however_it_connects() {
    if has_perl() {
        users().into_iter().for_each(no_program_of_a_run_decides);
    }
}

#[test]
fn a_program_in_a_namespace_of_its_own_is_still_its_runs() {
    let unshared = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status();
    if !unshared.is_ok_and(|status| status.success()) || !has_perl() {
        println!("skipped: no namespace of processes can be made");
        return;
    }
    run(async {
        let inside = "sh -c 'perl peer.pl detached out \"$ABIDE_SOCKET\" request; \
                      while [ ! -s out ]; do sleep 0.01; done'";
        let place = place(&format!("unshare --pid --fork {inside}"));
        let work = place.work();
        fs::write(work.join("peer.pl"), PEER).unwrap();
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "gateway.drain", "params": { "then": "stop" },
        });
        fs::write(work.join("request"), request.to_string()).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let worker = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&worker.id).await["status"], "ok");
        let said = fs::read_to_string(work.join("out")).unwrap();
        assert!(said.contains("a program that run"), "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_connection_stays_its_runs_when_the_run_has_ended() {
    if !has_perl() {
        return;
    }
    run(async {
        // Connects at once and sends its request when the run is over.
        let late = "perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => $ENV{ABIDE_SOCKET}); \
                    if (fork()) { exit } setpgrp(0, 0); open(F, q(>), q(up)); print F 1; close(F); \
                    $SIG{TERM} = q(IGNORE); \
                    select(undef, undef, undef, 0.01) while !-s q(over); \
                    print $s qq(GET /metrics HTTP/1.1\\r\\nHost: d\\r\\nConnection: close\\r\\n\\r\\n); \
                    $s->flush(); $/ = undef; open(F, q(>), q(said)); print F <$s>; close(F)' &\n\
                    while [ ! -s up ]; do sleep 0.01; done";
        let place = place_of(json!({ "command": late, "detach": true }))
            .with("process.grace", "\"1500ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let worker = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&worker.id).await["status"], "ok");
        fs::write(place.work().join("over"), "1").unwrap();
        // It is killed a moment later, unless it has sent its request by then.
        let said = eventually("its answer", async || {
            let said = fs::read_to_string(place.work().join("said")).unwrap_or_default();
            (!said.is_empty()).then_some(said)
        })
        .await;
        assert!(said.contains("403 Forbidden"), "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_program_of_a_run_does_is_recorded_as_its_runs() {
    run(async {
        let abide = env!("CARGO_BIN_EXE_abide");
        let own = r#"{"runId":"'$ABIDE_RUN_ID'"}"#;
        let place = place(&format!("{abide} rpc runs.cancel '{own}'; sleep 4000"));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let worker = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let ended = client.ended(&worker.id).await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
        let name = format!("run:{}", worker.id);
        assert_eq!(ended["cancel"]["by"], name.as_str(), "{ended}");
        let audit = client
            .call("gateway.audit", json!({ "method": "runs.cancel" }))
            .await;
        assert_eq!(audit["entries"][0]["principal"], name.as_str(), "{audit}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_of_a_run_in_another_org_acts_in_that_org() {
    run(async {
        let abide = env!("CARGO_BIN_EXE_abide");
        let own = r#"{"runId":"'$ABIDE_RUN_ID'"}"#;
        let foreign = r#"{"runId":"'$(cat foreign)'"}"#;
        let place = place(&format!(
            "until test -s foreign; do sleep 0.01; done\n\
             {abide} rpc runs.get '{foreign}' > foreign.txt 2>&1\n\
             {abide} rpc runs.get '{own}' > own.txt\n\
             {abide} rpc runs.cancel '{own}'; sleep 4000"
        ));
        let daemon = place.start().await;
        let (owner, eve) = (daemon.client().await, user_of(&daemon, "other", ALL).await);
        let careful = json!({ "task": "[look]", "agent": "careful" });
        let held = owner.spawn(careful).await;
        let worker = eve
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let work = place.work();
        fs::write(work.join("foreign.new"), &held.id).unwrap();
        fs::rename(work.join("foreign.new"), work.join("foreign")).unwrap();
        let ended = eve.ended(&worker.id).await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
        let name = format!("run:{}", worker.id);
        assert_eq!(ended["cancel"]["by"], name.as_str(), "{ended}");
        let said = fs::read_to_string(work.join("own.txt")).unwrap();
        assert!(said.contains(&worker.id), "{said}");
        let said = fs::read_to_string(work.join("foreign.txt")).unwrap();
        assert!(
            said.contains("forbidden") || said.contains("not_found"),
            "{said}"
        );
        assert!(!said.contains("[look]"), "{said}");
        // Its call is recorded in its own org alone.
        let cancels = json!({ "method": "runs.cancel" });
        let audit = eve.call("gateway.audit", cancels.clone()).await;
        assert_eq!(audit["entries"][0]["principal"], name.as_str(), "{audit}");
        let audit = owner.call("gateway.audit", cancels).await;
        assert_eq!(audit["entries"], json!([]));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn over_the_socket_the_owner_gives_work_without_the_token_and_decides_with_it() {
    run(async {
        let place = place("true");
        let daemon = place.start().await;
        let socket = place.state().join("abide.sock");
        let plain = Client::connect_socket(&socket).await.unwrap();
        let task = json!({ "task": "[look]", "agent": "careful" });
        let held: Value = plain.call("sessions.spawn", task).await.unwrap();
        let held = held["runId"].as_str().unwrap();
        let over_tcp = daemon.client().await;
        over_tcp.in_state(held, "paused").await;
        let open: Value = plain.call("approvals.list", json!({})).await.unwrap();
        let allow = json!({ "id": open["approvals"][0]["id"], "decision": "allow" });
        for (method, params) in [
            ("approvals.resolve", allow.clone()),
            ("trust.add", json!({ "folder": place.work() })),
            ("agents.delete", json!({ "agent": "careful" })),
            ("gateway.backup", json!({})),
        ] {
            let refused = plain.call::<_, Value>(method, params).await.unwrap_err();
            let abide::client::ClientError::Rpc(error) = refused else {
                panic!("{method}: {refused}");
            };
            assert_eq!(error.data["kind"], "unauthorized", "{method}: {error}");
            let file = place.state().canonicalize().unwrap().join("token");
            assert_eq!(error.data["tokenFile"], file.to_str().unwrap());
        }
        let with = Client::connect_socket_with(&socket, Some(daemon.token()))
            .await
            .unwrap();
        let _: Value = with.call("approvals.resolve", allow).await.unwrap();
        assert_eq!(over_tcp.ended(held).await["result"], "read");
        let wrong = Client::connect_socket_with(&socket, Some("another-token-altogether")).await;
        assert_eq!(wrong.unwrap_err().exit(), 11);

        // The command line presents the token itself, so users notice no difference.
        let session = over_tcp
            .spawn(json!({ "task": "[look]", "agent": "careful" }))
            .await;
        over_tcp.in_state(&session.id, "paused").await;
        let open = over_tcp
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let id = open["approvals"][0]["id"].as_str().unwrap();
        let params = json!({ "id": id, "decision": "allow" }).to_string();
        let said = place
            .command(&["rpc", "approvals.resolve", &params])
            .output()
            .unwrap();
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        assert_eq!(over_tcp.ended(&session.id).await["result"], "read");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn another_user_decides_nothing_with_the_token_over_the_socket() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    run(async {
        let place = place("true");
        let daemon = place.start().await;
        let socket = place.state().join("abide.sock");
        for open in [place.path(), &place.state()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o711)).unwrap();
        }
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "gateway.ping" }).to_string();
        let said = Command::new("curl")
            .args(["-sS", "--unix-socket", socket.to_str().unwrap()])
            .args(["-H", "Content-Type: application/json"])
            .args(["-H", &format!("Authorization: Bearer {}", daemon.token())])
            .args(["-d", &body, "http://localhost/"])
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains("this socket serves user"), "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}
