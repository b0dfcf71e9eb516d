//! The floors: a bare jsonrpsee server with a trivial method and one that stores its input, and a
//! loop that only syncs. The server is this program, started as a second process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jsonrpsee::RpcModule;
use jsonrpsee::server::{ServerBuilder, ServerConfig};
use jsonrpsee::types::ErrorObjectOwned;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::Result;
use crate::client::ServerAddress;
use crate::sample::Sample;

/// The daemon's own limits: queued commands, commands per commit, and the checkpoint interval.
const QUEUE: usize = 4096;
const BATCH: usize = 512;
const CHECKPOINT_EACH: Duration = Duration::from_millis(100);

/// The database file in the server's folder.
const DATABASE: &str = "floor.db";

/// The daemon's pragmas, as far as they affect the writer's speed.
const PRAGMAS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cell_size_check = ON;
    PRAGMA mmap_size = 0;
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -8192;
";

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS sessions (id BLOB PRIMARY KEY, key TEXT NOT NULL, about TEXT NOT NULL)
        STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS runs (id BLOB PRIMARY KEY, session BLOB NOT NULL, state TEXT NOT NULL,
        about TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS messages (session BLOB NOT NULL, seq INTEGER NOT NULL, content TEXT NOT NULL,
        PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS events (cursor INTEGER PRIMARY KEY, run BLOB NOT NULL, data TEXT NOT NULL)
        STRICT;
";

/// Contents of the rows besides the task; with it, the four rows hold about 1 KB.
const ABOUT: [&str; 3] = [
    r#"{"org":"default","owner":"agent","agent":"build","depth":1,"messages":1,"generation":1}"#,
    r#"{"org":"default","user":"admin","agent":"build","model":"offline/search","lane":"subagent","depth":1,"origin":"spawn","announce":"none","limitMs":3600000,"usedMs":0,"steps":0,"loops":0,"toolCalls":0,"pins":{"agent":"9f2c61d07be54c1c8d2e1f0a","tools":"0b7d5f3e9a814c6f8e2d4c1b"},"warnings":[]}"#,
    r#"{"kind":"run.queued","agent":"build","label":null,"sessionKey":null,"parent":null,"meta":null}"#,
];

/// Parameters of the storing method.
#[derive(Deserialize)]
struct Insert {
    task: String,
}

/// Result of the storing method.
#[derive(Clone, Serialize)]
struct Inserted {
    run: Uuid,
}

#[derive(Clone, Serialize)]
struct Nothing {}

struct Job {
    task: String,
    answer: oneshot::Sender<rusqlite::Result<Uuid>>,
}

/// Runs the floor's server with the methods `ping` and `insert` until standard input closes. The
/// first line of its output is its port.
pub fn serve(folder: &Path) -> Result<()> {
    let path = folder.join(DATABASE);
    let mut db = Connection::open(&path)?;
    db.execute_batch(PRAGMAS)?;
    db.execute_batch(SCHEMA)?;
    let last = "SELECT coalesce(max(cursor), 0) FROM events";
    let cursor = db.query_row(last, [], |row| row.get(0))?;
    let (jobs, queue) = mpsc::channel(QUEUE);
    std::thread::spawn(move || write(&mut db, queue, cursor));
    let checkpoints = Connection::open(&path)?;
    checkpoints.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
    std::thread::spawn(move || checkpoint(&checkpoints));

    let mut methods = RpcModule::new(jobs);
    methods.register_method("ping", |_, _, _| Ok::<_, ErrorObjectOwned>(Nothing {}))?;
    methods.register_async_method("insert", |params, jobs, _| async move {
        let insert: Insert = params.parse()?;
        let (answer, inserted) = oneshot::channel();
        let job = Job {
            task: insert.task,
            answer,
        };
        jobs.try_send(job).map_err(fault)?;
        let run = inserted.await.map_err(fault)?.map_err(fault)?;
        Ok::<_, ErrorObjectOwned>(Inserted { run })
    })?;
    // The runtime and the limits are those of the daemon.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _server = runtime.block_on(async {
        let config = ServerConfig::builder()
            .max_connections(1024)
            .set_message_buffer_capacity(64);
        let server = ServerBuilder::with_config(config.build())
            .build("127.0.0.1:0")
            .await?;
        println!("{}", server.local_addr()?);
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(server.start(methods))
    })?;
    // The server ends when the benchmark that started it exits.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn fault(error: impl std::fmt::Display) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(-32603, error.to_string(), None::<()>)
}

/// Group commit: all queued jobs go into one transaction and are answered after its sync.
fn write(db: &mut Connection, mut queue: mpsc::Receiver<Job>, mut cursor: i64) {
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH {
            match queue.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        let done = commit(db, &batch, &mut cursor);
        match done {
            Ok(runs) => {
                for (job, run) in batch.into_iter().zip(runs) {
                    // The send fails if the caller has disconnected.
                    let _ = job.answer.send(Ok(run));
                }
            }
            // Every caller sees its channel closed.
            Err(fault) => eprintln!("floor: {fault}"),
        }
    }
}

fn commit(db: &mut Connection, batch: &[Job], cursor: &mut i64) -> rusqlite::Result<Vec<Uuid>> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut runs = Vec::with_capacity(batch.len());
    for job in batch {
        let (session, run) = (Uuid::now_v7(), Uuid::now_v7());
        *cursor += 1;
        insert(db, session, run, &job.task, *cursor)?;
        runs.push(run);
    }
    db.prepare_cached("COMMIT")?.execute([])?;
    Ok(runs)
}

fn insert(
    db: &Connection,
    session: Uuid,
    run: Uuid,
    task: &str,
    cursor: i64,
) -> rusqlite::Result<()> {
    let key = format!("agent:build:subagent:{session}");
    db.prepare_cached("INSERT INTO sessions VALUES (?1, ?2, ?3)")?
        .execute(params![session.as_bytes(), key, ABOUT[0]])?;
    db.prepare_cached("INSERT INTO runs VALUES (?1, ?2, 'queued', ?3)")?
        .execute(params![run.as_bytes(), session.as_bytes(), ABOUT[1]])?;
    db.prepare_cached("INSERT INTO messages VALUES (?1, 1, ?2)")?
        .execute(params![session.as_bytes(), task])?;
    db.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3)")?
        .execute(params![cursor, run.as_bytes(), ABOUT[2]])?;
    Ok(())
}

/// A folder for [`Floor::start`] with `rows` rows in each table. It is kept, since a million rows
/// take long to create.
pub fn grown(rows: u64, task: &str) -> Result<PathBuf> {
    let digest = blake3::hash(include_bytes!("floor.rs")).to_hex();
    let these = format!("floor-history-{}-", &digest[..8]);
    let name = format!("{these}{rows}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = folder.join("made");
    if !done.exists() {
        crate::history::remove_others("floor-history-", &these)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        eprintln!("making {rows} rows of the floor");
        let db = Connection::open(folder.join(DATABASE))?;
        db.execute_batch(PRAGMAS)?;
        db.execute_batch(SCHEMA)?;
        db.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN;")?;
        for row in 1..=rows {
            // Smaller than every id that contains a time.
            let id = |odd: u64| Uuid::from_u128(u128::from(row * 2 + odd));
            insert(&db, id(0), id(1), task, i64::try_from(row)?)?;
        }
        db.execute_batch("COMMIT; PRAGMA journal_mode = WAL;")?;
        std::fs::write(&done, "")?;
    }
    trim(&folder, rows)?;
    Ok(folder)
}

/// Removes the rows that were added to a folder of [`grown`]. Its server must have exited.
pub fn trim(folder: &Path, rows: u64) -> Result<()> {
    let db = Connection::open(folder.join(DATABASE))?;
    db.execute_batch(&format!(
        "PRAGMA synchronous = OFF;
         BEGIN;
         DELETE FROM sessions WHERE id >= x'01';
         DELETE FROM runs WHERE id >= x'01';
         DELETE FROM messages WHERE session >= x'01';
         DELETE FROM events WHERE cursor > {rows};
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))?;
    Ok(())
}

/// The daemon's policy: a separate connection checkpoints the WAL, off the commit path.
fn checkpoint(db: &Connection) {
    loop {
        std::thread::sleep(CHECKPOINT_EACH);
        let done = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(fault) = done {
            eprintln!("floor: {fault}");
        }
    }
}

/// The floor's server as a process, which ends on drop.
pub struct Floor {
    child: Child,
    address: SocketAddr,
}

impl Floor {
    /// Starts the server with its database in `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("floor")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output of the floor")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse()?;
        Ok(Floor { child, address })
    }

    /// Address of the server.
    pub fn door(&self) -> ServerAddress<'_> {
        ServerAddress {
            address: self.address,
            token: None,
        }
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // The kill fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures the disk: repeatedly overwrites the same 4 KiB and syncs.
pub fn sync_loop(folder: &Path, lasts: Duration) -> Result<Sample> {
    let mut file = File::create(folder.join("sync"))?;
    let block = [7; 4096];
    file.write_all(&block)?;
    file.sync_all()?;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        let since = Instant::now();
        file.write_all_at(&block, 0)?;
        file.sync_data()?;
        times.push(since.elapsed());
    }
    Ok(Sample::of(times, begun.elapsed()))
}
