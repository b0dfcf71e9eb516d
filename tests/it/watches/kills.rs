//! The daemon is killed between noticing a change and committing its version, or right after: no
//! change is lost, no version repeats, and each is reported once.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use abide::client::EventSubscription;
use serde_json::{Value, json};

use super::{SkillsChange, bumps, replace, until_bumped, version};
use crate::harness::{Faults, Link, Place, Script, run};
use crate::skills::put;

/// The failpoints of the command that stores a version, and whether the store has the version
/// there.
const EDGES: [(&str, bool); 4] = [
    ("begin", false),
    ("applied", false),
    ("committed", true),
    ("answered", true),
];

/// The events that a follower of the log received, over all daemon processes.
#[derive(Default)]
struct Follower {
    cursor: i64,
    versions: Vec<i64>,
}

impl Follower {
    async fn begin(&self, client: &Link) -> EventSubscription {
        let only = json!({ "since": self.cursor, "kinds": ["skills.changed"] });
        client.subscribe(only).await
    }

    /// Receives the next event; false if the link was lost first.
    async fn take(&mut self, events: &mut EventSubscription) -> bool {
        let next = tokio::time::timeout(crate::harness::TEST_TIMEOUT, events.next());
        let Some(Ok(event)) = next.await.unwrap() else {
            return false;
        };
        self.cursor = event.cursor.unwrap();
        self.versions.push(event.data["version"].as_i64().unwrap());
        true
    }
}

fn was_killed(status: ExitStatus, place: &Place) {
    assert_eq!(status.signal(), Some(9), "{status}: {}", place.log());
}

/// Runs a daemon that is killed at its ordered failpoint by what `done` does.
async fn die_of(
    place: &Place,
    orders: &str,
    follower: &mut Follower,
    doing: impl AsyncFnOnce(&Link),
) {
    let mut daemon = place.start_with(&Faults::ordered(orders)).await.unwrap();
    let client = daemon.client().await;
    let mut events = follower.begin(&client).await;
    doing(&client).await;
    while follower.take(&mut events).await {}
    was_killed(daemon.ended().await, place);
}

/// Runs a daemon that is killed at its ordered failpoint by its own start, before or soon after it
/// is ready.
async fn die_early(place: &Place, orders: &str) {
    let status = match place.start_with(&Faults::ordered(orders)).await {
        Ok(mut daemon) => daemon.ended().await,
        Err(status) => status,
    };
    was_killed(status, place);
}

async fn body(client: &Link, work: &Path) -> Value {
    let params = json!({ "workspace": work, "name": "one" });
    client.call("skills.list", params).await["skills"][0]["body"].clone()
}

fn bump(version: i64, reason: &str) -> SkillsChange {
    SkillsChange {
        version,
        reason: reason.to_owned(),
        skills: 1,
    }
}

#[test]
fn a_change_whose_version_meets_a_kill_is_told_once_and_no_version_comes_back() {
    for (edge, kept) in EDGES {
        let place = Place::new(Script::new())
            .with("skills.debounce", "\"20ms\"")
            .with("skills.bundled", "false");
        let work = place.work();
        let skill = work.join("skills/one");
        put(&work, "skills/one", "Does it.", "It is the first text.");
        let orders = |pass| format!("store.note_skills.{edge}=kill@{pass}");
        let mut follower = Follower::default();
        run(async {
            // The first version is the first pass; the watcher's is the second.
            die_of(&place, &orders(2), &mut follower, async |client| {
                assert_eq!(version(client, &work).await, 1);
                replace(&skill, "It is the second text.");
            })
            .await;
            let mut expected = Vec::new();
            if kept {
                expected.push(bump(2, "watch"));
            }
            assert_eq!(bumps(&place, &work), expected, "{edge}");

            // Changed while the daemon is down; it is killed again when it stores that change.
            replace(&skill, "It is the third text.");
            die_early(&place, &orders(1)).await;
            if kept {
                expected.push(bump(3, "start"));
            }
            assert_eq!(bumps(&place, &work), expected, "{edge}");

            // The first text again: a new version, if others were reported in between.
            replace(&skill, "It is the first text.");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut events = follower.begin(&client).await;
            let mut latest = 1;
            if kept {
                expected.push(bump(4, "start"));
                latest = 4;
                until_bumped(&place, &work, 3, 1).await;
            }
            assert_eq!(version(&client, &work).await, latest, "{edge}");
            replace(&skill, "It is the last text.");
            // The first scan of this process may have found it already.
            let told = until_bumped(&place, &work, latest, 1).await;
            assert_eq!(told.version, latest + 1, "{edge}");
            expected.push(told);
            assert_eq!(body(&client, &work).await, "It is the last text.");
            assert_eq!(bumps(&place, &work), expected, "{edge}");
            while follower.versions.last() != Some(&(latest + 1)) {
                assert!(follower.take(&mut events).await, "the link is lost");
            }
            let versions: Vec<i64> = expected.iter().map(|bump| bump.version).collect();
            assert_eq!(follower.versions, versions, "{edge}");
            assert_eq!(daemon.stop().await, 0);

            // Without a change of a skill, the version stays.
            fs::write(work.join("skills/one/notes.txt"), "beside it").unwrap();
            let daemon = place.start().await;
            let client = daemon.client().await;
            assert_eq!(version(&client, &work).await, latest + 1, "{edge}");
            assert_eq!(daemon.stop().await, 0);
            assert_eq!(bumps(&place, &work), expected, "{edge}");
        });
    }
}

/// The next process reports the change that the kill interrupted, without being asked.
#[test]
fn a_change_that_was_noticed_and_not_noted_is_told_by_the_next_life() {
    for (edge, kept) in EDGES {
        let place = Place::new(Script::new())
            .with("skills.debounce", "\"20ms\"")
            .with("skills.bundled", "false");
        let work = place.work();
        put(&work, "skills/one", "Does it.", "It is the first text.");
        let orders = format!("store.note_skills.{edge}=kill@2");
        let mut follower = Follower::default();
        run(async {
            die_of(&place, &orders, &mut follower, async |client| {
                assert_eq!(version(client, &work).await, 1);
                replace(&work.join("skills/one"), "It is the second text.");
            })
            .await;
            let daemon = place.start().await;
            let told = until_bumped(&place, &work, 1, 1).await;
            let by = if kept { "watch" } else { "start" };
            assert_eq!(told, bump(2, by), "{edge}");
            let client = daemon.client().await;
            let mut events = follower.begin(&client).await;
            while follower.versions.is_empty() {
                assert!(follower.take(&mut events).await, "the link is lost");
            }
            assert_eq!(body(&client, &work).await, "It is the second text.");
            assert_eq!(version(&client, &work).await, 2, "{edge}");
            assert_eq!(daemon.stop().await, 0);
            assert_eq!(bumps(&place, &work), [bump(2, by)], "{edge}");
            assert_eq!(follower.versions, [2], "{edge}");
        });
    }
}
