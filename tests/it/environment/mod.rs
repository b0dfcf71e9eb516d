//! The environment of runs with the real daemon: layers, refused and sealed values, visibility, and
//! that the daemon's own environment does not change.

mod arguments;
mod crowd;
mod ends;
mod layers;
mod programs;
mod secrets;
mod servers;
mod values;

use std::fs;

use aho_corasick::AhoCorasick;
use serde_json::{Value, json};

pub(crate) use servers::servers_of;

use crate::harness::{Link, Place, Script, Spawned, calls, says};

const WORKER: &str = "tools: [shell, skill]\ngate: {shell: allow}\n\
                      env: {A_TOKEN: null, OF_AGENT: agent-value, UNITS: agent-units}";

fn place(command: &str) -> Place {
    let shell = calls("shell", json!({ "command": command }));
    Place::new(Script::new().on("[go]", [shell, says("done")])).with_agent("worker", WORKER)
}

async fn go(client: &Link, env: Value) -> Spawned {
    let params = json!({ "task": "[go]", "agent": "worker", "env": env });
    client.spawn(params).await
}

/// Every file of the place that contains one of these texts, except those that the runs' own
/// commands have written.
fn traces(place: &Place, canaries: &[String]) -> Vec<String> {
    let finder = AhoCorasick::new(canaries).unwrap();
    let mut found = Vec::new();
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path == place.work() || path.ends_with(".config") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // A pipe would be waited for.
            if !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path).unwrap_or_default();
            if let Some(one) = finder.find(&bytes) {
                let canary = &canaries[one.pattern().as_usize()];
                found.push(format!("{canary} in {}", path.display()));
            }
        }
    }
    found
}
