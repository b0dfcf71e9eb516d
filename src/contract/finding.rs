//! What a look at the daemon and its surroundings finds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// As it should be.
    Ok,
    /// It works, and a person should look at it.
    Warn,
    /// It does not work.
    Fail,
    /// It could not be looked at, or there is no such thing here.
    Skip,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A stable name, such as `store.integrity`.
    pub id: String,
    /// How it is.
    pub status: Health,
    /// What was found, in one sentence.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// A thing of this name and state.
    pub fn new(id: &str, status: Health, message: impl Into<String>) -> Self {
        Finding {
            id: id.to_owned(),
            status,
            message: message.into(),
            fix: None,
        }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
