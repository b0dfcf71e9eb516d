//! What a run waits for that a person can give, where it is another run that needs it. Used where
//! runs are waited for and shown.

use super::failure::Failure;
use super::link::Link;
use super::text::short;
use super::{tree, view};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;

/// What a run needs of a person, by why it is paused.
fn need(run: &Run) -> Option<&'static str> {
    match run.pause_reason.as_deref()? {
        "approval" => Some("your approval"),
        "review" => Some("your review"),
        "input" if run.env.iter().any(|one| one.missing.is_some()) => Some("a value"),
        "input" => Some("your answer"),
        _ => None,
    }
}

/// Which run below a paused one needs a person, in words.
pub(crate) async fn below(link: &Link, run: &Run) -> Result<Option<String>, Failure> {
    if &*run.state != "paused" || need(run).is_some() {
        return Ok(None);
    }
    let all = view::tree_of(link, run.run_id).await?;
    let other = |one: &&Run| one.run_id != run.run_id && &*one.state == "paused";
    let mut others = all.iter().filter(other);
    Ok(others.find_map(|one| Some(waits_for(one, need(one)?))))
}

/// Which turn of the same session a queued one stands behind, in words.
pub(crate) async fn of_queued(link: &Link, run: &Run) -> Result<Option<String>, Failure> {
    let request = ListRuns {
        session_key: Some(run.session_key.clone()),
        states: vec![State::Paused],
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let turns = link.ask::<Runs>("runs.list", &request).await?.runs;
    let before = turns.iter().filter(|one| one.run_id != run.run_id);
    for turn in before {
        if let Some(need) = need(turn) {
            return Ok(Some(waits_for(turn, need)));
        }
        if let Some(text) = below(link, turn).await? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn waits_for(run: &Run, need: &str) -> String {
    format!("waits for run {}, which needs {need}", short(run.run_id))
}

/// How a run that holds still stands: by the run that it waits for, where that is known.
pub(crate) async fn standing(link: &Link, run: &Run) -> String {
    match below(link, run).await {
        Ok(Some(text)) => text,
        _ => tree::pause(run),
    }
}
