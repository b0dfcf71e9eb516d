//! Closes file descriptors that a process inherited. The background daemon calls this at its start.

use std::os::fd::RawFd;

/// The first descriptor after standard input, output and error, which stay open.
const FIRST: RawFd = 3;

/// Closes every inherited descriptor apart from the standard ones. Call it only at the start of a
/// process, before anything in it has opened a file.
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
            // The descriptor that listed the folder is closed already.
            let _ = nix::unistd::close(number);
        }
        return;
    }
}
