//! What a process has open that it did not open itself. A daemon in the background calls this.

use std::os::fd::RawFd;

/// Standard input, output and error stay.
const FIRST: RawFd = 3;

/// Closes every descriptor that the process was started with, apart from the standard ones. Only
/// for the beginning of a process, before anything in it has opened a file.
pub fn close_inherited() {
    for folder in ["/proc/self/fd", "/dev/fd"] {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        let open: Vec<RawFd> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|number| *number >= FIRST)
            .collect();
        for number in open {
            // The one by which the folder was read is closed already.
            let _ = nix::unistd::close(number);
        }
        return;
    }
}
