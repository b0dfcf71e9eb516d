//! Origin of a run: a run that was started from a terminal carries its mark in `meta`, by which
//! `@last` finds the newest. Used by the commands that start runs, and by `ids.rs`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::process::RUN_ID;
use crate::wire::input::META_LIMIT;
use crate::wire::runs::MetaValue;

/// The `meta` field with the mark.
const FIELD: &str = "abideTerminal";
/// Environment variable that names a terminal, for scripts.
const NAMED: &str = "ABIDE_TERMINAL";
/// Number of hash digits in a mark.
const DIGITS: usize = 16;

/// Adds this process's mark to `meta`. Leaves `meta` unchanged if it is not an object, already has
/// the field, or would exceed the size limit.
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

/// `meta` filter for runs that were started from this origin.
pub(crate) fn filter() -> BTreeMap<String, MetaValue> {
    let mark = MetaValue::Text(mark(&origin()));
    BTreeMap::from([(FIELD.to_owned(), mark)])
}

/// The origin in words, for an error message.
pub(crate) fn here() -> &'static str {
    match origin() {
        InvocationOrigin::Run(_) => "by this run",
        InvocationOrigin::Named(_) => "under this ABIDE_TERMINAL",
        InvocationOrigin::Terminal(_) => "from this terminal",
        InvocationOrigin::None => "by you without a terminal",
    }
}

/// Where this process runs.
enum InvocationOrigin {
    /// Within a run, by its id: runs that its programs start are not the user's.
    Run(String),
    /// Under the name that the caller has set in `ABIDE_TERMINAL`.
    Named(String),
    /// On a terminal, with an identity that differs from earlier terminals on the same device.
    Terminal(String),
    /// Without a terminal, such as a service or a cron job.
    None,
}

fn origin() -> InvocationOrigin {
    if let Some(run) = variable(RUN_ID) {
        return InvocationOrigin::Run(run);
    }
    if let Some(name) = variable(NAMED) {
        return InvocationOrigin::Named(name);
    }
    terminal().map_or(InvocationOrigin::None, InvocationOrigin::Terminal)
}

fn mark(origin: &InvocationOrigin) -> String {
    let place = match origin {
        InvocationOrigin::Run(run) => format!("run {run}"),
        InvocationOrigin::Named(name) => format!("named {name}"),
        InvocationOrigin::Terminal(terminal) => format!("terminal {terminal}"),
        InvocationOrigin::None => "none".to_owned(),
    };
    // Hashed, because not every client that may list runs is to learn a terminal's name.
    let user = rustix::process::getuid().as_raw();
    let hash = blake3::hash(format!("{user} {place}").as_bytes());
    hash.to_hex()[..DIGITS].to_owned()
}

/// Identity of the controlling terminal: its device, its session, and the session's start.
#[cfg(target_os = "linux")]
fn terminal() -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (session, device) = (field(&own, 3)?, field(&own, 4)?);
    if device == "0" {
        return None;
    }
    // Session numbers are reused, also by the next boot.
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

/// A field of `/proc/PID/stat`, counted from the state.
#[cfg(target_os = "linux")]
fn field(stat: &str, index: usize) -> Option<&str> {
    // The program's name is in parentheses and may contain any character, parentheses included.
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
            mark(&InvocationOrigin::Run("x".to_owned())),
            mark(&InvocationOrigin::Named("x".to_owned())),
            mark(&InvocationOrigin::Terminal("x".to_owned())),
            mark(&InvocationOrigin::None),
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
