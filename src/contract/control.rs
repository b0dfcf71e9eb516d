//! Operations on the daemon process that the gateway may call.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::BoxFuture;
use super::finding::Finding;
use crate::kernel::fault::Fault;
use crate::kernel::provider_health::HealthReport;
use crate::kernel::text::text_enum::text_enum;

/// The startup and shutdown phase of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Restoring rows; no run is executed yet.
    Starting {
        /// Rows restored.
        done: u64,
        /// Rows to restore.
        total: u64,
    },
    /// The disk is full, and rows are not restored yet. Read-only calls are answered; the restore
    /// continues by itself when there is space.
    Full,
    /// Accepting and executing work.
    Ready,
    /// Accepts no work; running steps may finish.
    Draining,
}

/// Result of `gateway.config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Config")]
pub struct EffectiveSettings {
    /// Path of the configuration file that was read; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Every setting, sorted by key.
    pub settings: Vec<Setting>,
    /// Parts of the configuration that were not understood.
    pub warnings: Vec<String>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Name of the setting, `section.key`.
    pub key: Cow<'static, str>,
    /// Value in force; null if unset, `[secret]` if the value is secret.
    pub value: Value,
    /// Origin of the value: `default`, `file`, `variable` or `flag`.
    pub source: Cow<'static, str>,
    /// Name of that file, variable or flag; absent for `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True if a reload applies changes; false if they need a restart.
    pub live: bool,
    /// Value that the next start will use; absent if it equals `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Value>,
}

/// Result of `gateway.reload`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Changes that are now in force.
    pub applied: Vec<SettingChange>,
    /// Changes that take effect at the next start.
    pub needs_restart: Vec<SettingChange>,
    /// Number of settings that did not change.
    pub unchanged: u32,
    /// Parts of the configuration that were not understood.
    pub warnings: Vec<String>,
}

/// A setting whose value changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingChange {
    /// Name of the setting, `section.key`.
    pub key: Cow<'static, str>,
    /// Previous value.
    pub before: Value,
    /// New value.
    pub after: Value,
}

text_enum! {
    /// What happened to the file of a running program.
    ProgramChange {
        /// Another file is at its path.
        Replaced = "replaced",
        /// No file is at its path.
        Removed = "removed",
    }
}

/// The file of the running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    /// The path that it was started from.
    pub path: PathBuf,
    /// What happened to it since; `None` if nothing.
    pub change: Option<ProgramChange>,
}

/// A provider of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelProvider {
    /// Its name, the part of `provider/name` before the slash.
    pub name: String,
    /// Its API protocol: `openai`, `anthropic` or `built-in`.
    pub kind: &'static str,
    /// The models it offers; `name/*` stands for any.
    pub models: Vec<String>,
    /// Why no call can succeed at present; never contains a secret.
    pub problem: Option<String>,
    /// Its last observed health with its key; `None` if it was not called yet, or needs no network.
    pub health: Option<HealthReport>,
    /// Request features that its models were found to reject, one line each.
    pub learned: Vec<String>,
}

text_enum! {
    /// What follows a drain.
    Then {
        /// The process exits.
        Stop = "stop",
        /// The process exits and is started again.
        Restart = "restart",
        /// The daemon accepts work again.
        Resume = "resume",
    }
}

/// A request to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long running steps may continue; as configured if unset.
    pub timeout: Option<Duration>,
    /// What follows the drain.
    pub then: Then,
}

/// Numbers about what surrounds the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurroundingGauges {
    /// Free bytes on the disk of the state folder, if known.
    pub free_bytes: Option<u64>,
    /// Watchers that check their folders at intervals, because file events are unavailable.
    pub polling_watchers: u64,
}

/// Operations on the daemon process that the gateway may call. Implemented by the daemon.
pub trait Control: Send + Sync + 'static {
    /// The current phase.
    fn phase(&self) -> Phase;

    /// Findings about the state folder, the disk, the system, providers and tool servers.
    fn surroundings(&self) -> Vec<Finding>;

    /// Numbers about the surroundings, for the metrics.
    fn gauges(&self) -> SurroundingGauges;

    /// The file of the running program; `None` if this system cannot tell.
    fn program(&self) -> Option<ProgramFile>;

    /// What differs at present from the settings, one line each.
    fn notices(&self) -> Vec<String>;

    /// Starts a drain and returns at once with the time limit of running steps. During a drain the
    /// only accepted request turns one that would resume into one that ends the process.
    fn drain(&self, order: Drain) -> Result<Duration, Fault>;

    /// The settings in force.
    fn settings(&self) -> EffectiveSettings;

    /// The model providers.
    fn providers(&self) -> Vec<ModelProvider>;

    /// Reads file and variables again and applies what needs no restart. If they are unreadable or
    /// invalid, nothing changes and the fault says why.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>>;
}
