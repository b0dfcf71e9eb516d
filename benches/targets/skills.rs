//! Five thousand skills in one folder: what the first look at them costs, a look that finds no
//! change, how soon an edit is a version, and what watching them costs when nothing happens. The
//! floors read the same files, or ask for their state.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, Door};
use crate::daemon::Daemon;
use crate::figure::Figure;
use crate::machine::Watch;
use crate::measure::Samples;
use crate::sample::Sample;

/// Skills, each in a folder of its own.
const SKILLS: usize = 5_000;
/// Of a description and of a body: what is usual among published ones.
const DESCRIPTION: usize = 150;
const BODY: usize = 3_300;
/// So often an edit is waited for.
const EDITS: usize = 3;
/// So long after the last edit nothing of it goes on any more.
const SETTLES: Duration = Duration::from_secs(1);

/// Writes the skills below `folder`; their files.
pub fn write(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::with_capacity(SKILLS);
    for number in 0..SKILLS {
        let skill = folder.join(format!("skills/skill-{number}"));
        std::fs::create_dir_all(&skill)?;
        let file = skill.join("SKILL.md");
        std::fs::write(&file, text(number, "x"))?;
        files.push(file);
    }
    Ok(files)
}

fn text(number: usize, body: &str) -> String {
    let (description, body) = ("d".repeat(DESCRIPTION), body.repeat(BODY));
    format!("---\nname: skill-{number}\ndescription: {description}\n---\n{body}\n")
}

/// All figures of one round. `daemon` has not looked at `folder` yet.
pub fn measure(daemon: &Daemon, folder: &Path, lasts: Duration) -> Result<Samples> {
    let files = write(folder)?;
    let door = daemon.door();
    let params = serde_json::json!({ "workspace": folder }).to_string();
    let ask = || client::once(door, "skills.refresh", &params);
    // Everything is in the page cache by now, for both.
    let read = timed(1, || {
        for file in &files {
            std::hint::black_box(std::fs::read(file)?);
        }
        Ok(())
    })?;
    let first = timed(1, || ask().map(drop))?;
    let stat = timed(5, || {
        for file in &files {
            std::hint::black_box(std::fs::metadata(file)?);
        }
        Ok(())
    })?;
    let again = timed(5, || ask().map(drop))?;
    let mut samples = vec![
        (Figure::FloorReadSkills, read),
        (Figure::SkillsFirst, first),
        (Figure::FloorStatSkills, stat),
        (Figure::SkillsAgain, again),
        (Figure::SkillsEdit, edits(door, folder, &files)?),
    ];
    // What follows an edit, such as another look at the agents, is no part of watching.
    std::thread::sleep(SETTLES);
    let watch = Watch::start(daemon.pid());
    let begun = Instant::now();
    std::thread::sleep(lasts * 2);
    let whole = begun.elapsed();
    if let Some(seen) = watch.stop() {
        let share = seen.server.as_secs_f64() / whole.as_secs_f64() * 100.0;
        samples.push((Figure::SkillsIdle, Sample::of_amounts(&[share])));
    }
    Ok(samples)
}

fn timed(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<Sample> {
    let mut taken = Vec::with_capacity(times);
    let begun = Instant::now();
    for _ in 0..times {
        let started = Instant::now();
        work()?;
        taken.push(started.elapsed());
    }
    Ok(Sample::of(taken, begun.elapsed()))
}

/// From the end of a write to the event that tells of the new version.
fn edits(door: Door<'_>, folder: &Path, files: &[PathBuf]) -> Result<Sample> {
    let mut told = told(door)?;
    let folder = folder.canonicalize()?;
    let workspace = folder.to_string_lossy();
    let mut taken = Vec::with_capacity(EDITS);
    let begun = Instant::now();
    for (number, file) in files.iter().enumerate().take(EDITS) {
        std::fs::write(file, text(number, "y"))?;
        let started = Instant::now();
        let mut line = String::new();
        while !(line.starts_with("data:") && line.contains(&*workspace)) {
            line.clear();
            if told.read_line(&mut line)? == 0 {
                return Err("the event stream ended".into());
            }
        }
        taken.push(started.elapsed());
    }
    Ok(Sample::of(taken, begun.elapsed()))
}

/// The changes of skills from now on, as lines of server-sent events.
fn told(door: Door<'_>) -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(door.address)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    write!(
        stream,
        "GET /events?kinds=skills.changed HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        door.address,
        door.token.unwrap_or_default()
    )?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    // The head, and the snapshot with which the live events begin.
    while !line.starts_with("data:") {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err("the event stream was refused".into());
        }
    }
    Ok(lines)
}
