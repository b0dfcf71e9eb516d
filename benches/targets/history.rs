//! Creates stores with a long history. A small store is made through the daemon itself: turns,
//! spawns, announces and wake runs with a scripted model, finished and shut down cleanly. Its rows
//! are then copied repeatedly into a second file, each copy shifted further into the past. The
//! result satisfies every constraint, and `abide doctor` reports nothing about it.
//!
//! A million runs take minutes to create, so the result is kept in `target/tmp`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::client::{self, Load, Until};
use crate::daemon::{self, Daemon, Setting};
use crate::talk::{self, Talk};

/// Runs of the small store; it has about one session per ten runs.
const RUNS: u64 = 1000;
/// Sessions with user turns; most runs are such turns.
const TALKS: u64 = 14;
/// Spawns of a client under one parent, each with the wake run about its end.
const SPAWNS: u64 = 30;
/// Number of spawns in each answer of one run: a tree larger than a page.
const TREE: [u64; 3] = [18, 18, 18];
/// Part of the keys of sessions whose key has no id; copies replace it by a number.
const KEY: &str = "history-0000-";
/// The input of the run that spawns a tree.
const DELEGATE: &str = "Let others look";
/// Distance in time between copies. Ids begin with the time in milliseconds, so the copies differ
/// in the first three bytes.
const STRETCH_MS: i64 = 1 << 24;
/// Tables that are copied once: they belong to the store or are shared by all runs.
const SHARED: [&str; 9] = [
    "meta",
    "counters",
    "boots",
    "agents",
    "agent_sets",
    "trusted_projects",
    "blobs",
    "events_expired",
    "audit",
];

/// A store with a history, shut down cleanly.
pub struct History {
    /// The folder to pass to [`Daemon::start`].
    pub folder: PathBuf,
    /// The contents of the store.
    pub made: Made,
}

/// The contents of a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Made {
    /// Number of finished runs.
    pub runs: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of events.
    pub events: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Exclusive upper limit of the history's values of the store's sequence counter.
    pub seq: i64,
    /// Ids of runs with more than fifty descendants, spread over the whole history.
    pub trees: Vec<String>,
    /// Keys of sessions with more than a hundred messages, spread over the whole history.
    pub talks: Vec<String>,
    /// Positions between sessions, spread over the whole history: cursors of `sessions.list`.
    pub places: Vec<i64>,
}

impl History {
    /// The store with at least `runs` finished runs; it is created if missing.
    pub fn of(binary: &Path, runs: u64) -> Result<Self> {
        let (schema, digest) = (abide::store::SCHEMA, digest()?);
        let named = |what: &str| {
            let name = format!("history-{schema}-{digest}-{what}");
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
        };
        let folder = named(&runs.to_string());
        let note = folder.join("made.json");
        if !note.exists() {
            remove_others("history-", &format!("history-{schema}-{digest}-"))?;
            let small = named("base");
            if !small.join("made.json").exists() {
                make_small(binary, &small)?;
            }
            if folder.exists() {
                // An earlier creation was interrupted.
                std::fs::remove_dir_all(&folder)?;
            }
            eprintln!("creating a history of {runs} finished runs");
            let begun = Instant::now();
            let made = multiply(&small, &folder, runs)?;
            examine(binary, &folder)?;
            std::fs::write(&note, serde_json::to_string(&made)?)?;
            eprintln!(
                "{} runs, {} sessions, {} events, {} MB, in {:.0} s: {}",
                made.runs,
                made.sessions,
                made.events,
                made.bytes / 1_000_000,
                begun.elapsed().as_secs_f64(),
                folder.display()
            );
        }
        let made = serde_json::from_str(&std::fs::read_to_string(&note)?)?;
        let history = History { folder, made };
        history.trim()?;
        Ok(history)
    }

    /// Removes what was added to the history since it was created. The daemon must have exited.
    pub fn trim(&self) -> Result<()> {
        let db = Connection::open(store_in(&self.folder))?;
        db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; BEGIN;")?;
        let seq = self.made.seq;
        for sql in [
            "DELETE FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE seq > ?1)",
            "DELETE FROM steps WHERE run_id IN (SELECT id FROM runs WHERE seq > ?1)",
            "DELETE FROM outbox WHERE seq > ?1",
            "DELETE FROM runs WHERE seq > ?1",
            "DELETE FROM sessions WHERE seq > ?1",
            "DELETE FROM events WHERE cursor > ?1",
            "DELETE FROM audit WHERE seq > ?1",
        ] {
            db.execute(sql, [seq])?;
        }
        // The event log has no gap.
        db.execute_batch(
            "UPDATE events_expired SET up_to = 0; COMMIT; PRAGMA wal_checkpoint(TRUNCATE);",
        )?;
        let left: i64 = db.query_row(
            "SELECT count(*) FROM runs WHERE ended_at IS NULL",
            [],
            |row| row.get(0),
        )?;
        match left {
            0 => Ok(()),
            _ => Err(format!("{left} runs of the history are open").into()),
        }
    }
}

/// Removes folders that an earlier version of this program kept under such names.
pub fn remove_others(of: &str, but: &str) -> Result<()> {
    for entry in std::fs::read_dir(env!("CARGO_TARGET_TMPDIR"))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(of) && !name.starts_with(but) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The path of the store in a folder for [`Daemon::start`].
fn store_in(folder: &Path) -> PathBuf {
    folder.join("state").join("abide.db")
}

/// A digest of everything that determines the contents of a history.
fn digest() -> Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/migrations/sqlite");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        hasher.update(&std::fs::read(file)?);
    }
    hasher.update(include_bytes!("history.rs"));
    Ok(hasher.finalize().to_hex()[..8].to_owned())
}

/// Creates a store of about [`RUNS`] runs through the daemon.
fn make_small(binary: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let delegate = TREE.map(|calls| {
        let call = r#"{"tool":"sessions_spawn","arguments":{"task":"look through one folder"}}"#;
        let calls = vec![call; calls as usize].join(",");
        // The children of the previous answer have ended by then.
        format!(r#"{{"text":"Others look.","delay_ms":500,"calls":[{calls}]}}"#)
    });
    let daemon = Daemon::start_with(
        binary,
        folder,
        Setting::InstantAnswers,
        &format!(
            r#"{{"match":"{DELEGATE}","answers":[{},{{"text":"They look."}}]}},"#,
            delegate.join(",")
        ),
    )?;
    talk::run(async {
        let mut talk = Talk::open(daemon.door()).await?;
        let own = |name: &str| format!("agent:build:{KEY}{name}");
        let tree = own("tree");
        let turn = format!(r#"{{"sessionKey":"{tree}","message":"{DELEGATE}"}}"#);
        talk.call("agent.run", &turn).await?;
        at_rest(&mut talk).await?;
        let parent = own("parent");
        let create = format!(r#"{{"agent":"build","key":"{parent}"}}"#);
        talk.call("sessions.create", &create).await?;
        for number in 0..SPAWNS {
            let spawn = format!(r#"{{"task":"{number}: look","parent":"{parent}"}}"#);
            talk.call("sessions.spawn", &spawn).await?;
            at_rest(&mut talk).await?;
        }
        Ok(())
    })?;
    let made = 2 * SPAWNS + TREE.iter().sum::<u64>() + 2;
    client::run(&Load {
        door: daemon.door(),
        connections: 16,
        each: 1,
        until: Until::Calls(RUNS - made),
        method: "agent.run",
        params: &|n| {
            let name = n % TALKS;
            format!(
                r#"{{"sessionKey":"agent:build:{KEY}{name}","message":"{n}: where is that told?"}}"#
            )
        },
        kept: 0,
    })?;
    talk::run(async { at_rest(&mut Talk::open(daemon.door()).await?).await })?;
    daemon.stop()?;
    std::fs::write(folder.join("made.json"), "{}")?;
    Ok(())
}

/// Returns once no run is active and no announce is pending.
async fn at_rest(talk: &mut Talk) -> Result<()> {
    let begun = Instant::now();
    loop {
        let status = talk.call("gateway.status", "{}").await?;
        let untold = status["counts"]["pendingAnnounces"].as_u64().unwrap_or(0);
        if daemon::open_runs(&status) + untold == 0 {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(300) {
            return Err(format!("runs of the small history do not end: {status}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Columns that hold neither ids nor keys, though their type would allow it.
const WORDS: [&str; 21] = [
    "pin_agent",
    "pin_tools",
    "digest",
    "org",
    "user",
    "owner",
    "agent",
    "model",
    "lane",
    "mode",
    "cleanup",
    "state",
    "kind",
    "role",
    "origin",
    "announce",
    "policy",
    "effect",
    "tool",
    "thinking",
    "pause",
];

/// How the values of a column change in a copy.
enum Column {
    /// Unchanged.
    Same,
    /// A value of the store's sequence counter.
    Number,
    /// An id, as bytes.
    Id,
    /// A time, in milliseconds since 1970.
    Time,
    /// Text that may contain ids and keys.
    Text,
}

impl Column {
    fn of(table: &str, name: &str, kind: &str) -> Self {
        let per_store = matches!(table, "sessions" | "runs" | "outbox" | "questions");
        match (kind, name) {
            (_, name) if WORDS.contains(&name) => Column::Same,
            ("BLOB", _) => Column::Id,
            ("INTEGER", "cursor") => Column::Number,
            ("INTEGER", "seq") if per_store => Column::Number,
            ("INTEGER", "at" | "not_before" | "wait_until" | "window_until") => Column::Time,
            ("INTEGER", name) if name.ends_with("_at") => Column::Time,
            ("TEXT", _) => Column::Text,
            _ => Column::Same,
        }
    }

    /// The SQL expression of the value in a copy, in terms of [`COPY`].
    fn in_copy(&self, name: &str) -> String {
        match self {
            Column::Same => format!("old.{name}"),
            Column::Number => format!("old.{name} + copy.numbers"),
            Column::Time => format!("old.{name} - copy.back"),
            Column::Id => format!(
                "CASE WHEN old.{name} IS NULL THEN NULL \
                 ELSE CAST(copy.id || substr(old.{name}, 4) AS BLOB) END"
            ),
            Column::Text => format!(
                "replace(replace(old.{name}, copy.small_text, copy.id_text), '{KEY}', copy.key)"
            ),
        }
    }
}

/// The differences of a copy: the offset of its numbers, the offset of its times, the prefix of its
/// ids as bytes and as text, that of the small store's ids as text, and its keys.
const COPY: &str = "WITH copy AS (SELECT ?1 AS numbers, ?2 AS back, ?3 AS id, ?4 AS id_text, \
     ?5 AS small_text, ?6 AS key)";

/// Copies the rows of the store in `small` into a store in `folder` until that has `runs` runs.
fn multiply(small: &Path, folder: &Path, runs: u64) -> Result<Made> {
    std::fs::create_dir_all(folder.join("state"))?;
    for entry in std::fs::read_dir(small.join("state"))? {
        let from = entry?.path();
        if from.is_file() {
            let name = from.file_name().unwrap_or_default();
            std::fs::copy(&from, folder.join("state").join(name))?;
        }
    }
    let path = store_in(folder);
    let db = Connection::open(&path)?;
    // No other process uses the file, and an interrupted copy is created again.
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -1048576;",
    )?;
    let from = store_in(small);
    let from = from.to_str().ok_or("a path that is no text")?;
    db.execute("ATTACH ?1 AS small", [from])?;
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let numbers = one("SELECT value FROM small.counters WHERE name = 'seq'")?;
    let has = one("SELECT count(*) FROM small.runs")?;
    let copies = i64::try_from(runs)?.div_euclid(has).max(1);
    let (first, last): (String, String) = db.query_row(
        "SELECT substr(hex(min(id)), 1, 6), substr(hex(max(id)), 1, 6) FROM small.runs",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if first != last {
        // Happens once in 20,000 hours of making such stores.
        return Err("the small history spans two id prefixes: delete it and try again".into());
    }
    let begins = i64::from_str_radix(&first, 16)?;

    let mut inserts = Vec::new();
    for table in tables(&db)? {
        if SHARED.contains(&table.as_str()) {
            continue;
        }
        let mut about =
            db.prepare("SELECT name, type FROM pragma_table_info(?1, 'small') ORDER BY cid")?;
        let columns: Vec<(String, String)> = about
            .query_map([&table], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let values: Vec<String> = columns
            .iter()
            .map(|(name, kind)| Column::of(&table, name, kind).in_copy(name))
            .collect();
        db.execute_batch(&format!("DELETE FROM main.{table}"))?;
        inserts.push(format!(
            "{COPY} INSERT INTO main.{table} ({}) SELECT {} FROM copy CROSS JOIN small.{table} AS old",
            names.join(", "),
            values.join(", ")
        ));
    }
    // Oldest first, so that rows are appended as in real use.
    for copy in 0..copies {
        let back = copies - 1 - copy;
        let begin = begins - back;
        let bytes = &begin.to_be_bytes()[5..];
        let text = format!("{begin:06x}");
        for insert in &inserts {
            db.prepare_cached(insert)?.execute(params![
                copy * numbers,
                back * STRETCH_MS,
                bytes,
                text,
                first.to_lowercase(),
                format!("history-{copy:04}-"),
            ])?;
        }
    }
    let seq = copies * numbers;
    db.execute(
        "UPDATE main.counters SET value = ?1 WHERE name = 'seq'",
        [seq],
    )?;
    db.execute_batch("UPDATE main.events_expired SET up_to = 0; DETACH small;")?;
    let findings = check(&db)?;
    if !findings.is_empty() {
        return Err(format!(
            "the history fails the database check: {}",
            findings.join("; ")
        )
        .into());
    }
    let made = Made {
        runs: u64::try_from(one("SELECT count(*) FROM runs")?)?,
        sessions: u64::try_from(one("SELECT count(*) FROM sessions")?)?,
        events: u64::try_from(one("SELECT count(*) FROM events")?)?,
        bytes: u64::try_from(one("PRAGMA page_count")? * one("PRAGMA page_size")?)?,
        seq,
        trees: some(
            &db,
            "SELECT id FROM runs WHERE origin = 'turn' AND session_key LIKE '%-tree' ORDER BY seq",
            |row| Ok(uuid::Uuid::from_bytes(row.get(0)?).to_string()),
        )?,
        talks: some(
            &db,
            "SELECT key FROM sessions WHERE parent_id IS NULL AND messages > 100 ORDER BY seq",
            |row| row.get(0),
        )?,
        places: some(
            &db,
            "SELECT seq FROM sessions WHERE parent_id IS NULL ORDER BY seq",
            |row| row.get(0),
        )?,
    };
    db.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
    Ok(made)
}

fn tables(db: &Connection) -> Result<Vec<String>> {
    let mut names = db.prepare(
        "SELECT name FROM small.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    )?;
    let names = names.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// At most two hundred rows of the query, spread over its result.
fn some<T>(
    db: &Connection,
    sql: &str,
    read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut query = db.prepare(sql)?;
    let all: Vec<T> = query
        .query_map([], |row| read(row))?
        .collect::<rusqlite::Result<_>>()?;
    let each = all.len().div_ceil(200).max(1);
    Ok(all.into_iter().step_by(each).collect())
}

/// The findings of SQLite's own checks.
fn check(db: &Connection) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut broken = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = broken.query([])?;
    if let Some(row) = rows.next()? {
        findings.push(format!("rows of {} lead nowhere", row.get::<_, String>(0)?));
    }
    let mut whole = db.prepare("PRAGMA integrity_check(5)")?;
    let found = whole.query_map([], |row| row.get::<_, String>(0))?;
    for found in found {
        findings.push(found?);
    }
    findings.retain(|found| found != "ok");
    Ok(findings)
}

/// Fails if `abide doctor` reports a finding about the store.
fn examine(binary: &Path, folder: &Path) -> Result<()> {
    let config = folder.join("abide.toml");
    std::fs::write(&config, "")?;
    let examined = Command::new(binary)
        .args(["doctor", "--json", "--config"])
        .arg(config)
        .arg("--state-dir")
        .arg(folder.join("state"))
        .output()?;
    let text = String::from_utf8_lossy(&examined.stdout);
    let found: serde_json::Value = serde_json::from_str(&text)?;
    // Findings about the folder and the machine are ignored.
    let of_store: Vec<&serde_json::Value> = found["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finding| {
            finding["id"]
                .as_str()
                .unwrap_or_default()
                .starts_with("store")
        })
        .collect();
    let wrong = of_store.iter().filter(|finding| finding["status"] != "ok");
    let wrong: Vec<String> = wrong.map(ToString::to_string).collect();
    match wrong.is_empty() && !of_store.is_empty() {
        true => Ok(()),
        false => Err(format!("the doctor finds: {}", wrong.join("\n")).into()),
    }
}
