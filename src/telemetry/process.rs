//! What the daemon's process uses, as the system counts it.

use std::fs;
use std::time::Duration;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The use of resources by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// Resident memory in bytes; 0 where the system has no `/proc`.
    pub resident_bytes: u64,
    /// Processor time of all threads.
    pub processor: Duration,
    /// Open files; 0 where the system has no `/proc`.
    pub open_files: u64,
    /// The limit on open files; 0 if there is none.
    pub file_limit: u64,
}

/// The use at this moment.
pub(super) fn usage() -> ProcessUsage {
    let processor = clock_gettime(ClockId::ProcessCPUTime);
    ProcessUsage {
        resident_bytes: resident_pages() * page_size() as u64,
        processor: Duration::try_from(processor).unwrap_or_default(),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64),
        file_limit: getrlimit(Resource::Nofile).current.unwrap_or(0),
    }
}

/// The second number of `/proc/self/statm`.
fn resident_pages() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_memory_time_and_files() {
        let used = usage();
        assert!(!used.processor.is_zero());
        if cfg!(target_os = "linux") {
            assert!(used.resident_bytes > 1 << 20, "{used:?}");
            assert!(used.open_files >= 3, "{used:?}");
        }
    }
}
