//! The cost of watching skills, and that no change is missed: without file events, with roots that
//! appear and disappear, during continuous writes, across kills.

mod bursts;
mod count;
mod kills;
mod limits;
mod mounts;
mod roots;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Daemon, Link, Place, eventually};

/// A change of a folder's skills, as the event log reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SkillsChange {
    version: i64,
    reason: String,
    skills: u64,
}

/// The changes of this folder's skills in the event log, in order.
fn bumps(place: &Place, folder: &Path) -> Vec<SkillsChange> {
    // The folder may be gone.
    let folder = folder.canonicalize().unwrap_or(folder.to_owned());
    let events = place.book().events.into_values();
    events
        .filter(|event| event.kind == "skills.changed")
        .filter(|event| event.data["workspace"] == folder.to_str().unwrap())
        .map(|event| SkillsChange {
            version: event.data["version"].as_i64().unwrap(),
            reason: event.data["reason"].as_str().unwrap().to_owned(),
            skills: event.data["skills"].as_u64().unwrap(),
        })
        .collect()
}

/// Waits until the event log reports a version after `after` with `skills` skills. It makes no
/// call, since a call would scan the skills itself.
async fn until_bumped(place: &Place, folder: &Path, after: i64, skills: u64) -> SkillsChange {
    eventually(
        &format!("{skills} skills after version {after}"),
        async || {
            let last = bumps(place, folder).pop();
            last.filter(|last| last.version > after && last.skills == skills)
        },
    )
    .await
}

/// The version of the skills of this folder, which is watched from now on.
async fn version(client: &Link, folder: &Path) -> i64 {
    let snapshot = client
        .call("skills.snapshot", json!({ "workspace": folder }))
        .await;
    snapshot["version"].as_i64().unwrap()
}

/// The doctor's finding about the watching of skills, if any.
async fn notice(client: &Link) -> Option<Value> {
    let said = client.call("gateway.doctor", json!({})).await;
    let mut findings = said["findings"].as_array().unwrap().iter();
    findings.find(|one| one["id"] == "watch.skills").cloned()
}

/// The number of folders and files that this daemon watches, from its descriptors in `/proc`.
fn watched(daemon: &Daemon) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid())).unwrap();
    // The descriptor may have been closed meanwhile.
    let texts = open.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default());
    let watches = |text: &str| {
        let lines = text.lines();
        lines.filter(|line| line.starts_with("inotify wd:")).count()
    };
    texts.map(|text| watches(&text)).sum()
}

/// Replaces a skill atomically: no scan can see a state in between.
fn replace(skill: &Path, body: &str) {
    let name = skill.file_name().unwrap().to_str().unwrap();
    let text = format!("---\nname: {name}\ndescription: Does it.\n---\n{body}\n");
    let aside = skill.join(".SKILL.md.new");
    fs::write(&aside, text).unwrap();
    fs::rename(&aside, skill.join("SKILL.md")).unwrap();
}
