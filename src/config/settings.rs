//! All settings, each declared once. A setting that nothing reads does not exist.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::Value;

use super::form::{
    Address, Amount, Bytes, Count, FILE_WATCH, FileWatch, Flag, Folder, Folders, HttpUrl, Networks,
    ON_DISCONNECT, OVERFLOW, Optional, OrNever, Period, SHOWN_TOOL_CALLS, SettingForm, Span, Text,
    Texts, UpTo, VISIBILITY,
};
use super::named::{self, Named};
use super::openai::{OnDisconnect, ShownToolCalls};
use crate::kernel::policy::Visibility;
use crate::kernel::secret::without_query;
use crate::kernel::session::Overflow;

/// Upper limit of `process.grace`.
pub const MAX_GRACE: Duration = Duration::from_millis(1500);

/// When a changed setting takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TakesEffect {
    /// At a reload.
    Reload,
    /// At the next start only.
    Start,
}

/// One line per setting: when a change is applied, its key, its field with type and default, and
/// the form that parses, validates and displays it.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $applied:ident $key:literal => $field:ident: $type:ty = $default:expr, $form:expr;
    )+) => {
        /// All settings in force.
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

        /// The keys that always exist, as `section.key`, in display order.
        pub(super) const KEYS: &[&str] = &[$($key),+];

        /// Does a reload apply a change of this setting?
        pub fn is_live(key: &str) -> bool {
            let applied = match key {
                $($key => TakesEffect::$applied,)+
                _ => return named::is_key(key),
            };
            applied == TakesEffect::Reload
        }

        impl Config {
            /// The keys that exist: the fixed ones and those of the user-named tables.
            pub fn keys(&self) -> Vec<Cow<'static, str>> {
                let always = KEYS.iter().map(|key| Cow::Borrowed(*key));
                always.chain(self.named.keys().into_iter().map(Cow::Owned)).collect()
            }

            /// Does a setting of this key exist now?
            pub fn has(&self, key: &str) -> bool {
                KEYS.contains(&key) || self.named.has(key)
            }

            /// The value in force of one of [`Config::keys`], in the form that [`Config::set`]
            /// accepts; `None` if it is unset and has no default.
            pub fn value(&self, key: &str) -> Option<Value> {
                match key {
                    $($key => $form.show(&self.$field),)+
                    _ => self.named.value(key),
                }
            }

            /// Sets one setting; the error says what is expected. [`is_key`] must hold for the key.
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
    /// TCP address that the daemon listens on. Port 0 picks a free port.
    Start "gateway.listen" =>
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7777)), Address;
    /// Path of the Unix socket. Unset: `abide.sock` in the state folder.
    Start "gateway.socket" => socket: Option<PathBuf> = None, Optional(Folder);
    /// Certificate that TCP connections are encrypted with, as PEM, followed by those that link it
    /// to an authority. Read again at a reload and when it changes. Unset: no TLS.
    Start "gateway.tls_cert_file" => tls_cert_file: Option<PathBuf> = None, Optional(Folder);
    /// Key of the certificate, as PEM, readable by its owner alone. Unset: the key is in the file of
    /// the certificate.
    Start "gateway.tls_key_file" => tls_key_file: Option<PathBuf> = None, Optional(Folder);
    /// Listen without TLS at an address that other machines can reach. They can then read tokens
    /// and all data.
    Start "gateway.allow_plain" => allow_plain: bool = false, Flag;
    /// Addresses and networks of proxies. Only they are believed what `X-Forwarded-For` and
    /// `Forwarded` say about the address of a client.
    Reload "gateway.trusted_proxies" => trusted_proxies: Vec<IpNet> = Vec::new(), Networks;
    /// Additional host names that clients may send in the `Host` header.
    Reload "gateway.allowed_hosts" => allowed_hosts: Vec<String> = Vec::new(), Texts;
    /// Additional origins that browser pages may connect from.
    Reload "gateway.allowed_origins" => allowed_origins: Vec<String> = Vec::new(), Texts;
    /// How long running steps may continue after a stop request, at most as long as the
    /// supervisor's stop timeout allows. Unset: that long, or 20 s without a supervisor's timeout.
    Start "gateway.drain_timeout" => drain_timeout: Option<Duration> = None, Optional(Span);
    /// Maximum number of events that a live subscription may lag behind the event log. A slower
    /// subscription is ended.
    Reload "gateway.max_events_behind" => max_events_behind: u32 = 50_000, Count(1, 10_000_000);
    /// Time limit for a client that reads nothing of what is written to it. After that its
    /// connection is closed.
    Start "gateway.write_timeout" => write_timeout: Duration = Duration::from_mins(1), Period;
    /// Whether clients of the OpenAI-compatible API see the tool calls and the thinking of agents as
    /// reasoning (`reasoning`) or not (`hidden`).
    Reload "openai.tool_calls" =>
        openai_tool_calls: ShownToolCalls = ShownToolCalls::Reasoning, SHOWN_TOOL_CALLS;
    /// What happens to the run of a client of the OpenAI-compatible API that disconnects before the
    /// answer is complete: the run goes on (`continue`) or is cancelled (`cancel`).
    Reload "openai.on_disconnect" =>
        openai_on_disconnect: OnDisconnect = OnDisconnect::Continue, ON_DISCONNECT;
    /// Agent to use when a request names none.
    Start "defaults.agent" => agent: String = "build".to_owned(), Text;
    /// Model to use when neither request, session nor agent names one, as `provider/name`.
    Reload "defaults.model" => model: String = "offline/search".to_owned(), Text;
    /// Models to try, in order, when a model has failed permanently. Used for agents without a list
    /// of their own. Empty: no fallback.
    Reload "defaults.fallback_models" => fallback_models: Vec<String> = Vec::new(), Texts;
    /// Time limit of a run when neither request nor agent sets one. 0: no limit.
    Reload "defaults.run_timeout" =>
        run_timeout: Option<Duration> = Some(Duration::from_hours(1)), OrNever;
    /// Maximum depth of spawned sessions below a root session, 0 to 5. 0: no spawning.
    Reload "defaults.max_spawn_depth" => max_spawn_depth: u32 = 1, Count(0, 5);
    /// Maximum number of open runs that clients may have requested from one session.
    Reload "defaults.max_client_children" => max_client_children: u32 = 200, Count(1, 10_000);
    /// Maximum number of open runs that the runs of one session may have requested.
    Reload "defaults.max_children" => max_children: u32 = 5, Count(1, 20);
    /// Maximum number of runs spawned and messages sent below one root run, ended ones included.
    Reload "defaults.max_total_children" => max_total_children: u32 = 100, Count(1, 10_000);
    /// Token budget of a root run with all its descendants. A request's own budget can only lower
    /// it. Unset: no limit.
    Reload "budgets.tree_tokens" =>
        budget_tree_tokens: Option<u32> = None, Optional(Count(1, u32::MAX));
    /// Cost budget of a root run with all its descendants, in the currency of `[prices]`. Unset: no
    /// limit.
    Reload "budgets.tree_cost" => budget_tree_cost: Option<f64> = None, Optional(Amount);
    /// Time limit of a delegated call when neither the call nor its agent sets one.
    Reload "delegation.timeout" =>
        delegation_timeout: Duration = Duration::from_mins(2), Period;
    /// Circuit breaker: after this many failed calls of an agent in a row within
    /// `delegation.breaker.window`, the agent is not called for `delegation.breaker.cool_off`. 0:
    /// the breaker is off.
    Reload "delegation.breaker.failures" => breaker_failures: u32 = 0, Count(0, 50);
    /// Time window in which the failures must occur to open the circuit breaker.
    Reload "delegation.breaker.window" =>
        breaker_window: Duration = Duration::from_mins(5), Period;
    /// How long the circuit breaker stays open after the last failure. Then the agent is tried
    /// again.
    Reload "delegation.breaker.cool_off" =>
        breaker_cool_off: Duration = Duration::from_mins(1), Period;
    /// Maximum number of turns that may wait in one session.
    Reload "defaults.max_queued_turns" => max_queued_turns: u32 = 20, Count(1, 1000);
    /// Maximum number of concurrent runs in lane `main`. 0: the lane is closed.
    Reload "lanes.main" => lane_main: usize = 8, Count(0, 10_000);
    /// Maximum number of concurrent runs in lane `subagent`. 0: the lane is closed.
    Reload "lanes.subagent" => lane_subagent: usize = 8, Count(0, 10_000);
    /// Maximum number of concurrent runs in lane `nested`. 0: the lane is closed.
    Reload "lanes.nested" => lane_nested: usize = 8, Count(0, 10_000);
    /// Maximum number of concurrent runs in all lanes together. 0: all lanes are closed.
    Reload "lanes.global" => lane_global: usize = 16, Count(0, 10_000);
    /// Sessions that an agent's session may access: `self`, `tree` (also its descendants), `agent`
    /// (also those of the same agent) or `all`.
    Reload "sessions.visibility" => visibility: Visibility = Visibility::Tree, VISIBILITY;
    /// Visibility for sending messages. Unset: `sessions.visibility`.
    Start "sessions.rights.send" => right_send: Option<Visibility> = None, Optional(VISIBILITY);
    /// Visibility for listing sessions. Unset: `sessions.visibility`.
    Start "sessions.rights.list" => right_list: Option<Visibility> = None, Optional(VISIBILITY);
    /// Visibility for reading histories. Unset: `sessions.visibility`.
    Start "sessions.rights.history" =>
        right_history: Option<Visibility> = None, Optional(VISIBILITY);
    /// Name patterns of agents that may access each other's sessions; the names of both must match.
    /// `*` matches any text. Empty: no access between different agents.
    Reload "sessions.agent_to_agent.allow" => agent_to_agent: Vec<String> = Vec::new(), Texts;
    /// Maximum number of reply turns in an exchange after the first answer. 0: none.
    Reload "sessions.max_ping_pong" => max_ping_pong: u32 = 5, Count(0, 5);
    /// Maximum number of tokens of a model request; `sessions.overflow` applies beyond it. Counted
    /// by the provider where possible, otherwise estimated: a token is four ASCII characters or one
    /// other character.
    Reload "sessions.window" => window: u32 = 100_000, Count(500, 100_000_000);
    /// What the model sees when a transcript outgrows `sessions.window`: a summary of the older
    /// part (`summarize`), only the newer part (`slide`), or all of it (`none`).
    Reload "sessions.overflow" => overflow: Overflow = Overflow::Summarize, OVERFLOW;
    /// Maximum number of tokens of long-term memory added to a model request. 0: none.
    Reload "memory.budget" => memory_budget: u32 = 1000, Count(0, 100_000);
    /// Maximum number of memories per namespace.
    Reload "memory.max_entries" => max_memories: u32 = 1000, Count(1, 100_000);
    /// Emits the event `usage.alert` when the cost of an hour exceeds this amount, in the currency
    /// of `[prices]`. 0: never.
    Reload "alerts.cost_per_hour" => alert_cost: f64 = 0.0, Amount;
    /// Emits the event `usage.alert` when this percentage of the runs of an hour has failed, given
    /// at least ten runs. 0: never.
    Reload "alerts.failure_rate" => alert_failures: u32 = 0, Count(0, 100);
    /// How long a tool call waits for a user's approval. After that it is denied.
    Reload "approvals.timeout" =>
        approval_timeout: Duration = Duration::from_mins(10), Period;
    /// Command that notifies a user when something waits for them or has ended: a program and its
    /// arguments, run without a shell. Empty: notifications are off.
    Reload "notify.command" => notify_command: Vec<String> = Vec::new(), Texts;
    /// Notify when a user is needed: for an approval, a question, a missing value or a review.
    Reload "notify.needs_person" => notify_needs_person: bool = true, Flag;
    /// Notify when a run ends that no other run has requested.
    Reload "notify.ended" => notify_ended: bool = true, Flag;
    /// Time limit of the notification command. After that it is stopped.
    Reload "notify.timeout" => notify_timeout: Duration = Duration::from_secs(10), Period;
    /// Hosts, addresses and networks that the tool `fetch` may reach although they are not public.
    Start "fetch.allow_private" => fetch_private: Vec<String> = Vec::new(), Texts;
    /// At a start, open runs without activity for longer than this are closed. Runs that wait for a
    /// user are kept.
    Reload "recovery.max_age" => max_age: Duration = Duration::from_hours(7 * 24), Span;
    /// How many times a run is recovered after the daemon was killed in the middle of the same
    /// step. Then the run fails.
    Reload "recovery.max_attempts" => max_attempts: u32 = 5, Count(1, 100);
    /// How often open rows in the store are compared with live tasks.
    Reload "recovery.compare_each" => compare_each: Duration = Duration::from_secs(30), Period;
    /// How often the elapsed time of live runs is written to the store. A kill loses at most this
    /// much of it.
    Reload "recovery.touch_each" => touch_each: Duration = Duration::from_secs(1), Period;
    /// Maximum number of rows in the audit table. Older ones are removed.
    Reload "retention.audit_rows" => audit_rows: u32 = 100_000, Count(1, 10_000_000);
    /// Minimum free disk space in bytes. Below it no new work is accepted and nothing is started;
    /// running work may use the rest to finish.
    Start "storage.min_free" => min_free: u64 = 64 << 20, Bytes;
    /// Delay after a start until the whole store is checked in the background. 0: never.
    Start "storage.check_after" =>
        check_after: Option<Duration> = Some(Duration::from_mins(1)), OrNever;
    /// How often the daemon makes a backup of its store by itself, if anything has changed. 0:
    /// never.
    Reload "storage.backup_every" =>
        backup_every: Option<Duration> = Some(Duration::from_hours(24)), OrNever;
    /// Folder of these backups. Unset: `backups` in the state folder.
    Reload "storage.backup_dir" => backup_dir: Option<PathBuf> = None, Optional(Folder);
    /// How many of these backups are kept. Older ones are removed.
    Reload "storage.backup_keep" => backup_keep: usize = 3, Count(1, 1000);
    /// How changes of agent files are detected: `events`, `poll` or `off`.
    Start "agents.watch" => agents_watch: FileWatch = FileWatch::Events, FILE_WATCH;
    /// Interval between scans of agent files with `agents.watch = "poll"`.
    Start "agents.poll_each" => agents_poll_each: Duration = Duration::from_secs(2), Period;
    /// How long agent files must be unchanged before a change is read.
    Start "agents.debounce" => agents_debounce: Duration = Duration::from_millis(250), Span;
    /// Additional folders of skills. Skills of the same name in the standard folders take
    /// precedence.
    Reload "skills.extra_dirs" => skills_extra: Vec<PathBuf> = Vec::new(), Folders;
    /// Whether the skills that are built into the program are used.
    Reload "skills.bundled" => skills_bundled: bool = true, Flag;
    /// The daemon's own folder of skills. Unset: `skills` in the state folder.
    Reload "skills.managed_dir" => skills_managed: Option<PathBuf> = None, Optional(Folder);
    /// Whether skills in `.claude/skills` folders are used.
    Reload "skills.claude_dirs" => skills_claude: bool = true, Flag;
    /// Folders outside a project that links in its skills may point to.
    Reload "skills.link_targets" => skills_links: Vec<PathBuf> = Vec::new(), Folders;
    /// How changes of skills are detected: `events`, `poll` or `off`.
    Start "skills.watch" => skills_watch: FileWatch = FileWatch::Events, FILE_WATCH;
    /// Interval at which a connected node is asked again for the programs that skills require.
    Start "nodes.probe_each" => nodes_probe_each: Duration = Duration::from_secs(1800), Period;
    /// Interval between scans of skills with `skills.watch = "poll"`.
    Start "skills.poll_each" => skills_poll_each: Duration = Duration::from_secs(2), Period;
    /// How long skill files must be unchanged before a change is read.
    Start "skills.debounce" => skills_debounce: Duration = Duration::from_millis(250), Span;
    /// Maximum number of skills read from one folder.
    Reload "skills.max_per_root" => skills_most: usize = 10_000, Count(1, 100_000);
    /// Maximum size of one `SKILL.md` in bytes.
    Reload "skills.max_file_bytes" => skills_bytes: u64 = 1 << 20, Bytes;
    /// Maximum number of skills listed in a model's prompt. 0: none.
    Reload "skills.max_in_prompt" => skills_in_prompt: usize = 150, Count(0, 10_000);
    /// Maximum length of the skill list in a model's prompt, in characters.
    Reload "skills.prompt_characters" =>
        skills_characters: usize = 18_000, Count(500, 1_000_000);
    /// How long after its last run a spawned session is archived and leaves the lists. 0: never.
    Reload "retention.archive_after" =>
        archive_after: Option<Duration> = Some(Duration::from_hours(1)), OrNever;
    /// How long ended runs are kept, with their journals. 0: forever.
    Reload "retention.runs" =>
        retain_runs: Option<Duration> = Some(Duration::from_hours(30 * 24)), OrNever;
    /// How long events are kept. 0: forever.
    Reload "retention.events" =>
        retain_events: Option<Duration> = Some(Duration::from_hours(7 * 24)), OrNever;
    /// Minimum time that an idempotency key is remembered.
    Reload "retention.keys" => retain_keys: Duration = Duration::from_hours(24), Span;
    /// How often the store is searched for rows past their retention.
    Reload "retention.sweep_each" => sweep_each: Duration = Duration::from_mins(1), Period;
    /// Working folder of sessions that name none. Unset: `abide/workspace` in the user's data
    /// folder.
    Start "workspace.root" => workspace: Option<PathBuf> = None, Optional(Folder);
    /// Pause before each step, so that a user can follow. 0: none.
    Reload "runner.pace" => pace: Duration = Duration::ZERO, Span;
    /// Time limit of one model call; for a provider over HTTP, of one attempt, unless its table has
    /// a `timeout`.
    Reload "runner.model_timeout" => model_timeout: Duration = Duration::from_mins(10), Span;
    /// Time limit of one tool call, for tools without a limit of their own.
    Reload "runner.tool_timeout" => tool_timeout: Duration = Duration::from_mins(1), Span;
    /// Additional variables of the daemon's environment that are passed to programs started by
    /// runs. A name that ends in `*` matches every name with that prefix.
    Start "env.pass" => env_pass: Vec<String> = Vec::new(), Texts;
    /// How long a program may take to end after SIGTERM before it is killed, at most 1.5 s: a call
    /// must return within two seconds of its end.
    Start "process.grace" =>
        process_grace: Duration = Duration::from_secs(1), UpTo(MAX_GRACE);
    /// Maximum output of a program in bytes. A program that writes more is stopped.
    Start "process.output_limit" => process_output: u64 = 64 << 20, Bytes;
    /// Maximum time that programs of runs go on while no daemon runs. Then they are ended.
    Start "process.orphan_max" =>
        orphan_max: Duration = Duration::from_hours(24), Period;
    /// Time limit of a command of the tool `shell` when the model sets none.
    Start "shell.timeout" => shell_timeout: Duration = Duration::from_mins(2), Period;
    /// Collector that spans are sent to over OTLP/HTTP, such as `http://127.0.0.1:4318/v1/traces`.
    /// Unset: spans are not sent.
    Start "telemetry.otlp_endpoint" => otlp_endpoint: Option<String> = None, Optional(HttpUrl);
    /// File with scripted answers for the provider `script`, which exists for tests.
    Start "providers.script.file" => script: Option<PathBuf> = None, Optional(Folder);

}

/// True if `key` names a setting, also one in a table that does not exist yet.
pub(super) fn is_key(key: &str) -> bool {
    KEYS.contains(&key) || named::is_key(key)
}

/// A value as displayed to users: null if there is none, and never a secret.
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
    if let Some(text) = value.as_str().filter(|_| has_query(key, value)) {
        return without_query(text).into();
    }
    // Texts, numbers and lists of them always have a JSON form.
    serde_json::to_value(value).unwrap_or_default()
}

/// True if `key` is a table of which only the names are displayed, never the values.
pub(super) fn hides_values(key: &str) -> bool {
    key.ends_with(".headers") || key.ends_with(".env")
}

/// True if the value is an address with a query, which is never displayed.
pub(super) fn has_query(key: &str, value: &Value) -> bool {
    key.ends_with("url") && value.as_str().is_some_and(|text| text.contains('?'))
}

/// Does the name say that the value is secret? A name that only locates the secret (`…_env`,
/// `…_file`) does not.
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
                // Unset: a path or a duration. Once set, it is displayed.
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
        let url = Value::from("https://a.example/hook?sig=canary");
        assert_eq!(
            shown("webhooks.a.url", Some(&url)),
            "https://a.example/hook?[secret]"
        );
    }
}
