//! Whom the kernel ends first where the machine is out of memory: a program that a run has started,
//! and not the daemon, which knows of all of them.

use std::fs;
use std::path::Path;

/// So much likelier than the daemon's own end a program's is, of 1,000.
const MORE: i32 = 200;

/// The process with this directory in `/proc`, and what it starts, is ended before this daemon is.
/// Without that everything works all the same, so a fault is only noted.
pub(super) fn goes_first(process: &Path, daemon: &Path) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let own = fs::read_to_string(daemon.join("oom_score_adj"));
    let own = own.ok().and_then(|text| text.trim().parse::<i32>().ok());
    let more = own.unwrap_or_default().saturating_add(MORE).min(1000);
    if let Err(fault) = fs::write(process.join("oom_score_adj"), more.to_string()) {
        tracing::debug!(%fault, "a program's place in the order of ends for want of memory stays");
    }
}
