//! Whether the file of the program that runs is still the one that was started: an upgrade puts
//! another one in its place, and the daemon goes on with the old one until its next start.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::contract::finding::{Finding, Health};

/// What leads to the program that runs, also where its file was replaced.
const RUNNING: &str = "/proc/self/exe";
/// What the system puts behind the path of a file that is gone.
const GONE: &str = " (deleted)";

/// What there is to say; `None`: it is the same, or that cannot be told here.
pub(super) fn replaced() -> Option<Finding> {
    let link = fs::read_link(RUNNING).ok()?;
    let path = link.to_str().map_or(link.clone(), |text| {
        PathBuf::from(text.strip_suffix(GONE).unwrap_or(text))
    });
    let what = change(&path, &fs::metadata(RUNNING).ok()?)?;
    let version = env!("CARGO_PKG_VERSION");
    let message = format!(
        "{} {what} after the start: this daemon is still the one of before ({version})",
        path.display()
    );
    Some(
        Finding::new("daemon.program", Health::Warn, message)
            .fix("start the new one; runs go on with it: abide stop --restart"),
    )
}

/// What has become of the file of the running program.
fn change(path: &Path, running: &Metadata) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(now) if (now.dev(), now.ino()) == (running.dev(), running.ino()) => None,
        Ok(_) => Some("was replaced"),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Some("was removed"),
        Err(_) => None,
    }
}
