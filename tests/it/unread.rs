//! Files of agents and skills that the daemon temporarily cannot read: their last known content
//! stays in force, with a notice, and they are read again without being touched.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Daemon, Link, Place, Script, eventually, run, says};
use crate::skills::put;

const NOBODY: u32 = 65534;

/// A place with an agent of the user, one of a project, and a skill.
fn place() -> Place {
    let place = Place::new(Script::new().on("[a]", [says("a is done")]));
    write(&config(&place), "worker.md", "", "First.");
    fs::create_dir_all(place.work().join(".git")).unwrap();
    write(
        &place.work().join(".abide/agents"),
        "local.md",
        "",
        "Local.",
    );
    put(&skills(&place), "known", "Is known.", "Body.");
    place
}

fn skills(place: &Place) -> std::path::PathBuf {
    place.work().join(".abide/skills")
}

async fn describes(client: &Link, agent: &str, cwd: Option<&Path>) -> Option<String> {
    let mut params = json!({ "agent": agent });
    if let Some(cwd) = cwd {
        params["cwd"] = cwd.to_str().unwrap().into();
    }
    let found = client.attempt("agents.get", &params).await.ok()?;
    Some(found["description"].as_str()?.to_owned())
}

async fn skill(client: &Link, place: &Place) -> Option<String> {
    let params = json!({ "workspace": place.work().to_str().unwrap() });
    let listed = client.call("skills.list", params).await;
    let found = listed["skills"].as_array().unwrap().iter();
    let mut found = found.filter(|skill| skill["name"] == "known");
    Some(found.next()?["description"].as_str().unwrap().to_owned())
}

async fn notices(client: &Link) -> String {
    client.call("gateway.status", json!({})).await["notices"].to_string()
}

/// Checks that everything is in its initial state.
async fn is_known(client: &Link, place: &Place) {
    let work = place.work();
    let worker = describes(client, "worker", None).await;
    assert_eq!(worker.as_deref(), Some("Says First.."));
    let local = describes(client, "local", Some(&work)).await;
    assert_eq!(local.as_deref(), Some("Says Local.."));
    assert_eq!(skill(client, place).await.as_deref(), Some("Is known."));
}

/// Sets the limit of files that the daemon may open; returns the previous one.
pub(crate) fn may_open(daemon: &Daemon, soft: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap());
    let limit = Rlimit {
        current: soft,
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    prlimit(pid, Resource::Nofile, limit).unwrap().current
}

#[test]
fn a_want_of_descriptors_takes_no_agent_and_no_skill_away() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        is_known(&client, &place).await;
        let before = may_open(&daemon, Some(3));
        // These changes are noticed but cannot be read.
        write(&config(&place), "worker.md", "", "Second.");
        write(
            &place.work().join(".abide/agents"),
            "local.md",
            "",
            "Moved.",
        );
        put(&skills(&place), "known", "Is changed.", "Body.");
        eventually("word of it", async || {
            let said = notices(&client).await;
            (said.contains("agents: ") && said.contains("skills: ")).then_some(())
        })
        .await;
        is_known(&client, &place).await;
        assert!(notices(&client).await.contains("open files"));
        let listed = client.call("agents.list", json!({})).await;
        let rejected = listed["rejected"].to_string();
        assert!(
            rejected.contains("the last successful read stays in effect"),
            "{listed}"
        );
        let logged = daemon.logged();
        let says = |what: &str| logged.lines().any(|line| line.contains(what));
        assert!(says("agents: /") && says("skills: /"), "{logged}");

        // No file is touched: the daemon reads them again by itself.
        may_open(&daemon, before);
        let work = place.work();
        eventually("the changes", async || {
            let worker = describes(&client, "worker", None).await?;
            let local = describes(&client, "local", Some(&work)).await?;
            let skill = skill(&client, &place).await?;
            let all = [worker.as_str(), &local, &skill];
            (all == ["Says Second..", "Says Moved..", "Is changed."]).then_some(())
        })
        .await;
        eventually("no notices", async || {
            let status = client.call("gateway.status", json!({})).await;
            status
                .get("notices")
                .is_none_or(|notices| *notices == json!([]))
                .then_some(())
        })
        .await;
        let run = client
            .spawn(json!({ "task": "[a]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&run.id).await["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn reads_without_a_free_descriptor_wait_for_the_connections_of_others() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[a]", "agent": "worker" }))
            .await;
        client.ended(&spawned.id).await;
        let before = may_open(&daemon, Some(3));
        // More at once than there are connections.
        for _ in 0..10 {
            let reads = (0..40).map(|_| client.call("runs.list", json!({})));
            for listed in futures_util::future::join_all(reads).await {
                assert_eq!(listed["runs"][0]["runId"], spawned.id.as_str(), "{listed}");
            }
        }
        may_open(&daemon, before);
        assert_eq!(daemon.stop().await, 0);
    });
}

fn give(folder: &Path) {
    chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => give(&path),
            false => chown(&path, Some(NOBODY), Some(NOBODY)).unwrap(),
        }
    }
}

#[test]
fn files_without_the_right_to_read_them_stay_as_they_were_and_those_that_are_gone_are_gone() {
    let is_root = rustix::process::geteuid().is_root();
    run(async {
        let place = place();
        let mut command = place.command(&["serve"]);
        if is_root {
            // Root can read every file.
            give(place.path());
            command.uid(NOBODY).gid(NOBODY);
        }
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        is_known(&client, &place).await;
        let file = config(&place).join("worker.md");
        let closed = [file.clone(), skills(&place).join("known/SKILL.md")];
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        closed.iter().for_each(|path| mode(path, 0));
        eventually("word of it", async || {
            client.call("agents.reload", json!({})).await;
            client.call("skills.refresh", json!({})).await;
            let said = notices(&client).await;
            (said.contains("worker.md") && said.contains("SKILL.md")).then_some(())
        })
        .await;
        is_known(&client, &place).await;
        let found: Value = client.call("gateway.doctor", json!({})).await;
        let found = found.to_string();
        assert!(
            found.contains("unread.agents") && found.contains("unread.skills"),
            "{found}"
        );

        closed.iter().for_each(|path| mode(path, 0o644));
        eventually("no notices", async || {
            let status = client.call("gateway.status", json!({})).await;
            status
                .get("notices")
                .is_none_or(|notices| *notices == json!([]))
                .then_some(())
        })
        .await;
        fs::remove_file(&file).unwrap();
        eventually("no worker", async || {
            describes(&client, "worker", None)
                .await
                .is_none()
                .then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
