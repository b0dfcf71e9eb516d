//! Detects that the running program's file was replaced: after an upgrade the daemon still executes
//! the old program until its next start.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::contract::control::{ProgramChange, ProgramFile};
use crate::contract::finding::{Finding, Health};
use crate::version::version;

/// Refers to the running program, even if its file was replaced.
const RUNNING: &str = "/proc/self/exe";
/// Suffix that the system adds to the path of a deleted file.
const GONE: &str = " (deleted)";

/// The path by which this process was started, if that is its program: a link to it stays, while an
/// upgrade changes where it leads.
static STARTED_AS: OnceLock<PathBuf> = OnceLock::new();

/// Notes the path by which this process was started. Called at its start, before an upgrade.
pub fn note_path() {
    let named = std::env::args_os().next().map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    if let (Some(path), Ok(running)) = (named, fs::metadata(RUNNING))
        && path.exists()
        && change(&path, &running).is_none()
    {
        STARTED_AS.get_or_init(|| path);
    }
}

/// The file of this program; `None` if this system cannot tell.
pub fn of_this_process() -> Option<ProgramFile> {
    let path = match STARTED_AS.get() {
        Some(path) => path.clone(),
        None => {
            let link = fs::read_link(RUNNING).ok()?;
            link.to_str().map_or(link.clone(), |text| {
                PathBuf::from(text.strip_suffix(GONE).unwrap_or(text))
            })
        }
    };
    let change = change(&path, &fs::metadata(RUNNING).ok()?);
    Some(ProgramFile { path, change })
}

/// The finding on the program's file; `None` if it is unchanged or this system cannot tell.
pub(super) fn replaced() -> Option<Finding> {
    let file = of_this_process()?;
    let message = format!(
        "{} was {} after the start: this daemon still runs the previous program ({})",
        file.path.display(),
        file.change?,
        version()
    );
    Some(Finding::new("daemon.program", Health::Warn, message).fix(
        "switch to the new one, and open runs continue: abide service restart, or abide stop \
             --restart",
    ))
}

/// What happened to the file of the running program.
fn change(path: &Path, running: &Metadata) -> Option<ProgramChange> {
    match fs::metadata(path) {
        Ok(now) if (now.dev(), now.ino()) == (running.dev(), running.ino()) => None,
        Ok(_) => Some(ProgramChange::Replaced),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Some(ProgramChange::Removed),
        Err(_) => None,
    }
}
