//! A daemon's folder: state, configuration, model script, and a workspace with a few files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::book::StoreRows;
use super::daemon::Daemon;
use super::eventually;
use super::script::{LOG, Script};

/// A daemon's folder. Daemons run in it one after another.
pub(crate) struct Place {
    folder: TempDir,
    script: Script,
    settings: Vec<(String, String)>,
}

/// Optional fault injection for a start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The value of `ABIDE_FAILPOINTS`.
    pub(crate) orders: Option<String>,
    /// File to which every passed failpoint is written.
    pub(crate) trace: Option<PathBuf>,
}

impl Faults {
    /// Faults with these orders, in the format of `ABIDE_FAILPOINTS`.
    pub(crate) fn ordered(orders: &str) -> Faults {
        Faults {
            orders: Some(orders.to_owned()),
            trace: None,
        }
    }
}

impl Place {
    /// A fresh folder in which every model answers from `script`.
    pub(crate) fn new(script: Script) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let mut place = Place {
            folder,
            script,
            settings: Vec::new(),
        };
        fs::create_dir_all(place.work().join("src")).unwrap();
        for (name, text) in [
            ("notes.txt", "alpha\nbeta\ngamma\n"),
            ("src/one.rs", "fn one() {}\n// alpha\n"),
            ("src/two.rs", "fn two() {}\n"),
        ] {
            fs::write(place.work().join(name), text).unwrap();
        }
        let file = place.path().join("script.json");
        fs::write(&file, place.script.json().to_string()).unwrap();
        for (key, toml) in [
            ("gateway.listen", "\"127.0.0.1:0\"".to_owned()),
            ("defaults.model", "\"script/x\"".to_owned()),
            ("workspace.root", format!("{:?}", place.work())),
            ("providers.script.file", format!("{file:?}")),
        ] {
            place.set(key, &toml);
        }
        place
    }

    /// Adds this setting; the value is TOML.
    pub(crate) fn with(mut self, key: &str, toml: &str) -> Place {
        self.set(key, toml);
        self
    }

    /// Adds this setting, in force from the next start on.
    pub(crate) fn set(&mut self, key: &str, toml: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), toml.to_owned()));
        self.write_settings();
    }

    /// Adds this setting unless the place has another value of it.
    pub(crate) fn with_default(self, key: &str, toml: &str) -> Place {
        match self.settings.iter().any(|(known, _)| known == key) {
            true => self,
            false => self.with(key, toml),
        }
    }

    /// Removes this setting, in force from the next start on.
    pub(crate) fn unset(&mut self, key: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.write_settings();
    }

    fn write_settings(&self) {
        let lines: Vec<String> = self
            .settings
            .iter()
            .map(|(key, value)| format!("{key} = {value}\n"))
            .collect();
        fs::write(self.path().join("abide.toml"), lines.concat()).unwrap();
    }

    /// The root folder of everything.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.state().join("abide.db")
    }

    /// The workspace folder, in which agents work.
    pub(crate) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The folders of kept programs.
    pub(crate) fn keeper_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state().join("keepers"));
        let entries = entries.into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let is_step = |path: &PathBuf| {
            !path
                .file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".")
        };
        paths.filter(is_step).collect()
    }

    /// The pids of the keepers of programs.
    pub(crate) fn keepers(&self) -> Vec<u32> {
        let folders = self.keeper_folders().into_iter();
        let texts = folders.filter_map(|folder| fs::read(folder.join("keeper")).ok());
        let records = texts.filter_map(|text| serde_json::from_slice::<Value>(&text).ok());
        let pids = records.filter_map(|record| record["keeper"]["pid"].as_u64());
        pids.map(|pid| u32::try_from(pid).unwrap()).collect()
    }

    /// Kills the keepers of all programs, and waits until they are gone.
    pub(crate) async fn kill_keepers(&self) {
        let keepers = self.keepers();
        for pid in &keepers {
            let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        eventually("the end of the keepers", async || {
            let is_alive = |pid: &u32| crate::processes::is_alive(*pid);
            (!keepers.iter().any(is_alive)).then_some(())
        })
        .await;
    }

    /// The script that the models answer from.
    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    /// Adds an agent file of the user with this front matter.
    pub(crate) fn with_agent(self, name: &str, fields: &str) -> Place {
        let folder = self.path().join(".config/abide/agents");
        fs::create_dir_all(&folder).unwrap();
        let text = format!("---\ndescription: {name}.\n{fields}\n---\nDo it.\n");
        fs::write(folder.join(format!("{name}.md")), text).unwrap();
        self
    }

    /// Releases the answers that are [`super::Answer::held_by`] this name.
    pub(crate) fn let_go(&self, name: &str) {
        fs::write(self.path().join(name), "").unwrap();
    }

    /// The number of model calls for each answer, by rule and index; the provider records them
    /// outside the store.
    pub(crate) fn model_calls(&self) -> BTreeMap<(String, usize), usize> {
        let text = fs::read_to_string(self.path().join(LOG)).unwrap_or_default();
        let mut asked = BTreeMap::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let rule = line["match"].as_str().unwrap().to_owned();
            let index = usize::try_from(line["index"].as_u64().unwrap()).unwrap();
            *asked.entry((rule, index)).or_default() += 1;
        }
        asked
    }

    /// Reads the rows. The daemon must have been stopped or killed: then this is what a start would
    /// find.
    pub(crate) fn book(&self) -> StoreRows {
        StoreRows::read(&self.database())
    }

    /// Has a running daemon removed everything of deleted sessions?
    pub(crate) fn has_nothing_to_purge(&self) -> bool {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // A daemon that was killed meanwhile may have left a store that only its next start can
        // read.
        Connection::open_with_flags(self.database(), flags)
            .and_then(|db| db.query_row("SELECT count(*) FROM purges", [], |row| row.get(0)))
            .is_ok_and(|left: i64| left == 0)
    }

    /// Is the database damaged, or is a repaired one about to replace it?
    pub(crate) fn is_being_repaired(&self) -> bool {
        let switch = self.state().join("abide.db.switch");
        let head = fs::read(self.database()).unwrap_or_default();
        switch.exists() || (head.len() > 16 && !head.starts_with(b"SQLite format 3"))
    }

    /// A command of the binary, without this machine's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .env("ABIDE_CONFIG", self.path().join("abide.toml"))
            .env("ABIDE_STATE_DIR", self.state())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts a daemon and waits until it is ready.
    pub(crate) async fn start(&self) -> Daemon {
        self.start_with(&Faults::default())
            .await
            .unwrap_or_else(|status| panic!("the daemon ended at its start: {status}"))
    }

    /// Starts a daemon and waits until it is ready; `Err` has the exit status of a process that
    /// ended before.
    pub(crate) async fn start_with(&self, faults: &Faults) -> Result<Daemon, ExitStatus> {
        let mut command = self.command(&["serve"]);
        if let Some(orders) = &faults.orders {
            command.env("ABIDE_FAILPOINTS", orders);
        }
        if let Some(trace) = &faults.trace {
            command.env("ABIDE_FAILPOINT_TRACE", trace);
        }
        self.start_command(command).await
    }

    /// As [`Place::start_with`], with a command from [`Place::command`].
    pub(crate) async fn start_command(&self, command: Command) -> Result<Daemon, ExitStatus> {
        Daemon::start(command, &self.state(), &self.path().join("daemon.log")).await
    }

    /// The log of all daemons of this place so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path().join("daemon.log")).unwrap_or_default()
    }
}
