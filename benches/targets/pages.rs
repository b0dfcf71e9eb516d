//! P16: pages that a spawn and a turn write to the write-ahead file, as the file itself says.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::floor::Floor;
use crate::measure::{Round, Samples, TASK, spawn_params};
use crate::sample::Sample;
use crate::talk::{self, Talk};

/// Calls that are averaged.
const CALLS: u64 = 20;
/// A checkpoint in the middle begins the file anew; then the calls are made again.
const TRIES: usize = 5;

/// Of the floor and of the daemon, one call after another.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let mut samples = Vec::new();
    let mut add = |figure, pages| samples.push((figure, Sample::of_amounts(&[pages])));

    let folder = round.folder.join("pages-floor");
    let floor = Floor::start(&folder)?;
    let log = folder.join("floor.db-wal");
    add(
        Figure::FloorPages,
        talk::run(async {
            let mut talk = Talk::open(floor.door()).await?;
            pages(&log, async |n| insert(&mut talk, "insert", n).await).await
        })?,
    );

    let folder = round.folder.join("pages-spawn");
    let daemon = Daemon::start(round.binary, &folder, Setting::LanesClosed)?;
    let log = folder.join("state/abide.db-wal");
    add(
        Figure::SpawnPages,
        talk::run(async {
            let mut talk = Talk::open(daemon.door()).await?;
            pages(&log, async |n| insert(&mut talk, "sessions.spawn", n).await).await
        })?,
    );

    let folder = round.folder.join("pages-turn");
    fs::create_dir_all(folder.join("workspace"))?;
    fs::write(folder.join("workspace/notes.txt"), "There it is.\n")?;
    let call = r#"{"match": "[read]", "answers": [{"calls": [{"tool": "read",
        "arguments": {"path": "notes.txt"}}]}, {"text": "There it is."}]},"#;
    let daemon = Daemon::start_with(round.binary, &folder, Setting::InstantAnswers, call)?;
    let log = folder.join("state/abide.db-wal");
    for (figure, message) in [
        (Figure::TurnPages, TASK.to_owned()),
        (Figure::ToolTurnPages, format!("[read] {TASK}")),
    ] {
        add(
            figure,
            talk::run(async {
                let mut talk = Talk::open(daemon.door()).await?;
                let made = talk.call("sessions.create", r#"{"agent":"build"}"#).await?;
                let key = made["session"]["key"].as_str().ok_or("no key")?.to_owned();
                talk.turn(&key, &message).await?;
                pages(&log, async |_| talk.turn(&key, &message).await).await
            })?,
        );
    }
    Ok(samples)
}

async fn insert(talk: &mut Talk, method: &str, n: u64) -> Result<()> {
    talk.call(method, &spawn_params(n)).await.map(|_| ())
}

/// The pages that one call writes.
async fn pages(log: &Path, mut call: impl AsyncFnMut(u64) -> Result<()>) -> Result<f64> {
    let mut n = 0;
    for _ in 0..TRIES {
        let before = Log::read(log)?;
        for _ in 0..CALLS {
            n += 1;
            call(n).await?;
        }
        let after = Log::read(log)?;
        if let Some(pages) = after.since(&before) {
            return Ok(pages as f64 / CALLS as f64);
        }
    }
    Err("a checkpoint came in the middle each time".into())
}

/// The state of a write-ahead file. Its format is the engine's: a header of 32 bytes, then frames
/// of 24 bytes and a page; frames of an earlier round have other salts.
struct Log {
    salts: Vec<u8>,
    frames: u64,
}

impl Log {
    fn read(file: &Path) -> Result<Log> {
        let bytes = fs::read(file)?;
        let Some((header, frames)) = bytes.split_at_checked(32) else {
            return Ok(Log {
                salts: Vec::new(),
                frames: 0,
            });
        };
        let page = u32::from_be_bytes(header[8..12].try_into()?);
        let salts = header[16..24].to_vec();
        let frames = frames.chunks_exact(24 + page as usize);
        let frames = frames.take_while(|frame| frame[8..16] == salts).count();
        Ok(Log {
            salts,
            frames: frames as u64,
        })
    }

    /// Frames that were added; `None`: the file was begun anew.
    fn since(&self, before: &Log) -> Option<u64> {
        (self.salts == before.salts).then(|| self.frames - before.frames)
    }
}
