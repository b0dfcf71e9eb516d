//! Requests of runs that need a user: questions, approvals, and missing environment values.
//! Used by the commands that follow runs with an interactive user.

use std::collections::VecDeque;

use uuid::Uuid;

use super::{approval_text, verbatim};
use crate::cli::commands::env::missing;
use crate::cli::commands::{answer, approvals};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{COLUMNS, clean, line, short};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::policy::approval::Choice;
use crate::kernel::secret::GivenValue;
use crate::kernel::time::Timestamp;
use crate::wire::approvals::Approval;
use crate::wire::environment::{Env, ProvideEnv};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::questions::{AnswerQuestion, Question};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;

/// Screen rows reserved below a page: the live part and the prompt.
pub(crate) const RESERVED_ROWS: usize = 6;
/// Minimum number of lines of a page.
const PAGE: usize = 3;
/// Below this width the prompt for the next page is shorter.
const NARROW: usize = 60;

/// A request that is being shown to the user.
pub(crate) struct Prompted {
    /// The request.
    pub(crate) asked: OpenRequest,
    /// Its pages that were not shown yet.
    pub(crate) unshown_pages: VecDeque<String>,
    /// Number of lines of the page that was shown last.
    pub(crate) page_lines: usize,
}

impl Prompted {
    /// A request of which nothing was shown yet.
    pub(crate) fn of(asked: OpenRequest, now: Timestamp) -> Prompted {
        Prompted {
            unshown_pages: asked.pages(now),
            asked,
            page_lines: 0,
        }
    }

    /// Takes the next page.
    pub(crate) fn next_page(&mut self) -> Option<String> {
        let page = self.unshown_pages.pop_front()?;
        self.page_lines = page.lines().count();
        Some(page)
    }

    /// The input prompt: the request's own, or the number of lines that were not shown yet.
    pub(crate) fn prompt(&self) -> String {
        let is_narrow = print::notes_width().is_some_and(|columns| columns < NARROW);
        match self
            .unshown_pages
            .iter()
            .map(|page| page.lines().count())
            .sum()
        {
            0 => self.asked.prompt().to_owned(),
            more if is_narrow => format!("{more} more (Enter, no, later)"),
            1 => "1 more line (empty: show it; no; later)".to_owned(),
            more => format!("{more} more lines (empty: show them; no; later)"),
        }
    }

    /// True if this reply must not be accepted yet, because not all of an approval was shown. A
    /// denial is always accepted.
    pub(crate) fn is_undecidable_yet(&self, said: &str) -> bool {
        !self.unshown_pages.is_empty() && decision(said) != Some(Choice::Deny)
    }
}

/// A request of a run to the user.
#[derive(Clone)]
pub(crate) enum OpenRequest {
    /// A question in free text.
    Question(Box<Question>),
    /// An approval for a tool call.
    Approval(Box<Approval>),
    /// A value that is missing in the run's environment.
    Value(Missing),
}

/// A missing environment value that a run waits for.
#[derive(Clone)]
pub(crate) struct Missing {
    run: RunId,
    /// Label of the run, or its agent.
    who: String,
    name: String,
    why: String,
}

impl OpenRequest {
    /// Id of the request; for a missing value a hash of the run and the name.
    pub(crate) fn id(&self) -> Uuid {
        match self {
            OpenRequest::Question(question) => question.id.0,
            OpenRequest::Approval(approval) => approval.id.0,
            OpenRequest::Value(missing) => {
                // A missing value has no id; the run and the name identify it.
                let text = format!("{} {}", missing.run, missing.name);
                let hash = blake3::hash(text.as_bytes());
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&hash.as_bytes()[..16]);
                Uuid::from_bytes(bytes)
            }
        }
    }

    /// The run that made the request.
    pub(crate) fn run(&self) -> RunId {
        match self {
            OpenRequest::Question(question) => question.run_id,
            OpenRequest::Approval(approval) => approval.run_id,
            OpenRequest::Value(missing) => missing.run,
        }
    }

    /// The first missing value of the run, if there is one.
    pub(crate) fn value_of(run: &Run) -> Option<OpenRequest> {
        let one = missing(run).next()?;
        Some(OpenRequest::Value(Missing {
            run: run.run_id,
            who: clean(run.label.as_deref().unwrap_or(run.agent.as_str())),
            name: clean(&one.name),
            why: one.missing.clone().unwrap_or_default(),
        }))
    }

    /// True if a run of this session or one of its descendants made the request.
    async fn is_in_subtree(
        &self,
        link: &DaemonLink,
        session: &SessionKey,
    ) -> Result<bool, Failure> {
        let (own, root) = match self {
            OpenRequest::Question(question) => (&question.session_key, &question.root_session_key),
            OpenRequest::Approval(approval) => (&approval.session_key, &approval.root_session_key),
            OpenRequest::Value(_) => return Ok(true),
        };
        if own == session || root.as_ref() == Some(session) {
            return Ok(true);
        }
        match ids::details(link, self.run()).await {
            Ok(run) => is_in_session_subtree(link, session, &run).await,
            Err(gone) if gone.code == exit::NOT_FOUND => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The full text for display.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        match self {
            OpenRequest::Question(question) => answer::show(question, now),
            OpenRequest::Value(missing) => missing.show(),
            OpenRequest::Approval(approval) => {
                approval_text::show(approval, now, print::notes_width())
            }
        }
    }

    /// True if the reply must not be echoed.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, OpenRequest::Value(_))
    }

    /// The text in pages that fit the screen. An approval is never cut: all its pages are shown
    /// before the call can be allowed.
    pub(crate) fn pages(&self, now: Timestamp) -> VecDeque<String> {
        match self {
            OpenRequest::Question(_) | OpenRequest::Value(_) => [self.text(now)].into(),
            OpenRequest::Approval(_) => {
                let text = self.text(now);
                let lines: Vec<&str> = text.lines().collect();
                let page = match print::notes_size() {
                    Some((_, rows)) => rows.saturating_sub(RESERVED_ROWS).max(PAGE),
                    None => lines.len().max(1),
                };
                lines.chunks(page).map(|part| part.join("\n")).collect()
            }
        }
    }

    /// One line with the requester and, if it expires, the time left; cut to `columns` if given.
    pub(crate) fn in_short(&self, now: Timestamp, columns: Option<usize>) -> String {
        let most = columns.unwrap_or(usize::MAX);
        match self {
            OpenRequest::Question(question) => answer::in_short(question, now, most),
            OpenRequest::Approval(approval) => approval_text::in_short(approval, now, columns),
            OpenRequest::Value(missing) => line(&format!("! {}", missing.head()), most),
        }
    }

    /// Kind of the request, its run, and the command that answers it.
    pub(crate) fn kind_run_command(&self) -> (&'static str, RunId, String) {
        match self {
            OpenRequest::Question(question) => {
                let command = format!("abide answer {} \"…\"", short(question.id));
                ("question", question.run_id, command)
            }
            OpenRequest::Approval(approval) => {
                let command = format!("abide approvals allow|deny {}", short(approval.id));
                ("approval", approval.run_id, command)
            }
            OpenRequest::Value(missing) => {
                let command = format!("abide env {} {}=…", short(missing.run), missing.name);
                ("value", missing.run, command)
            }
        }
    }

    /// The input prompt for this kind of request.
    pub(crate) fn prompt(&self) -> &'static str {
        match self {
            OpenRequest::Question(_) => "your answer (empty: later)",
            OpenRequest::Approval(_) => "allow it? (yes or no; empty: later)",
            OpenRequest::Value(_) => "its value (hidden; empty: later)",
        }
    }

    /// The line that stays on the screen after the user's reply.
    pub(crate) fn decided(&self, said: &str) -> String {
        let text = match self {
            OpenRequest::Question(_) => format!("answered: {said}"),
            OpenRequest::Value(missing) => format!("provided: {}", missing.name),
            OpenRequest::Approval(approval) => {
                let what = match decision(said) {
                    Some(Choice::Allow) => "allowed",
                    _ => "denied",
                };
                let covers = approval.covers.as_deref().unwrap_or_default();
                format!(
                    "{what}: {} {}",
                    approval.tool,
                    verbatim::visible(covers).replace('\n', "⏎")
                )
            }
        };
        let columns = print::notes_width().unwrap_or(COLUMNS).min(COLUMNS);
        line(&text, columns)
    }

    /// The daemon has the reply once this returns `true`; `false` means that the text is no valid
    /// decision and nothing was sent.
    pub(crate) async fn answer(&self, link: &DaemonLink, said: &str) -> Result<bool, Failure> {
        match self {
            OpenRequest::Question(question) => {
                let request = AnswerQuestion {
                    id: question.id,
                    text: Some(said.to_owned()),
                    choice: None,
                };
                link.raw(&request).await?;
            }
            OpenRequest::Approval(approval) => {
                let Some(decision) = decision(said) else {
                    return Ok(false);
                };
                let digest = approvals::digest(approval);
                approvals::resolve(link, approval.id, decision, None, digest).await?;
            }
            OpenRequest::Value(missing) => {
                let value = (missing.name.clone(), GivenValue::text(said));
                let request = ProvideEnv {
                    run_id: missing.run,
                    env: Env([value].into()),
                };
                link.raw(&request).await?;
            }
        }
        Ok(true)
    }
}

/// Accepts only exact words: a sentence that begins with one may mean something else.
fn decision(said: &str) -> Option<Choice> {
    match said.to_ascii_lowercase().as_str() {
        "y" | "yes" | "allow" => Some(Choice::Allow),
        "n" | "no" | "deny" => Some(Choice::Deny),
        _ => None,
    }
}

/// Open requests in this session's subtree, including missing values, or the questions and
/// approvals of all sessions.
pub(crate) async fn open(
    link: &DaemonLink,
    session: Option<&SessionKey>,
) -> Result<Vec<OpenRequest>, Failure> {
    all(link, session, true).await
}

/// Like [`open`] for one session but without previews of the calls: enough to announce that
/// requests are open.
pub(crate) async fn in_brief(
    link: &DaemonLink,
    session: &SessionKey,
) -> Result<Vec<OpenRequest>, Failure> {
    all(link, Some(session), false).await
}

/// The current version of an approval, if it is still open.
pub(crate) async fn again(link: &DaemonLink, id: Uuid) -> Result<Option<OpenRequest>, Failure> {
    let (_, open) = approvals::waiting(link, None, true).await?;
    let same = open.into_iter().find(|one| one.id.0 == id);
    Ok(same.map(|one| OpenRequest::Approval(Box::new(one))))
}

/// How a request that was closed elsewhere was decided, as text for the user.
pub(crate) async fn how_closed(
    link: &DaemonLink,
    asked: &OpenRequest,
) -> Result<&'static str, Failure> {
    let state = match asked {
        OpenRequest::Approval(approval) => approvals::state(link, approval).await?,
        OpenRequest::Question(_) | OpenRequest::Value(_) => None,
    };
    Ok(match state.as_deref() {
        Some("allowed") => "allowed elsewhere",
        Some("denied") => "denied elsewhere",
        Some("expired") => "expired, so it is denied",
        _ => "it expired, or was answered elsewhere",
    })
}

async fn all(
    link: &DaemonLink,
    session: Option<&SessionKey>,
    previews: bool,
) -> Result<Vec<OpenRequest>, Failure> {
    let (_, approvals) = approvals::waiting(link, session, previews).await?;
    let (_, questions) = answer::waiting(link, session).await?;
    let approvals = approvals
        .into_iter()
        .map(|one| OpenRequest::Approval(Box::new(one)));
    let questions = questions
        .into_iter()
        .map(|one| OpenRequest::Question(Box::new(one)));
    let all = approvals.chain(questions);
    let Some(session) = session else {
        return Ok(all.collect());
    };
    // The daemon lists the whole session tree; requests of ancestors and siblings are dropped.
    let mut found = Vec::new();
    for one in all {
        if one.is_in_subtree(link, session).await? {
            found.push(one);
        }
    }
    found.extend(values(link, session).await?);
    Ok(found)
}

impl Missing {
    fn head(&self) -> String {
        let run = short(self.run);
        format!("{} (run {run}) has no value for {}", self.who, self.name)
    }

    fn show(&self) -> String {
        let head = print::styled(print::HEAD, self.head());
        let why = line(&self.why, usize::MAX);
        format!(
            "{head}\n  {why}\n  or have the daemon read it from a file: abide env {} {}=@file:/PATH",
            short(self.run),
            self.name
        )
    }
}

/// Missing values that runs in this session's subtree wait for: the first of each run.
async fn values(link: &DaemonLink, session: &SessionKey) -> Result<Vec<OpenRequest>, Failure> {
    let request = ListRuns {
        states: vec![State::Paused],
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let page: Runs = link.ask(&request).await?;
    let mut found = Vec::new();
    for run in page.runs {
        let Some(value) = OpenRequest::value_of(&run) else {
            continue;
        };
        if is_in_session_subtree(link, session, &run).await? {
            found.push(value);
        }
    }
    Ok(found)
}

/// True if the run belongs to the session or descends from one of its runs.
pub(crate) async fn is_in_session_subtree(
    link: &DaemonLink,
    session: &SessionKey,
    run: &Run,
) -> Result<bool, Failure> {
    let is_its = |run: &Run| run.session_key == *session || run.parent.as_ref() == Some(session);
    if is_its(run) {
        return Ok(true);
    }
    let mut above = run.parent_run_id;
    while let Some(id) = above {
        match ids::details(link, id).await {
            Ok(run) if is_its(&run) => return Ok(true),
            Ok(run) => above = run.parent_run_id,
            Err(gone) if gone.code == exit::NOT_FOUND => return Ok(false),
            Err(failure) => return Err(failure),
        }
    }
    Ok(false)
}
