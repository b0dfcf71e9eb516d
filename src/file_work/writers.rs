//! Finds files that are open for writing: such a file may be incomplete, however old its last
//! change. Implemented on Linux; elsewhere no file counts as open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Returns the `wanted` files that a process has open for writing, each with the name and pid of
/// one such process. Only root sees the files of other users.
#[cfg(target_os = "linux")]
pub fn open_for_writing(wanted: impl Fn(&Path) -> bool) -> HashMap<PathBuf, String> {
    use std::fs;

    let mut found = HashMap::new();
    let numbers = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    for process in numbers(Path::new("/proc")) {
        for descriptor in numbers(&process.join("fd")) {
            // The link is read but not followed, so an unresponsive file system cannot block this.
            let Some(file) = fs::read_link(&descriptor).ok().filter(|file| wanted(file)) else {
                continue;
            };
            let number = descriptor.file_name().unwrap_or_default();
            let told = fs::read_to_string(process.join("fdinfo").join(number));
            if told.is_ok_and(|told| is_for_writing(&told)) {
                let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                let pid = process.file_name().unwrap_or_default().to_string_lossy();
                found.insert(file, format!("{} ({pid})", name.trim()));
            }
        }
    }
    found
}

/// Returns no files: the system does not expose open files.
#[cfg(not(target_os = "linux"))]
pub fn open_for_writing(_: impl Fn(&Path) -> bool) -> HashMap<PathBuf, String> {
    HashMap::new()
}

/// Parses `/proc/PID/fdinfo/N`: its flags are octal, and their last two bits are the access mode, 0
/// for read-only.
#[cfg(target_os = "linux")]
fn is_for_writing(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    flags
        .and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_file_counts_while_it_is_open_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let (read, written) = (dir.path().join("read.md"), dir.path().join("written.md"));
        std::fs::write(&read, "").unwrap();
        let _reader = File::open(&read).unwrap();
        let writer = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&written)
            .unwrap();
        let here = || open_for_writing(|file| file.starts_with(dir.path()));
        let open = here();
        assert_eq!(open.keys().collect::<Vec<_>>(), [&written]);
        let pid = format!("({})", std::process::id());
        assert!(open[&written].ends_with(&pid), "{open:?}");
        drop(writer);
        assert_eq!(here().len(), 0);
    }
}
