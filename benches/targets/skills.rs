//! Five thousand skills in one folder: the cost of the first scan, of a scan that finds no change
//! and of watching while nothing changes, and the latency from an edit to a new version. The floors
//! read the same files, or their metadata.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, ServerAddress};
use crate::daemon::Daemon;
use crate::figure::Figure;
use crate::machine::Watch;
use crate::measure::Samples;
use crate::sample::Sample;

/// Number of skills, each in its own folder.
const SKILLS: usize = 5_000;
/// Sizes of a description and of a body, in bytes, as is usual among published skills.
const DESCRIPTION: usize = 150;
const BODY: usize = 3_300;
/// Number of measured edits.
const EDITS: usize = 3;
/// Time after the last edit until all follow-up work has ended.
const SETTLES: Duration = Duration::from_secs(1);

/// Writes the skills in `folder` and returns their files.
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

/// Takes all figures of one round. `daemon` must not have scanned `folder` yet.
pub fn measure(daemon: &Daemon, folder: &Path, lasts: Duration) -> Result<Samples> {
    let files = write(folder)?;
    let door = daemon.door();
    let params = serde_json::json!({ "workspace": folder }).to_string();
    let ask = || client::once(door, "skills.refresh", &params);
    // The files are in the page cache by now, for both floor and daemon.
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
    // Work that follows an edit, such as another scan of the agents, does not count as watching.
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

/// Latency from the end of a write to the event that reports the new version.
fn edits(door: ServerAddress<'_>, folder: &Path, files: &[PathBuf]) -> Result<Sample> {
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

/// The stream of skill changes from now on, as lines of server-sent events.
fn told(door: ServerAddress<'_>) -> Result<BufReader<TcpStream>> {
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
    // Skips the response head and the snapshot that precedes the live events.
    while !line.starts_with("data:") {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err("the event stream was refused".into());
        }
    }
    Ok(lines)
}
