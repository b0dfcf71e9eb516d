//! Resolves what a user types to a run or a session: a whole id or key, `@last`, a label, or the
//! beginning or end of an id. Used by every command that takes a run or a session, so that a name
//! means the same everywhere.

use std::collections::HashSet;

use super::failure::{Failure, exit};
use super::origin;
use crate::cli::link::DaemonLink;
use crate::cli::output::text;
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{GetRun, ListRuns, Runs};
use crate::wire::sessions::{GetSession, ListSessions, SessionKind, Sessions};
use crate::wire::shapes::{Run, Session};

/// Number of most recent runs that are searched for digits.
const SEARCHED: usize = 5_000;
/// Maximum number of candidates that are listed for an ambiguous name.
const LISTED: usize = 8;
/// Number of most recent runs that are listed when nothing matches.
const RECENT: usize = 3;
/// Minimum Jaro-Winkler similarity for a "did you mean" suggestion; 1 = equal.
const LIKE: f64 = 0.85;
/// Name of the newest run that was started from this terminal.
const LAST: &str = "@last";

/// What a name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunOrSession {
    /// A run, by its id.
    Run(RunId),
    /// A session, by its key.
    Session(SessionKey),
}

/// Resolves `text` to a run; a session resolves to its newest run.
pub(crate) async fn run(link: &DaemonLink, text: &str) -> Result<RunId, Failure> {
    // Existence is not checked here: the command itself reports a missing run.
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    match either(link, text).await? {
        RunOrSession::Run(id) => Ok(id),
        RunOrSession::Session(key) => newest(link, key).await,
    }
}

/// Resolves `text` to a session; a run resolves to its session.
pub(crate) async fn session(link: &DaemonLink, text: &str) -> Result<SessionKey, Failure> {
    if let Some(key) = by_key(link, text).await? {
        return Ok(key);
    }
    if let Some(id) = by_id(link, text).await? {
        return Ok(details(link, id).await?.session_key);
    }
    let mut found = search(link, text).await?;
    let mut seen = HashSet::new();
    found.retain(|one| seen.insert(one.session.clone()));
    only(link, text, found).await.map(|one| one.session)
}

/// Resolves `text` to a run or a session; if a run and its session share the name, to the run.
pub(crate) async fn either(link: &DaemonLink, text: &str) -> Result<RunOrSession, Failure> {
    if let Some(key) = by_key(link, text).await? {
        return Ok(RunOrSession::Session(key));
    }
    if let Some(id) = by_id(link, text).await? {
        return Ok(RunOrSession::Run(id));
    }
    let found = search(link, text).await?;
    only(link, text, found).await.map(|one| one.named)
}

/// The run with its complete result.
pub(crate) async fn details(link: &DaemonLink, id: RunId) -> Result<Run, Failure> {
    link.ask(&GetRun { run_id: id }).await
}

/// The session with exactly this key, if it exists.
async fn by_key(link: &DaemonLink, text: &str) -> Result<Option<SessionKey>, Failure> {
    let Ok(session_key) = SessionKey::parse(text) else {
        return Ok(None);
    };
    let found: Result<Session, Failure> = link.ask(&GetSession { session_key }).await;
    match found {
        Ok(session) => Ok(Some(session.key)),
        Err(failure) if failure.code == exit::NOT_FOUND => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The run with exactly this id, which is not checked to exist, or the one of `@last`.
async fn by_id(link: &DaemonLink, text: &str) -> Result<Option<RunId>, Failure> {
    if text == LAST {
        return last(link).await.map(Some);
    }
    Ok(text.parse().ok())
}

/// The newest run that was started from this terminal.
async fn last(link: &DaemonLink) -> Result<RunId, Failure> {
    let request = ListRuns {
        meta: Some(origin::filter()),
        limit: PageSize(1),
        ..ListRuns::default()
    };
    let newest: Runs = link.ask(&request).await?;
    match newest.runs.first() {
        Some(run) => Ok(run.run_id),
        None => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!("no kept run was started {}", origin::here()),
        )
        .hint("start one: abide run \"TASK\"; or choose one from: abide ps --all")
        .hint("scripts that share their runs set the same ABIDE_TERMINAL=NAME")),
    }
}

/// The newest run of a session.
async fn newest(link: &DaemonLink, key: SessionKey) -> Result<RunId, Failure> {
    let request = ListRuns {
        session_key: Some(key.clone()),
        limit: PageSize(1),
        ..ListRuns::default()
    };
    let newest: Runs = link.ask(&request).await?;
    match newest.runs.first() {
        Some(run) => Ok(run.run_id),
        None => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!("session {key} has no run"),
        )
        .hint(format!("start one there: abide send {key} \"…\""))),
    }
}

/// A candidate for a name.
struct Match {
    named: RunOrSession,
    /// The session itself, or the session of the run.
    session: SessionKey,
    /// Description for display.
    about: String,
}

/// Runs and sessions with this label, or whose id begins or ends with these digits. A session is
/// left out if one of its runs matches.
async fn search(link: &DaemonLink, text: &str) -> Result<Vec<Match>, Failure> {
    let now = Clock::system().now();
    let request = ListRuns {
        label: Some(text.to_owned()),
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let mut runs = link.ask(&request).await?.runs;
    let request = ListSessions {
        kind: Some(SessionKind::All),
        label: Some(text.to_owned()),
        limit: PageSize(PAGE_LIMIT),
        ..ListSessions::default()
    };
    let page: Sessions = link.ask(&request).await?;
    let mut sessions = page.sessions;
    let digits = text.to_ascii_lowercase();
    if are_digits(&digits) {
        runs.extend(runs_by_digits(link, &digits).await?);
        sessions.extend(sessions_by_digits(link, &digits).await?);
    }
    let mut seen = HashSet::new();
    let mut at_work = HashSet::new();
    let mut found = Vec::new();
    for run in runs.iter().filter(|run| seen.insert(run.run_id)) {
        at_work.insert(run.session_key.clone());
        found.push(Match {
            named: RunOrSession::Run(run.run_id),
            session: run.session_key.clone(),
            about: about_run(run, now),
        });
    }
    for session in sessions {
        if at_work.insert(session.key.clone()) {
            found.push(Match {
                about: about_session(&session, now),
                named: RunOrSession::Session(session.key.clone()),
                session: session.key,
            });
        }
    }
    Ok(found)
}

async fn runs_by_digits(link: &DaemonLink, digits: &str) -> Result<Vec<Run>, Failure> {
    let mut found = Vec::new();
    let mut seen = 0;
    let mut request = ListRuns {
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    loop {
        let page: Runs = link.ask(&request).await?;
        seen += page.runs.len();
        found.extend(page.runs.into_iter().filter(|run| {
            let id = run.run_id.to_string();
            id.ends_with(digits) || id.starts_with(digits)
        }));
        request.cursor = page.next_cursor;
        if request.cursor.is_none() || seen >= SEARCHED {
            return Ok(found);
        }
    }
}

/// Sessions whose keys end with these digits, as lists shorten generated keys.
async fn sessions_by_digits(link: &DaemonLink, digits: &str) -> Result<Vec<Session>, Failure> {
    let request = ListSessions {
        kind: Some(SessionKind::All),
        search: Some(digits.to_owned()),
        limit: PageSize(PAGE_LIMIT),
        ..ListSessions::default()
    };
    let mut page: Sessions = link.ask(&request).await?;
    page.sessions
        .retain(|session| session.key.as_str().ends_with(digits));
    Ok(page.sessions)
}

/// True if the text can be the beginning or end of an id.
fn are_digits(text: &str) -> bool {
    (4..=36).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// The single match; otherwise a failure with suggestions or with the candidates.
async fn only(link: &DaemonLink, text: &str, mut found: Vec<Match>) -> Result<Match, Failure> {
    match found.len() {
        0 => Err(missing(link, text).await?),
        1 => Ok(found.remove(0)),
        count => {
            let mut failure = Failure::new(
                exit::USAGE,
                "ambiguous",
                format!("{count} runs or sessions match {text:?}; nothing was done"),
            )
            .hint("name one by its id or key:");
            for one in found.iter().take(LISTED) {
                failure = failure.hint(format!("  {}", one.about));
            }
            match count.saturating_sub(LISTED) {
                0 => Err(failure),
                more => Err(failure.hint(format!("  and {more} more: abide ps --all"))),
            }
        }
    }
}

fn about_run(run: &Run, now: Timestamp) -> String {
    let name = run.label.as_deref().unwrap_or(&run.title);
    text::line(
        &format!(
            "run {} {}, {}, {} ago: {name}",
            text::short(run.run_id),
            run.agent,
            run.state,
            text::age(run.created_at, now)
        ),
        72,
    )
}

fn about_session(session: &Session, now: Timestamp) -> String {
    let name = session.label.as_ref().or(session.title.as_ref());
    let name = name.map(|name| format!(": {name}")).unwrap_or_default();
    // The key is never cut, because the user has to type it.
    let key = &session.key;
    let age = text::age(session.updated_at, now);
    format!(
        "session {key} {}, {age} ago{}",
        session.state,
        text::line(&name, 40)
    )
}

/// The failure for an unknown name, with suggestions.
async fn missing(link: &DaemonLink, text: &str) -> Result<Failure, Failure> {
    let failure = Failure::new(
        exit::NOT_FOUND,
        "not_found",
        format!("no run or session matches {text:?}"),
    );
    let request = ListRuns {
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let runs = link.ask(&request).await?.runs;
    let request = ListSessions {
        kind: Some(SessionKind::All),
        limit: PageSize(PAGE_LIMIT),
        ..ListSessions::default()
    };
    let sessions = link.ask(&request).await?.sessions;
    let labels = runs.iter().filter_map(|run| run.label.as_deref());
    let names = sessions.iter().flat_map(|session| {
        let label = session.label.as_deref().into_iter();
        label.chain([session.key.as_str()])
    });
    if let Some(name) = nearest(text, labels.chain(names)) {
        return Ok(failure.hint(format!("did you mean {}?", text::line(name, 60))));
    }
    if runs.is_empty() && sessions.is_empty() {
        return Ok(failure.hint("there are no runs yet"));
    }
    let recent: Vec<String> = runs
        .iter()
        .take(RECENT)
        .map(|run| {
            let name = run.label.as_deref().unwrap_or(run.agent.as_str());
            format!("{} ({})", text::short(run.run_id), text::line(name, 20))
        })
        .collect();
    let failure = match recent.is_empty() {
        true => failure,
        false => failure.hint(format!("the most recent runs: {}", recent.join(", "))),
    };
    Ok(failure.hint("list them: abide ps --all, abide sessions --all"))
}

/// The name that is most similar to `wanted`, if one is similar enough.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(wanted, name), name))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}
