//! Tables that users name themselves, such as `[providers.NAME]`: their sections, fields and
//! validation. A field's key is `section.NAME.field`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::form::{
    Amount, Auth, AuthNames, BytesUpTo, Count, EventKinds, Flag, Folder, GivenText, GivenVariables,
    HOOK_CHECK, HeaderName, Headers, HttpUrl, Optional, PROVIDER_KIND, Period, ProviderKind,
    ReceiverAddress, SERVER_SCOPE, ServerScope, SessionKeys, SettingForm, Span, Text, Texts,
};
use super::hooks::HookCheck;
use super::template::{SessionTemplate, Template, TextTemplate};
use crate::kernel::secret::{GivenValue, ReceiverUrl, Secret};

/// One block per section: its name, the validation of its table names, and one line per field as in
/// the table of settings. All of them are applied at a reload.
macro_rules! named {
    ($(
        $(#[doc = $about:literal])+
        $section:literal $tables:ident: $table:ident, $check:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:literal => $field:ident: $type:ty = $default:expr, $form:expr;
            )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $table {
                $(
                    #[doc = concat!("`", $key, "`:")]
                    $(#[doc = $doc])+
                    pub $field: $type,
                )+
            }

            impl Default for $table {
                fn default() -> Self {
                    $table { $($field: $default,)+ }
                }
            }

            impl $table {
                const FIELDS: &'static [&'static str] = &[$($key),+];

                fn value(&self, field: &str) -> Option<Value> {
                    match field {
                        $($key => $form.show(&self.$field),)+
                        _ => None,
                    }
                }

                fn set(&mut self, field: &str, value: &Value) -> Result<(), String> {
                    match field {
                        $($key => self.$field = $form.read(value)?,)+
                        _ => return Err("no setting of that name".to_owned()),
                    }
                    Ok(())
                }
            }
        )+

        /// All tables that users have named.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Named {
            $(
                #[doc = concat!("`[", $section, ".NAME]`, by name.")]
                pub $tables: BTreeMap<String, $table>,
            )+
        }

        impl Named {
            /// The key of every field of every table.
            pub(super) fn keys(&self) -> Vec<String> {
                let mut keys = Vec::new();
                $(
                    for name in self.$tables.keys() {
                        for field in $table::FIELDS {
                            keys.push(format!("{}.{name}.{field}", $section));
                        }
                    }
                )+
                keys
            }

            /// Does this table exist, and does it have this field?
            pub(super) fn has(&self, key: &str) -> bool {
                match parts(key) {
                    $(
                        Some(($section, name, field)) => {
                            self.$tables.contains_key(name) && $table::FIELDS.contains(&field)
                        }
                    )+
                    _ => false,
                }
            }

            /// The value in force of a field.
            pub(super) fn value(&self, key: &str) -> Option<Value> {
                let (section, name, field) = parts(key)?;
                match section {
                    $($section => self.$tables.get(name)?.value(field),)+
                    _ => None,
                }
            }

            /// Sets one field; the error says what is expected.
            pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
                let unknown = || "no setting of that name".to_owned();
                let (section, name, field) = parts(key).ok_or_else(unknown)?;
                match section {
                    $(
                        $section => {
                            $check(name)?;
                            let mut table = self.$tables.get(name).cloned().unwrap_or_default();
                            table.set(field, value)?;
                            self.$tables.insert(name.to_owned(), table);
                        }
                    )+
                    _ => return Err(unknown()),
                }
                Ok(())
            }

            /// The existing table that a variable's name means: variables have no capitals and no
            /// hyphens.
            pub(super) fn meant_by(&self, key: &str) -> Option<String> {
                let (section, name, field) = parts(key)?;
                let meant = match section {
                    $($section => self.$tables.keys().find(|known| as_variable(known) == name),)+
                    _ => None,
                };
                Some(format!("{section}.{}.{field}", meant?))
            }
        }

        /// Is it the key of a field of some section, for any table name?
        pub(super) fn is_key(key: &str) -> bool {
            match parts(key) {
                $(Some(($section, _, field)) => $table::FIELDS.contains(&field),)+
                _ => false,
            }
        }

        /// The field keys of this table, if its section exists.
        pub(super) fn keys_like(key: &str) -> Vec<String> {
            match parts(key) {
                $(
                    Some(($section, name, _)) => {
                        let fields = $table::FIELDS.iter();
                        fields.map(|field| format!("{}.{name}.{field}", $section)).collect()
                    }
                )+
                _ => Vec::new(),
            }
        }
    };
}

named! {
    /// A model provider that is called over HTTP.
    "providers" providers: ProviderTable, provider_name {
        /// API protocol: `openai` or `anthropic`. Not needed for tables with these names or
        /// `ollama`.
        "kind" => kind: Option<ProviderKind> = None, Optional(PROVIDER_KIND);
        /// Base URL up to the path of the API. Unset: the usual address of the kind.
        "base_url" => base_url: Option<String> = None, Optional(HttpUrl);
        /// Variable of the daemon's environment that holds the API key. If none of `api_key_env`,
        /// `api_key_file` and `api_key_cred` is set, no key is sent.
        "api_key_env" => api_key_env: Option<String> = None, Optional(Text);
        /// File that holds the API key; it is read at each call.
        "api_key_file" => api_key_file: Option<PathBuf> = None, Optional(Folder);
        /// Name of the supervisor's credential that holds the API key, a file in
        /// `$CREDENTIALS_DIRECTORY`.
        "api_key_cred" => api_key_cred: Option<String> = None, Optional(Text);
        /// Time limit of one attempt of a call. Unset: `runner.model_timeout`.
        "timeout" => timeout: Option<Duration> = None, Optional(Period);
        /// Longest silence before and within an answer. Unset: 1 minute, 5 minutes for `ollama`.
        "stall_timeout" => stall_timeout: Option<Duration> = None, Optional(Period);
        /// Maximum number of retries of a call after transient failures. 0: no retries.
        "retries" => retries: u32 = 4, Count(0, 20);
        /// Wait before the first retry. It doubles each time, up to 30 s; a random jitter of up to
        /// the same length is added.
        "retry_wait" => retry_wait: Duration = Duration::from_millis(500), Period;
        /// Total time that a call may wait for a provider that accepts no requests. The run is
        /// paused meanwhile. 0: it never waits.
        "max_wait" => max_wait: Duration = Duration::from_secs(3600), Span;
        /// Headers sent with each call. Their values are never displayed.
        "headers" => headers: BTreeMap<String, Secret> = BTreeMap::new(), Headers;
        /// Models on offer. Empty: any model.
        "models" => models: Vec<String> = Vec::new(), Texts;
    }
    /// A tool server (MCP): a program that speaks over stdin and stdout, or an HTTP address.
    "mcp" mcp: ServerTable, server_name {
        /// Program to start, by name or path.
        "command" => command: Option<String> = None, Optional(Text);
        /// Arguments of the program.
        "args" => args: Vec<String> = Vec::new(), Texts;
        /// Variables of the server's environment, in addition to those of every program: texts, or
        /// references that are resolved at each start, `{ from = "env:NAME" }`. The values are
        /// never displayed.
        "env" => env: BTreeMap<String, GivenValue> = BTreeMap::new(), GivenVariables;
        /// `shared`: one process for all runs. `run`: one process per run that calls it, in that
        /// run's environment.
        "scope" => scope: ServerScope = ServerScope::Shared, SERVER_SCOPE;
        /// Working folder of the program. Unset: the default workspace.
        "cwd" => cwd: Option<PathBuf> = None, Optional(Folder);
        /// Address of a server over streamable HTTP, instead of a program.
        "url" => url: Option<String> = None, Optional(HttpUrl);
        /// Headers sent with each call. Their values are never displayed.
        "headers" => headers: BTreeMap<String, Secret> = BTreeMap::new(), Headers;
        /// Credentials: `bearer_env` and `header_envs` name variables of the daemon's environment.
        "auth" => auth: Auth = Auth::default(), AuthNames;
        /// Time limit for the server's start. After that it is stopped.
        "start_timeout" => start_timeout: Duration = Duration::from_secs(60), Period;
        /// Time limit of a call without progress.
        "call_timeout" => call_timeout: Duration = Duration::from_secs(60), Period;
    }
    /// A hook: deliveries of other services to `/hooks/NAME` start runs.
    "hooks" hooks: HookTable, webhook_name {
        /// How a delivery proves that its sender has the secret: `github` (`X-Hub-Signature-256`),
        /// `standard` (Standard Webhooks) or `bearer` (`Authorization: Bearer`). Must be set.
        "check" => check: Option<HookCheck> = None, Optional(HOOK_CHECK);
        /// The secret, at least 16 characters: a text, which is never displayed, or a reference
        /// that is read at each delivery, `{ from = "file:/PATH" }`. Must be set.
        "secret" => secret: Option<GivenValue> = None, Optional(GivenText);
        /// Agent that executes the runs. Unset: the default agent, or that of the session.
        "agent" => agent: Option<String> = None, Optional(Text);
        /// Text of the task, with places for fields of the body and headers, such as
        /// `{issue.title}`. Must be set.
        "task" => task: Option<Template> = None, Optional(TextTemplate);
        /// Key of the session in which the task is a turn; it may have places, too. Unset: each
        /// delivery starts a run in a session of its own.
        "session" => session: Option<Template> = None, Optional(SessionTemplate);
        /// Header with the id of a delivery, which must then be sent; the same id starts one run.
        /// Unset: `X-GitHub-Delivery`, `webhook-id` or `Idempotency-Key`, by `check`.
        "idempotency_header" => idempotency_header: Option<String> = None, Optional(HeaderName);
        /// Maximum size of a body, up to 10 MiB.
        "max_body" => max_body: u64 = 1 << 20, BytesUpTo(10 << 20);
    }
    /// Settings of one skill, by its name or key.
    "skills.entries" skills: SkillTable, skill_name {
        /// Whether runs can use the skill.
        "enabled" => enabled: bool = true, Flag;
        /// Variables that the skill adds to the environment of runs that have it: texts, or
        /// references, `{ from = "env:NAME" }`. The values are never displayed.
        "env" => env: BTreeMap<String, GivenValue> = BTreeMap::new(), GivenVariables;
        /// Value of the skill's `primaryEnv` variable: a text, which is never displayed, or `{ from
        /// = "file:/PATH" }`.
        "api_key" => api_key: Option<GivenValue> = None, Optional(GivenText);
        /// Variable of the daemon's environment that holds the value of `primaryEnv`; `api_key`
        /// takes precedence.
        "api_key_env" => api_key_env: Option<String> = None, Optional(Text);
    }
    /// A receiver of events over HTTP.
    "webhooks" webhooks: WebhookTable, webhook_name {
        /// Address that events are sent to, by POST. Its query, such as `?sig=…`, is never displayed.
        "url" => url: Option<ReceiverUrl> = None, Optional(ReceiverAddress);
        /// Kinds of events, or prefixes with a star such as `run.*`. Empty: all.
        "kinds" => kinds: Vec<String> = Vec::new(), EventKinds;
        /// Keys of sessions, or prefixes with a star such as `agent:build:*`. Empty: all, and events
        /// without a session.
        "sessions" => sessions: Vec<String> = Vec::new(), SessionKeys;
        /// Secret that signs messages, `whsec_` and base64: a text, which is never displayed, or
        /// `{ from = "env:NAME" }`. Unset: messages are not signed.
        "secret" => secret: Option<GivenValue> = None, Optional(GivenText);
        /// The former secret, while the receiver changes to the new one: messages have a signature
        /// of each.
        "previous_secret" => previous_secret: Option<GivenValue> = None, Optional(GivenText);
        /// Whether private, loopback and link-local addresses are sent to.
        "allow_private" => allow_private: bool = false, Flag;
        /// Time limit of an attempt.
        "timeout" => timeout: Duration = Duration::from_secs(15), Period;
        /// Maximum number of attempts for an event. After the last one it is a dead letter.
        "attempts" => attempts: u32 = 16, Count(1, 50);
        /// Wait before the second attempt. It doubles each time, up to 6 h, and a random part of up to
        /// a quarter is added.
        "retry_wait" => retry_wait: Duration = Duration::from_secs(5), Period;
    }
    /// Prices of a model per million tokens. All prices must be in one currency.
    "prices" prices: PriceTable, model_name {
        /// Price of a million input tokens.
        "input" => input: f64 = 0.0, Amount;
        /// Price of a million output tokens.
        "output" => output: f64 = 0.0, Amount;
    }
}

/// Splits a key into section, name and field. The name may contain dots, as model names do.
pub(super) fn parts(key: &str) -> Option<(&str, &str, &str)> {
    let (section, rest) = match key.strip_prefix("skills.entries.") {
        Some(rest) => ("skills.entries", rest),
        None => key.split_once('.')?,
    };
    let (name, field) = rest.rsplit_once('.')?;
    (!name.is_empty()).then_some((section, name, field))
}

fn as_variable(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

fn provider_name(name: &str) -> Result<(), String> {
    if ["offline", "script"].contains(&name) {
        return Err(format!(
            "the provider {name} is built in and has no such setting"
        ));
    }
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    match name.len() <= 64 && name.chars().all(fits) {
        true => Ok(()),
        false => {
            Err("a provider's name has at most 64 lowercase letters, digits, - and _".to_owned())
        }
    }
}

fn server_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    match begins && name.len() <= 32 && name.chars().all(fits) && !name.contains("__") {
        true => Ok(()),
        // In a tool's name, `__` separates the server's name from its own name for the tool.
        false => Err(
            "a server's name starts with a lowercase letter and has at most 32 lowercase letters, \
             digits, - and single _"
                .to_owned(),
        ),
    }
}

fn webhook_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    match name.len() <= 64 && name.chars().all(fits) {
        true => Ok(()),
        false => Err(
            "the name of a hook or a webhook has at most 64 lowercase letters, digits, - and _"
                .to_owned(),
        ),
    }
}

fn skill_name(name: &str) -> Result<(), String> {
    match name.chars().any(char::is_control) {
        false => Ok(()),
        true => Err("a skill's name must not contain control characters or line breaks".to_owned()),
    }
}

fn model_name(name: &str) -> Result<(), String> {
    match name.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(()),
        _ => Err("a price table is named after a model, \"provider/name\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_can_be_set_to_what_it_shows() {
        let headers = toml::Table::from_iter([("X-Team".to_owned(), Value::from("a"))]);
        let tried = [
            Value::from("openai"),
            Value::from("github"),
            Value::from("run"),
            Value::from("https://a.example/v1"),
            Value::from("/a/file"),
            Value::from("7s"),
            Value::from(3),
            Value::Table(headers),
            Value::Table(toml::Table::from_iter([(
                "bearer_env".to_owned(),
                Value::from("A"),
            )])),
            Value::from(false),
        ];
        let mut named = Named::default();
        for (table, fields) in [
            ("providers.mine", ProviderTable::FIELDS),
            ("mcp.files", ServerTable::FIELDS),
            ("hooks.issues", HookTable::FIELDS),
            ("prices.a/b-1.5", PriceTable::FIELDS),
            ("skills.entries.a.b", SkillTable::FIELDS),
            ("webhooks.audit", WebhookTable::FIELDS),
        ] {
            for field in fields {
                let key = format!("{table}.{field}");
                assert!(is_key(&key), "{key}");
                let taken = tried.iter().find(|value| named.set(&key, value).is_ok());
                let taken = taken.unwrap_or_else(|| panic!("{key} takes none of them"));
                let shown = named.value(&key).unwrap();
                let before = named.clone();
                named.set(&key, &shown).unwrap();
                assert_eq!(named, before, "{key} = {taken}");
            }
        }
        let tables = [
            ProviderTable::FIELDS,
            ServerTable::FIELDS,
            HookTable::FIELDS,
            SkillTable::FIELDS,
            PriceTable::FIELDS,
            WebhookTable::FIELDS,
        ];
        let keys = tables.iter().map(|fields| fields.len()).sum::<usize>();
        assert_eq!(named.keys().len(), keys);
    }

    #[test]
    fn names_of_tables_are_checked_and_variables_find_them() {
        let mut named = Named::default();
        let kind = Value::from("openai");
        for name in ["Mine", "a b", "script", "offline", "ä"] {
            let key = format!("providers.{name}.kind");
            assert!(named.set(&key, &kind).is_err(), "{name}");
        }
        for name in ["Mine", "a b", "a/b", "ä", "a.b"] {
            let key = format!("hooks.{name}.task");
            assert!(named.set(&key, &kind).is_err(), "{name}");
        }
        for name in ["Files", "1a", "a__b", "_a"] {
            let key = format!("mcp.{name}.command");
            assert!(named.set(&key, &kind).is_err(), "{name}");
        }
        for name in ["Audit", "a b", "ä"] {
            let key = format!("webhooks.{name}.secret");
            assert!(named.set(&key, &kind).is_err(), "{name}");
        }
        assert!(named.set("prices.small.input", &Value::from(1)).is_err());
        assert!(named.set("prices.a/b.input", &Value::from(-1)).is_err());
        named.set("providers.my-team.kind", &kind).unwrap();
        assert_eq!(
            named.meant_by("providers.my_team.timeout").as_deref(),
            Some("providers.my-team.timeout")
        );
        assert_eq!(named.meant_by("providers.other.timeout"), None);
        assert!(!is_key("providers.kind") && !is_key("providers..kind"));
    }

    #[test]
    fn what_stands_in_an_address_or_a_header_is_no_secret_that_gets_out() {
        let mut named = Named::default();
        for url in [
            "https://user:key@a.example/v1",
            "https://a.example/v1?key=x",
            "ftp://a.example",
            "a.example",
            "http://",
        ] {
            let refused = named.set("providers.a.base_url", &Value::from(url));
            assert!(refused.is_err(), "{url}");
        }
        for url in [
            "https://user:key@a.example/hook",
            "https://a.example/hook#a",
            "a?b",
        ] {
            let refused = named.set("webhooks.a.url", &Value::from(url));
            assert!(refused.is_err(), "{url}");
        }
        let url = Value::from("https://a.example/hook?sig=canary@x");
        named.set("webhooks.a.url", &url).unwrap();
        assert_eq!(named.value("webhooks.a.url"), Some(url));
        assert!(!format!("{named:?}").contains("canary"));
        let lines = Value::from("X-Key: canary\nX-Other: b");
        named.set("providers.a.headers", &lines).unwrap();
        assert_eq!(named.providers["a"].headers["X-Key"].expose(), "canary");
        assert!(!format!("{named:?}").contains("canary"));
        let env = Value::from("TOKEN=canary");
        named.set("mcp.a.env", &env).unwrap();
        assert!(!format!("{named:?}").contains("canary"));
        named
            .set("webhooks.a.secret", &Value::from("whsec_canary"))
            .unwrap();
        assert!(!format!("{named:?}").contains("canary"));
        let broken = Value::from("no header");
        assert!(named.set("providers.a.headers", &broken).is_err());
    }
}
