//! OOM scores: if the machine is out of memory, the kernel ends a program of a run before the
//! daemon, which manages all of them.

use std::fs;
use std::path::Path;

/// Added to the daemon's own `oom_score_adj` for a program, on a scale of 1,000.
const MORE: i32 = 200;

/// Makes the kernel end this process and its descendants before the daemon. Both paths are
/// directories in `/proc`. A failure is only logged: everything else works without it.
pub(super) fn goes_first(process: &Path, daemon: &Path) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let own = fs::read_to_string(daemon.join("oom_score_adj"));
    let own = own.ok().and_then(|text| text.trim().parse::<i32>().ok());
    let more = own.unwrap_or_default().saturating_add(MORE).min(1000);
    if let Err(fault) = fs::write(process.join("oom_score_adj"), more.to_string()) {
        tracing::debug!(%fault, "the OOM score of a program could not be raised");
    }
}
