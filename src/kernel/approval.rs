//! A person's leave for one call of a tool: asked for by the gate, given or refused by somebody
//! who may, never by what a model, a tool or another session says.

use serde_json::Value;

use super::ids::{AgentId, ApprovalId, RunId, SessionId};
use super::text_enum::text_enum;
use super::time::Timestamp;

text_enum! {
    /// How far an approval has come.
    ApprovalState {
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

text_enum! {
    /// What a person says to it.
    Choice {
        /// Make the call.
        Allow = "allow",
        /// Do not make it.
        Deny = "deny",
    }
}

impl Choice {
    /// The state of an approval that was decided so.
    pub fn state(self) -> ApprovalState {
        match self {
            Choice::Allow => ApprovalState::Allowed,
            Choice::Deny => ApprovalState::Denied,
        }
    }
}

text_enum! {
    /// For how long a decision counts beyond its own call.
    Remember {
        /// For calls like it in the same session.
        Session = "session",
        /// For calls like it in every session of the same agent.
        Agent = "agent",
    }
}

/// What a person is asked to allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consent {
    /// Which rule asks.
    pub why: String,
    /// What a remembered decision covers of the tool: a command, a file, a host; empty: every
    /// call of it.
    pub covers: String,
    /// What is decided on, where the step does not hold it: the command of a program.
    pub arguments: Option<Value>,
}

/// A person's leave for one call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The tenant.
    pub org: String,
    /// Who wants to make the call.
    pub run: RunId,
    /// Its step that is the call.
    pub step: u32,
    /// The session of that run.
    pub session: SessionId,
    /// The topmost session of its tree: where a person looks.
    pub root_session: SessionId,
    /// The agent of the run.
    pub agent: AgentId,
    /// Which tool.
    pub tool: String,
    /// With what, whole: a person decides on what is done, not on a summary of it.
    pub arguments: Value,
    /// Which rule asks, and what a remembered decision covers.
    pub consent: Consent,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it runs out as a no.
    pub expires_at: Timestamp,
    /// How far it has come.
    pub state: ApprovalState,
    /// Who decided.
    pub resolved_by: Option<String>,
    /// For how long that counts.
    pub remember: Option<Remember>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
}

/// A decision that counts for calls like the one that it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Of the approval that it was.
    pub id: ApprovalId,
    /// The tenant.
    pub org: String,
    /// Where it counts.
    pub scope: Remember,
    /// The session that it counts in, with [`Remember::Session`].
    pub session: SessionId,
    /// The agent whose calls it is about.
    pub agent: AgentId,
    /// Which tool.
    pub tool: String,
    /// What of it; empty: every call.
    pub covers: String,
    /// What was decided.
    pub choice: Choice,
    /// By whom.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

impl Approval {
    /// What the call's step is told where it is not made: who or what refused it.
    pub fn refusal(&self) -> String {
        let who = match (self.state, &self.resolved_by) {
            (ApprovalState::Expired, _) => {
                "nobody allowed it in time (setting approvals.timeout)".to_owned()
            }
            (_, Some(by)) => format!("{by} did not allow it"),
            (_, None) => "it was not allowed".to_owned(),
        };
        format!(
            "denied: {who}. The call of {} was not made, nothing was done. It needs a person's \
             leave because {}. Go on without it, or say in your result what you could not do.",
            self.tool, self.consent.why
        )
    }
}
