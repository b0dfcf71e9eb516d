//! Sources of the settings: a file, this process's environment variables, and command-line flags.
//! Read at start, at a reload, and by `abide config check`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toml::Value;

use super::load::{ConfigError, Loaded, load, load_text};
use super::settings::{is_live, shown};

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The built-in default.
    #[default]
    Default,
    /// The file at this path.
    File(String),
    /// The environment variable of this name.
    Variable(String),
    /// The command-line flag of this name.
    Flag(&'static str),
}

impl ValueOrigin {
    /// `default`, `file`, `variable` or `flag`.
    pub fn kind(&self) -> &'static str {
        match self {
            ValueOrigin::Default => "default",
            ValueOrigin::File(_) => "file",
            ValueOrigin::Variable(_) => "variable",
            ValueOrigin::Flag(_) => "flag",
        }
    }

    /// The path of the file, or the name of the variable or flag; `None` for a default.
    pub fn name(&self) -> Option<&str> {
        match self {
            ValueOrigin::Default => None,
            ValueOrigin::File(name) | ValueOrigin::Variable(name) => Some(name),
            ValueOrigin::Flag(name) => Some(name),
        }
    }
}

/// A value given on the command line; it takes precedence over file and variables.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagValue {
    /// The key of the setting.
    pub key: &'static str,
    /// The flag's name, such as `--listen`.
    pub name: &'static str,
    /// The value to set.
    pub value: Value,
}

/// The sources of the settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsSource {
    /// The file, if one was named or a standard path exists for this user.
    pub file: Option<PathBuf>,
    /// The user named the file, so it must exist.
    pub named: bool,
    /// The values given on the command line.
    pub flags: Vec<FlagValue>,
}

impl SettingsSource {
    /// The file `named` on the command line, else the one that `ABIDE_CONFIG` names, else
    /// `abide/abide.toml` in the configuration folder, which may be missing.
    pub fn find(named: Option<PathBuf>) -> SettingsSource {
        let named = named.or_else(|| std::env::var_os("ABIDE_CONFIG").map(PathBuf::from));
        let is_named = named.is_some();
        // The daemon displays this path, so it must not depend on the current folder.
        let named = named.map(|path| std::path::absolute(&path).unwrap_or(path));
        SettingsSource {
            file: named.or_else(usual_file),
            named: is_named,
            flags: Vec::new(),
        }
    }

    /// Reads all sources again.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        self.with_flags(load(self.file.as_deref(), self.named, variables())?)
    }

    /// As [`SettingsSource::load`], with these variables in place of this process's: the settings of
    /// another process.
    pub fn load_as(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Loaded, ConfigError> {
        self.with_flags(load(self.file.as_deref(), self.named, variables)?)
    }

    /// What [`Source::load`] would return if its file contained `text`.
    pub fn load_with(&self, text: &str) -> Result<Loaded, ConfigError> {
        let path = self.file.as_deref().unwrap_or(Path::new("abide.toml"));
        self.with_flags(load_text(path, text, variables())?)
    }

    fn with_flags(&self, mut loaded: Loaded) -> Result<Loaded, ConfigError> {
        for flag in &self.flags {
            loaded.flag(flag)?;
        }
        loaded.check()?;
        Ok(loaded)
    }
}

/// This process's variables. Those that are not UTF-8 cannot be settings.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The configuration folder of this user, `~/.config/abide` by default; `None` if it is unknown.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".config")))
        .map(|folder| folder.join("abide"))
}

fn usual_file() -> Option<PathBuf> {
    folder().map(|folder| folder.join("abide.toml"))
}

/// One setting as displayed to users and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownSetting {
    /// The key of the setting.
    pub key: Cow<'static, str>,
    /// Its value; null if there is none, `[secret]` if it is never displayed.
    pub value: Json,
    /// The origin of the value.
    pub origin: ValueOrigin,
    /// A reload applies a change of it.
    pub live: bool,
}

impl Loaded {
    /// Every setting, in the order in which they are documented.
    pub fn shown(&self) -> impl Iterator<Item = ShownSetting> + '_ {
        self.config.keys().into_iter().map(|key| ShownSetting {
            value: shown(&key, self.config.value(&key).as_ref()),
            origin: self.origin(&key),
            live: is_live(&key),
            key,
        })
    }
}
