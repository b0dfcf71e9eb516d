//! Detects that the running program's file was replaced: after an upgrade the daemon still executes
//! the old program until its next start.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::contract::finding::{Finding, Health};

/// Refers to the running program, even if its file was replaced.
const RUNNING: &str = "/proc/self/exe";
/// Suffix that the system adds to the path of a deleted file.
const GONE: &str = " (deleted)";

/// The finding on the program's file; `None` if it is unchanged or this system cannot tell.
pub(super) fn replaced() -> Option<Finding> {
    let link = fs::read_link(RUNNING).ok()?;
    let path = link.to_str().map_or(link.clone(), |text| {
        PathBuf::from(text.strip_suffix(GONE).unwrap_or(text))
    });
    let what = change(&path, &fs::metadata(RUNNING).ok()?)?;
    let version = env!("CARGO_PKG_VERSION");
    let message = format!(
        "{} {what} after the start: this daemon still runs the previous program ({version})",
        path.display()
    );
    Some(
        Finding::new("daemon.program", Health::Warn, message)
            .fix("switch to the new one, and open runs continue: abide stop --restart"),
    )
}

/// What happened to the file of the running program.
fn change(path: &Path, running: &Metadata) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(now) if (now.dev(), now.ino()) == (running.dev(), running.ino()) => None,
        Ok(_) => Some("was replaced"),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Some("was removed"),
        Err(_) => None,
    }
}
