//! Results of a health check of the daemon and its environment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FindingStatus")]
pub enum Health {
    /// Works as intended.
    Ok,
    /// Works, but needs an operator's attention.
    Warn,
    /// Does not work.
    Fail,
    /// Could not be checked, or does not exist here.
    Skip,
}

/// The finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable id of the check, such as `store.integrity`.
    pub id: String,
    /// The result of the check.
    pub status: Health,
    /// What was found, in one sentence.
    pub message: String,
    /// How to fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without a fix.
    pub fn new(id: &str, status: Health, message: impl Into<String>) -> Self {
        Finding {
            id: id.to_owned(),
            status,
            message: message.into(),
            fix: None,
        }
    }

    /// Adds how to fix it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
