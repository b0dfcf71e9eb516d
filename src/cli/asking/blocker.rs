//! The user action that a run waits for, directly or through another run. Used by the commands that
//! wait for runs and show them.

use crate::cli::common::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::cli::live::{tree, view};
use crate::cli::output::text::short;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, State};
use crate::wire::shapes::Run;

/// The user action that a paused run needs, by its pause reason.
fn need(run: &Run) -> Option<&'static str> {
    match run.pause_reason.as_deref()? {
        "approval" => Some("your approval"),
        "review" => Some("your review"),
        "input" if run.env.iter().any(|one| one.missing.is_some()) => Some("a value"),
        "input" => Some("your answer"),
        _ => None,
    }
}

/// Which descendant of a paused run needs a user, as text; `None` if the run itself needs one.
pub(crate) async fn blocking_descendant(
    link: &DaemonLink,
    run: &Run,
) -> Result<Option<String>, Failure> {
    if &*run.state != "paused" || need(run).is_some() {
        return Ok(None);
    }
    let all = view::tree_of(link, run.run_id).await?;
    let other = |one: &&Run| one.run_id != run.run_id && &*one.state == "paused";
    let mut others = all.iter().filter(other);
    Ok(others.find_map(|one| Some(waits_for(one, need(one)?))))
}

/// Which other turn of the same session blocks a queued run, as text.
pub(crate) async fn of_queued(link: &DaemonLink, run: &Run) -> Result<Option<String>, Failure> {
    let request = ListRuns {
        session_key: Some(run.session_key.clone()),
        states: vec![State::Paused],
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let turns = link.ask(&request).await?.runs;
    let before = turns.iter().filter(|one| one.run_id != run.run_id);
    for turn in before {
        if let Some(need) = need(turn) {
            return Ok(Some(waits_for(turn, need)));
        }
        if let Some(text) = blocking_descendant(link, turn).await? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn waits_for(run: &Run, need: &str) -> String {
    format!("waits for run {}, which needs {need}", short(run.run_id))
}

/// Describes a paused run by the run that blocks it, if known, else by its pause reason.
pub(crate) async fn pause_text(link: &DaemonLink, run: &Run) -> String {
    match blocking_descendant(link, run).await {
        Ok(Some(text)) => text,
        _ => tree::pause(run),
    }
}
