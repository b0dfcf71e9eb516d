//! From what a person types to an id: a whole one, its last digits, `@last`, or a label.

use super::failure::{Failure, exit};
use super::link::Link;
use super::text;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs};
use crate::wire::sessions::{GetSession, ListSessions, SessionKind, Sessions};
use crate::wire::shapes::{Run, Session};

/// How many of the most recent runs are searched for digits.
const SEARCHED: usize = 5_000;

/// The run that `text` means.
pub(crate) async fn run(link: &Link, text: &str) -> Result<RunId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    if text == "@last" {
        let recent = recent(link, 1, None).await?.runs;
        return match recent.first() {
            Some(run) => Ok(run.run_id),
            None => Err(
                Failure::new(exit::NOT_FOUND, "not_found", "there is no run yet")
                    .hint("start one: abide run \"what is to be done\""),
            ),
        };
    }
    let labelled: Runs = link
        .ask(
            "runs.list",
            ListRuns {
                label: Some(text.to_owned()),
                limit: PageSize(1),
                ..ListRuns::default()
            },
        )
        .await?;
    if let Some(run) = labelled.runs.first() {
        return Ok(run.run_id);
    }
    by_digits(link, text).await
}

/// The session that `text` means: a key, a label, or the session of a run.
pub(crate) async fn session(link: &Link, text: &str) -> Result<SessionKey, Failure> {
    if let Ok(key) = SessionKey::parse(text) {
        let found: Result<Session, Failure> = link
            .ask("sessions.get", GetSession { session_key: key })
            .await;
        match found {
            Ok(session) => return Ok(session.key),
            Err(failure) if failure.code == exit::NOT_FOUND => {}
            Err(failure) => return Err(failure),
        }
    }
    let labelled: Sessions = link
        .ask(
            "sessions.list",
            ListSessions {
                kind: Some(SessionKind::All),
                label: Some(text.to_owned()),
                limit: PageSize(2),
                ..ListSessions::default()
            },
        )
        .await?;
    match labelled.sessions.as_slice() {
        [session] => return Ok(session.key.clone()),
        [] => {}
        [_, ..] => return Err(several(text)),
    }
    if let Some(key) = session_by_digits(link, text).await? {
        return Ok(key);
    }
    match run(link, text).await {
        Ok(id) => Ok(details(link, id).await?.session_key),
        Err(failure) if failure.code == exit::NOT_FOUND => {
            // There is no last run, which is said by itself.
            if text.starts_with('@') {
                return Err(failure);
            }
            Err(Failure::new(
                exit::NOT_FOUND,
                "not_found",
                format!("no session or run is called {text:?}"),
            )
            .hint(like_session(link, text).await?))
        }
        Err(failure) => Err(failure),
    }
}

fn several(text: &str) -> Failure {
    Failure::new(
        exit::NOT_FOUND,
        "not_found",
        format!("more than one session is called {text:?}"),
    )
    .hint("use a key: abide sessions --all --json shows the whole ones")
}

/// The session whose key ends with these digits, as lists show the keys that nobody made up.
async fn session_by_digits(link: &Link, text: &str) -> Result<Option<SessionKey>, Failure> {
    let wanted = text.to_ascii_lowercase();
    if !are_digits(&wanted) {
        return Ok(None);
    }
    let request = ListSessions {
        kind: Some(SessionKind::All),
        search: Some(wanted.clone()),
        limit: PageSize(PAGE_LIMIT),
        ..ListSessions::default()
    };
    let page: Sessions = link.ask("sessions.list", request).await?;
    let mut found = page
        .sessions
        .into_iter()
        .map(|session| session.key)
        .filter(|key| key.as_str().ends_with(&wanted));
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(several(text)),
        (only, _) => Ok(only),
    }
}

/// What somebody may have meant who typed the name of no session.
async fn like_session(link: &Link, text: &str) -> Result<String, Failure> {
    let request = ListSessions {
        kind: Some(SessionKind::All),
        limit: PageSize(PAGE_LIMIT),
        ..ListSessions::default()
    };
    let page: Sessions = link.ask("sessions.list", request).await?;
    let names: Vec<&str> = page
        .sessions
        .iter()
        .flat_map(|session| {
            session
                .label
                .as_deref()
                .into_iter()
                .chain([session.key.as_str()])
        })
        .collect();
    Ok(match nearest(text, &names) {
        Some(name) => format!("did you mean {}?", text::line(name, 60)),
        None => "see what there is: abide sessions --all, abide ps --all".to_owned(),
    })
}

/// The name that is most like `wanted`, if one is like it at all.
fn nearest<'a>(wanted: &str, names: &[&'a str]) -> Option<&'a str> {
    names
        .iter()
        .map(|name| (strsim::jaro_winkler(wanted, name), *name))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// Names at least so alike may have been confused; 1 = the same.
const LIKE: f64 = 0.85;

/// Can this be the end of an id?
fn are_digits(text: &str) -> bool {
    (4..=36).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// A run with its whole result.
pub(crate) async fn details(link: &Link, id: RunId) -> Result<Run, Failure> {
    link.ask("runs.get", crate::wire::runs::GetRun { run_id: id })
        .await
}

async fn by_digits(link: &Link, text: &str) -> Result<RunId, Failure> {
    let wanted = text.to_ascii_lowercase();
    let is_digits = are_digits(&wanted);
    let mut shown: Vec<String> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    let mut found: Vec<RunId> = Vec::new();
    let mut seen = 0;
    let mut cursor = None;
    loop {
        let page = recent(link, PAGE_LIMIT, cursor).await?;
        for run in &page.runs {
            if shown.len() < 3 {
                shown.push(describe(run));
            }
            labels.extend(run.label.clone());
            if is_digits && run.run_id.to_string().ends_with(&wanted) {
                found.push(run.run_id);
            }
        }
        seen += page.runs.len();
        cursor = page.next_cursor;
        if cursor.is_none() || seen >= SEARCHED || !is_digits {
            break;
        }
    }
    match found.as_slice() {
        [id] => Ok(*id),
        [] => {
            let failure = Failure::new(
                exit::NOT_FOUND,
                "not_found",
                format!("no run is called {text:?}"),
            );
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            if let Some(label) = nearest(text, &labels) {
                Err(failure.hint(format!("did you mean {}?", text::line(label, 60))))
            } else if shown.is_empty() {
                Err(failure.hint("there is no run yet"))
            } else {
                Err(failure.hint(format!("the most recent ones: {}", shown.join(", "))))
            }
        }
        _ => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!("{} runs end with {text:?}", found.len()),
        )
        .hint("give more digits")),
    }
}

fn describe(run: &Run) -> String {
    let name = run.label.as_deref().unwrap_or(run.agent.as_str());
    format!("{} ({})", text::short(run.run_id), text::line(name, 20))
}

async fn recent(link: &Link, limit: u32, cursor: Option<String>) -> Result<Runs, Failure> {
    link.ask(
        "runs.list",
        ListRuns {
            limit: PageSize(limit),
            cursor,
            ..ListRuns::default()
        },
    )
    .await
}
