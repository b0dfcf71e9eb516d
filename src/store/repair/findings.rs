//! The doctor's findings about a store.

use super::health::{StoreHealth as Store, Unexamined};
use super::noticed::CheckProgress;
use crate::contract::finding::{Finding, Health};

/// WAL size in bytes above which the doctor warns that checkpoints do not keep up.
const MOST_LOG: u64 = 128 << 20;

/// The findings about a store that was examined.
pub fn of(store: &Store) -> Vec<Finding> {
    vec![
        integrity(store),
        schema(store),
        log(store),
        quarantine(store),
        salvaged(store),
        set_aside(store),
        announces(store),
        last_end(store),
    ]
}

/// The finding about a store that could not be examined.
pub fn of_unexamined(why: &Unexamined) -> Finding {
    let finding = |status, message: String| Finding::new("store.integrity", status, message);
    match why {
        Unexamined::Missing => finding(
            Health::Skip,
            "there is no store yet; the first start creates one".to_owned(),
        ),
        Unexamined::Newer(message) => Finding::new("store.schema", Health::Fail, message.clone())
            .fix(
                "use the version of abide that wrote it, or restore a copy that was made before its \
                 migration (abide restore)",
            ),
        Unexamined::Unreadable(why, advice) => {
            let message = format!("the store cannot be read: {why}");
            finding(Health::Fail, message).fix(format!(
                "start the daemon (abide serve --detach): it sets the file aside and salvages \
                 what can be read. If nothing can be read: {advice}"
            ))
        }
    }
}

fn integrity(store: &Store) -> Finding {
    let id = "store.integrity";
    if !store.damage.is_empty() {
        return Finding::new(
            id,
            Health::Fail,
            format!("the file is damaged: {}", store.damage.join("; ")),
        )
        .fix(format!(
            "{}: the start sets the file aside and salvages what can be read",
            match store.is_open {
                true => "restart the daemon (abide stop --restart)",
                false => "start the daemon (abide serve --detach)",
            }
        ));
    }
    match &store.checked {
        CheckProgress::Done(..) => Finding::new(
            id,
            Health::Ok,
            "every table was checked; no damage was found",
        ),
        CheckProgress::At(table) => Finding::new(
            id,
            Health::Ok,
            format!("no damage so far; the full check is at table {table}"),
        ),
        CheckProgress::NotYet => Finding::new(
            id,
            Health::Ok,
            "no damage was found; the full check of this boot has not finished",
        ),
    }
}

fn schema(store: &Store) -> Finding {
    let (found, known) = store.schema;
    let message = format!("schema version {found}, this program knows {known}");
    if found > known {
        Finding::new("store.schema", Health::Fail, message)
            .fix("use the version of abide that wrote it, or another state folder")
    } else {
        Finding::new("store.schema", Health::Ok, message)
    }
}

fn log(store: &Store) -> Finding {
    let message = format!(
        "the database file has {}, its WAL {}",
        bytes(store.bytes),
        bytes(store.log_bytes)
    );
    if store.log_bytes > MOST_LOG {
        Finding::new("store.wal", Health::Warn, message)
            .fix("look for a program that holds the database open; a restart truncates the WAL")
    } else {
        Finding::new("store.wal", Health::Ok, message)
    }
}

fn quarantine(store: &Store) -> Finding {
    let id = "store.quarantine";
    if store.quarantine.is_empty() {
        return Finding::new(id, Health::Ok, "no row is quarantined");
    }
    let counts: Vec<String> = store
        .quarantine
        .iter()
        .map(|(table, count)| format!("{count} of {table}"))
        .collect();
    let latest: Vec<String> = store
        .latest
        .iter()
        .map(|entry| {
            format!(
                "{} {} ({}): {}",
                entry.source, entry.key, entry.fate, entry.reason
            )
        })
        .collect();
    Finding::new(
        id,
        Health::Warn,
        format!(
            "quarantined rows: {}; the latest: {}",
            counts.join(", "),
            latest.join(" | ")
        ),
    )
    .fix(
        "they are kept whole in the table quarantine; runs that could not continue without them \
          ended as interrupted (damaged) and can be spawned again",
    )
}

fn salvaged(store: &Store) -> Finding {
    let id = "store.salvaged";
    let Some(report) = &store.salvaged else {
        return Finding::new(id, Health::Ok, "the file was never damaged");
    };
    let message = format!(
        "the file was found damaged at {} ({}): {}",
        report.at,
        report.why,
        report.summary()
    );
    if !report.set_aside.exists() {
        return Finding::new(id, Health::Ok, format!("{message}; it has been dealt with"));
    }
    Finding::new(id, Health::Warn, message).fix(format!(
        "the damaged file is {}; if a backup has more rows, restore it: {}abide restore FILE \
         --force; to close this finding, delete that file or move it away",
        report.set_aside.display(),
        if store.is_open { "abide stop && " } else { "" }
    ))
}

fn set_aside(store: &Store) -> Finding {
    let id = "store.set_aside";
    if store.set_aside.is_empty() {
        return Finding::new(id, Health::Ok, "no file is set aside");
    }
    let names: Vec<String> = store
        .set_aside
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    let rescued = store.set_aside.iter().rev().find(|path| {
        let name = path.to_string_lossy();
        name.contains(".rescued-") && !name.ends_with("-wal")
    });
    let all = match rescued {
        Some(path) => format!(
            "the whole content of the store before its file was replaced is in {0}: {1}abide restore \
             {0} --force restores it; ",
            path.display(),
            if store.is_open { "abide stop && " } else { "" }
        ),
        None => String::new(),
    };
    Finding::new(
        id,
        Health::Warn,
        format!("files that were set aside: {}", names.join(", ")),
    )
    .fix(format!("{all}delete them when they are no longer needed"))
}

fn announces(store: &Store) -> Finding {
    let id = "announces";
    let message = format!(
        "{} results are waiting for delivery, {} could not be delivered",
        store.pending, store.undelivered
    );
    if store.undelivered > 0 {
        Finding::new(id, Health::Warn, message).fix("list them: runs.list {\"undelivered\": true}")
    } else {
        Finding::new(id, Health::Ok, message)
    }
}

fn last_end(store: &Store) -> Finding {
    let id = "daemon.last_end";
    match store.unclean_since {
        None => Finding::new(
            id,
            Health::Ok,
            "the previous process ended with a clean stop",
        ),
        Some(at) => Finding::new(
            id,
            Health::Warn,
            format!(
                "the process that started at {at} ended without a clean stop; its runs continue"
            ),
        )
        .fix("look for the reason in the log; a kill or a power loss is not an error of the store"),
    }
}

/// A byte count with a readable unit.
pub fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{} KiB", count >> 10),
        10_000_000..=9_999_999_999 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}
