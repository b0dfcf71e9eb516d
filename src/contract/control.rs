//! What a door may ask of the process itself.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use super::BoxFuture;
use super::finding::Finding;
use crate::kernel::fault::Fault;
use crate::kernel::provider_health::Seen;

/// How far the daemon has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Restoring rows; nothing runs yet.
    Starting {
        /// Rows restored.
        done: u64,
        /// Rows to restore.
        total: u64,
    },
    /// The disk is full, and rows are not restored yet: what only reads is answered, and the
    /// rest comes by itself when there is room.
    Full,
    /// At work.
    Ready,
    /// Takes no work, and lets what is under way come to rest.
    Draining,
}

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The file that was read.
    pub file: Option<String>,
    /// Every setting, by key.
    pub settings: Vec<Setting>,
    /// What was not understood.
    pub warnings: Vec<String>,
}

/// One setting in force; secrets are hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name, `section.key`.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: Value,
    /// Where it comes from: `default`, `file`, `variable` or `flag`.
    pub source: &'static str,
    /// Which file, variable or flag that is.
    pub from: Option<String>,
    /// A reload applies a change of it.
    pub live: bool,
    /// What the next start will take in its place.
    pub pending: Option<Value>,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reloaded {
    /// Changes that are in force now.
    pub applied: Vec<Change>,
    /// Changes that wait for the next start.
    pub needs_restart: Vec<Change>,
    /// How many settings are as they were.
    pub unchanged: u32,
    /// What was not understood.
    pub warnings: Vec<String>,
}

/// A setting that was changed; secrets are hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its name.
    pub key: Cow<'static, str>,
    /// The value before.
    pub before: Value,
    /// The value after.
    pub after: Value,
}

/// A provider of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelProvider {
    /// Its name, the part of `provider/name` before the slash.
    pub name: String,
    /// What it speaks: `openai`, `anthropic` or `built-in`.
    pub kind: &'static str,
    /// The models it offers; `name/*` stands for any.
    pub models: Vec<String>,
    /// Why no call can succeed as things are; never a secret.
    pub problem: Option<String>,
    /// How it is with its key; `None`: it was not asked yet, or needs no network.
    pub health: Option<Seen>,
    /// What its models were found not to take, a line each.
    pub learned: Vec<String>,
}

/// What follows a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The process ends.
    Stop,
    /// The process ends and is started again.
    Restart,
    /// Work is taken again.
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

/// An order to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long steps in flight may go on; as configured if unset.
    pub timeout: Option<Duration>,
    /// What follows.
    pub then: Then,
}

/// What a door may ask of the process itself.
pub trait Control: Send + Sync + 'static {
    /// How far the daemon has come.
    fn phase(&self) -> Phase;

    /// What there is to say about the folder, the disk and the system around the process.
    fn surroundings(&self) -> Vec<Finding>;

    /// What works otherwise than the settings say, in a line each.
    fn notices(&self) -> Vec<String>;

    /// Begins a drain; returns at once, with how long steps in flight may go on. While one is
    /// under way already, only one that would resume can be turned into one that ends.
    fn drain(&self, order: Drain) -> Result<Duration, Fault>;

    /// The settings in force.
    fn settings(&self) -> Settings;

    /// Who answers for models.
    fn providers(&self) -> Vec<ModelProvider>;

    /// Reads file and variables again and applies what can be applied without a restart. What
    /// cannot be read or used changes nothing and is a fault that says why.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>>;
}
