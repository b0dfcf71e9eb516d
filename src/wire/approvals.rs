//! `approvals.*`: calls of tools that wait for a person's leave, and what people say to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decode::Params;
use super::input::{self, PageSize, choice};
use super::shapes::Word;
use crate::kernel::ids::{AgentId, ApprovalId, RunId, SessionId, SessionKey};
use crate::kernel::time::Timestamp;

choice! {
    /// How far an approval has come.
    State {
        /// Somebody may decide.
        Open = "open",
        /// The call is made.
        Allowed = "allowed",
        /// The call is not made.
        Denied = "denied",
        /// Nobody has decided in time: the call is not made.
        Expired = "expired",
        /// Its run has ended before.
        Closed = "closed",
    }
}

choice! {
    /// What is said to an approval.
    Decision {
        /// Make the call.
        Allow = "allow",
        /// Do not make it.
        Deny = "deny",
    }
}

choice! {
    /// For which later calls like it a decision counts.
    Scope {
        /// Those in the same session.
        Session = "session",
        /// Those of the same agent, in any session.
        Agent = "agent",
    }
}

/// `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// With that: those of the whole tree in which it lies; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<bool>,
    /// Only those in this state; any if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// With folder, names of the environment and change; true if unset. Without them nothing is
    /// read of any file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previews: Option<bool>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListApprovals {}

/// What `approvals.list` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approvals {
    /// A page of them, oldest first.
    pub approvals: Vec<Approval>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `approvals.resolve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveApproval {
    /// Which.
    #[serde(deserialize_with = "input::id")]
    pub id: ApprovalId,
    /// What is said.
    pub decision: Decision,
    /// For which later calls like it that counts; for none if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<Scope>,
    /// The digest of the change that was looked at: `conflict`, and nothing is allowed, once the call
    /// would do something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
impl Params for ResolveApproval {
    fn object(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}

/// `approvals.remembered`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRemembered {
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListRemembered {}

/// What `approvals.remembered` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RememberedPage {
    /// A page of them, oldest first.
    pub remembered: Vec<Remembered>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `approvals.forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetApproval {
    /// The approval whose decision is remembered.
    #[serde(deserialize_with = "input::id")]
    pub id: ApprovalId,
}
impl Params for ForgetApproval {
    fn object(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}

/// What `approvals.forget` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    /// There was something to forget.
    pub forgotten: bool,
}

/// A call of a tool that waits for a person's leave, with where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The run that wants to make the call.
    pub run_id: RunId,
    /// That run's session.
    pub session_key: SessionKey,
    /// The top of the tree in which it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_session_key: Option<SessionKey>,
    /// The run's agent.
    pub agent: AgentId,
    /// The run's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What the run is about.
    pub title: String,
    /// Levels below the root session.
    pub depth: u32,
    /// Which tool.
    pub tool: String,
    /// With what, whole.
    pub arguments: Value,
    /// Which rule asks.
    pub why: String,
    /// What of the tool a remembered decision covers: this command, this file; every call of
    /// the tool if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// The folder in which the call works, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The names that are set in the environment of the run's programs, never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// While it is open, for `write` and `edit`: what the call would do to its file, as the file
    /// is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it runs out as a no.
    pub expires_at: Timestamp,
    /// `open`, `allowed`, `denied`, `expired` or `closed`.
    pub state: Word,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// For which later calls that counts: `session` or `agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<Word>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// What a call would do to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The file, from the folder on.
    pub path: String,
    /// `creates`, `changes`, `nothing` (the file holds this already), `fails` (the call would
    /// fail) or `not_shown`.
    pub effect: Word,
    /// With `creates` and `changes`: a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// With `fails` and `not_shown`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For `approvals.resolve`: another one once the call would do something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A decision that counts for later calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// The approval that it was made for.
    pub id: ApprovalId,
    /// Where it counts: `session` or `agent`.
    pub scope: Word,
    /// The agent whose calls it is about.
    pub agent: AgentId,
    /// With scope `session`: which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Which tool.
    pub tool: String,
    /// What of it; every call if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// `allow` or `deny`.
    pub decision: Word,
    /// Who decided.
    pub by: String,
    /// When.
    pub at: Timestamp,
}
