//! `gateway.config` and `gateway.reload`: read the settings in force, and reload them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::method::no_params;
use super::shapes::Word;

no_params! {
    /// Parameters of `gateway.config`.
    GetConfig
    /// Parameters of `gateway.reload`.
    ReloadConfig
}

/// Result of `gateway.config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
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
    pub source: Word,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Changes that are now in force.
    pub applied: Vec<Change>,
    /// Changes that take effect at the next start.
    pub needs_restart: Vec<Change>,
    /// Number of settings that did not change.
    pub unchanged: u32,
    /// Parts of the configuration that were not understood.
    pub warnings: Vec<String>,
}

/// A setting whose value changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Name of the setting, `section.key`.
    pub key: Cow<'static, str>,
    /// Previous value.
    pub before: Value,
    /// New value.
    pub after: Value,
}
