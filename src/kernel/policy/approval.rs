//! A person's approval of one tool call. The gate requests it and an authorized person decides;
//! content from a model, a tool or another session never does.

use serde_json::Value;

use crate::kernel::ids::{AgentId, ApprovalId, RunId, SessionId};
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;

text_enum! {
    /// State of an approval.
    #[schemars(rename = "ApprovalState")]
    ApprovalState {
        /// Waiting for a decision.
        Open = "open",
        /// Approved; the call is made.
        Allowed = "allowed",
        /// Denied; the call is not made.
        Denied = "denied",
        /// The deadline passed without a decision; the call is not made.
        Expired = "expired",
        /// The run ended, or its agent dropped the question, before a decision.
        Closed = "closed",
    }
}

text_enum! {
    /// Decision on an approval.
    #[schemars(rename = "ApprovalDecision")]
    Choice {
        /// Approve the call.
        Allow = "allow",
        /// Deny the call.
        Deny = "deny",
    }
}

impl Choice {
    /// The state of an approval after this decision.
    pub fn state(self) -> ApprovalState {
        match self {
            Choice::Allow => ApprovalState::Allowed,
            Choice::Deny => ApprovalState::Denied,
        }
    }
}

text_enum! {
    /// Which later calls of the same kind a remembered decision covers.
    #[schemars(rename = "Scope")]
    Remember {
        /// Calls in the same session.
        Session = "session",
        /// Calls of the same agent in any session.
        Agent = "agent",
    }
}

/// What a person is asked to approve, as the gate describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consent {
    /// The rule that requires the approval, in words.
    pub why: String,
    /// The part of the tool that a remembered decision covers: a command, a file or a host. Empty:
    /// every call of the tool.
    pub covers: String,
    /// What is decided on where the step's input does not hold it, such as a program's command
    /// line.
    pub arguments: Option<Value>,
}

/// A person's approval of one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// It has the same digits as the step's id, so that a repeated step requests it once.
    pub id: ApprovalId,
    /// Tenant that owns the run.
    pub org: String,
    /// The run that wants to make the call.
    pub run: RunId,
    /// The number of the step that is the call.
    pub step: u32,
    /// The session of that run.
    pub session: SessionId,
    /// The root session of its tree, where the user sees the request.
    pub root_session: SessionId,
    /// The agent of the run.
    pub agent: AgentId,
    /// Name of the tool; for an agent that is a program, the step's kind.
    pub tool: String,
    /// The complete arguments: a person decides on the action, not on a summary.
    pub arguments: Value,
    /// The rule that requires it, and what a remembered decision covers.
    pub consent: Consent,
    /// When it was requested.
    pub asked_at: Timestamp,
    /// Deadline after which it expires and counts as denied.
    pub expires_at: Timestamp,
    /// Its progress.
    pub state: ApprovalState,
    /// Who decided; `None` if no decision was made.
    pub resolved_by: Option<String>,
    /// The scope in which the decision is remembered; `None`: this call alone.
    pub remember: Option<Remember>,
    /// When it was decided, expired or closed.
    pub ended_at: Option<Timestamp>,
}

/// A decision that also applies to later calls that match the approved one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The id of the approval that was decided.
    pub id: ApprovalId,
    /// Tenant in which it applies.
    pub org: String,
    /// Whether it applies to one session or to the agent.
    pub scope: Remember,
    /// The session that it applies to with [`Remember::Session`].
    pub session: SessionId,
    /// The agent whose calls it covers.
    pub agent: AgentId,
    /// Name of the tool.
    pub tool: String,
    /// The part of the tool that it covers; empty: every call.
    pub covers: String,
    /// The decision.
    pub choice: Choice,
    /// Who decided.
    pub by: String,
    /// When it was decided.
    pub at: Timestamp,
}

impl Approval {
    /// The result of a call that is not made: who or what refused it, for the model.
    pub fn refusal(&self) -> String {
        let who = match (self.state, &self.resolved_by) {
            (ApprovalState::Expired, _) => {
                "the approval expired (setting approvals.timeout)".to_owned()
            }
            (_, Some(by)) => format!("{by} did not allow it"),
            (_, None) => "it was not allowed".to_owned(),
        };
        format!(
            "denied: {who}. The call of {} was not made and had no effect. It needs a person's \
             approval because {}. Continue without it, or state in your result what is missing.",
            self.tool, self.consent.why
        )
    }
}
