//! Prints a log file of the daemon: for `abide logs --daemon`, and for services that have one.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::start::LOG;
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::text::clean;

/// Polling interval of a followed log.
const LOOK: Duration = Duration::from_millis(200);
/// Number of bytes at the end of a log that are searched for its last lines.
const TAIL: u64 = 4 << 20;

/// Prints the last `lines` of the log and, with `follow`, what is appended.
pub(super) async fn run(common: &Common, lines: usize, follow: bool) -> Result<u8, Failure> {
    common
        .place
        .refuse_address("logs --daemon", "--state-dir")?;
    show(&common.place.state_dir()?.join(LOG), lines, follow).await
}

/// The last `lines` of the log at `path`, without those that are not complete.
pub(crate) fn last_lines(path: &Path, lines: usize) -> io::Result<Vec<u8>> {
    Log::open(path)?.tail(lines)
}

/// Prints the last `lines` of the log at `path` and, with `follow`, what is appended.
pub(crate) async fn show(path: &Path, lines: usize, follow: bool) -> Result<u8, Failure> {
    let mut log = Log::open(path).map_err(|fault| missing(path, fault))?;
    let told = log
        .tail(lines)
        .map_err(|fault| Failure::local(path.display(), fault))?;
    say(&told)?;
    if !follow {
        return Ok(0);
    }
    let mut interrupt = CtrlC::new()?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = interrupt.pressed() => return Ok(0),
        }
        let told = log
            .more(path)
            .map_err(|fault| Failure::local(path.display(), fault))?;
        say(&told)?;
    }
}

fn missing(path: &Path, fault: io::Error) -> Failure {
    if fault.kind() != ErrorKind::NotFound {
        return Failure::local(path.display(), fault);
    }
    let message = format!("there is no log at {}", path.display());
    Failure::new(exit::NOT_FOUND, "not_found", message).hint(
        "a daemon writes one there when it was started with --detach; as a service: abide service \
         logs; in the foreground it writes to its terminal",
    )
}

/// Prints lines without terminal control characters.
fn say(text: &[u8]) -> Result<(), Failure> {
    for line in String::from_utf8_lossy(text).lines() {
        print::answer(&clean(line))?;
    }
    Ok(())
}

/// A log file that grows, and may be truncated or replaced.
struct Log {
    file: File,
    /// Offset after the last complete line that was printed.
    at: u64,
}

impl Log {
    fn open(path: &Path) -> io::Result<Log> {
        Ok(Log {
            file: File::open(path)?,
            at: 0,
        })
    }

    fn tail(&mut self, lines: usize) -> io::Result<Vec<u8>> {
        let end = self.file.metadata()?.len();
        self.at = end.saturating_sub(TAIL);
        let is_cut = self.at > 0;
        let mut text = self.whole_lines()?;
        if is_cut {
            let first = text.iter().position(|byte| *byte == b'\n');
            text.drain(..first.map_or(text.len(), |at| at + 1));
        }
        let ends = text.iter().enumerate().rev();
        let mut ends = ends
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1);
        let from = ends.nth(lines).unwrap_or(0);
        Ok(text.split_off(from))
    }

    /// Lines appended since the last read; all lines of a truncated or replaced file.
    fn more(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let mut text = self.whole_lines()?;
        let now = match fs::metadata(path) {
            Ok(now) => now,
            // The old file was removed, and the new one does not exist yet.
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(text),
            Err(fault) => return Err(fault),
        };
        let known = self.file.metadata()?;
        let file = |about: &Metadata| (about.dev(), about.ino());
        if file(&now) != file(&known) {
            *self = Log::open(path)?;
            text.extend(self.whole_lines()?);
        } else if now.len() < self.at {
            self.at = 0;
            text.extend(self.whole_lines()?);
        }
        Ok(text)
    }

    /// Reads from the offset to the last end of a line.
    fn whole_lines(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_to_end(&mut text)?;
        let end = text.iter().rposition(|byte| *byte == b'\n');
        text.truncate(end.map_or(0, |at| at + 1));
        self.at += text.len() as u64;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_lines_and_what_comes_also_after_the_log_was_emptied_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOG);
        fs::write(&path, "a\nb\nc\nhal").unwrap();
        let mut log = Log::open(&path).unwrap();
        assert_eq!(log.tail(2).unwrap(), b"b\nc\n");
        assert_eq!(log.more(&path).unwrap(), b"");
        let mut writer = File::options().append(true).open(&path).unwrap();
        writer.write_all(b"f\nd\n").unwrap();
        assert_eq!(log.more(&path).unwrap(), b"half\nd\n");
        writer.set_len(0).unwrap();
        writer.write_all(b"e\n").unwrap();
        assert_eq!(log.more(&path).unwrap(), b"e\n");
        fs::rename(&path, folder.path().join("old")).unwrap();
        assert_eq!(log.more(&path).unwrap(), b"");
        writer.write_all(b"late\n").unwrap();
        fs::write(&path, "new\n").unwrap();
        assert_eq!(log.more(&path).unwrap(), b"late\nnew\n");
        assert_eq!(Log::open(&path).unwrap().tail(0).unwrap(), b"");
        assert_eq!(Log::open(&path).unwrap().tail(100).unwrap(), b"new\n");
    }
}
