//! Reads the settings from file and variables, validates each, and warns about unknown ones.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Value;

use super::named;
use super::settings::{Config, KEYS, has_query, hides_values, is_key, is_secret};
use super::source::{FlagValue, ValueOrigin};
use crate::file_work::read_regular;
use crate::kernel::fault::Fault;

/// Maximum size of a settings file in bytes.
const LIMIT: usize = 4 << 20;

/// A configuration that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The settings in force.
    pub config: Config,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Settings that are unknown, each with the nearest known name. They stay in the file.
    pub warnings: Vec<String>,
    /// The origin of each value that is not the default.
    origins: BTreeMap<String, ValueOrigin>,
}

impl Loaded {
    /// The origin of the value of `key`.
    pub fn origin(&self, key: &str) -> ValueOrigin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// The path of the file, as text.
    pub fn file_name(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.display().to_string())
    }

    /// The variables whose values are in force, by key: name of the variable. Without secret ones.
    pub fn variables(&self) -> BTreeMap<&str, &str> {
        let public = |key: &str| {
            let value = self.config.value(key);
            !is_secret(key)
                && !hides_values(key)
                && value.is_none_or(|value| !has_query(key, &value))
        };
        let named = self.origins.iter().filter_map(variable);
        named.filter(|(key, _)| public(key)).collect()
    }

    /// The names of the variables whose values are in force and secret.
    pub fn secret_variables(&self) -> Vec<&str> {
        let public = self.variables();
        let named = self.origins.iter().filter_map(variable);
        named
            .filter(|(key, _)| !public.contains_key(key))
            .map(|(_, name)| name)
            .collect()
    }

    /// Copies the value of `key` and its origin from `other`.
    pub fn take_from(&mut self, other: &Loaded, key: &str) -> Result<(), Fault> {
        if let Some(value) = other.config.value(key) {
            self.config.set(key, &value).map_err(Fault::internal)?;
        }
        match other.origins.get(key) {
            Some(origin) => self.origins.insert(key.to_owned(), origin.clone()),
            None => self.origins.remove(key),
        };
        Ok(())
    }

    /// Copies the user-named tables from `other`. All are replaced, since a table may have been
    /// removed.
    pub fn take_named_from(&mut self, other: &Loaded) {
        self.config.named = other.config.named.clone();
        self.origins.retain(|key, _| !named::is_key(key));
        let named = other.origins.iter().filter(|(key, _)| named::is_key(key));
        self.origins
            .extend(named.map(|(key, origin)| (key.clone(), origin.clone())));
    }

    /// Checks the settings that depend on each other.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        if config.tls_key_file.is_some() && config.tls_cert_file.is_none() {
            return Err(ConfigError::Together(
                "gateway.tls_key_file is the key of no certificate: set gateway.tls_cert_file, too"
                    .to_owned(),
            ));
        }
        if config.exposes(config.listen) {
            return Err(ConfigError::Together(format!(
                "other machines can reach gateway.listen = {}, so it needs TLS: set \
                 gateway.tls_cert_file and gateway.tls_key_file (abide tls new makes both); or let \
                 others on the network read tokens and all data: gateway.allow_plain = true",
                config.listen
            )));
        }
        for (name, hook) in &config.named.hooks {
            hook.is_complete()
                .map_err(|why| ConfigError::Together(format!("hooks.{name}.{why}")))?;
        }
        Ok(())
    }

    /// Applies a command-line flag, which takes precedence over file and variables.
    pub(super) fn flag(&mut self, flag: &FlagValue) -> Result<(), ConfigError> {
        take(flag.key, &flag.value, &ValueOrigin::Flag(flag.name), self)
    }
}

/// Key and name of a variable, if the value came from one.
fn variable<'a>((key, origin): (&'a String, &'a ValueOrigin)) -> Option<(&'a str, &'a str)> {
    match origin {
        ValueOrigin::Variable(name) => Some((key, name)),
        _ => None,
    }
}

impl Config {
    /// Would listening there let others on the network read tokens and data? True for an address
    /// that other machines reach, without TLS and without `gateway.allow_plain`.
    pub fn exposes(&self, address: SocketAddr) -> bool {
        let is_reachable = !address.ip().to_canonical().is_loopback();
        is_reachable && self.tls_cert_file.is_none() && !self.allow_plain
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The named file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The system's error message.
        reason: String,
    },
    /// The file is not valid TOML.
    #[error("{path} is not TOML: {reason}")]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The parser's message with the position.
        reason: String,
    },
    /// A setting has an invalid value.
    #[error("{source_name}: {key} = {value}: {reason}")]
    Value {
        /// The file or variable that sets it.
        source_name: String,
        /// The key of the setting.
        key: String,
        /// The value found, or `[secret]`.
        value: String,
        /// What is expected.
        reason: String,
    },
    /// Settings that do not fit together.
    #[error("{0}")]
    Together(String),
}

/// Reads `file` (a missing one is an error only when `required`) and the `ABIDE_*` variables among
/// `variables`, which take precedence.
pub fn load(
    file: Option<&Path>,
    required: bool,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, ConfigError> {
    let mut loaded = Loaded::default();
    if let Some(path) = file {
        read_file(path, required, &mut loaded)?;
    }
    read_variables(variables, &mut loaded)?;
    Ok(loaded)
}

/// Like [`load`], as if the file at `path` contained `text`.
pub fn load_text(
    path: &Path,
    text: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, ConfigError> {
    let mut loaded = Loaded::default();
    read_text(path, text, &mut loaded)?;
    read_variables(variables, &mut loaded)?;
    Ok(loaded)
}

/// What is wrong with a key that is not a setting; `None` if it is one.
pub fn unknown(key: &str) -> Option<String> {
    if is_key(key) {
        return None;
    }
    Some(match nearest(key) {
        Some(known) => format!("no setting {key:?}; did you mean {known:?}?"),
        None => format!("no setting {key:?}"),
    })
}

fn read_file(path: &Path, required: bool, loaded: &mut Loaded) -> Result<(), ConfigError> {
    let read = check_writers(path, loaded).and_then(|()| read_regular(path, LIMIT));
    let read = read.and_then(|bytes| match bytes.len() {
        0..=LIMIT => String::from_utf8(bytes).map_err(io::Error::other),
        _ => Err(io::Error::other(format!("it is larger than {LIMIT} bytes"))),
    });
    let text = match read {
        Ok(text) => text,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound && !required => return Ok(()),
        Err(fault) => {
            return Err(ConfigError::Unreadable {
                path: path.to_owned(),
                reason: fault.to_string(),
            });
        }
    };
    read_text(path, &text, loaded)
}

fn read_text(path: &Path, text: &str, loaded: &mut Loaded) -> Result<(), ConfigError> {
    let table: toml::Table =
        text.parse()
            .map_err(|fault: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                reason: syntax(text, fault.span(), fault.message()),
            })?;
    loaded.file = Some(path.to_owned());
    let origin = ValueOrigin::File(path.display().to_string());
    walk("", &Value::Table(table), &origin, loaded)
}

/// The position in `text`, and what is wrong there. The line itself may have a secret.
pub(super) fn syntax(text: &str, place: Option<Range<usize>>, what: &str) -> String {
    let what = what.replace('\n', ", ");
    let before = place.and_then(|place| text.get(..place.start));
    let Some(before) = before else {
        return what;
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("line {line}, column {column}: {what}")
}

/// Settings name programs to start, so a file that other users could have written is refused.
fn check_writers(path: &Path, loaded: &mut Loaded) -> io::Result<()> {
    let about = std::fs::metadata(path)?;
    let own = rustix::process::geteuid();
    // Root acts for other users.
    let is_trusted = about.uid() == own.as_raw() || about.uid() == 0 || own.is_root();
    let mode = about.mode() & 0o777;
    let shown = path.display();
    if !is_trusted {
        return Err(io::Error::other(format!(
            "it is owned by user {}, who could have added any command to it. Take it over once you \
             have checked its contents: chown {} {shown}",
            about.uid(),
            own.as_raw()
        )));
    }
    if mode & 0o002 != 0 {
        return Err(io::Error::other(format!(
            "any user can write to it (mode {mode:o}) and could have added any command to it. \
             Check its contents, then: chmod go-w {shown}"
        )));
    }
    // With one group per user, no other user is in this group.
    if mode & 0o020 != 0 && about.gid() != about.uid() {
        loaded.warnings.push(format!(
            "{shown}: its group can write to it (mode {mode:o}) and add any command; run: chmod \
             g-w {shown}"
        ));
    }
    Ok(())
}

/// Applies each setting of a table and of the tables in it.
fn walk(
    key: &str,
    value: &Value,
    origin: &ValueOrigin,
    loaded: &mut Loaded,
) -> Result<(), ConfigError> {
    if let (Value::Table(table), false) = (value, is_key(key)) {
        for (name, value) in table {
            let below = if key.is_empty() {
                name.clone()
            } else {
                format!("{key}.{name}")
            };
            walk(&below, value, origin, loaded)?;
        }
        return Ok(());
    }
    take(key, value, origin, loaded)
}

fn take(
    key: &str,
    value: &Value,
    origin: &ValueOrigin,
    loaded: &mut Loaded,
) -> Result<(), ConfigError> {
    let source = match origin {
        ValueOrigin::Variable(name) => format!("variable {name}"),
        origin => origin.name().unwrap_or_default().to_owned(),
    };
    if let Some(why) = unknown(key) {
        loaded.warnings.push(format!("{source}: {why}"));
        return Ok(());
    }
    let set = loaded.config.set(key, value);
    set.map_err(|reason| ConfigError::Value {
        source_name: source,
        key: key.to_owned(),
        value: match is_secret(key) || hides_values(key) || may_hold_secret(key, value) {
            true => "[secret]".to_owned(),
            false => value.to_string(),
        },
        reason,
    })?;
    loaded.origins.insert(key.to_owned(), origin.clone());
    Ok(())
}

/// True for an address with a part that may be a secret, however wrong it is otherwise.
fn may_hold_secret(key: &str, value: &Value) -> bool {
    key.ends_with("url")
        && value
            .as_str()
            .is_some_and(|text| text.contains(['?', '#', '@']))
}

fn read_variables(
    variables: impl Iterator<Item = (String, String)>,
    loaded: &mut Loaded,
) -> Result<(), ConfigError> {
    for (name, text) in variables {
        read_variable(&name, &text, loaded)?;
    }
    Ok(())
}

/// `ABIDE_GATEWAY__LISTEN` is `gateway.listen`. Names without `__` are not settings.
fn read_variable(name: &str, text: &str, loaded: &mut Loaded) -> Result<(), ConfigError> {
    let Some(rest) = name.strip_prefix("ABIDE_") else {
        return Ok(());
    };
    if !rest.contains("__") {
        return Ok(());
    }
    let key = rest.to_ascii_lowercase().replace("__", ".");
    let key = loaded.config.named.meant_by(&key).unwrap_or(key);
    let value = match text.parse::<i64>() {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::String(text.to_owned()),
    };
    take(
        &key,
        &value,
        &ValueOrigin::Variable(name.to_owned()),
        loaded,
    )
}

/// The known key closest to `key`, if one is close enough.
fn nearest(key: &str) -> Option<String> {
    KEYS.iter()
        .map(|known| (*known).to_owned())
        .chain(named::keys_like(key))
        .map(|known| (strsim::levenshtein(key, &known), known))
        .filter(|(distance, known)| *distance * 3 <= known.len())
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn from(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.toml");
        std::fs::write(&path, text).unwrap();
        let variables = variables
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        load(Some(&path), true, variables)
    }

    #[test]
    fn a_file_that_others_could_have_written_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.toml");
        std::fs::write(&path, "lanes.global = 4\n").unwrap();
        let load = || super::load(Some(&path), true, std::iter::empty());
        let set = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o644);
        assert_eq!(load().unwrap().warnings, Vec::<String>::new());
        for mode in [0o666, 0o602, 0o646] {
            set(mode);
            let refused = load().unwrap_err().to_string();
            assert!(refused.contains("any user can write to it"), "{refused}");
            assert!(refused.contains("chmod go-w"), "{refused}");
        }
        set(0o664);
        let own = rustix::process::geteuid();
        if own.is_root() {
            chown(&path, Some(0), Some(65534)).unwrap();
            let warned = load().unwrap().warnings;
            assert!(
                warned[0].contains("its group can write to it"),
                "{warned:?}"
            );
        }
    }

    #[test]
    fn a_variable_wins_over_the_file_and_the_file_over_the_default() {
        let loaded = from(
            "[lanes]\nmain = 2\nsubagent = 3\n[defaults]\nrun_timeout = \"90s\"\n",
            &[
                ("ABIDE_LANES__MAIN", "5"),
                ("ABIDE_URL", "http://x"),
                ("HOME", "/"),
            ],
        )
        .unwrap();
        assert_eq!(
            (loaded.config.lane_main, loaded.config.lane_subagent),
            (5, 3)
        );
        assert_eq!(loaded.config.run_timeout, Some(Duration::from_secs(90)));
        assert_eq!(loaded.warnings, [] as [String; 0]);
    }

    #[test]
    fn g1_12_an_unknown_key_is_kept_and_reported_with_the_nearest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.toml");
        let text = "[gateway]\nlistn = \"127.0.0.1:1\"\n[zoo]\nlion = 1\n";
        std::fs::write(&path, text).unwrap();
        let loaded = load(Some(&path), true, std::iter::empty()).unwrap();
        assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
        assert!(loaded.warnings[0].contains("did you mean \"gateway.listen\"?"));
        assert!(loaded.warnings[1].contains("zoo.lion"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn g3_3_zero_means_no_limit_and_unset_the_default() {
        let unset = from("", &[]).unwrap().config;
        assert_eq!(unset.run_timeout, Some(Duration::from_secs(3600)));
        let zero = from("[defaults]\nrun_timeout = 0\n", &[]).unwrap().config;
        assert_eq!(zero.run_timeout, None);
    }

    #[test]
    fn a_wrong_value_names_file_key_value_and_what_is_expected() {
        for (text, expected) in [
            ("[lanes]\nmain = -1\n", "from 0 to 10000"),
            ("[defaults]\nrun_timeout = \"soon\"\n", "a duration"),
            ("[gateway]\nlisten = \"here\"\n", "an address"),
            ("[workspace]\nroot = \"relative\"\n", "an absolute path"),
            ("[defaults]\nmax_spawn_depth = 6\n", "from 0 to 5"),
            ("[agents]\nwatch = \"no\"\n", "one of events, poll, off"),
            ("[agents]\npoll_each = 0\n", "more than 0"),
        ] {
            let fault = from(text, &[]).unwrap_err().to_string();
            assert!(fault.contains("abide.toml"), "{fault}");
            assert!(fault.contains(expected), "{fault}");
        }
        assert!(matches!(from("[", &[]), Err(ConfigError::Syntax { .. })));
    }

    #[test]
    fn a_refused_address_and_a_line_that_is_no_toml_are_not_repeated() {
        for text in [
            "[providers.a]\nbase_url = \"https://a.example/v1?key=canary\"\n",
            "[webhooks.a]\nurl = \"ftp://a.example/hook?sig=canary\"\n",
            "[webhooks.a]\nurl = \"https://user:canary@a.example\"\n",
            "[webhooks.a]\nurl = \"https://a.example/hook?sig=canary\n",
        ] {
            let refused = from(text, &[]).unwrap_err().to_string();
            assert!(!refused.contains("canary"), "{refused}");
        }
        let refused = from("[lanes]\nmain = \"2\n", &[]).unwrap_err().to_string();
        assert!(
            refused.contains("is not TOML: line 2, column "),
            "{refused}"
        );
    }

    #[test]
    fn the_variable_of_an_address_with_a_query_is_a_secret_one() {
        let url = "https://a.example/hook?sig=canary";
        let table = "[webhooks.a]\nkinds = []\n";
        let loaded = from(table, &[("ABIDE_WEBHOOKS__A__URL", url)]).unwrap();
        assert_eq!(loaded.secret_variables(), ["ABIDE_WEBHOOKS__A__URL"]);
        let plain = &url[..url.len() - "?sig=canary".len()];
        let loaded = from(table, &[("ABIDE_WEBHOOKS__A__URL", plain)]).unwrap();
        assert_eq!(loaded.secret_variables(), [] as [&str; 0]);
    }

    #[test]
    fn every_key_is_taken() {
        for key in KEYS {
            let taken = [
                Value::Integer(1),
                Value::Integer(1000),
                Value::String("slide".to_owned()),
                Value::String("/a:1".to_owned()),
                Value::String("127.0.0.1:1".to_owned()),
                Value::String("127.0.0.1".to_owned()),
                Value::String("poll".to_owned()),
                Value::String("hidden".to_owned()),
                Value::String("cancel".to_owned()),
                Value::String("tree".to_owned()),
                Value::String("http://127.0.0.1:1/a".to_owned()),
                Value::Integer(1000),
                Value::Boolean(false),
            ]
            .iter()
            .any(|value| Config::default().set(key, value).is_ok());
            assert!(taken, "{key}");
        }
    }

    #[test]
    fn a_missing_file_is_an_error_only_when_it_was_named() {
        let path = Path::new("/nonexistent/abide.toml");
        assert!(load(Some(path), false, std::iter::empty()).is_ok());
        assert!(matches!(
            load(Some(path), true, std::iter::empty()),
            Err(ConfigError::Unreadable { .. })
        ));
    }
}
