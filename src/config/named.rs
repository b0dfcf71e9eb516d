//! Tables that users name themselves, such as `[providers.NAME]`: which there may be, what may
//! stand in each, and its check. A field's key is `section.NAME.field`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::form::{
    Amount, Auth, AuthNames, Count, Flag, Folder, Form, GivenText, GivenVariables, Headers,
    HttpUrl, Optional, PROVIDER_KIND, Period, ProviderKind, SERVER_SCOPE, ServerScope, Span, Text,
    Texts,
};
use crate::kernel::secret::{Given, Secret};

/// One block a section: its name, the check of its tables' names, and one line a field as in
/// the table of the settings. All of them are applied at a reload.
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

            /// Is there a table with this field?
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

            /// The value in force.
            pub(super) fn value(&self, key: &str) -> Option<Value> {
                let (section, name, field) = parts(key)?;
                match section {
                    $($section => self.$tables.get(name)?.value(field),)+
                    _ => None,
                }
            }

            /// Takes one setting; the fault says what is expected.
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

            /// A variable's name has no capitals and no hyphens: the table that it means.
            pub(super) fn meant_by(&self, key: &str) -> Option<String> {
                let (section, name, field) = parts(key)?;
                let meant = match section {
                    $($section => self.$tables.keys().find(|known| as_variable(known) == name),)+
                    _ => None,
                };
                Some(format!("{section}.{}.{field}", meant?))
            }
        }

        /// Is it the key of a field of a table, whatever the table's name?
        pub(super) fn is_key(key: &str) -> bool {
            match parts(key) {
                $(Some(($section, _, field)) => $table::FIELDS.contains(&field),)+
                _ => false,
            }
        }

        /// The keys that a field of this table can have, if it is a table of a section.
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
    /// A provider of models over HTTP.
    "providers" providers: ProviderTable, provider_name {
        /// What it speaks: `openai` or `anthropic`. Tables of these names, and `ollama`, need
        /// not say.
        "kind" => kind: Option<ProviderKind> = None, Optional(PROVIDER_KIND);
        /// Where it is, up to the path of the API; if unset the usual address of the kind.
        "base_url" => base_url: Option<String> = None, Optional(HttpUrl);
        /// The variable of the daemon's environment that has its key. Without any of these
        /// three no key is sent.
        "api_key_env" => api_key_env: Option<String> = None, Optional(Text);
        /// The file that has its key, read at each call.
        "api_key_file" => api_key_file: Option<PathBuf> = None, Optional(Folder);
        /// The supervisor's credential that is its key (`$CREDENTIALS_DIRECTORY`).
        "api_key_cred" => api_key_cred: Option<String> = None, Optional(Text);
        /// How long one try of a call may take; if unset `runner.model_timeout`.
        "timeout" => timeout: Option<Duration> = None, Optional(Period);
        /// The longest pause before and within an answer; if unset 1 minute, and 5 for `ollama`.
        "stall_timeout" => stall_timeout: Option<Duration> = None, Optional(Period);
        /// So often a call that failed in passing is tried again.
        "retries" => retries: u32 = 4, Count(0, 20);
        /// The pause before the first of them; it doubles each time, up to 30 s, and up to as
        /// much again is added by chance.
        "retry_wait" => retry_wait: Duration = Duration::from_millis(500), Period;
        /// How long a call may wait in all for a provider that takes no requests; its run is
        /// paused meanwhile. 0: it never waits.
        "max_wait" => max_wait: Duration = Duration::from_secs(3600), Span;
        /// Headers that go with each call. Their values are not shown.
        "headers" => headers: BTreeMap<String, Secret> = BTreeMap::new(), Headers;
        /// The models that are offered; if empty any.
        "models" => models: Vec<String> = Vec::new(), Texts;
    }
    /// A server of tools (MCP): a program that is talked with over its pipes, or an address.
    "mcp" mcp: ServerTable, server_name {
        /// The program, by name or path.
        "command" => command: Option<String> = None, Optional(Text);
        /// Its arguments.
        "args" => args: Vec<String> = Vec::new(), Texts;
        /// What it gets beside what every program gets of the environment: texts, or where a
        /// value is read from at each of its starts, `{ from = "env:NAME" }`. The values are not
        /// shown.
        "env" => env: BTreeMap<String, Given> = BTreeMap::new(), GivenVariables;
        /// For whom it is started: once for everybody (`shared`), or for each run that calls it,
        /// in the environment of that run (`run`).
        "scope" => scope: ServerScope = ServerScope::Shared, SERVER_SCOPE;
        /// Its folder; if unset the folder of runs that name none.
        "cwd" => cwd: Option<PathBuf> = None, Optional(Folder);
        /// Where it is, in place of a program: streamable HTTP.
        "url" => url: Option<String> = None, Optional(HttpUrl);
        /// Headers that go with each call. Their values are not shown.
        "headers" => headers: BTreeMap<String, Secret> = BTreeMap::new(), Headers;
        /// By what it knows its caller: `bearer_env` and `header_envs` name variables of the
        /// daemon's environment.
        "auth" => auth: Auth = Auth::default(), AuthNames;
        /// How long its start may take; then it is ended.
        "start_timeout" => start_timeout: Duration = Duration::from_secs(60), Period;
        /// How long a call may take without any progress.
        "call_timeout" => call_timeout: Duration = Duration::from_secs(60), Period;
    }
    /// What is said of a skill, by its name or its key.
    "skills.entries" skills: SkillTable, skill_name {
        /// Do runs have it?
        "enabled" => enabled: bool = true, Flag;
        /// What it gives to the environment of runs that have it: texts, or where a value is
        /// read from, `{ from = "env:NAME" }`. The values are not shown.
        "env" => env: BTreeMap<String, Given> = BTreeMap::new(), GivenVariables;
        /// Its key, which its `primaryEnv` gets: a text, which is not shown, or
        /// `{ from = "file:/PATH" }`.
        "api_key" => api_key: Option<Given> = None, Optional(GivenText);
        /// The variable of the daemon's environment that has its key.
        "api_key_env" => api_key_env: Option<String> = None, Optional(Text);
    }
    /// What a model costs, in any one currency, for a million tokens.
    "prices" prices: PriceTable, model_name {
        /// Of what it is sent.
        "input" => input: f64 = 0.0, Amount;
        /// Of what it answers.
        "output" => output: f64 = 0.0, Amount;
    }
}

/// Section, name and field. A name may have dots, as models' names do.
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
        false => Err(
            "a provider's name has small letters, digits, - and _, 64 of them at most".to_owned(),
        ),
    }
}

fn server_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    match begins && name.len() <= 32 && name.chars().all(fits) && !name.contains("__") {
        true => Ok(()),
        // What follows `__` in the name of a tool is the server's own name for it.
        false => Err(
            "a server's name begins with a small letter and has small letters, digits, - and \
             single _, 32 of them at most"
                .to_owned(),
        ),
    }
}

fn skill_name(name: &str) -> Result<(), String> {
    match name.chars().any(char::is_control) {
        false => Ok(()),
        true => Err("a skill's name is one line".to_owned()),
    }
}

fn model_name(name: &str) -> Result<(), String> {
    match name.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(()),
        _ => Err("prices are of models, \"provider/name\"".to_owned()),
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
            ("prices.a/b-1.5", PriceTable::FIELDS),
            ("skills.entries.a.b", SkillTable::FIELDS),
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
            SkillTable::FIELDS,
            PriceTable::FIELDS,
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
        for name in ["Files", "1a", "a__b", "_a"] {
            let key = format!("mcp.{name}.command");
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
        let lines = Value::from("X-Key: canary\nX-Other: b");
        named.set("providers.a.headers", &lines).unwrap();
        assert_eq!(named.providers["a"].headers["X-Key"].expose(), "canary");
        assert!(!format!("{named:?}").contains("canary"));
        let env = Value::from("TOKEN=canary");
        named.set("mcp.a.env", &env).unwrap();
        assert!(!format!("{named:?}").contains("canary"));
        let broken = Value::from("no header");
        assert!(named.set("providers.a.headers", &broken).is_err());
    }
}
