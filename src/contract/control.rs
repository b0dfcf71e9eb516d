//! Operations on the daemon process that the gateway may call.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::BoxFuture;
use super::finding::Finding;
use crate::kernel::fault::Fault;
use crate::kernel::provider_health::HealthReport;

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

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The path of the settings file that was read.
    pub file: Option<String>,
    /// All settings, in display order.
    pub settings: Vec<Setting>,
    /// Warnings about unknown settings.
    pub warnings: Vec<String>,
}

/// One setting in force; secrets are hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its key, `section.key`.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: Value,
    /// Its origin: `default`, `file`, `variable` or `flag`.
    pub source: &'static str,
    /// The file, variable or flag that sets it.
    pub from: Option<String>,
    /// A reload applies a change of it.
    pub live: bool,
    /// The value that the next start will apply, if it differs.
    pub pending: Option<Value>,
}

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reloaded {
    /// Changes that are in force now.
    pub applied: Vec<Change>,
    /// Changes that take effect at the next start.
    pub needs_restart: Vec<Change>,
    /// Number of unchanged settings.
    pub unchanged: u32,
    /// Warnings about unknown settings.
    pub warnings: Vec<String>,
}

/// A setting that was changed; secrets are hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its key.
    pub key: Cow<'static, str>,
    /// The previous value.
    pub before: Value,
    /// The new value.
    pub after: Value,
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

/// What follows a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The process ends.
    Stop,
    /// The process ends and is started again.
    Restart,
    /// The daemon accepts work again.
    Resume,
}

impl Then {
    /// The word on the wire and in the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Then::Stop => "stop",
            Then::Restart => "restart",
            Then::Resume => "resume",
        }
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

/// Operations on the daemon process that the gateway may call. Implemented by the daemon.
pub trait Control: Send + Sync + 'static {
    /// The current phase.
    fn phase(&self) -> Phase;

    /// Findings about the state folder, the disk, the system, providers and tool servers.
    fn surroundings(&self) -> Vec<Finding>;

    /// What differs at present from the settings, one line each.
    fn notices(&self) -> Vec<String>;

    /// Starts a drain and returns at once with the time limit of running steps. During a drain the
    /// only accepted request turns one that would resume into one that ends the process.
    fn drain(&self, order: Drain) -> Result<Duration, Fault>;

    /// The settings in force.
    fn settings(&self) -> Settings;

    /// The model providers.
    fn providers(&self) -> Vec<ModelProvider>;

    /// Reads file and variables again and applies what needs no restart. If they are unreadable or
    /// invalid, nothing changes and the fault says why.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>>;
}
