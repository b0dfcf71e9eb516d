//! `abide config set|unset`: validates a change of one setting, writes it to the file and reloads
//! the daemon. `abide mcp add` writes its table the same way.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::file::{ConfigFile, SettingEdits};
use super::text;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::config::{self, ConfigError, Loaded, SettingEdit, SettingsSource, ValueOrigin};
use crate::wire::config::{Config as InForce, GetConfig, ReloadConfig, Reloaded, Setting};

/// A configuration file to change, and the daemon that reads it, if one is running.
pub(in crate::cli) struct ConfigWriter {
    file: ConfigFile,
    source: SettingsSource,
    link: Option<DaemonLink>,
}

impl ConfigWriter {
    /// Opens the file `named`, else the one that the running daemon reads, else the default one.
    pub(in crate::cli) async fn open(
        common: &Common,
        command: &'static str,
        named: Option<PathBuf>,
    ) -> Result<ConfigWriter, Failure> {
        common.place.refuse_address(command, "--config FILE")?;
        let mut link = match DaemonLink::open(&common.place).await {
            Ok(link) => Some(link),
            Err(failure) if failure.code == exit::NO_DAEMON => None,
            Err(failure) => return Err(failure),
        };
        // A relative path is unusable here: the daemon's working directory is unknown.
        let of_daemon = match &link {
            Some(link) => in_force(link).await?.file.map(PathBuf::from),
            None => None,
        };
        let of_daemon = of_daemon.filter(|path| path.is_absolute());
        let mut source = SettingsSource::find(named);
        if source.named && of_daemon.is_some() && source.file != of_daemon {
            // The file belongs to another daemon.
            link = None;
        } else if of_daemon.is_some() {
            source.file = of_daemon;
        }
        let Some(path) = &source.file else {
            return Err(Failure::new(
                exit::CONFIG,
                "config",
                "the location of the configuration file is unknown",
            )
            .hint("set HOME, or name a file: --config FILE"));
        };
        Ok(ConfigWriter {
            file: ConfigFile::open(path)?,
            source,
            link,
        })
    }

    /// The file contains the first of these changes that passes validation once this returns `Ok`;
    /// the flag tells whether the text changed. Otherwise nothing is changed, and the failure is
    /// that of the first attempt whose values had the right form, else of the last one.
    pub(in crate::cli) fn write(
        &mut self,
        tries: Vec<SettingEdits<'_>>,
    ) -> Result<(Loaded, bool), Failure> {
        let mut refused: Option<Failure> = None;
        for changes in tries {
            let source = &self.source;
            let judge = |new: &str| source.load_with(new).map_err(NotTaken);
            match self.file.change(&changes, judge) {
                Ok(done) => return Ok(done),
                Err(failure) if failure.kind == UNFIT => return Err(failure),
                Err(failure) => refused = Some(failure),
            }
        }
        Err(refused.unwrap_or_else(|| Failure::usage("no value was given")))
    }

    /// The running daemon has reloaded the file once this returns; `None` if no daemon reads it. If
    /// the daemon refuses, the file is restored.
    pub(in crate::cli) async fn reload(&mut self) -> Result<Option<Reloaded>, Failure> {
        let Some(link) = &self.link else {
            return Ok(None);
        };
        let reloaded = link.ask(&ReloadConfig {}).await;
        reloaded
            .map(Some)
            .map_err(|failure: Failure| failure.hint(self.file.put_back()))
    }

    /// True if the file has this table or setting.
    pub(in crate::cli) fn has(&self, path: &[&str]) -> bool {
        self.file.has(path)
    }

    /// Connection to the daemon that reads the file.
    pub(in crate::cli) fn link(&self) -> Option<&DaemonLink> {
        self.link.as_ref()
    }

    /// Path of the file, for display.
    pub(in crate::cli) fn path(&self) -> String {
        self.file.path().display().to_string()
    }

    /// True if the file did not exist before the change.
    pub(in crate::cli) fn is_new(&self) -> bool {
        !self.file.was_there()
    }
}

/// Failure kind of a value that does not fit to other settings.
const UNFIT: &str = "settings_conflict";

/// Why a text was rejected as configuration.
struct NotTaken(ConfigError);

impl From<NotTaken> for Failure {
    fn from(NotTaken(why): NotTaken) -> Failure {
        match why {
            ConfigError::Value { key, reason, .. } => Failure::usage(format!("{key}: {reason}")),
            ConfigError::Together(reason) => Failure::new(exit::CONFIG, UNFIT, reason),
            other => Failure::new(exit::CONFIG, "config", other.to_string()),
        }
        .hint("nothing was changed")
    }
}

/// Runs `abide config set KEY VALUE…`, or `unset` if `words` is `None`.
pub(super) async fn run(
    common: &Common,
    key: &str,
    words: Option<Vec<String>>,
    named: Option<PathBuf>,
) -> Result<u8, Failure> {
    if let Some(why) = config::unknown(key) {
        return Err(Failure::usage(why).hint("list all settings: abide config check"));
    }
    let command = match words {
        Some(_) => "config set",
        None => "config unset",
    };
    let mut writer = ConfigWriter::open(common, command, named).await?;
    let changes = match &words {
        Some(words) => SettingEdit::meant(words),
        None => vec![SettingEdit::Unset],
    };
    let tries = changes.into_iter();
    let tries = tries.map(|change| vec![(config::path(key), change)]);
    let (loaded, is_changed) = writer.write(tries.collect())?;
    if is_changed {
        writer.reload().await?;
    }
    let said = SettingEffect::of(&writer, key, &loaded).await?;
    if common.json {
        print::object(&json!({
            "key": key,
            "value": said.value,
            "file": writer.path(),
            "changed": is_changed,
            "inForce": said.in_force,
            "source": said.from,
        }))?;
        return Ok(0);
    }
    let done = match (is_changed, &words) {
        (false, Some(_)) => "already set in",
        (false, None) => "was not set in",
        (true, Some(_)) => "written to",
        (true, None) => "removed from",
    };
    let value = match &words {
        Some(_) => format!(" = {}", text(&said.value)),
        None => String::new(),
    };
    print::folded(&clean(&format!(
        "{key}{value}: {done} {}{}",
        writer.path(),
        if is_changed && writer.is_new() {
            " (new)"
        } else {
            ""
        }
    )))?;
    print::note(&clean(&said.note(key)));
    Ok(0)
}

async fn in_force(link: &DaemonLink) -> Result<InForce, Failure> {
    link.ask(&GetConfig {}).await
}

/// Effect of a changed setting.
struct SettingEffect {
    /// Its value in the file, or its default.
    value: Value,
    /// `now`, `next_start`, or `overridden` by a variable or flag.
    in_force: &'static str,
    /// The variable or flag that overrides the file.
    from: Option<String>,
    /// The effective value of an overridden setting.
    counts: Value,
    has_daemon: bool,
}

impl SettingEffect {
    async fn of(
        writer: &ConfigWriter,
        key: &str,
        loaded: &Loaded,
    ) -> Result<SettingEffect, Failure> {
        let mut known = loaded.shown().filter(|setting| setting.key == key);
        let here = known.next();
        let value = here.as_ref().map_or(Value::Null, |here| here.value.clone());
        let mut said = SettingEffect {
            value: value.clone(),
            in_force: "next_start",
            from: None,
            counts: value,
            has_daemon: writer.link.is_some(),
        };
        let Some(link) = &writer.link else {
            if let Some(ValueOrigin::Variable(name)) = here.map(|here| here.origin) {
                said.in_force = "overridden";
                said.from = Some(name);
            }
            return Ok(said);
        };
        let settings = in_force(link).await?.settings;
        let Some(setting) = settings.into_iter().find(|setting| setting.key == key) else {
            // A removed table of user-defined entries.
            said.in_force = "now";
            return Ok(said);
        };
        said.judge(setting);
        Ok(said)
    }

    fn judge(&mut self, setting: Setting) {
        match &*setting.source {
            "variable" | "flag" => {
                self.in_force = "overridden";
                self.from = setting.from;
            }
            _ if setting.pending.is_none() && setting.value == self.value => {
                self.in_force = "now";
            }
            _ => {}
        }
        self.counts = setting.value;
    }

    fn note(&self, key: &str) -> String {
        let from = self.from.as_deref().unwrap_or_default();
        match (self.in_force, self.has_daemon) {
            ("now", _) => "the daemon uses it now".to_owned(),
            ("overridden", true) => format!(
                "{from} overrides the file for this daemon: {key} = {} applies",
                text(&self.counts)
            ),
            ("overridden", false) => {
                format!("{from} is set in this shell and overrides the file there")
            }
            (_, true) => {
                "it takes effect when the daemon restarts: abide stop && abide serve --detach"
                    .to_owned()
            }
            (_, false) => "no daemon runs with this file; the next one will use it".to_owned(),
        }
    }
}
