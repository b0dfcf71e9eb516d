//! `abide answer`: lists the open questions of runs and answers them.

use std::fmt::Display;
use std::str::FromStr;

use clap::Args;
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, clean, line, short, span, wrap};
use crate::clock::Clock;
use crate::kernel::ids::{QuestionId, SessionKey};
use crate::kernel::question::QuestionState;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::questions::{AnswerQuestion, ListQuestions, Question, Questions};

/// Answer a run's question, or list the open questions
///
/// Without arguments it lists every open question with its origin. The answer goes to the run that
/// asked, which then continues.
#[derive(Debug, Args)]
#[command(after_help = r#"abide answer
abide answer 4f2a91c3 "yes""#)]
pub(crate) struct AnswerArgs {
    /// Question id or its last digits; optional when only one question is open
    question: Option<String>,

    /// The answer: one of the choices, or free text
    text: Option<String>,
}

impl AnswerArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let (raw, open) = waiting(&link, None).await?;
        let Some(first) = self.question else {
            if common.json {
                print::object(&raw)?;
            } else if open.is_empty() {
                print::note("no open questions");
            } else {
                let now = Clock::system().now();
                for question in &open {
                    print::folded(&show(question, now))?;
                }
            }
            return Ok(0);
        };
        let (question, text) = match (self.text, &open[..]) {
            (Some(text), open) => {
                let ids: Vec<QuestionId> = open.iter().map(|question| question.id).collect();
                (find_open(&ids, &first, "question", "abide answer")?, text)
            }
            (None, [only]) => (only.id, first),
            (None, _) => {
                return Err(Failure::usage("name the question and give its answer")
                    .hint("abide answer lists them: abide answer ID \"text\""));
            }
        };
        let request = AnswerQuestion {
            id: question,
            text: Some(text),
            choice: None,
        };
        let Some(answered) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        print::note(&format!(
            "answered; run {} continues: abide wait {0}",
            short(answered.run_id)
        ));
        Ok(0)
    }
}

/// Open questions in the session's tree, or of all sessions: the raw reply and the parsed list.
pub(crate) async fn waiting(
    link: &DaemonLink,
    session: Option<&SessionKey>,
) -> Result<(Value, Vec<Question>), Failure> {
    let request = ListQuestions {
        session_key: session.cloned(),
        state: Some(QuestionState::Open),
        limit: PageSize(PAGE_LIMIT),
        ..ListQuestions::default()
    };
    let raw = link.raw(&request).await?;
    let page: Questions = link::read(&raw)?;
    Ok((raw, page.questions))
}

/// Finds the open id that `wanted` names: a whole id, or its last digits (four or more).
pub(crate) fn find_open<I: Copy + Display + FromStr>(
    open: &[I],
    wanted: &str,
    what: &str,
    list: &str,
) -> Result<I, Failure> {
    if let Ok(id) = wanted.parse() {
        return Ok(id);
    }
    let digits = wanted.to_ascii_lowercase();
    let found: Vec<I> = open
        .iter()
        .copied()
        .filter(|id| digits.len() >= 4 && id.to_string().ends_with(&digits))
        .collect();
    let missing = |message| Failure::new(exit::NOT_FOUND, "not_found", message);
    match found[..] {
        [id] => Ok(id),
        [] => Err(
            missing(format!("no open {what} has the id {}", line(wanted, 40)))
                .hint(format!("list them: {list}")),
        ),
        _ => Err(
            missing(format!("more than one {what} ends in {}", line(wanted, 40))).hint(format!(
                "give more digits of the id: {list} --json shows the full ids"
            )),
        ),
    }
}

/// Formats a question with its origin and the time until it expires.
pub(crate) fn show(question: &Question, now: Timestamp) -> String {
    let name = question.label.as_deref().unwrap_or(&question.title);
    let head = format!(
        "{} asks ({} old, expires in {})",
        short(question.id),
        age(question.asked_at, now),
        span(question.expires_at.since(now)),
    );
    let origin = format!(
        "from {}, run {}: {name} (in {})",
        question.agent,
        short(question.run_id),
        question.session_key
    );
    let mut out = print::styled(print::HEAD, head);
    out.push_str(&format!("\n  {}\n", line(&origin, usize::MAX)));
    for said in clean(&question.text).trim_end().lines() {
        out.push_str(&format!("  {said}\n"));
    }
    if !question.choices.is_empty() {
        let choices = question.choices.join(" | ");
        for said in wrap(&clean(&choices), print::columns() - 2) {
            out.push_str(&format!("  {said}\n"));
        }
    }
    out
}

/// Formats a question on one line for lists of open work.
pub(crate) fn in_short(question: &Question, now: Timestamp, columns: usize) -> String {
    let text = format!(
        "? {} {} (run {}) asks, {} left: {}",
        short(question.id),
        question.label.as_deref().unwrap_or(question.agent.as_str()),
        short(question.run_id),
        span(question.expires_at.since(now)),
        question.text
    );
    line(&text, columns)
}
