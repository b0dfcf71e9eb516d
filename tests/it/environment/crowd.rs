//! Many runs at once, each with values of its own for the same names, through every kind of end
//! and through a kill of the daemon: nobody sees another's, and the daemon's own environment is
//! not touched. And the proof that this would be noticed.

use std::fs;
use std::path::Path;

use abide::config::Source;
use abide::daemon::{self, Options};
use serde_json::json;

use super::{WORKER, touched, traces};
use crate::harness::{
    Daemon, Link, Place, Script, Spawned, calls, eventually, fails, panics, run, says,
};

/// How a run of the crowd is to end.
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
    token: String,
    plain: String,
}

/// A place in which `size` runs are carried out at the same time.
fn place(size: usize) -> Place {
    let dump = "env > \"$(mktemp out/$ABIDE_RUN_ID.XXXXXX)\"; echo token=$A_TOKEN";
    // No command ends before the test lets all of them go.
    let look = || {
        let command = format!("{dump}; while [ ! -e go ]; do sleep 0.2; done");
        calls("shell", json!({ "command": command }))
    };
    let stays = calls("shell", json!({ "command": format!("{dump}; sleep 4000") }));
    let script = Script::new()
        .on("[ok]", [look(), says("done")])
        .on("[fail]", [look(), fails("it fails")])
        .on("[panic]", [look(), panics(), panics(), panics()])
        .on("[cancel]", [stays, says("was not cancelled")]);
    let place = Place::new(script)
        .with_agent("worker", &format!("{WORKER}\non_uncertain: retry"))
        .with("lanes.main", &size.to_string())
        .with("lanes.global", &size.to_string())
        // The kill is the first; the panics of a run come after it.
        .with("recovery.max_attempts", "2");
    fs::create_dir_all(place.work().join("out")).unwrap();
    place
}

/// What the commands have seen, each by its run; those that were cut off have nothing.
fn dumps(place: &Place) -> Vec<(String, String)> {
    let entries = fs::read_dir(place.work().join("out")).unwrap().flatten();
    let dumps = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let run = name.split('.').next().unwrap().to_owned();
        (run, fs::read_to_string(entry.path()).unwrap_or_default())
    });
    dumps.filter(|(_, env)| env.contains("A_TOKEN=")).collect()
}

/// Waits until every run's command has been started so often.
async fn all_at_work(place: &Place, crowd: &[Member], times: usize) {
    eventually("all at work at the same time", async || {
        let dumps = dumps(place);
        let times_of = |member: &Member| {
            let own = dumps.iter().filter(|(run, _)| *run == member.spawned.id);
            own.count()
        };
        crowd
            .iter()
            .all(|member| times_of(member) == times)
            .then_some(())
    })
    .await;
}

/// What of others' values there is in what a run or its session says of it.
async fn told(client: &Link, member: &Member, secrets: &[String]) -> Option<String> {
    let id = json!({ "runId": member.spawned.id });
    let session = json!({ "sessionKey": member.spawned.session, "tools": true });
    for (method, params) in [
        ("runs.get", &id),
        ("runs.steps", &id),
        ("sessions.history", &session),
    ] {
        let said = client.call(method, params.clone()).await.to_string();
        if let Some(secret) = secrets.iter().find(|secret| said.contains(secret.as_str())) {
            return Some(format!("{method} of {} has {secret}", member.spawned.id));
        }
    }
    None
}

/// Plays the crowd; what is wrong. `meanwhile` happens while all are at work.
async fn play(
    place: &Place,
    size: usize,
    start: impl AsyncFn() -> Daemon,
    meanwhile: impl AsyncFnOnce(),
) -> Vec<String> {
    let mut wrong = Vec::new();
    let daemon = start().await;
    let client = daemon.client().await;
    let mut crowd = Vec::new();
    for n in 0..size {
        let (way, ends) = WAYS[n % WAYS.len()];
        let (token, plain) = (
            format!("canary-token-{n:02}"),
            format!("canary-plain-{n:02}"),
        );
        let env = json!({ "A_TOKEN": token, "PLAIN": plain, "UNITS": format!("units-{n:02}") });
        let params = json!({ "task": format!("[{way}] {n}"), "agent": "worker", "env": env });
        crowd.push(Member {
            spawned: client.spawn(params).await,
            way,
            ends,
            token,
            plain,
        });
    }
    let secrets: Vec<String> = crowd
        .iter()
        .flat_map(|member| [member.token.clone(), member.plain.clone()])
        .collect();
    all_at_work(place, &crowd, 1).await;
    meanwhile().await;
    wrong.extend(touched(&client).await);
    daemon.kill().await;
    // The write-ahead file as well, as the kill has left it.
    wrong.extend(traces(place, &secrets));

    let daemon = start().await;
    let client = daemon.client().await;
    all_at_work(place, &crowd, 2).await;
    for member in crowd.iter().filter(|member| member.way == "cancel") {
        let id = json!({ "runId": member.spawned.id });
        client.call("runs.cancel", id).await;
    }
    fs::write(place.work().join("go"), "").unwrap();
    for member in &crowd {
        let ended = client.ended(&member.spawned.id).await;
        assert_eq!(ended["state"], member.ends, "{}: {ended}", member.way);
        wrong.extend(told(&client, member, &secrets).await);
    }
    client.quiet().await;
    wrong.extend(touched(&client).await);
    assert_eq!(daemon.stop().await, 0);
    for (run, env) in dumps(place) {
        for member in &crowd {
            let is_own = member.spawned.id == run;
            for value in [&member.token, &member.plain] {
                if env.contains(value.as_str()) != is_own {
                    wrong.push(format!("a program of {run} and {value}"));
                }
            }
        }
    }
    wrong.extend(traces(place, &secrets));
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

#[test]
fn g7_1_g7_3_64_runs_at_once_never_see_each_others_values() {
    let place = place(64);
    run(async {
        let start = async || place.start().await;
        assert_eq!(play(&place, 64, start, async || {}).await, [""; 0]);
    });
}

/// The same test with a fault in the daemon: while the runs are at work, its process sets a
/// variable of its own, as a run's code that knew no better would. The crate forbids what that
/// takes, and no switch of the program can do it; so the daemon is played here by the library
/// within this test binary ([`planted_daemon`]), in a process of its own, with the fault beside
/// it.
#[test]
fn g7_1_a_daemon_that_writes_its_own_environment_fails_the_test_of_the_crowd() {
    let place = place(8);
    let (plant, planted) = (place.path().join("plant"), place.path().join("planted"));
    let wrong = run(async {
        let start = async || {
            let program = place.command(&[]);
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command
                .args(["--ignored", "--exact", "environment::crowd::planted_daemon"])
                .env_clear()
                .envs(
                    program
                        .get_envs()
                        .filter_map(|(name, value)| Some((name, value?))),
                )
                .env("TEST_PLANT", place.path())
                // Only the value of a variable that is there is changed, not the list of all,
                // which other threads read.
                .env(PLANTED, "before")
                .current_dir(place.path());
            place.start_command(command).await.unwrap()
        };
        let meanwhile = async || {
            fs::write(&plant, "").unwrap();
            eventually("the fault", async || planted.exists().then_some(())).await;
        };
        play(&place, 8, start, meanwhile).await
    });
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let says = format!("not what it was at its start: {PLANTED}");
    assert!(wrong[0].contains(&says), "{wrong:?}");
}

/// A daemon that writes its own environment when it is told to, once. Started by another test,
/// never by the test runner.
#[test]
#[ignore = "a program that another test starts"]
fn planted_daemon() {
    let Some(folder) = std::env::var_os("TEST_PLANT") else {
        return;
    };
    let state = std::env::var_os("ABIDE_STATE_DIR").unwrap();
    std::thread::spawn(move || {
        let folder = Path::new(&folder);
        // The life after the kill has no fault.
        while folder.join("planted").exists() || !folder.join("plant").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        temp_env::with_var(PLANTED, Some("planted"), || {
            fs::write(folder.join("planted"), "").unwrap();
            // Its life ends by the test's kill.
            while folder.exists() {
                std::thread::park();
            }
        });
    });
    let source = Source::find(None);
    let loaded = source.load().unwrap();
    let ended = daemon::serve(Options {
        state_dir: state.into(),
        source,
        loaded,
        on_ready: Box::new(|_| {}),
    });
    ended.unwrap();
}
