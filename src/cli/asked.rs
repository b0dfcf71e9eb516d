//! What runs ask people while somebody follows them: questions, and calls that need leave.
//! Used where a person is there to answer.

use uuid::Uuid;

use super::failure::Failure;
use super::link::Link;
use super::text::{COLUMNS, line};
use super::{answer, approvals, print};
use crate::kernel::ids::SessionKey;
use crate::kernel::time::Timestamp;
use crate::wire::approvals::{Approval, Decision};
use crate::wire::questions::{AnswerQuestion, Question};

/// Something that a run asks people.
#[derive(Clone)]
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

    /// On one line, with who asks and how long it may be answered.
    pub(crate) fn in_short(&self, now: Timestamp) -> String {
        match self {
            Asked::Question(question) => answer::in_short(question, now),
            Asked::Approval(approval) => approvals::in_short(approval, now),
        }
    }

    /// What a person is asked for.
    pub(crate) fn prompt(&self) -> &'static str {
        match self {
            Asked::Question(_) => "your answer (empty: later)",
            Asked::Approval(_) => "allow it? (yes or no; empty: later)",
        }
    }

    /// What a person has decided by these words, as it stays on the screen.
    pub(crate) fn decided(&self, said: &str) -> String {
        let text = match self {
            Asked::Question(_) => format!("answered: {said}"),
            Asked::Approval(approval) => {
                let what = match decision(said) {
                    Some(Decision::Allow) => "allowed",
                    _ => "denied",
                };
                let covers = approval.covers.as_deref().unwrap_or_default();
                format!("{what}: {} {covers}", approval.tool)
            }
        };
        print::styled(print::DIM, line(&text, COLUMNS))
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
                let Some(decision) = decision(said) else {
                    return Ok(false);
                };
                approvals::resolve(link, approval.id, decision, None).await?;
            }
        }
        Ok(true)
    }
}

/// Only these words: a sentence that begins with one may mean something else.
fn decision(said: &str) -> Option<Decision> {
    match said.to_ascii_lowercase().as_str() {
        "y" | "yes" | "allow" => Some(Decision::Allow),
        "n" | "no" | "deny" => Some(Decision::Deny),
        _ => None,
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
