//! `gateway.config` and `gateway.reload`: the settings in force, and reading them again.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shapes::Word;

/// What `gateway.config` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The file that was read; none if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Every setting, by key.
    pub settings: Vec<Setting>,
    /// What was not understood.
    pub warnings: Vec<String>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its name, `section.key`.
    pub key: Cow<'static, str>,
    /// The value in force; null if there is none, `[secret]` for one that is not shown.
    pub value: Value,
    /// Where it comes from: `default`, `file`, `variable` or `flag`.
    pub source: Word,
    /// Which file, variable or flag that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// A reload applies a change of it; others wait for the next start.
    pub live: bool,
    /// What the next start will take in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Value>,
}

/// What `gateway.reload` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
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

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its name.
    pub key: Cow<'static, str>,
    /// The value before.
    pub before: Value,
    /// The value after.
    pub after: Value,
}
