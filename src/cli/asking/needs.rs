//! What runs need from a user, with the commands that provide it. Used by the commands that wait
//! for runs, so that no wait blocks silently.

use std::collections::HashSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::open_requests::{self, OpenRequest};
use super::person::is_at_the_terminal;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::short;
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::ListRuns;
use crate::wire::shapes::Run;

/// What was announced during one wait, and how.
pub(crate) struct Needs {
    announced: HashSet<Uuid>,
    json: bool,
    /// Questions, approvals and values are prompted for elsewhere, so they are not announced.
    has_prompts: bool,
    is_attended: bool,
}

/// Something that a user must provide.
struct Need {
    id: Uuid,
    is_prompted: bool,
    text: String,
    json: Value,
}

impl Needs {
    /// With `json` each announcement is an object on standard output, otherwise a note.
    pub(crate) fn new(json: bool, has_prompts: bool) -> Needs {
        Needs {
            announced: HashSet::new(),
            json,
            has_prompts,
            is_attended: is_at_the_terminal() && print::notes_are_watched(),
        }
    }

    /// Announces what the runs in and below these sessions need, unless it was announced before.
    /// `true`: they need something, and no user is at the terminal.
    pub(crate) async fn announce(
        &mut self,
        link: &DaemonLink,
        sessions: &[SessionKey],
        mut say: impl FnMut(&str),
    ) -> Result<bool, Failure> {
        let mut found = Vec::new();
        for session in sessions {
            match open(link, session).await {
                // The subscription reconnects.
                Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {}
                open => found.extend(open?),
            }
        }
        for need in &found {
            if !self.announced.insert(need.id) || (self.has_prompts && need.is_prompted) {
                continue;
            }
            match self.json {
                true => print::object(&json!({ "needsPerson": need.json }))?,
                false => say(&need.text),
            }
        }
        Ok(!found.is_empty() && !self.is_attended)
    }
}

async fn open(link: &DaemonLink, session: &SessionKey) -> Result<Vec<Need>, Failure> {
    let mut found: Vec<Need> = open_requests::in_brief(link, session)
        .await?
        .iter()
        .map(of_asked)
        .collect();
    let request = ListRuns {
        needs_review: true,
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    for run in link.ask(&request).await?.runs {
        if open_requests::is_in_session_subtree(link, session, &run).await? {
            found.push(of_review(&run));
        }
    }
    Ok(found)
}

fn of_asked(asked: &OpenRequest) -> Need {
    let (kind, run, command) = asked.kind_run_command();
    let now = Clock::system().now();
    let (message, shown) = (
        asked.in_short(now, None),
        asked.in_short(now, print::notes_width()),
    );
    Need {
        id: asked.id(),
        is_prompted: true,
        text: format!("{shown}\n  {command}"),
        json: json!({
            "kind": kind, "runId": run, "message": message, "command": command,
        }),
    }
}

fn of_review(run: &Run) -> Need {
    let digits = short(run.run_id);
    let name = run.label.as_deref().unwrap_or(run.agent.as_str());
    let reason = run
        .reviews
        .iter()
        .find_map(|review| review.reason.as_deref());
    let reason = reason.unwrap_or("the daemon was killed during a call");
    let message =
        format!("! {name} (run {digits}) needs a review, a call may have happened: {reason}");
    let command = format!("abide review {digits} done|not-done|abort");
    Need {
        id: run.run_id.0,
        is_prompted: false,
        text: format!("{message}\n  inspect it: abide review; resolve it: {command}"),
        json: json!({
            "kind": "review", "runId": run.run_id, "message": message, "command": command,
        }),
    }
}
