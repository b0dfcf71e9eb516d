//! The command line against a real daemon in a separate process.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use abide::client::Client;
use abide::kernel::session::Owner;
use abide::wire::sessions::{Create, Created};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{eventually, run};
use crate::home::{CommandOutput, Home, output_of};

/// A pause before each step that is longer than any test.
const STILL: &str = "[runner]\npace = \"1h\"\n";

/// A daemon and a home folder; both end with the test.
struct Live {
    home: Home,
    daemon: Child,
}

impl Live {
    fn start(config: &str) -> Live {
        let home = Home::new();
        fs::write(home.path().join("config.toml"), config).unwrap();
        fs::write(
            home.path().join("notes.txt"),
            "one\nthe needle is here\nthree\n",
        )
        .unwrap();
        let daemon = serve(&home);
        Live { home, daemon }
    }

    /// Runs a command that finds the daemon by its state folder.
    fn abide(&self, arguments: &[&str]) -> CommandOutput {
        output_of(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.home
            .command(&[arguments, &["--state-dir", "state"]].concat())
    }

    fn kill(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    /// The only run, as `ps` lists it.
    fn only_run(&self) -> Value {
        let listed = json(&self.abide(&["ps", "--all", "--json"]).out);
        let runs = listed["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1, "{listed}");
        runs[0].clone()
    }

    /// Creates a session whose inbox the test reads.
    fn client_session(&self) -> String {
        let endpoint = fs::read_to_string(self.home.path().join("state/endpoint.json")).unwrap();
        let url = json(&endpoint)["url"].as_str().unwrap().to_owned();
        let token = fs::read_to_string(self.home.path().join("state/token")).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let created: Created = runtime.block_on(async {
            let client = Client::connect(&url, Some(token.trim())).await.unwrap();
            let request = Create {
                owner: Some(Owner::Client),
                ..Create::default()
            };
            client.call("sessions.create", request).await.unwrap()
        });
        created.session.key.to_string()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts a daemon and waits until it reports that it is ready.
fn serve(home: &Home) -> Child {
    let mut daemon = home
        .command(&[
            "serve",
            "--json",
            "--state-dir",
            "state",
            "--listen",
            "127.0.0.1:0",
            "--config",
            "config.toml",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = line(&mut BufReader::new(daemon.stdout.as_mut().unwrap()));
    assert_eq!(json(&ready)["ready"]["pid"], daemon.id());
    daemon
}

/// `abide run --json` up to its acceptance: the process, the rest of its output, and the accepted
/// line.
fn accepted(live: &Live) -> (Child, BufReader<ChildStdout>, String) {
    let mut run = live
        .command(&[
            "run",
            "where is the needle?",
            "--agent",
            "explore",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let id = json(&line(&mut out))["runId"].as_str().unwrap().to_owned();
    (run, out, id)
}

fn line(reader: &mut impl BufRead) -> String {
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    text
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn run_answers_on_standard_output_and_tells_the_rest_on_the_other() {
    let live = Live::start("");
    let run = live.abide(&[
        "run",
        "where is the needle?",
        "--agent",
        "explore",
        "--label",
        "n",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("notes.txt:2"), "{}", run.out);
    assert!(run.err.contains("ended ok"), "{}", run.err);
    assert!(!run.err.contains("notes.txt:2 ("), "{}", run.err);

    // The same result by every name that a run has.
    let id = live.only_run()["runId"].as_str().unwrap().to_owned();
    for name in [&id[..], &id[28..], "n", "@last"] {
        let wait = live.abide(&["wait", name]);
        assert_eq!(
            (wait.code, &wait.out),
            (0, &run.out),
            "{name}: {}",
            wait.err
        );
    }
    let ps = live.abide(&["ps"]).out;
    assert!(ps.contains(&id[28..]) && ps.contains(" ok "), "{ps}");
    let history = live.abide(&["history", "@last"]).out;
    assert!(history.contains("where is the needle?"), "{history}");
    let quiet = live.abide(&["history", "@last", "--no-tools"]).out;
    assert!(
        history.contains("→ grep") && !quiet.contains("→ grep"),
        "{quiet}"
    );
    let sessions = live.abide(&["sessions"]).out;
    // Keys in a list can be used as arguments.
    let key = sessions.lines().nth(1).unwrap();
    assert!(key.contains(" explore "), "{sessions}");
    let digits = key.split(' ').next().unwrap();
    let history = live.abide(&["history", digits]).out;
    assert!(history.contains("where is the needle?"), "{history}");
    let status = live.abide(&["status"]).out;
    assert!(status.contains("offline/search"), "{status}");
    for text in [ps, sessions, status] {
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

#[test]
fn a_task_can_come_from_standard_input() {
    let live = Live::start("");
    fs::write(live.home.path().join("task"), "where is the needle?").unwrap();
    let file = fs::File::open(live.home.path().join("task")).unwrap();
    let run = output_of(
        live.command(&["run", "-", "--agent", "explore"])
            .stdin(file),
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("notes.txt:2"), "{}", run.out);
}

#[test]
fn g14_text_of_files_cannot_steer_the_terminal() {
    let live = Live::start("");
    let evil = "the needle \u{1b}]0;title\u{7} and \u{1b}[2J\u{9b}31m\u{202e}here\n";
    fs::write(live.home.path().join("notes.txt"), evil).unwrap();
    let run = live.abide(&["run", "where is the needle?", "--agent", "explore"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("notes.txt:1"), "{}", run.out);
    for text in [run.out, run.err, live.abide(&["history", "@last"]).out] {
        let bad = text
            .chars()
            .find(|ch| ch.is_control() && *ch != '\n' && *ch != '\t');
        assert_eq!(bad, None, "{text:?}");
        assert!(!text.contains('\u{202e}'), "{text:?}");
    }
}

#[test]
fn g4_a_repeated_spawn_with_one_key_is_one_run() {
    let live = Live::start(STILL);
    let spawn = |task: &str| live.abide(&["spawn", task, "--idempotency-key", "k"]);
    let first = spawn("one thing");
    assert_eq!(first.code, 0, "{}", first.err);
    assert_eq!(first.out.trim().len(), 36);
    assert_eq!(spawn("one thing").out, first.out);
    assert_eq!(live.only_run()["runId"], first.out.trim());
    let other = spawn("another thing");
    assert_eq!(other.code, 9, "{}", other.err);
    assert_eq!(live.only_run()["runId"], first.out.trim());
}

#[test]
fn g3_5_the_end_of_a_wait_is_no_end_of_the_run() {
    let live = Live::start(STILL);
    let id = live.abide(&["spawn", "x"]).out;
    let id = id.trim();
    let wait = live.abide(&["wait", id, "--timeout", "0"]);
    assert_eq!(wait.code, 4, "{}", wait.err);
    assert!(
        wait.err.contains(&format!("abide wait {}", &id[28..])),
        "{}",
        wait.err
    );
    assert_eq!(wait.out, "");
    let wait = live.abide(&["wait", id, "--timeout", "0", "--json"]);
    let answer = json(&wait.out);
    assert_eq!(
        (wait.code, &answer["cause"]),
        (4, &"window".into()),
        "{answer}"
    );
    assert_eq!(answer["runs"][0]["status"], "pending");
    assert_eq!(live.only_run()["state"], "running");
}

#[test]
fn g1_3_ctrl_c_leaves_the_run_alone() {
    let live = Live::start(STILL);
    let (mut run, _out, id) = accepted(&live);
    let pid = Pid::from_child(&run);
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(4));
    let mut told = String::new();
    run.stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert!(
        told.contains(&format!("abide wait {}", &id[28..])),
        "{told}"
    );
    // The run was just accepted and may not have a slot yet.
    let state = live.only_run()["state"].clone();
    assert!(state == "queued" || state == "running", "{state}");
}

#[test]
fn g1_3_a_lost_link_is_found_again_and_nothing_is_started_twice() {
    let mut live = Live::start("[runner]\npace = \"150ms\"\n");
    let (mut run, mut out, id) = accepted(&live);
    live.kill();
    live.daemon = serve(&live.home);
    let ended = json(&line(&mut out));
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(
        (&ended["runId"], &ended["state"]),
        (&id[..].into(), &"ok".into())
    );
    assert!(
        ended["result"].as_str().unwrap().contains("notes.txt:2"),
        "{ended}"
    );
    assert_eq!(live.only_run()["runId"], id);
}

#[test]
fn an_inbox_holds_each_end_until_it_is_acknowledged() {
    let live = Live::start("");
    let parent = live.client_session();
    let spawn = live.abide(&[
        "spawn",
        "where is the needle?",
        "--agent",
        "explore",
        "--parent",
        &parent,
        "--meta",
        r#"{"route":"a"}"#,
    ]);
    let id = spawn.out.trim();
    assert_eq!(live.abide(&["wait", id]).code, 0);
    // The announce comes after the end, which the wait above has seen.
    let inbox = run(eventually("its announce", async || {
        let inbox = json(&live.abide(&["inbox", &parent, "--json"]).out);
        (inbox["announces"] != Value::Array(Vec::new())).then_some(inbox)
    }));
    assert_eq!(inbox["announces"].as_array().unwrap().len(), 1, "{inbox}");
    assert_eq!(inbox["announces"][0]["runId"], id);
    assert_eq!(inbox["announces"][0]["meta"]["route"], "a");

    let shown = live.abide(&["inbox", &parent, "--ack"]);
    assert!(shown.out.contains("notes.txt:2"), "{}", shown.out);
    assert!(shown.err.contains("acknowledged: 1"), "{}", shown.err);
    let empty = live.abide(&["inbox", &parent]);
    assert_eq!((empty.code, &empty.out[..]), (0, ""), "{}", empty.err);
    let acked = live.abide(&["inbox", &parent, "--acked"]);
    assert!(acked.out.contains("notes.txt:2"), "{}", acked.out);
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let live = Live::start(STILL);
    let id = live.abide(&["spawn", "x", "--label", "lonely"]).out;
    for line in [
        &["wait", "00000000"][..],
        &["wait", "nosuchlabel"],
        &["history", "agent:x:none"],
        &["inbox", "agent:x:none"],
        &["ps", "--tree", "00000000"],
    ] {
        let said = live.abide(line);
        assert_eq!(said.code, 3, "{line:?}: {}", said.err);
    }
    let said = live.abide(&["wait", "00000000"]);
    let recent = format!("{} (lonely)", &id.trim()[28..]);
    assert!(said.err.contains(&recent), "{}", said.err);
    // Only the daemon can tell that a full id is unknown.
    let nobody = "01936f0e-0000-7000-8000-000000000001";
    let said = live.abide(&["wait", nobody, "--json"]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(json(&said.out)["runs"][0]["status"], "not_found");
    let said = live.abide(&["run", "x", "--agent", "nobody"]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(said.err.contains("explore"), "{}", said.err);
}

#[test]
fn a_wrong_token_opens_nothing() {
    let live = Live::start("");
    fs::write(live.home.path().join("other"), "not the token\n").unwrap();
    for command in ["status", "ps", "stop"] {
        let said = live.abide(&[command, "--token-file", "other"]);
        assert_eq!(said.code, 11, "{command}: {}", said.err);
        assert!(said.err.contains("--token-file"), "{command}: {}", said.err);
    }
}

#[test]
fn stop_returns_when_the_daemon_is_gone() {
    let mut live = Live::start("");
    let said = live.abide(&["stop"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let ended = live.daemon.try_wait().unwrap();
    assert_eq!(ended.unwrap().code(), Some(0));
    assert_eq!(live.abide(&["status"]).code, 10);
    let again = live.abide(&["stop"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let wanted = "nothing to stop: no daemon runs on ";
    assert!(again.err.contains(wanted), "{}", again.err);
    // An unknown state is not a success.
    let far = [
        "stop",
        "--url",
        "http://127.0.0.1:9",
        "--token-file",
        "state/token",
    ];
    let far = live.home.abide(&far);
    assert_eq!(far.code, 10, "{}", far.err);
    let restart = live.abide(&["stop", "--restart"]);
    assert_eq!(restart.code, 10, "{}", restart.err);
}

#[test]
fn a_folder_or_port_that_is_taken_is_exit_75_with_the_holder() {
    let live = Live::start("");
    for detach in [&[][..], &["--detach"]] {
        let line = [&["serve", "--listen", "127.0.0.1:0"], detach].concat();
        let said = live.abide(&line);
        if detach.is_empty() {
            assert_eq!(said.code, 75, "{}", said.err);
            let holder = format!("pid {}", live.daemon.id());
            assert!(said.err.contains(&holder), "{}", said.err);
        } else {
            // The requested state already holds.
            assert_eq!(said.code, 0, "{}", said.err);
            let there = format!("abide is already running: process {}", live.daemon.id());
            assert!(said.out.contains(&there), "{}", said.out);
            assert!(said.err.contains("abide stop"), "{}", said.err);
        }

        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let line = ["serve", "--state-dir", "other", "--listen", &address];
        let said = live.home.abide(&[&line, detach].concat());
        assert_eq!(said.code, 75, "{}", said.err);
        assert!(said.err.contains(&address), "{}", said.err);
    }
    assert_eq!(live.abide(&["status"]).code, 0);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let home = Home::new();
    fs::write(home.path().join("file"), "").unwrap();
    fs::write(home.path().join("bad.toml"), "[lanes]\nmain = -1\n").unwrap();
    for detach in [&[][..], &["--detach"]] {
        let serve = |rest: &[&str]| home.abide(&[&["serve"], rest, detach].concat());
        let said = serve(&["--state-dir", "file"]);
        assert_eq!(said.code, 77, "{}", said.err);
        let said = serve(&["--state-dir", "s", "--config", "bad.toml"]);
        assert_eq!(said.code, 78, "{}", said.err);
        assert!(said.err.contains("lanes.main"), "{}", said.err);
        let said = serve(&["--state-dir", "s", "--config", "missing.toml"]);
        assert_eq!(said.code, 78, "{}", said.err);
        let said = serve(&["--url", "http://127.0.0.1:1"]);
        assert_eq!(said.code, 2, "{}", said.err);
    }
    assert!(!home.path().join("s/abide.db").exists());
}

#[test]
fn serve_detach_leaves_a_daemon_behind() {
    let home = Home::new();
    let place = ["--state-dir", "state"];
    let started = home.abide(
        &[
            &["serve", "--detach", "--json", "--listen", "127.0.0.1:0"][..],
            &place,
        ]
        .concat(),
    );
    assert_eq!(started.code, 0, "{}", started.err);
    let endpoint = json(&started.out);
    let status = home.abide(&[&["status", "--json"][..], &place].concat());
    assert_eq!(json(&status.out)["pid"], endpoint["pid"]);
    assert_eq!(mode(&home.path().join("state")), 0o700);
    assert_eq!(mode(&home.path().join("state/abide.log")), 0o600);
    assert_eq!(home.abide(&[&["stop"][..], &place].concat()).code, 0);
}

/// As in a container that was entered from outside, and in many build services: the session leader
/// has no process id in this namespace.
#[test]
fn a_daemon_detaches_where_the_leader_of_its_session_cannot_be_seen() {
    let home = Home::new();
    let inside = |line: &str| {
        let mut command = home.program("unshare");
        let abide = env!("CARGO_BIN_EXE_abide");
        command.args(["--pid", "--fork", "sh", "-euc", line, abide]);
        command
    };
    if !inside("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: a PID namespace cannot be created here");
        return;
    }
    let said = output_of(&mut inside(
        "\"$0\" serve --detach --listen 127.0.0.1:0 --state-dir state >&2
         \"$0\" status --json --state-dir state
         \"$0\" stop --state-dir state >&2",
    ));
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(json(&said.out)["phase"], "ready");
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_demo_holds_what_it_promises() {
    let home = Home::new();
    let folder = home.path().join("empty");
    fs::create_dir(&folder).unwrap();
    let said = output_of(home.command(&["demo", "--json"]).current_dir(&folder));
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);
    let events: Vec<Value> = said.out.lines().map(json).collect();
    let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!(count("killed"), 1);
    assert_eq!(count("restarted"), 1);
    assert!(count("resumed") >= 2, "{}", said.out);
    assert_eq!(count("ended"), 3);
    assert_eq!(count("announced"), 3);
    let summary = events.last().unwrap();
    assert_eq!(
        (&summary["event"], &summary["ok"]),
        (&"summary".into(), &true.into())
    );
    assert_ne!(summary["pids"][0], summary["pids"][1]);
    assert!(
        summary["finishedStepsKept"].as_u64().unwrap() >= 2,
        "{summary}"
    );
    assert!(summary["quotesChecked"].as_u64().unwrap() >= 3, "{summary}");
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().flatten().collect();
    let left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["empty"], "nothing of it stays in the home folder");
}

#[test]
fn the_demo_refuses_the_home_folder() {
    let home = Home::new();
    fs::write(home.path().join("a"), "a").unwrap();
    let said = home.abide(&["demo"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("source code"), "{}", said.err);
}
