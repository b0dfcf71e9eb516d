//! Many concurrent runs, each with different values for the same names, through every kind of end
//! and a kill of the daemon: no run sees another's values, and the daemon's own environment does
//! not change. Also proves that the tests would detect a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use abide::client::EventSubscription;
use abide::config::SettingsSource;
use abide::daemon::{self, DaemonOptions};
use abide::wire::events::Event;
use aho_corasick::AhoCorasick;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{WORKER, traces};
use crate::harness::{
    Answer, Daemon, Link, Place, Script, Spawned, calls, eventually, fails, panics, run, says,
};

/// The ways in which a run of the crowd ends: name and final state.
const WAYS: [(&str, &str); 4] = [
    ("ok", "ok"),
    ("fail", "error"),
    ("panic", "interrupted"),
    ("cancel", "cancelled"),
];

/// The name that a planted fault writes into the daemon's own environment.
const PLANTED: &str = "UNITS";

/// One run of the crowd.
struct Member {
    spawned: Spawned,
    way: &'static str,
    ends: &'static str,
    /// True if it ends while the others run, in the first daemon process.
    is_early: bool,
    /// Values that must never be visible.
    secrets: [String; 2],
    /// A value that is not a secret, under the name that all runs share.
    units: String,
    /// True if its command prints its units, which then occur in its own transcript.
    is_loud: bool,
    /// A name that no other run has.
    name: String,
}

impl Member {
    async fn begin(client: &Link, place: &Place, number: usize, is_early: bool) -> Member {
        let (way, ends) = WAYS[number % WAYS.len()];
        let secrets = ["token", "plain"].map(|what| format!("canary-{what}-{number:02}"));
        let units = format!("canary-units-{number:02}");
        // A text value in a request is a secret; a reference to where it is read from is not.
        let file = place.work().join(format!("units-{number:02}"));
        fs::write(&file, &units).unwrap();
        let is_loud = (number / WAYS.len()).is_multiple_of(2);
        let name = format!("UNITS_OF_{number:02}");
        let env = json!({
            "A_TOKEN": secrets[0], "PLAIN": secrets[1], "UNITS": { "from": format!("file:{}", file.display()) }, &name: "yes",
            "LOUD": if is_loud { "yes" } else { "" },
        });
        let early = if is_early { "early " } else { "" };
        let task = format!("[{early}{way}] {number}");
        let params = json!({ "task": task, "agent": "worker", "env": env });
        Member {
            spawned: client.spawn(params).await,
            way,
            ends,
            is_early,
            secrets,
            units,
            is_loud,
            name,
        }
    }
}

/// A place in which `size` runs and the early ones run concurrently.
fn place(size: usize) -> Place {
    let dump = "env > \"$(mktemp out/$ABIDE_RUN_ID.XXXXXX)\"; echo token=$A_TOKEN; \
                test -z \"$LOUD\" || echo units=$UNITS";
    let shell = |then: &str| calls("shell", json!({ "command": format!("{dump}{then}") }));
    // No command ends before the test releases all of them.
    let look = || shell("; while [ ! -e go ]; do sleep 0.2; done");
    let stays = || shell("; sleep 4000");
    let ends = |first: Answer| [first, panics(), panics(), panics(), panics()];
    let script = Script::new()
        .on("[ok]", [look(), says("done")])
        .on("[fail]", [look(), fails("it fails")])
        .on("[panic]", ends(look()))
        .on("[cancel]", [stays(), says("was not cancelled")])
        .on("[early ok]", [shell(""), says("done")])
        .on("[early fail]", [shell(""), fails("it fails")])
        .on("[early panic]", ends(shell("")))
        .on("[early cancel]", [stays(), says("was not cancelled")]);
    let all = (size + WAYS.len()).to_string();
    let place = Place::new(script)
        .with_agent("worker", &format!("{WORKER}\non_uncertain: retry"))
        .with("lanes.main", &all)
        .with("lanes.global", &all)
        // The kill is the first attempt that counts; the panics of a run follow.
        .with("recovery.max_attempts", "2");
    fs::create_dir_all(place.work().join("out")).unwrap();
    place
}

/// The environments that the commands have written, each with its run; interrupted commands have
/// none.
fn dumps(place: &Place) -> Vec<(String, String)> {
    let entries = fs::read_dir(place.work().join("out")).unwrap().flatten();
    let dumps = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let run = name.split('.').next().unwrap().to_owned();
        (run, fs::read_to_string(entry.path()).unwrap_or_default())
    });
    dumps.filter(|(_, env)| env.contains("A_TOKEN=")).collect()
}

/// Waits until every run's command has been started `times` times, and an early run's once.
async fn all_at_work(place: &Place, crowd: &[Member], times: usize) {
    eventually("all at work at the same time", async || {
        let dumps = dumps(place);
        let times_of = |member: &Member| {
            let own = dumps.iter().filter(|(run, _)| *run == member.spawned.id);
            own.count()
        };
        crowd
            .iter()
            .all(|member| times_of(member) == if member.is_early { 1 } else { times })
            .then_some(())
    })
    .await;
}

/// Collects all events of a subscription until the link is lost.
fn listen(mut events: EventSubscription) -> JoinHandle<Vec<Event>> {
    tokio::spawn(async move {
        let mut heard = Vec::new();
        while let Some(Ok(event)) = events.next().await {
            heard.push(event);
        }
        heard
    })
}

/// The private values of each run, and where they may be visible.
struct Canaries<'a> {
    crowd: &'a [Member],
    finder: AhoCorasick,
    /// By pattern: the value, its owner, and whether the owner's own texts may contain it.
    all: Vec<(&'a str, usize, bool)>,
}

impl<'a> Canaries<'a> {
    fn of(crowd: &'a [Member]) -> Canaries<'a> {
        let mut all: Vec<(&str, usize, bool)> = Vec::new();
        for (at, member) in crowd.iter().enumerate() {
            all.extend(member.secrets.iter().map(|one| (one.as_str(), at, false)));
            all.push((&member.units, at, member.is_loud));
            all.push((&member.name, at, true));
        }
        let finder = AhoCorasick::new(all.iter().map(|(text, ..)| text)).unwrap();
        Canaries { crowd, finder, all }
    }

    /// Values that must not occur in any file that the daemon has written.
    fn hidden(&self) -> Vec<String> {
        let hidden = self.all.iter().filter(|(.., may_be_seen)| !may_be_seen);
        hidden.map(|(text, ..)| (*text).to_owned()).collect()
    }

    /// The owner of data about this run or session.
    fn owner(&self, run: Option<&str>, session: Option<&str>) -> Option<usize> {
        self.crowd.iter().position(|member| {
            run == Some(&member.spawned.id) || session == Some(&member.spawned.session)
        })
    }

    /// The forbidden values in a text of this owner, and the allowed ones.
    fn look(&self, what: &str, owner: Option<usize>, text: &str) -> (Vec<String>, Vec<&'a str>) {
        let (mut wrong, mut own) = (Vec::new(), Vec::new());
        for found in self.finder.find_iter(text) {
            let (canary, whose, may_be_seen) = self.all[found.pattern().as_usize()];
            match owner == Some(whose) && may_be_seen {
                true => own.push(canary),
                false => wrong.push(format!("{what} of {owner:?} has {canary} of {whose}")),
            }
        }
        (wrong, own)
    }

    /// Checks everything that the API returns about a run and its session; returns the violations.
    async fn told(&self, client: &Link, at: usize) -> Vec<String> {
        let member = &self.crowd[at];
        let id = json!({ "runId": member.spawned.id });
        let session = json!({ "sessionKey": member.spawned.session, "tools": true });
        let mut wrong = Vec::new();
        for (method, params) in [
            ("runs.get", &id),
            ("runs.steps", &id),
            ("sessions.history", &session),
        ] {
            let said = client.call(method, params.clone()).await.to_string();
            wrong.extend(self.look(method, Some(at), &said).0);
            // The output of an interrupted command is discarded.
            if method == "sessions.history" && member.way != "cancel" {
                let own = format!("units={}", member.units);
                assert_eq!(said.contains(&own), member.is_loud, "{said}");
            }
        }
        wrong
    }

    /// Checks the events that a subscriber received live; returns the violations. The ends of these
    /// runs, and the output of the loud ones, prove that the subscriber received everything.
    fn heard(&self, events: &[Event], is_early: bool) -> Vec<String> {
        let (mut wrong, mut ends) = (Vec::new(), 0);
        let mut said: BTreeSet<&str> = BTreeSet::new();
        for event in events {
            let run = event.run_id.map(|run| run.to_string());
            let owner = self.owner(run.as_deref(), event.session_key.as_deref());
            let text = serde_json::to_string(event).unwrap();
            let (found, own) = self.look(&format!("event {}", event.kind), owner, &text);
            wrong.extend(found);
            said.extend(own);
            ends += usize::from(event.kind == "run.ended");
        }
        let ended = self.crowd.iter().filter(|one| one.is_early == is_early);
        assert_eq!(ends, ended.clone().count());
        for loud in ended.filter(|one| one.is_loud && one.way != "cancel") {
            assert!(said.contains(loud.units.as_str()), "{}", loud.units);
        }
        wrong
    }

    /// Checks what the daemons have left behind: rows, log and all other files; returns the
    /// violations.
    fn left(&self, place: &Place) -> Vec<String> {
        let mut wrong = traces(place, &self.hidden());
        wrong.extend(self.look("the log", None, &place.log()).0);
        let book = place.book();
        for event in book.events.values() {
            let owner = self.owner(event.run.as_deref(), event.key.as_deref());
            let text = event.data.to_string();
            wrong.extend(self.look("a stored event", owner, &text).0);
        }
        for message in book.messages.values() {
            let session = book.sessions.get(&message.session);
            let owner = self.owner(None, session.map(|session| session.key.as_str()));
            let text = message.content.to_string();
            wrong.extend(self.look("a stored message", owner, &text).0);
        }
        for step in book.steps.values() {
            let owner = self.owner(Some(&step.run), None);
            let text = format!("{} {:?}", step.input, step.error);
            wrong.extend(self.look("a stored step", owner, &text).0);
        }
        wrong
    }

    /// Checks the environments of the programs; returns the violations.
    fn carried(&self, place: &Place) -> Vec<String> {
        let mut wrong = Vec::new();
        for (run, env) in dumps(place) {
            let owner = self.owner(Some(&run), None).unwrap();
            for (canary, whose, _) in &self.all {
                if env.contains(canary) != (*whose == owner) {
                    wrong.push(format!("a program of {run} and {canary}"));
                }
            }
        }
        wrong
    }
}

async fn cancel(client: &Link, crowd: &[Member], is_early: bool) {
    let cancelled = crowd.iter().filter(|member| member.way == "cancel");
    for member in cancelled.filter(|member| member.is_early == is_early) {
        let id = json!({ "runId": member.spawned.id });
        client.call("runs.cancel", id).await;
    }
}

/// Waits for the ends of these runs and checks everything about them; returns the violations.
async fn end(client: &Link, canaries: &Canaries<'_>, is_early: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, member) in canaries.crowd.iter().enumerate() {
        if member.is_early == is_early {
            let ended = client.ended(&member.spawned.id).await;
            assert_eq!(ended["state"], member.ends, "{}: {ended}", member.way);
            wrong.extend(canaries.told(client, at).await);
        }
    }
    wrong
}

/// Runs the crowd and returns the violations. `changed` checks the environment of the daemon itself
/// after runs of every kind.
async fn play(
    place: &Place,
    size: usize,
    start: impl AsyncFn() -> Daemon,
    changed: impl AsyncFn() -> Option<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let daemon = start().await;
    let client = daemon.client().await;
    let follow = json!({ "since": 0, "deltas": true });
    let heard = listen(client.subscribe(follow).await);
    let mut crowd = Vec::new();
    for number in 0..size + WAYS.len() {
        crowd.push(Member::begin(&client, place, number, number >= size).await);
    }
    let canaries = Canaries::of(&crowd);
    all_at_work(place, &crowd, 1).await;
    // Some end in each way while the others run: this process has handled every kind of end before
    // its own environment is checked.
    cancel(&client, &crowd, true).await;
    wrong.extend(end(&client, &canaries, true).await);
    wrong.extend(changed().await);
    daemon.kill().await;
    let heard = heard.await.unwrap();
    wrong.extend(canaries.heard(&heard, true));
    // Includes the WAL file as the kill has left it.
    wrong.extend(canaries.left(place));
    // Otherwise the commands go on, and none is started again.
    place.kill_keepers().await;

    let daemon = start().await;
    let client = daemon.client().await;
    let since = heard.iter().filter_map(|event| event.cursor).max();
    let follow = json!({ "since": since, "deltas": true });
    let heard = listen(client.subscribe(follow).await);
    all_at_work(place, &crowd, 2).await;
    cancel(&client, &crowd, false).await;
    fs::write(place.work().join("go"), "").unwrap();
    wrong.extend(end(&client, &canaries, false).await);
    client.quiet().await;
    wrong.extend(changed().await);
    assert_eq!(daemon.stop().await, 0);
    let heard = heard.await.unwrap();
    wrong.extend(canaries.heard(&heard, false));
    wrong.extend(canaries.carried(place));
    wrong.extend(canaries.left(place));
    let events: Vec<(Option<String>, String)> = place
        .book()
        .events
        .into_values()
        .map(|event| (event.run, event.kind))
        .collect();
    for member in &crowd {
        let of_run = events.iter().filter(|(run, kind)| {
            run.as_ref() == Some(&member.spawned.id) && kind == "env.restored"
        });
        assert_eq!(of_run.count(), 1, "{}", member.spawned.id);
    }
    wrong
}

/// Takes some 5 s: 64 concurrent runs, each with its own programs.
#[test]
fn g7_1_g7_3_64_runs_at_once_never_see_each_others_values() {
    let place = place(64);
    run(async {
        let start = async || place.start().await;
        assert_eq!(play(&place, 64, start, async || None).await, [""; 0]);
    });
}

/// The crate forbids that the daemon writes its own environment; this shows that no library does it
/// either. A process cannot see the changed environment of another, so the daemon is the library
/// within this test binary ([`watched_daemon`]), in a process that compares its environment with
/// that of its start.
#[test]
fn g7_1_the_daemons_own_environment_never_changes() {
    let place = place(8);
    let start = async || {
        let program = place.command(&[]);
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let given = program.get_envs();
        command
            .args(["--ignored", "--exact", "environment::crowd::watched_daemon"])
            .env_clear()
            .envs(given.filter_map(|(name, value)| Some((name, value?))))
            .env("TEST_WATCHED", place.path())
            .env("ABIDE_FAILPOINT_PROGRAM", env!("CARGO_BIN_EXE_abide"))
            .env(PLANTED, "before")
            .current_dir(place.path());
        place.start_command(command).await.unwrap()
    };
    let changed = async || {
        fs::write(place.path().join("check"), "").unwrap();
        let checked = place.path().join("checked");
        let names = eventually("the check", async || fs::read_to_string(&checked).ok()).await;
        fs::remove_file(checked).unwrap();
        (!names.is_empty()).then(|| format!("the daemon's environment has changed: {names}"))
    };
    run(async {
        assert_eq!(play(&place, 8, start, changed).await, [""; 0]);
    });
}

/// A daemon that compares its own environment with that of its start, on request. Started by
/// another test, never by the test runner.
#[test]
#[ignore = "a program that another test starts"]
fn watched_daemon() {
    let Some(folder) = std::env::var_os("TEST_WATCHED").map(PathBuf::from) else {
        return;
    };
    let state = std::env::var_os("ABIDE_STATE_DIR").unwrap();
    let environment = || std::env::vars_os().collect::<BTreeMap<OsString, OsString>>();
    let before = environment();
    let changed = move || {
        let now = environment();
        let names = before.keys().chain(now.keys());
        let names = names.filter(|name| before.get(*name) != now.get(*name));
        let names: BTreeSet<String> = names.map(|name| name.display().to_string()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    // The check finds a change.
    temp_env::with_var(PLANTED, Some("planted"), || assert_eq!(changed(), PLANTED));
    std::thread::spawn(move || {
        while folder.exists() {
            if fs::remove_file(folder.join("check")).is_ok() {
                let aside = folder.join("checked.new");
                fs::write(&aside, changed()).unwrap();
                fs::rename(aside, folder.join("checked")).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let source = SettingsSource::find(None);
    let loaded = source.load().unwrap();
    let ended = daemon::serve(DaemonOptions {
        state_dir: state.into(),
        source,
        loaded,
        on_ready: Box::new(|_| {}),
    });
    ended.unwrap();
}
