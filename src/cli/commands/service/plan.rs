//! What `abide service install` decides and records in the unit: the program, the folders, and the
//! variables that a service would not have.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manager::InstallScope;
use super::paths;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::config::{Config, Loaded, SettingsSource};

/// How strictly systemd confines the machine-wide service. The variants have no doc comments, since those
/// would be a list of its own in the help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum HardeningProfile {
    // Confines the daemon and its programs as far as every interpreter still works.
    #[default]
    Standard,
    // Also forbids what just-in-time compilers, debuggers and sandboxes of programs need.
    Strict,
}

/// What an installed service was installed with; the default is that of a unit which was copied from the
/// package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServicePlan {
    /// The program, at a path that stays valid after an upgrade.
    pub(super) program: PathBuf,
    /// The state folder; `None`: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state_dir: Option<PathBuf>,
    /// The configuration file; `None`: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<PathBuf>,
    /// Variables of the service, by name. No secrets: units are readable.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// The hardening profile, for a machine-wide unit of systemd.
    #[serde(default)]
    pub(super) hardening: HardeningProfile,
    /// What the manager listens on for the daemon; empty without socket activation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) listen: Vec<String>,
}

/// Variables beside the settings that change what a daemon does.
const RECORDED: [&str; 4] = ["ABIDE_LOG", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TZ"];

/// What the command line chooses; `None`: as the installed service, else the default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceChoices {
    /// The hardening profile.
    pub(super) hardening: Option<HardeningProfile>,
    /// Whether the service manager listens.
    pub(super) with_sockets: Option<bool>,
}

/// A plan, with what the operator should know about it.
pub(super) struct PlannedService {
    /// The plan.
    pub(super) plan: ServicePlan,
    /// The state folder that it means.
    pub(super) state: PathBuf,
    /// What is as in the installed service, although this command line does not choose it.
    pub(super) kept: Vec<String>,
    /// Remarks, a sentence each.
    pub(super) remarks: Vec<String>,
}

impl PlannedService {
    /// The plan for a service that behaves as `abide serve` would here, and otherwise as the installed
    /// one, which was installed with `before`.
    pub(super) fn here(
        scope: InstallScope,
        common: &Common,
        choices: ServiceChoices,
        before: Option<ServicePlan>,
    ) -> Result<PlannedService, Failure> {
        let before = before.unwrap_or_default();
        let (program, remarks) = paths::program()?;
        checked(&program, "the program's path")?;
        let default_state = paths::default_state(scope)?;
        let mut planned = PlannedService {
            plan: ServicePlan {
                program,
                ..ServicePlan::default()
            },
            state: default_state.clone(),
            kept: Vec::new(),
            remarks,
        };
        let config = match scope {
            InstallScope::User => planned.of_user(common, &default_state, &before)?,
            InstallScope::Machine => planned.of_machine(common)?,
        };
        planned.plan.hardening = choices.hardening.unwrap_or_else(|| {
            if before.hardening == HardeningProfile::Strict {
                planned.kept.push("--hardening strict".to_owned());
            }
            before.hardening
        });
        if let Some(path) = std::env::var_os("PATH") {
            let path = text(path, "PATH")?;
            planned.plan.environment.insert("PATH".to_owned(), path);
        }
        let with_sockets = choices.with_sockets.unwrap_or_else(|| {
            let had = !before.listen.is_empty();
            planned
                .kept
                .extend(had.then(|| "--socket-activation".to_owned()));
            had
        });
        if with_sockets {
            planned.plan.listen = listen(scope, &planned.state, &config)?;
        }
        Ok(planned)
    }

    /// Decides folders and variables of a user's service; returns its settings.
    fn of_user(
        &mut self,
        common: &Common,
        default_state: &Path,
        before: &ServicePlan,
    ) -> Result<Config, Failure> {
        let state = common.place.state_dir()?;
        self.plan.state_dir = (state != default_state).then_some(state);
        if self.plan.state_dir.is_none() && !common.place.names_folder() {
            self.plan.state_dir = before.state_dir.clone();
            self.keep("state folder", before.state_dir.as_deref());
        }
        let mut source = SettingsSource::find(None);
        let file = source.file.clone();
        self.plan.config = file.filter(|file| Some(file) != paths::default_config().as_ref());
        if self.plan.config.is_none() && !source.named && before.config.is_some() {
            self.plan.config = before.config.clone();
            self.keep("settings in", before.config.as_deref());
            source = SettingsSource::find(before.config.clone());
        }
        if let Some(state) = &self.plan.state_dir {
            checked(state, "the state folder's path")?;
            self.state.clone_from(state);
        }
        if let Some(config) = &self.plan.config {
            checked(config, "the path of the settings")?;
        }
        // An empty variable in this terminal drops a recorded one.
        let kept = before
            .environment
            .iter()
            .filter(|(name, _)| name.as_str() != "PATH" && std::env::var_os(name).is_none());
        let kept: BTreeMap<String, String> = kept
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let own = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        let own = own.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let loaded = load(&source, own.chain(kept.clone()))?;
        self.plan.environment = variables(&loaded)?;
        self.kept
            .extend(kept.iter().map(|(name, value)| format!("{name}={value}")));
        self.plan.environment.extend(kept);
        self.remarks.extend(left_out(&loaded));
        Ok(loaded.config)
    }

    /// Checks what the machine-wide service, which has its own folders, cannot record; returns its
    /// settings.
    fn of_machine(&mut self, common: &Common) -> Result<Config, Failure> {
        if common.place.folder_of_flag().is_some() {
            return Err(Failure::usage(format!(
                "the machine-wide service keeps its state in {}; omit --state-dir",
                paths::MACHINE_STATE
            )));
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let mut ignored: Vec<String> = names.filter(|name| is_of_users_service(name)).collect();
        ignored.sort();
        if !ignored.is_empty() {
            self.remarks.push(format!(
                "not recorded: {}. The machine-wide service has {}, and its settings in {}",
                ignored.join(", "),
                paths::MACHINE_STATE,
                paths::machine_config().display()
            ));
        }
        machine_settings(&paths::machine_config())
    }

    /// Reports a path that the installed service has.
    fn keep(&mut self, what: &str, path: Option<&Path>) {
        self.kept
            .extend(path.map(|path| format!("{what} {}", path.display())));
    }
}

/// Would a user's service record this variable?
fn is_of_users_service(name: &str) -> bool {
    let is_setting = name.starts_with("ABIDE_") && name.contains("__");
    is_setting || ["ABIDE_STATE_DIR", "ABIDE_CONFIG", "ABIDE_LOG"].contains(&name)
}

/// The settings of the machine-wide service: this terminal's variables do not reach it. A missing file is
/// none.
fn machine_settings(file: &Path) -> Result<Config, Failure> {
    let source = SettingsSource {
        file: Some(file.to_owned()),
        named: file.try_exists().unwrap_or(true),
        flags: Vec::new(),
    };
    load(&source, std::iter::empty()).map(|loaded| loaded.config)
}

fn load(
    source: &SettingsSource,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, Failure> {
    source.load_as(variables).map_err(|error| {
        let message = format!("{error}. The daemon would not start with it. Nothing was changed");
        Failure::new(exit::CONFIG, "config", message).hint("correct it: abide config check")
    })
}

/// The variables of this terminal that a service would not have, and that change what it does.
fn variables(loaded: &Loaded) -> Result<BTreeMap<String, String>, Failure> {
    let settings = loaded.variables();
    let names = RECORDED.iter().map(|name| (*name).to_owned());
    let names = names.chain(settings.into_values().map(str::to_owned));
    let mut found = BTreeMap::new();
    for name in names {
        if let Some(value) = std::env::var_os(&name).filter(|value| !value.is_empty()) {
            let value = text(value, &name)?;
            found.insert(name, value);
        }
    }
    Ok(found)
}

/// What is set here and is not recorded, because it is secret.
fn left_out(loaded: &Loaded) -> Vec<String> {
    let providers = loaded.config.named.providers.values();
    let keys = providers.filter_map(|provider| provider.api_key_env.clone());
    let mut names: Vec<String> = keys
        .chain(loaded.secret_variables().into_iter().map(str::to_owned))
        .filter(|name| std::env::var_os(name).is_some())
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "not recorded, because a unit is no place for secrets: {}. Put NAME=value lines into {} (mode \
         600), or set api_key_file",
        names.join(", "),
        paths::SECRETS
    )]
}

/// Refuses a path that a unit cannot have.
fn checked(path: &Path, what: &str) -> Result<(), Failure> {
    text(path.as_os_str().to_owned(), what).map(drop)
}

/// The text of a variable or path. A unit cannot have control characters.
fn text(value: OsString, what: &str) -> Result<String, Failure> {
    value
        .into_string()
        .ok()
        .filter(|text| !text.chars().any(char::is_control))
        .ok_or_else(|| {
            Failure::usage(format!(
                "{what} has control characters or is not UTF-8, so it cannot be recorded in a unit. \
                 Nothing was changed"
            ))
        })
}

/// What the manager shall listen on: the address, and for a user's service the socket where clients look
/// for it. The machine-wide daemon opens its socket itself, in its state folder: systemd does not know its
/// user before it starts, and a socket of root would be closed to programs of runs.
fn listen(scope: InstallScope, state: &Path, config: &Config) -> Result<Vec<String>, Failure> {
    let address = config.listen.to_string();
    if scope == InstallScope::Machine {
        return Ok(vec![address]);
    }
    let socket = config.socket.clone();
    let socket = socket.unwrap_or_else(|| state.join("abide.sock"));
    Ok(vec![
        text(socket.into_os_string(), "the socket's path")?,
        address,
    ])
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn paths_that_a_unit_cannot_have_are_refused() {
        for bytes in [&b"/a\nExecStart=/bin/true"[..], b"/a\xff", b"/a\tb"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let refused = checked(&path, "the state folder's path").unwrap_err();
            assert_eq!(refused.code, exit::USAGE, "{refused}");
            assert!(refused.message.starts_with("the state folder's path has"));
        }
        assert_eq!(checked(Path::new("/a b/\u{e9}"), "it"), Ok(()));
    }

    #[test]
    fn invalid_settings_of_the_machine_wide_service_are_an_error_and_missing_ones_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abide.toml");
        assert_eq!(machine_settings(&file).unwrap(), Config::default());
        std::fs::write(&file, "[gateway]\nlisten = \"nowhere\"\n").unwrap();
        let refused = machine_settings(&file).unwrap_err();
        assert_eq!(refused.code, exit::CONFIG);
        let named = file.display().to_string();
        assert!(refused.message.contains(&named), "{refused}");
        std::fs::write(&file, "[gateway]\nlisten = \"127.0.0.1:7000\"\n").unwrap();
        let config = machine_settings(&file).unwrap();
        let all = listen(InstallScope::Machine, Path::new("/s"), &config).unwrap();
        assert_eq!(all, ["127.0.0.1:7000"]);
        let all = listen(InstallScope::User, Path::new("/s"), &config).unwrap();
        assert_eq!(all, ["/s/abide.sock", "127.0.0.1:7000"]);
    }
}
