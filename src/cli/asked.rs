//! What runs ask people while somebody follows them: questions, and calls that need leave.
//! Used where a person is there to answer.

use std::collections::VecDeque;

use uuid::Uuid;

use super::failure::Failure;
use super::link::Link;
use super::text::{COLUMNS, line};
use super::{answer, approvals, print, whole};
use crate::kernel::ids::SessionKey;
use crate::kernel::time::Timestamp;
use crate::wire::approvals::{Approval, Decision};
use crate::wire::questions::{AnswerQuestion, Question};

/// So many lines of a screen stay for what stands below a page.
const BELOW: usize = 6;
/// A page has so many lines at least.
const PAGE: usize = 10;

/// Something that is put to a person.
pub(crate) struct Put {
    /// What.
    pub(crate) asked: Asked,
    /// What of it was not shown yet.
    pub(crate) rest: VecDeque<String>,
}

impl Put {
    /// What a person is asked for.
    pub(crate) fn prompt(&self) -> String {
        match self.rest.iter().map(|page| page.lines().count()).sum() {
            0 => self.asked.prompt().to_owned(),
            1 => "1 more line (empty: show it; no; later)".to_owned(),
            more => format!("{more} more lines (empty: show them; no; later)"),
        }
    }

    /// Why these words cannot be taken yet: a yes is about all of it.
    pub(crate) fn is_too_early(&self, said: &str) -> bool {
        !self.rest.is_empty() && decision(said) != Some(Decision::Deny)
    }
}

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

    /// As people read it, in parts that a screen takes. A call is whole in them: what a yes covers
    /// has been shown to its end before it is taken.
    pub(crate) fn pages(&self, now: Timestamp) -> VecDeque<String> {
        match self {
            Asked::Question(question) => [answer::show(question, now)].into(),
            Asked::Approval(approval) => {
                let text = approvals::show(approval, now, print::notes_width());
                let lines: Vec<&str> = text.lines().collect();
                let page = match print::notes_size() {
                    Some((_, rows)) => rows.saturating_sub(BELOW).max(PAGE),
                    None => lines.len().max(1),
                };
                lines.chunks(page).map(|part| part.join("\n")).collect()
            }
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
                format!(
                    "{what}: {} {}",
                    approval.tool,
                    whole::visible(covers).replace('\n', "⏎")
                )
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
