//! Has the store make its own backups when they are due, and reports their age.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::contract::finding::{Finding, Health};
use crate::kernel::time::Timestamp;
use crate::registry::RegistryInner;
use crate::store::{BackupFile, BackupPolicy};

/// After a failed backup the next one is tried after this long.
const RETRY: Duration = Duration::from_hours(1);

/// Makes the daemon's own backups, one at a time.
pub(crate) struct OwnBackups {
    /// The earliest time of the next try, on the monotonic clock; `None` while a backup is made.
    next: Arc<Mutex<Option<Duration>>>,
}

impl OwnBackups {
    pub fn new() -> Self {
        OwnBackups {
            next: Arc::new(Mutex::new(Some(Duration::ZERO))),
        }
    }

    /// Makes a backup if one is due, unless one is being made.
    pub fn look(&self, inner: &Arc<RegistryInner>, tasks: &TaskTracker) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a trusted clock nothing is due.
        let (Some(at), Some(now)) = (*next, inner.aged_at()) else {
            return;
        };
        if inner.clock.monotonic() < at {
            return;
        }
        *next = None;
        let (inner, next) = (Arc::clone(inner), Arc::clone(&self.next));
        tasks.spawn(async move {
            let options = inner.options();
            let at = tokio::select! {
                made = inner.store.back_up_if_due(&options.backups, now) => match made {
                    Ok(_) => Duration::ZERO,
                    Err(fault) => {
                        tracing::error!(%fault, "the daily backup was not made; it is tried again in an hour");
                        inner.clock.monotonic() + RETRY
                    }
                },
                () = inner.drained() => Duration::ZERO,
            };
            *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        });
    }
}

/// The doctor's finding about the newest backup, which comes with whether the store has not changed
/// since.
pub(crate) fn finding(
    policy: &BackupPolicy,
    newest: Option<(BackupFile, bool)>,
    now: Timestamp,
) -> Finding {
    let finding = |status, message: String| Finding::new("store.backup", status, message);
    let is_late = |age: u64, every: Duration| u128::from(age) > every.as_millis() * 2;
    match (newest, policy.every) {
        (None, None) => finding(
            Health::Warn,
            "backups are off, and there is none".to_owned(),
        )
        .fix("set storage.backup_every, or make one: abide backup"),
        (None, Some(every)) => {
            let every = humantime::format_duration(every);
            let message =
                format!("there is no backup; the first is made {every} after the first start");
            finding(Health::Ok, message)
        }
        (Some((newest, is_current)), every) => {
            let age = now.since(newest.made_at);
            // Whole minutes: it is an age for people.
            let shown = humantime::format_duration(Duration::from_mins(age / 60_000));
            let path = newest.path.display();
            let message = format!("the newest backup is {shown} old: {path}");
            match every {
                _ if is_current => finding(Health::Ok, message),
                Some(every) if !is_late(age, every) => finding(Health::Ok, message),
                Some(_) => finding(Health::Warn, message + "; newer ones could not be made")
                    .fix("see the daemon's log: abide logs --daemon"),
                None => finding(Health::Warn, message + "; backups are off")
                    .fix("set storage.backup_every, or make one: abide backup"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_backup_is_a_warning_only_if_the_store_has_changed() {
        let policy = |every| BackupPolicy {
            every,
            folder: None,
            keep: 3,
        };
        let day = Duration::from_hours(24);
        let file = |is_current| {
            let file = BackupFile {
                path: "/b/auto-x.db".into(),
                made_at: Timestamp(0),
                bytes: 1,
            };
            Some((file, is_current))
        };
        let at = |hours: i64| Timestamp(hours * 3_600_000);
        for (every, newest, now, status) in [
            (Some(day), None, 0, Health::Ok),
            (None, None, 0, Health::Warn),
            (Some(day), file(false), 30, Health::Ok),
            (Some(day), file(false), 49, Health::Warn),
            (Some(day), file(true), 1000, Health::Ok),
            (None, file(false), 1, Health::Warn),
            (None, file(true), 1000, Health::Ok),
        ] {
            let about = format!("{every:?} {newest:?} {now}");
            assert_eq!(
                finding(&policy(every), newest, at(now)).status,
                status,
                "{about}"
            );
        }
        let found = finding(&policy(Some(day)), file(false), Timestamp(90 * 60_000));
        assert_eq!(
            found.message,
            "the newest backup is 1h 30m old: /b/auto-x.db"
        );
    }
}
