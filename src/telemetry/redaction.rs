//! Masks the secrets of active runs in the log, whichever code or library writes a line. The
//! registry's `drive` registers them while it holds a run.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tracing_subscriber::fmt::MakeWriter;

use crate::kernel::text::redact::Redactor;

/// The active redactors, by registration number.
static NOW: RwLock<Vec<(u64, Redactor)>> = RwLock::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Masks its secrets in the log until it is dropped.
pub struct MaskGuard(Option<u64>);

/// Masks the redactor's secrets in the log; does nothing if it has none.
pub fn hide(redactor: &Redactor) -> MaskGuard {
    if redactor.is_empty() {
        return MaskGuard(None);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    write().push((number, redactor.clone()));
    MaskGuard(Some(number))
}

impl Drop for MaskGuard {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            write().retain(|(other, _)| *other != number);
        }
    }
}

fn read() -> RwLockReadGuard<'static, Vec<(u64, Redactor)>> {
    // Each change adds or removes one entry, so the list is valid even if the lock is poisoned.
    NOW.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Vec<(u64, Redactor)>> {
    NOW.write().unwrap_or_else(PoisonError::into_inner)
}

/// The line with all secrets masked.
fn without(line: &[u8]) -> Cow<'_, [u8]> {
    let now = read();
    if now.is_empty() {
        return Cow::Borrowed(line);
    }
    let mut text = String::from_utf8_lossy(line).into_owned();
    for (_, redactor) in now.iter() {
        redactor.in_place(&mut text);
    }
    Cow::Owned(text.into_bytes())
}

/// Standard error, with secrets masked line by line.
pub struct RedactedStderr;

impl MakeWriter<'_> for RedactedStderr {
    type Writer = RedactedStderr;

    fn make_writer(&self) -> RedactedStderr {
        RedactedStderr
    }
}

impl Write for RedactedStderr {
    /// Each call gets a whole line: lines are assembled before they are written.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A log that cannot be written, because the disk is full or its reader is gone, must stop
        // no work: an error here would become a panic in the code that logs.
        let _ = io::stderr().lock().write_all(&without(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::secret::Secret;

    #[test]
    fn g7_9_a_secret_is_hidden_while_its_run_is_at_work() {
        let secret = Secret::new("canary-of-the-log");
        let redactor = Redactor::new([("A_KEY", &secret)]);
        let line = b"a program said canary-of-the-log\n";
        let hidden = [hide(&redactor), hide(&redactor), hide(&Redactor::default())];
        let shown = String::from_utf8(without(line).into_owned()).unwrap();
        assert_eq!(shown, "a program said [secret:A_KEY]\n");
        drop(hidden);
        assert_eq!(without(line), Cow::Borrowed(line));
    }
}
