//! Where a run was started from: the runs of a terminal bear its mark in their `meta`, by which
//! `@last` finds the newest. Used by the commands that start runs, and by `ids.rs`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::process::RUN_ID;
use crate::wire::input::META_LIMIT;
use crate::wire::runs::MetaValue;

/// The field of a run's `meta` that has the mark.
const FIELD: &str = "abideTerminal";
/// Names a terminal in place of the system, for scripts.
const NAMED: &str = "ABIDE_TERMINAL";
/// So many digits of the hash are the mark.
const DIGITS: usize = 16;

/// `meta` with the mark of where this process runs. Other JSON than an object cannot bear one, nor
/// one that has a field of that name or would become too long by it.
pub(crate) fn marked(meta: Option<Value>) -> Option<Value> {
    match meta.unwrap_or_else(|| Value::Object(Map::new())) {
        Value::Object(fields) if fields.contains_key(FIELD) => Some(Value::Object(fields)),
        Value::Object(mut fields) => {
            fields.insert(FIELD.to_owned(), Value::String(mark(&origin())));
            let marked = Value::Object(fields);
            if marked.to_string().len() <= META_LIMIT {
                return Some(marked);
            }
            let Value::Object(mut fields) = marked else {
                return Some(marked);
            };
            fields.shift_remove(FIELD);
            Some(Value::Object(fields))
        }
        other => Some(other),
    }
}

/// The `meta` of the runs that were started from here.
pub(crate) fn filter() -> BTreeMap<String, MetaValue> {
    let mark = MetaValue::Text(mark(&origin()));
    BTreeMap::from([(FIELD.to_owned(), mark)])
}

/// The place in words, for an error.
pub(crate) fn here() -> &'static str {
    match origin() {
        Origin::Run(_) => "by this run",
        Origin::Named(_) => "under this ABIDE_TERMINAL",
        Origin::Terminal(_) => "from this terminal",
        Origin::None => "by you without a terminal",
    }
}

/// What starts runs.
enum Origin {
    /// A program of this run: what it starts is not the person's.
    Run(String),
    /// The name that the caller gave.
    Named(String),
    /// A terminal, by what tells it from any other, earlier ones of the same device included.
    Terminal(String),
    /// A process without a terminal, such as a service or a job of cron.
    None,
}

fn origin() -> Origin {
    if let Some(run) = variable(RUN_ID) {
        return Origin::Run(run);
    }
    if let Some(name) = variable(NAMED) {
        return Origin::Named(name);
    }
    terminal().map_or(Origin::None, Origin::Terminal)
}

fn mark(origin: &Origin) -> String {
    let place = match origin {
        Origin::Run(run) => format!("run {run}"),
        Origin::Named(name) => format!("named {name}"),
        Origin::Terminal(terminal) => format!("terminal {terminal}"),
        Origin::None => "none".to_owned(),
    };
    // Hashed: the name of a terminal is not for every client that may list runs.
    let user = rustix::process::getuid().as_raw();
    let hash = blake3::hash(format!("{user} {place}").as_bytes());
    hash.to_hex()[..DIGITS].to_owned()
}

/// The controlling terminal: its device, its session, and when that session began.
#[cfg(target_os = "linux")]
fn terminal() -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (session, device) = (field(&own, 3)?, field(&own, 4)?);
    if device == "0" {
        return None;
    }
    // A session's number is given again, also by the next boot.
    let leader = std::fs::read_to_string(format!("/proc/{session}/stat"));
    let began = leader
        .ok()
        .and_then(|stat| field(&stat, 19).map(str::to_owned));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    Some(format!(
        "{device} {session} {} {}",
        began.unwrap_or_default(),
        boot.unwrap_or_default().trim()
    ))
}

/// A field of a process's `stat`, counted from the state.
#[cfg(target_os = "linux")]
fn field(stat: &str, index: usize) -> Option<&str> {
    // The program's name stands in parentheses and may hold anything, also parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(index)
}

/// The session of the controlling terminal.
#[cfg(not(target_os = "linux"))]
fn terminal() -> Option<String> {
    std::fs::File::open("/dev/tty").ok()?;
    let session = rustix::process::getsid(None).ok()?;
    Some(session.as_raw_nonzero().to_string())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_origins_apart_and_stands_beside_the_callers_fields() {
        let marks = [
            mark(&Origin::Run("x".to_owned())),
            mark(&Origin::Named("x".to_owned())),
            mark(&Origin::Terminal("x".to_owned())),
            mark(&Origin::None),
        ];
        let distinct: std::collections::BTreeSet<&String> = marks.iter().collect();
        assert_eq!(distinct.len(), marks.len(), "{marks:?}");
        assert!(marks.iter().all(|mark| mark.len() == DIGITS), "{marks:?}");

        let given = serde_json::json!({ "ticket": 7 });
        let meta = marked(Some(given)).unwrap();
        assert_eq!(meta["ticket"], 7);
        let MetaValue::Text(mark) = &filter()[FIELD] else {
            panic!("a mark is a text");
        };
        assert_eq!(meta[FIELD], mark.as_str());
        let own = serde_json::json!({ FIELD: "mine" });
        assert_eq!(marked(Some(own.clone())), Some(own));
        let long = serde_json::json!({ "a": "x".repeat(META_LIMIT - 10) });
        assert_eq!(marked(Some(long.clone())), Some(long));
        let bare = serde_json::json!([1]);
        assert_eq!(marked(Some(bare.clone())), Some(bare));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn fields_are_counted_behind_a_name_with_parentheses() {
        let stat = "7 (a) (b) S 1 7 7 34816 7 4194560";
        assert_eq!(field(stat, 3), Some("7"));
        assert_eq!(field(stat, 4), Some("34816"));
        assert_eq!(field(stat, 30), None);
    }
}
