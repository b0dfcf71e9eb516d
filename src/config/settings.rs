//! The settings themselves, each declared once. A setting that nothing reads does not exist.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::form::{
    Address, Amount, Bytes, Count, FILE_WATCH, FileWatch, Flag, Folder, Folders, Form, HttpUrl,
    OVERFLOW, Optional, OrNever, Period, Span, Text, Texts, UpTo, VISIBILITY,
};
use super::named::{self, Named};
use crate::kernel::policy::Visibility;
use crate::kernel::session::Overflow;

/// The most of `process.grace`.
pub const MOST_GRACE: Duration = Duration::from_millis(1500);

/// When a change of a setting is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applied {
    /// At a reload.
    Reload,
    /// At the next start only.
    Start,
}

/// One line a setting: when a change is applied, its key, its field with type and default, and
/// the form in which it is read, checked and shown.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $applied:ident $key:literal => $field:ident: $type:ty = $default:expr, $form:expr;
    )+) => {
        /// Every setting in force.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $(
                #[doc = concat!("`", $key, "`:")]
                $(#[doc = $doc])+
                pub $field: $type,
            )+
            /// The tables that the user has named.
            pub named: Named,
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($field: $default,)+ named: Named::default() }
            }
        }

        /// The keys that always exist, as `section.key`, in the order in which they are shown.
        pub(super) const KEYS: &[&str] = &[$($key),+];

        /// Does a reload apply a change of this setting?
        pub fn is_live(key: &str) -> bool {
            let applied = match key {
                $($key => Applied::$applied,)+
                _ => return named::is_key(key),
            };
            applied == Applied::Reload
        }

        impl Config {
            /// The keys that exist: those that always do, and those of the tables that the
            /// user has named.
            pub fn keys(&self) -> Vec<Cow<'static, str>> {
                let always = KEYS.iter().map(|key| Cow::Borrowed(*key));
                always.chain(self.named.keys().into_iter().map(Cow::Owned)).collect()
            }

            /// Does a setting of this key exist now?
            pub fn has(&self, key: &str) -> bool {
                KEYS.contains(&key) || self.named.has(key)
            }

            /// The value in force of one of [`Config::keys`], in the form in which
            /// [`Config::set`] takes it; `None` where nothing is set and nothing is the default.
            pub fn value(&self, key: &str) -> Option<Value> {
                match key {
                    $($key => $form.show(&self.$field),)+
                    _ => self.named.value(key),
                }
            }

            /// Takes one setting; the fault says what is expected. The key must be one that
            /// [`is_key`] knows.
            pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
                match key {
                    $($key => self.$field = $form.read(value)?,)+
                    _ => return self.named.set(key, value),
                }
                Ok(())
            }
        }
    };
}

settings! {
    /// Where the daemon listens.
    Start "gateway.listen" =>
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7777)), Address;
    /// Where the Unix socket is; in the state folder if unset.
    Start "gateway.socket" => socket: Option<PathBuf> = None, Optional(Folder);
    /// Further names that a `Host` header may give.
    Reload "gateway.allowed_hosts" => allowed_hosts: Vec<String> = Vec::new(), Texts;
    /// Further origins that a browser page may have.
    Reload "gateway.allowed_origins" => allowed_origins: Vec<String> = Vec::new(), Texts;
    /// How long steps in flight may go on after a stop was asked for; if unset as long as the
    /// supervisor allows, 20 s where nobody says.
    Start "gateway.drain_timeout" => drain_timeout: Option<Duration> = None, Optional(Span);
    /// A subscriber that had caught up may fall so many numbers behind the event log.
    Reload "gateway.max_events_behind" => max_events_behind: u32 = 50_000, Count(1, 10_000_000);
    /// A client that takes nothing of what is written to it is given up after so long.
    Start "gateway.write_timeout" => write_timeout: Duration = Duration::from_mins(1), Period;
    /// The agent where none is named.
    Start "defaults.agent" => agent: String = "build".to_owned(), Text;
    /// The model where neither request, session nor agent names one.
    Reload "defaults.model" => model: String = "offline/search".to_owned(), Text;
    /// The models that are asked in its place, in this order, where one has failed for good;
    /// for agents that name none of their own.
    Reload "defaults.fallback_models" => fallback_models: Vec<String> = Vec::new(), Texts;
    /// The limit of a run that names none; `None` (`0`) = no limit.
    Reload "defaults.run_timeout" =>
        run_timeout: Option<Duration> = Some(Duration::from_hours(1)), OrNever;
    /// Levels of spawning below a root session, 0 to 5.
    Reload "defaults.max_spawn_depth" => max_spawn_depth: u32 = 1, Count(0, 5);
    /// Open runs that one session may have asked for.
    Reload "defaults.max_client_children" => max_client_children: u32 = 200, Count(1, 10_000);
    /// Open runs that the runs of one session may have asked for.
    Reload "defaults.max_children" => max_children: u32 = 5, Count(1, 20);
    /// Runs spawned and messages sent below one root run.
    Reload "defaults.max_total_children" => max_total_children: u32 = 100, Count(1, 10_000);
    /// Tokens that a run which nobody's run has asked for may use, with all runs below it; no
    /// limit if unset. A request's own budget narrows it.
    Reload "budgets.tree_tokens" =>
        budget_tree_tokens: Option<u32> = None, Optional(Count(1, u32::MAX));
    /// The same in money, in the currency of `[prices]`.
    Reload "budgets.tree_cost" => budget_tree_cost: Option<f64> = None, Optional(Amount);
    /// How long a call may take that another agent carries out, where neither says otherwise.
    Reload "delegation.timeout" =>
        delegation_timeout: Duration = Duration::from_mins(2), Period;
    /// So many calls of an agent that fail in a row, within `delegation.breaker.window`, and it is
    /// not called any more for `delegation.breaker.cool_off`; 0 = it always is.
    Reload "delegation.breaker.failures" => breaker_failures: u32 = 0, Count(0, 50);
    /// How close together these failures are.
    Reload "delegation.breaker.window" =>
        breaker_window: Duration = Duration::from_mins(5), Period;
    /// How long after the last of them it is not called; then it is tried again.
    Reload "delegation.breaker.cool_off" =>
        breaker_cool_off: Duration = Duration::from_mins(1), Period;
    /// Turns that may wait in one session.
    Reload "defaults.max_queued_turns" => max_queued_turns: u32 = 20, Count(1, 1000);
    /// Runs at once in the lane `main`; 0 = closed.
    Reload "lanes.main" => lane_main: usize = 8, Count(0, 10_000);
    /// Runs at once in the lane `subagent`; 0 = closed.
    Reload "lanes.subagent" => lane_subagent: usize = 8, Count(0, 10_000);
    /// Runs at once in the lane `nested`; 0 = closed.
    Reload "lanes.nested" => lane_nested: usize = 8, Count(0, 10_000);
    /// Runs at once in all lanes together; 0 = closed.
    Reload "lanes.global" => lane_global: usize = 16, Count(0, 10_000);
    /// How far an agent's session sees.
    Reload "sessions.visibility" => visibility: Visibility = Visibility::Tree, VISIBILITY;
    /// In place of `sessions.visibility` for sending.
    Start "sessions.rights.send" => right_send: Option<Visibility> = None, Optional(VISIBILITY);
    /// In place of `sessions.visibility` for listing.
    Start "sessions.rights.list" => right_list: Option<Visibility> = None, Optional(VISIBILITY);
    /// In place of `sessions.visibility` for reading histories.
    Start "sessions.rights.history" =>
        right_history: Option<Visibility> = None, Optional(VISIBILITY);
    /// Patterns of agents that may deal with each other.
    Reload "sessions.agent_to_agent.allow" => agent_to_agent: Vec<String> = Vec::new(), Texts;
    /// Turns of an exchange after the first answer; 0 = none.
    Reload "sessions.max_ping_pong" => max_ping_pong: u32 = 5, Count(0, 5);
    /// A request to a model may have so many tokens; see `sessions.overflow`. What a provider has
    /// counted counts, else four bytes of the Latin alphabet or one other character are a token.
    Reload "sessions.window" => window: u32 = 100_000, Count(500, 100_000_000);
    /// What becomes of a transcript that has outgrown `sessions.window`: its model sees a summary
    /// of the older part (`summarize`), no more of it (`slide`), or all of it (`none`).
    Reload "sessions.overflow" => overflow: Overflow = Overflow::Summarize, OVERFLOW;
    /// The most tokens of its long-term memory that a model is given with what it is asked; 0 =
    /// none.
    Reload "memory.budget" => memory_budget: u32 = 1000, Count(0, 100_000);
    /// So many memories one name space may have.
    Reload "memory.max_entries" => max_memories: u32 = 1000, Count(1, 100_000);
    /// Once more than this was spent in an hour (in the currency of the prices), `usage.alert`
    /// says so; 0 = never.
    Reload "alerts.cost_per_hour" => alert_cost: f64 = 0.0, Amount;
    /// Once so many percent of the runs of an hour have failed (of ten at least), `usage.alert`
    /// says so; 0 = never.
    Reload "alerts.failure_rate" => alert_failures: u32 = 0, Count(0, 100);
    /// How long a person's leave for a call of a tool is waited for; then it is a no.
    Reload "approvals.timeout" =>
        approval_timeout: Duration = Duration::from_mins(10), Period;
    /// The command that notifies a person when something waits or has ended: a program and its
    /// arguments, without a shell; notifications are off if empty.
    Reload "notify.command" => notify_command: Vec<String> = Vec::new(), Texts;
    /// Is it run where a person is needed: for an approval, a question, a value or a review?
    Reload "notify.needs_person" => notify_needs_person: bool = true, Flag;
    /// Is it run where a run has ended that no other run has asked for?
    Reload "notify.ended" => notify_ended: bool = true, Flag;
    /// How long it may take; then it is ended.
    Reload "notify.timeout" => notify_timeout: Duration = Duration::from_secs(10), Period;
    /// Hosts, addresses and networks that fetch may reach although they are not public.
    Start "fetch.allow_private" => fetch_private: Vec<String> = Vec::new(), Texts;
    /// Open runs that were at work and without activity for longer are closed at a start; those
    /// that wait for a person never are.
    Reload "recovery.max_age" => max_age: Duration = Duration::from_hours(7 * 24), Span;
    /// Kills in the middle of the same step that a run survives.
    Reload "recovery.max_attempts" => max_attempts: u32 = 5, Count(1, 100);
    /// How often open rows are compared with live tasks.
    Reload "recovery.compare_each" => compare_each: Duration = Duration::from_secs(30), Period;
    /// How often the used time of live runs is written; a kill loses no more of it.
    Reload "recovery.touch_each" => touch_each: Duration = Duration::from_secs(1), Period;
    /// So many rows of the audit table are kept, the newest.
    Reload "retention.audit_rows" => audit_rows: u32 = 100_000, Count(1, 10_000_000);
    /// With less room on the disk, bytes, no new work is taken and nothing is started; what is
    /// at work may use it to end.
    Start "storage.min_free" => min_free: u64 = 64 << 20, Bytes;
    /// From when on, after a start, the whole store is checked beside the work; `None` (`0`) =
    /// never.
    Start "storage.check_after" =>
        check_after: Option<Duration> = Some(Duration::from_mins(1)), OrNever;
    /// How changes of agent files are noticed: `events`, `poll` or `off`.
    Start "agents.watch" => agents_watch: FileWatch = FileWatch::Events, FILE_WATCH;
    /// How often they are looked at with `poll`.
    Start "agents.poll_each" => agents_poll_each: Duration = Duration::from_secs(2), Period;
    /// How long it must be quiet before changes are taken.
    Start "agents.debounce" => agents_debounce: Duration = Duration::from_millis(250), Span;
    /// Folders of skills beside the usual ones, which win over them.
    Reload "skills.extra_dirs" => skills_extra: Vec<PathBuf> = Vec::new(), Folders;
    /// Do the skills count that are part of the program?
    Reload "skills.bundled" => skills_bundled: bool = true, Flag;
    /// The daemon's own folder of skills; in the state folder if unset.
    Reload "skills.managed_dir" => skills_managed: Option<PathBuf> = None, Optional(Folder);
    /// Do folders `.claude/skills` count, too?
    Reload "skills.claude_dirs" => skills_claude: bool = true, Flag;
    /// Folders to which links in a project's skills may lead, beside its own.
    Reload "skills.link_targets" => skills_links: Vec<PathBuf> = Vec::new(), Folders;
    /// How changes of skills are noticed: `events`, `poll` or `off`.
    Start "skills.watch" => skills_watch: FileWatch = FileWatch::Events, FILE_WATCH;
    /// How often they are looked at with `poll`.
    Start "skills.poll_each" => skills_poll_each: Duration = Duration::from_secs(2), Period;
    /// How long it must be quiet before changes are taken.
    Start "skills.debounce" => skills_debounce: Duration = Duration::from_millis(250), Span;
    /// So many skills of one folder are read.
    Reload "skills.max_per_root" => skills_most: usize = 10_000, Count(1, 100_000);
    /// The most bytes of one `SKILL.md`.
    Reload "skills.max_file_bytes" => skills_bytes: u64 = 1 << 20, Bytes;
    /// So many skills a model is told of.
    Reload "skills.max_in_prompt" => skills_in_prompt: usize = 150, Count(0, 10_000);
    /// The most characters of what it is told of them.
    Reload "skills.prompt_characters" =>
        skills_characters: usize = 18_000, Count(500, 1_000_000);
    /// A spawned session leaves the lists so long after its last run ended; `None` (`0`) =
    /// never.
    Reload "retention.archive_after" =>
        archive_after: Option<Duration> = Some(Duration::from_hours(1)), OrNever;
    /// Ended runs are removed after this long, with their journals; `None` (`0`) = never.
    Reload "retention.runs" =>
        retain_runs: Option<Duration> = Some(Duration::from_hours(30 * 24)), OrNever;
    /// Events are removed after this long; `None` (`0`) = never.
    Reload "retention.events" =>
        retain_events: Option<Duration> = Some(Duration::from_hours(7 * 24)), OrNever;
    /// An idempotency key is known for so long at least.
    Reload "retention.keys" => retain_keys: Duration = Duration::from_hours(24), Span;
    /// How often is looked for what is old enough.
    Reload "retention.sweep_each" => sweep_each: Duration = Duration::from_mins(1), Period;
    /// The folder of sessions that name none.
    Start "workspace.root" => workspace: Option<PathBuf> = None, Optional(Folder);
    /// A pause before each step, so that a person can watch.
    Reload "runner.pace" => pace: Duration = Duration::ZERO, Span;
    /// How long one call of a model may take; for a provider over HTTP, one try of it, unless
    /// its table has a `timeout`.
    Reload "runner.model_timeout" => model_timeout: Duration = Duration::from_mins(10), Span;
    /// How long one call of a tool may take.
    Reload "runner.tool_timeout" => tool_timeout: Duration = Duration::from_mins(1), Span;
    /// Further names of the daemon's environment that programs get which runs start; one that
    /// ends in `*` stands for all that begin so.
    Start "env.pass" => env_pass: Vec<String> = Vec::new(), Texts;
    /// How long a program that was asked to end may take before it is forced. A call returns
    /// within two seconds of its end, so there is a most.
    Start "process.grace" =>
        process_grace: Duration = Duration::from_secs(1), UpTo(MOST_GRACE);
    /// A program that has written more bytes than this is ended.
    Start "process.output_limit" => process_output: u64 = 64 << 20, Bytes;
    /// How long a command of tool `shell` may take where the model does not say.
    Start "shell.timeout" => shell_timeout: Duration = Duration::from_mins(2), Period;
    /// Where spans are sent over OTLP/HTTP, such as `http://127.0.0.1:4318/v1/traces`; nowhere if
    /// unset.
    Start "telemetry.otlp_endpoint" => otlp_endpoint: Option<String> = None, Optional(HttpUrl);
    /// Answers for the provider `script`, which exists for tests.
    Start "providers.script.file" => script: Option<PathBuf> = None, Optional(Folder);

}

/// Is there a setting of this name, or can there be one?
pub(super) fn is_key(key: &str) -> bool {
    KEYS.contains(&key) || named::is_key(key)
}

/// A value as people are shown it: null where there is none, and never a secret.
pub fn shown(key: &str, value: Option<&Value>) -> serde_json::Value {
    let Some(value) = value else {
        return serde_json::Value::Null;
    };
    if let (Value::Table(pairs), true) = (value, hides_values(key)) {
        let hidden = pairs.keys().map(|name| (name.clone(), "[secret]".into()));
        return serde_json::Value::Object(hidden.collect());
    }
    if is_secret(key) {
        return "[secret]".into();
    }
    // Texts, numbers and lists of them: they have a JSON form.
    serde_json::to_value(value).unwrap_or_default()
}

/// Is it a table of which only the names are shown?
pub(super) fn hides_values(key: &str) -> bool {
    key.ends_with(".headers") || key.ends_with(".env")
}

/// Does the name say that the value is not for everybody's eyes? One that only says where the
/// secret is (`…_env`, `…_file`) is.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["key", "token", "secret", "password"]
        .iter()
        .any(|word| name == *word || name.ends_with(&format!("_{word}")))
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
