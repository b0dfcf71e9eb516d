//! What runs ask people while somebody follows them: questions, and calls that need leave.
//! Used where a person is there to answer.

use uuid::Uuid;

use super::failure::Failure;
use super::link::Link;
use super::{answer, approvals};
use crate::kernel::ids::SessionKey;
use crate::kernel::time::Timestamp;
use crate::wire::approvals::{Approval, Decision};
use crate::wire::questions::{AnswerQuestion, Question};

/// Something that a run asks people.
pub(crate) enum Asked {
    /// In its own words.
    Question(Question),
    /// Whether it may call a tool.
    Approval(Approval),
}

impl Asked {
    /// Its id.
    pub(crate) fn id(&self) -> Uuid {
        match self {
            Asked::Question(question) => question.id.0,
            Asked::Approval(approval) => approval.id.0,
        }
    }

    /// As people read it.
    pub(crate) fn show(&self, now: Timestamp) -> String {
        match self {
            Asked::Question(question) => answer::show(question, now),
            Asked::Approval(approval) => approvals::show(approval, now),
        }
    }

    /// What a person is asked for.
    pub(crate) fn prompt(&self) -> &'static str {
        match self {
            Asked::Question(_) => "your answer (empty: later)",
            Asked::Approval(_) => "allow it? (yes or no; empty: later)",
        }
    }

    /// Passes on what a person has said; `false`: that is no answer to it, and nothing was
    /// decided.
    pub(crate) async fn answer(&self, link: &Link, said: &str) -> Result<bool, Failure> {
        match self {
            Asked::Question(question) => {
                let request = AnswerQuestion {
                    id: question.id,
                    text: Some(said.to_owned()),
                    choice: None,
                };
                link.raw("questions.answer", &request).await?;
            }
            Asked::Approval(approval) => {
                // Only these words: a sentence that begins with one may mean something else.
                let decision = match said.to_ascii_lowercase().as_str() {
                    "y" | "yes" | "allow" => Decision::Allow,
                    "n" | "no" | "deny" => Decision::Deny,
                    _ => return Ok(false),
                };
                approvals::resolve(link, approval.id, decision, None).await?;
            }
        }
        Ok(true)
    }
}

/// What waits for a person, in the tree of this session or anywhere.
pub(crate) async fn open(link: &Link, session: Option<&SessionKey>) -> Result<Vec<Asked>, Failure> {
    let (_, approvals) = approvals::waiting(link, session).await?;
    let (_, questions) = answer::waiting(link, session).await?;
    let approvals = approvals.into_iter().map(Asked::Approval);
    Ok(approvals
        .chain(questions.into_iter().map(Asked::Question))
        .collect())
}
