//! P18: a turn with one `shell` call, whose program a keeper runs, beside the same turn with a file
//! read, and the same program started by this process.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::measure::{Round, Samples};
use crate::sample::Sample;
use crate::talk::{self, Talk};

/// The program: it does nothing.
const PROGRAM: &str = "true";
/// Turns and starts before the measured ones.
const WARM_UP: usize = 5;

/// One after another, the two kinds of turn alternating.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let lasts = round.plan.lasts;
    let started = starts(lasts)?;

    let folder = round.folder.join("programs");
    fs::create_dir_all(folder.join("workspace"))?;
    fs::write(folder.join("workspace/notes.txt"), "There it is.\n")?;
    let rule = |message: &str, tool: &str, arguments: Value| {
        json!({ "match": message, "answers": [
            { "calls": [{ "tool": tool, "arguments": arguments }] }, { "text": "There it is." },
        ] })
    };
    let shell = rule("[shell]", "shell", json!({ "command": PROGRAM }));
    let read = rule("[read]", "read", json!({ "path": "notes.txt" }));
    let rules = format!("{shell},{read},");
    let daemon = Daemon::start_with(round.binary, &folder, Setting::InstantAnswers, &rules)?;
    let [shell, read] = talk::run(turns(&daemon, lasts))?;
    Ok(vec![
        (Figure::FloorProgram, of(started)),
        (Figure::ShellTurn, of(shell)),
        (Figure::ReadTurn, of(read)),
    ])
}

fn of(times: Vec<Duration>) -> Sample {
    let whole = times.iter().sum();
    Sample::of(times.into_iter().skip(WARM_UP).collect(), whole)
}

/// Starts of the program by this process, until it has ended.
fn starts(lasts: Duration) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < lasts || times.len() <= WARM_UP {
        let begun = Instant::now();
        let status = Command::new("/bin/sh").args(["-c", PROGRAM]).status()?;
        times.push(begun.elapsed());
        if !status.success() {
            return Err(format!("{PROGRAM}: {status}").into());
        }
    }
    Ok(times)
}

/// Turns of both kinds in sessions of their own.
async fn turns(daemon: &Daemon, lasts: Duration) -> Result<[Vec<Duration>; 2]> {
    let mut talk = Talk::open(daemon.door()).await?;
    let agent = json!({ "name": "runner", "definition": {
        "description": "Runs programs.", "tools": ["shell", "read"], "gate": { "shell": "allow" },
    } });
    talk.call("agents.create", &agent.to_string()).await?;
    let mut times = [Vec::new(), Vec::new()];
    let mut keys = Vec::new();
    for _ in &times {
        let made = talk
            .call("sessions.create", r#"{"agent":"runner"}"#)
            .await?;
        keys.push(made["session"]["key"].as_str().ok_or("no key")?.to_owned());
    }
    let begun = Instant::now();
    while begun.elapsed() < lasts * 2 || times[1].len() <= WARM_UP {
        let kinds = ["[shell]", "[read]"];
        for ((kind, key), times) in kinds.into_iter().zip(&keys).zip(&mut times) {
            let begun = Instant::now();
            talk.turn(key, kind).await?;
            times.push(begun.elapsed());
        }
    }
    Ok(times)
}
