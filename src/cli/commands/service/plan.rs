//! What `abide service install` decides and records in the unit: the program, the folders, and the
//! variables that a service would not have.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::manager::InstallScope;
use super::paths;
use crate::cli::commands::serve;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
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

/// A plan, with what the operator should know about it.
pub(super) struct PlannedService {
    /// The plan.
    pub(super) plan: ServicePlan,
    /// The state folder that it means.
    pub(super) state: PathBuf,
    /// Remarks, a sentence each.
    pub(super) remarks: Vec<String>,
}

impl PlannedService {
    /// The plan for a service that behaves as `abide serve` would here.
    pub(super) fn here(
        scope: InstallScope,
        common: &Common,
        hardening: HardeningProfile,
        with_sockets: bool,
    ) -> Result<PlannedService, Failure> {
        let (program, mut remarks) = paths::program()?;
        let default_state = paths::default_state(scope)?;
        let mut plan = ServicePlan {
            program,
            state_dir: None,
            config: None,
            environment: BTreeMap::new(),
            hardening,
            listen: Vec::new(),
        };
        let loaded = match scope {
            InstallScope::User => {
                let state = common.place.state_dir()?;
                plan.state_dir = (state != default_state).then_some(state);
                plan.config = SettingsSource::find(None)
                    .file
                    .filter(|file| Some(file) != paths::default_config().as_ref());
                let loaded = serve::settings(None)?;
                plan.environment = variables(&loaded)?;
                remarks.extend(left_out(&loaded));
                loaded
            }
            InstallScope::Machine => {
                if common.place.state_dir()? != Common::default().place.state_dir()? {
                    return Err(Failure::usage(
                        "the machine-wide service keeps its state in /var/lib/abide; omit --state-dir",
                    ));
                }
                serve::settings(Some(paths::machine_config())).unwrap_or_default()
            }
        };
        if let Some(path) = std::env::var_os("PATH") {
            let path = text(path, "PATH")?;
            plan.environment.insert("PATH".to_owned(), path);
        }
        let state = plan.state_dir.clone().unwrap_or(default_state);
        if with_sockets {
            plan.listen = listen(scope, &state, &loaded.config)?;
        }
        Ok(PlannedService {
            plan,
            state,
            remarks,
        })
    }
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

/// The text of a variable. A unit cannot have control characters.
fn text(value: std::ffi::OsString, name: &str) -> Result<String, Failure> {
    value
        .into_string()
        .ok()
        .filter(|text| !text.chars().any(char::is_control))
        .ok_or_else(|| {
            Failure::usage(format!(
                "{name} has control characters or is no UTF-8, so it cannot be recorded in a unit"
            ))
        })
}

/// What the manager shall listen on: the socket where clients look for it, and the address.
fn listen(
    scope: InstallScope,
    state: &std::path::Path,
    config: &Config,
) -> Result<Vec<String>, Failure> {
    let socket = match (&config.socket, scope) {
        (Some(socket), _) => socket.clone(),
        (None, InstallScope::User) => state.join("abide.sock"),
        (None, InstallScope::Machine) => PathBuf::from("/run/abide/abide.sock"),
    };
    let socket = socket.into_os_string();
    Ok(vec![
        text(socket, "the socket's path")?,
        config.listen.to_string(),
    ])
}
