//! The settings themselves. A setting that nothing reads does not exist.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use crate::kernel::policy::Visibility;
/// How changes of files are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWatch {
    /// By the system's events.
    Events,
    /// By looking again and again.
    Poll,
    /// Only at the start and when somebody asks.
    Off,
}

impl FileWatch {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            FileWatch::Events => "events",
            FileWatch::Poll => "poll",
            FileWatch::Off => "off",
        }
    }
}

/// Every setting in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `gateway.listen`: where the daemon listens.
    pub listen: SocketAddr,
    /// `gateway.socket`: where the Unix socket is; in the state folder if unset.
    pub socket: Option<PathBuf>,
    /// `gateway.allowed_hosts`: further names that a `Host` header may give.
    pub allowed_hosts: Vec<String>,
    /// `gateway.allowed_origins`: further origins that a browser page may have.
    pub allowed_origins: Vec<String>,
    /// `gateway.drain_timeout`: how long steps in flight may go on after a stop was asked for;
    /// if unset as long as the supervisor allows, 20 s where nobody says.
    pub drain_timeout: Option<Duration>,
    /// `gateway.max_events_behind`: a subscriber that had caught up may fall so many numbers
    /// behind the event log.
    pub max_events_behind: u32,
    /// `gateway.write_timeout`: a client that takes nothing of what is written to it is given up
    /// after so long.
    pub write_timeout: Duration,
    /// `defaults.agent`: the agent where none is named.
    pub agent: String,
    /// `defaults.model`: the model where neither request, session nor agent names one.
    pub model: String,
    /// `defaults.run_timeout`: the limit of a run that names none; `None` (`0`) = no limit.
    pub run_timeout: Option<Duration>,
    /// `defaults.max_spawn_depth`: levels of spawning below a root session, 0 to 5.
    pub max_spawn_depth: u32,
    /// `defaults.max_client_children`: open runs that one session may have asked for.
    pub max_client_children: u32,
    /// `defaults.max_queued_turns`: turns that may wait in one session.
    pub max_queued_turns: u32,
    /// `defaults.max_children`: open runs that the runs of one session may have asked for.
    pub max_children: u32,
    /// `defaults.max_total_children`: runs spawned and messages sent below one root run.
    pub max_total_children: u32,
    /// `lanes.main`, `lanes.subagent`, `lanes.nested`, `lanes.global`: runs at once; 0 = closed.
    pub lanes: [usize; 4],
    /// `sessions.visibility`: how far an agent's session sees.
    pub visibility: Visibility,
    /// `sessions.rights.send`, `.list`, `.history`: in place of that for one right.
    pub rights: [Option<Visibility>; 3],
    /// `sessions.agent_to_agent.allow`: patterns of agents that may deal with each other.
    pub agent_to_agent: Vec<String>,
    /// `sessions.max_ping_pong`: turns of an exchange after the first answer; 0 = none.
    pub max_ping_pong: u32,
    /// `recovery.max_age`: open runs without activity for longer are closed at start.
    pub max_age: Duration,
    /// `recovery.max_attempts`: kills in the middle of the same step that a run survives.
    pub max_attempts: u32,
    /// `recovery.compare_each`: how often open rows are compared with live tasks.
    pub compare_each: Duration,
    /// `recovery.touch_each`: how often the used time of live runs is written; a kill loses no
    /// more of it.
    pub touch_each: Duration,
    /// `retention.audit_rows`: so many rows of the audit table are kept, the newest.
    pub audit_rows: u32,
    /// `storage.min_free`: with less room on the disk, bytes, no new work is taken and nothing
    /// is started; what is at work may use it to end.
    pub min_free: u64,
    /// `storage.check_after`: from when on, after a start, the whole store is checked beside
    /// the work; `None` (`0`) = never.
    pub check_after: Option<Duration>,
    /// `agents.watch`: how changes of agent files are noticed: `events`, `poll` or `off`.
    pub agents_watch: FileWatch,
    /// `agents.poll_each`: how often they are looked at with `poll`.
    pub agents_poll_each: Duration,
    /// `agents.debounce`: how long it must be quiet before changes are taken.
    pub agents_debounce: Duration,
    /// `retention.archive_after`: a spawned session leaves the lists so long after its last run
    /// ended; `None` (`0`) = never.
    pub archive_after: Option<Duration>,
    /// `retention.runs`: ended runs are removed after this long, with their journals; `None`
    /// (`0`) = never.
    pub retain_runs: Option<Duration>,
    /// `retention.events`: events are removed after this long; `None` (`0`) = never.
    pub retain_events: Option<Duration>,
    /// `retention.keys`: an idempotency key is known for so long at least.
    pub retain_keys: Duration,
    /// `retention.sweep_each`: how often is looked for what is old enough.
    pub sweep_each: Duration,
    /// `workspace.root`: the folder of sessions that name none.
    pub workspace: Option<PathBuf>,
    /// `runner.pace`: a pause before each step, so that a person can watch.
    pub pace: Duration,
    /// `runner.model_timeout`: how long one call of a model may take.
    pub model_timeout: Duration,
    /// `runner.tool_timeout`: how long one call of a tool may take.
    pub tool_timeout: Duration,
    /// `providers.script.file`: answers for the provider `script`, which exists for tests.
    pub script: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7777)),
            socket: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            drain_timeout: None,
            max_events_behind: 50_000,
            write_timeout: Duration::from_secs(60),
            agent: "build".to_owned(),
            model: "offline/search".to_owned(),
            run_timeout: Some(Duration::from_secs(3600)),
            max_spawn_depth: 1,
            max_client_children: 200,
            max_queued_turns: 20,
            max_children: 5,
            max_total_children: 100,
            lanes: [8, 8, 8, 16],
            visibility: Visibility::Tree,
            rights: [None; 3],
            agent_to_agent: Vec::new(),
            max_ping_pong: 5,
            max_age: Duration::from_secs(24 * 3600),
            max_attempts: 5,
            compare_each: Duration::from_secs(30),
            touch_each: Duration::from_secs(30),
            audit_rows: 100_000,
            min_free: 64 << 20,
            check_after: Some(Duration::from_secs(60)),
            agents_watch: FileWatch::Events,
            agents_poll_each: Duration::from_secs(2),
            agents_debounce: Duration::from_millis(250),
            archive_after: Some(Duration::from_secs(3600)),
            retain_runs: Some(Duration::from_secs(30 * 24 * 3600)),
            retain_events: Some(Duration::from_secs(7 * 24 * 3600)),
            retain_keys: Duration::from_secs(24 * 3600),
            sweep_each: Duration::from_secs(60),
            workspace: None,
            pace: Duration::ZERO,
            model_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            script: None,
        }
    }
}

/// The keys that exist, as `section.key`.
pub const KEYS: &[&str] = &[
    "gateway.listen",
    "gateway.socket",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "gateway.drain_timeout",
    "gateway.max_events_behind",
    "gateway.write_timeout",
    "defaults.agent",
    "defaults.model",
    "defaults.run_timeout",
    "defaults.max_spawn_depth",
    "defaults.max_client_children",
    "defaults.max_children",
    "defaults.max_total_children",
    "defaults.max_queued_turns",
    "lanes.main",
    "lanes.subagent",
    "lanes.nested",
    "lanes.global",
    "sessions.visibility",
    "sessions.rights.send",
    "sessions.rights.list",
    "sessions.rights.history",
    "sessions.agent_to_agent.allow",
    "sessions.max_ping_pong",
    "recovery.max_age",
    "recovery.max_attempts",
    "recovery.compare_each",
    "recovery.touch_each",
    "retention.audit_rows",
    "storage.min_free",
    "storage.check_after",
    "agents.watch",
    "agents.poll_each",
    "agents.debounce",
    "retention.archive_after",
    "retention.runs",
    "retention.events",
    "retention.keys",
    "retention.sweep_each",
    "workspace.root",
    "runner.pace",
    "runner.model_timeout",
    "runner.tool_timeout",
    "providers.script.file",
];

/// Those of [`KEYS`] whose change a reload applies; the others wait for the next start.
const LIVE: &[&str] = &[
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "gateway.max_events_behind",
    "defaults.run_timeout",
    "defaults.max_spawn_depth",
    "defaults.max_client_children",
    "defaults.max_queued_turns",
    "defaults.max_children",
    "defaults.max_total_children",
    "lanes.main",
    "lanes.subagent",
    "lanes.nested",
    "lanes.global",
    "sessions.visibility",
    "sessions.agent_to_agent.allow",
    "sessions.max_ping_pong",
    "recovery.max_age",
    "recovery.max_attempts",
    "recovery.compare_each",
    "recovery.touch_each",
    "retention.archive_after",
    "retention.runs",
    "retention.events",
    "retention.keys",
    "retention.sweep_each",
    "retention.audit_rows",
    "runner.pace",
    "runner.model_timeout",
    "runner.tool_timeout",
];

/// Does a reload apply a change of this setting?
pub fn is_live(key: &str) -> bool {
    LIVE.contains(&key)
}

/// A value as people are shown it: null where there is none, and never a secret.
pub fn shown(key: &str, value: Option<&Value>) -> serde_json::Value {
    let Some(value) = value else {
        return serde_json::Value::Null;
    };
    if is_secret(key) {
        return "[secret]".into();
    }
    // Texts, numbers and lists of them: they have a JSON form.
    serde_json::to_value(value).unwrap_or_default()
}

/// Does the name say that the value is not for everybody's eyes? One that only says where the
/// secret is (`…_env`, `…_file`) is.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["key", "token", "secret", "password"]
        .iter()
        .any(|word| name == *word || name.ends_with(&format!("_{word}")))
}

impl Config {
    /// The value in force of one of [`KEYS`], in the form in which [`Config::set`] takes it;
    /// `None` where nothing is set and nothing is the default.
    pub fn value(&self, key: &str) -> Option<Value> {
        let value = match key {
            "gateway.listen" => self.listen.to_string().into(),
            "gateway.socket" => path_value(self.socket.as_ref()?),
            "gateway.max_events_behind" => self.max_events_behind.into(),
            "gateway.write_timeout" => span(self.write_timeout),
            "gateway.allowed_hosts" => self.allowed_hosts.clone().into(),
            "gateway.allowed_origins" => self.allowed_origins.clone().into(),
            "gateway.drain_timeout" => span(self.drain_timeout?),
            "defaults.agent" => self.agent.clone().into(),
            "defaults.model" => self.model.clone().into(),
            "defaults.run_timeout" => span(self.run_timeout.unwrap_or_default()),
            "defaults.max_spawn_depth" => self.max_spawn_depth.into(),
            "defaults.max_client_children" => self.max_client_children.into(),
            "defaults.max_queued_turns" => self.max_queued_turns.into(),
            "defaults.max_children" => self.max_children.into(),
            "defaults.max_total_children" => self.max_total_children.into(),
            "lanes.main" => slots_value(self.lanes[0]),
            "lanes.subagent" => slots_value(self.lanes[1]),
            "lanes.nested" => slots_value(self.lanes[2]),
            "lanes.global" => slots_value(self.lanes[3]),
            "sessions.visibility" => self.visibility.as_str().into(),
            "sessions.rights.send" => self.rights[0]?.as_str().into(),
            "sessions.rights.list" => self.rights[1]?.as_str().into(),
            "sessions.rights.history" => self.rights[2]?.as_str().into(),
            "sessions.agent_to_agent.allow" => self.agent_to_agent.clone().into(),
            "sessions.max_ping_pong" => self.max_ping_pong.into(),
            "recovery.max_age" => span(self.max_age),
            "recovery.max_attempts" => self.max_attempts.into(),
            "recovery.compare_each" => span(self.compare_each),
            "recovery.touch_each" => span(self.touch_each),
            "retention.archive_after" => span(self.archive_after.unwrap_or_default()),
            "retention.runs" => span(self.retain_runs.unwrap_or_default()),
            "retention.events" => span(self.retain_events.unwrap_or_default()),
            "retention.keys" => span(self.retain_keys),
            "retention.sweep_each" => span(self.sweep_each),
            "retention.audit_rows" => self.audit_rows.into(),
            "storage.min_free" => i64::try_from(self.min_free).unwrap_or(i64::MAX).into(),
            "storage.check_after" => span(self.check_after.unwrap_or_default()),
            "agents.watch" => self.agents_watch.as_str().into(),
            "agents.poll_each" => span(self.agents_poll_each),
            "agents.debounce" => span(self.agents_debounce),
            "workspace.root" => path_value(self.workspace.as_ref()?),
            "runner.pace" => span(self.pace),
            "runner.model_timeout" => span(self.model_timeout),
            "runner.tool_timeout" => span(self.tool_timeout),
            "providers.script.file" => path_value(self.script.as_ref()?),
            _ => return None,
        };
        Some(value)
    }

    /// Takes one setting; the fault says what is expected. The key must be one of [`KEYS`].
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            "gateway.listen" => {
                self.listen = text(value)?
                    .parse()
                    .map_err(|_| "an address such as 127.0.0.1:7777 is expected".to_owned())?;
            }
            "gateway.socket" => self.socket = Some(path(value)?),
            "gateway.allowed_hosts" => self.allowed_hosts = texts(value)?,
            "gateway.allowed_origins" => self.allowed_origins = texts(value)?,
            "gateway.drain_timeout" => self.drain_timeout = Some(duration(value)?),
            "gateway.max_events_behind" => {
                self.max_events_behind = count(value, 1, 10_000_000)?;
            }
            "gateway.write_timeout" => self.write_timeout = period(value)?,
            "defaults.agent" => self.agent = text(value)?,
            "defaults.model" => self.model = text(value)?,
            "defaults.run_timeout" => {
                let limit = duration(value)?;
                self.run_timeout = (!limit.is_zero()).then_some(limit);
            }
            "defaults.max_spawn_depth" => self.max_spawn_depth = count(value, 0, 5)?,
            "defaults.max_client_children" => {
                self.max_client_children = count(value, 1, 10_000)?;
            }
            "defaults.max_children" => self.max_children = count(value, 1, 20)?,
            "defaults.max_total_children" => {
                self.max_total_children = count(value, 1, 10_000)?;
            }
            "defaults.max_queued_turns" => self.max_queued_turns = count(value, 1, 1000)?,
            "lanes.main" => self.lanes[0] = slots(value)?,
            "lanes.subagent" => self.lanes[1] = slots(value)?,
            "lanes.nested" => self.lanes[2] = slots(value)?,
            "lanes.global" => self.lanes[3] = slots(value)?,
            "sessions.visibility" => self.visibility = visibility(value)?,
            "sessions.rights.send" => self.rights[0] = Some(visibility(value)?),
            "sessions.rights.list" => self.rights[1] = Some(visibility(value)?),
            "sessions.rights.history" => self.rights[2] = Some(visibility(value)?),
            "sessions.agent_to_agent.allow" => self.agent_to_agent = texts(value)?,
            "sessions.max_ping_pong" => self.max_ping_pong = count(value, 0, 5)?,
            "recovery.max_age" => self.max_age = duration(value)?,
            "recovery.max_attempts" => self.max_attempts = count(value, 1, 100)?,
            "recovery.compare_each" => self.compare_each = period(value)?,
            "recovery.touch_each" => self.touch_each = period(value)?,
            "retention.audit_rows" => self.audit_rows = count(value, 1, 10_000_000)?,
            "storage.min_free" => self.min_free = bytes(value)?,
            "storage.check_after" => {
                let after = duration(value)?;
                self.check_after = (!after.is_zero()).then_some(after);
            }
            "agents.watch" => self.agents_watch = file_watch(value)?,
            "agents.poll_each" => self.agents_poll_each = period(value)?,
            "agents.debounce" => self.agents_debounce = duration(value)?,
            "retention.archive_after" => self.archive_after = some(duration(value)?),
            "retention.runs" => self.retain_runs = some(duration(value)?),
            "retention.events" => self.retain_events = some(duration(value)?),
            "retention.keys" => self.retain_keys = duration(value)?,
            "retention.sweep_each" => self.sweep_each = period(value)?,
            "workspace.root" => self.workspace = Some(path(value)?),
            "runner.pace" => self.pace = duration(value)?,
            "runner.model_timeout" => self.model_timeout = duration(value)?,
            "runner.tool_timeout" => self.tool_timeout = duration(value)?,
            "providers.script.file" => self.script = Some(path(value)?),
            _ => return Err("no setting of that name".to_owned()),
        }
        Ok(())
    }
}

fn path_value(path: &Path) -> Value {
    path.display().to_string().into()
}

fn span(duration: Duration) -> Value {
    humantime::format_duration(duration).to_string().into()
}

fn slots_value(slots: usize) -> Value {
    // At most 10,000.
    i64::try_from(slots).unwrap_or(i64::MAX).into()
}

fn file_watch(value: &Value) -> Result<FileWatch, String> {
    match text(value)?.as_str() {
        "events" => Ok(FileWatch::Events),
        "poll" => Ok(FileWatch::Poll),
        "off" => Ok(FileWatch::Off),
        _ => Err("events, poll or off is expected".to_owned()),
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err("text is expected".to_owned()),
    }
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        // The one form that a variable can have.
        Value::String(list) => Ok(list
            .split(',')
            .map(|item| item.trim().to_owned())
            .filter(|item| !item.is_empty())
            .collect()),
        _ => Err("a list of texts is expected".to_owned()),
    }
}

fn path(value: &Value) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(value)?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("an absolute path is expected".to_owned())
    }
}

/// `"90s"`, `"10m"`, or a plain number of seconds.
fn duration(value: &Value) -> Result<Duration, String> {
    let expected = "a duration such as \"90s\" or \"10m\", or a number of seconds, is expected";
    match value {
        Value::String(text) => humantime::parse_duration(text).map_err(|_| expected.to_owned()),
        Value::Integer(seconds) => u64::try_from(*seconds)
            .map(Duration::from_secs)
            .map_err(|_| expected.to_owned()),
        Value::Float(seconds) => {
            Duration::try_from_secs_f64(*seconds).map_err(|_| expected.to_owned())
        }
        _ => Err(expected.to_owned()),
    }
}

/// A number of bytes, or text such as `"64 MiB"`.
fn bytes(value: &Value) -> Result<u64, String> {
    let expected = "a number of bytes, or text such as \"64 MiB\", is expected";
    let found = match value {
        Value::Integer(bytes) => u64::try_from(*bytes).ok(),
        Value::String(text) => {
            let digits = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            let (number, unit) = text.split_at(digits);
            let shift = match unit.trim() {
                "" | "B" => Some(0),
                "KiB" => Some(10),
                "MiB" => Some(20),
                "GiB" => Some(30),
                _ => None,
            };
            number
                .parse::<u64>()
                .ok()
                .zip(shift)
                .and_then(|(number, shift)| number.checked_mul(1 << shift))
        }
        _ => None,
    };
    found.ok_or_else(|| expected.to_owned())
}

/// No time at all stands for "never".
fn some(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

/// A duration after which something is done again, so more than none.
fn period(value: &Value) -> Result<Duration, String> {
    match duration(value)? {
        Duration::ZERO => Err("more than 0 is expected".to_owned()),
        period => Ok(period),
    }
}

fn count(value: &Value, least: u32, most: u32) -> Result<u32, String> {
    let found = value
        .as_integer()
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| format!("a whole number from {least} to {most} is expected"))
}

fn visibility(value: &Value) -> Result<Visibility, String> {
    let found = value.as_str().and_then(Visibility::parse);
    found.ok_or_else(|| {
        let words: Vec<&str> = Visibility::ALL.iter().map(|one| one.as_str()).collect();
        format!("one of {} is expected", words.join(", "))
    })
}

fn slots(value: &Value) -> Result<usize, String> {
    count(value, 0, 10_000).map(|slots| slots as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_shown_and_set_to_what_it_shows() {
        let mut config = Config {
            run_timeout: None,
            allowed_hosts: vec!["a.example".to_owned()],
            ..Config::default()
        };
        for key in KEYS {
            let Some(value) = config.value(key) else {
                // Unset: a path or a time. Set, it is shown.
                let values = [Value::from("/somewhere"), Value::from("7s")];
                let value = values.iter().find(|value| config.set(key, value).is_ok());
                assert_eq!(config.value(key).as_ref(), value, "{key}");
                continue;
            };
            let before = config.clone();
            config.set(key, &value).unwrap();
            assert_eq!(config, before, "{key}");
        }
    }

    #[test]
    fn what_a_reload_applies_are_settings_that_have_a_value() {
        for key in LIVE {
            assert!(KEYS.contains(key), "{key}");
            assert!(Config::default().value(key).is_some(), "{key}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        let value = Value::from("sk-1");
        for key in [
            "providers.x.api_key",
            "gateway.token",
            "mcp.y.auth_secret",
            "a.password",
        ] {
            assert_eq!(shown(key, Some(&value)), "[secret]", "{key}");
        }
        for key in [
            "providers.x.api_key_env",
            "providers.x.api_key_file",
            "a.keys",
        ] {
            assert_eq!(shown(key, Some(&value)), "sk-1", "{key}");
        }
    }
}
