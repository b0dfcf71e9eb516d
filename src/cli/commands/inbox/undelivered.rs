//! `abide inbox --undelivered`, `--retry` and `--dismiss`: undelivered announcements.

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::live::tree;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, age, short};
use crate::clock::Clock;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::lifecycle::{AnnounceDecided, DismissAnnounce, RetryAnnounce};
use crate::wire::runs::{ListRuns, Runs};

/// Lists the runs whose announcement is not delivered or not acknowledged yet.
pub(crate) async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let mut request = ListRuns {
        undelivered: true,
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let now = Clock::system().now();
    let heads = ["RUN", "STATE", "NAME", "ENDED", "WHY", "FOR"];
    let mut table = TextTable::new(&heads).painted(1, tree::colour);
    let mut shown = 0;
    loop {
        let raw = link.raw(&request).await?;
        let page: Runs = link::read(&raw)?;
        if common.json {
            print::object(&raw)?;
        } else {
            for run in &page.runs {
                let why = match (&*run.announce.state, &run.announce.held) {
                    ("undelivered", Some(why)) => format!("held: {why}"),
                    ("pending", _) => "waits for a turn to end".to_owned(),
                    _ => "is in the inbox".to_owned(),
                };
                table.row(vec![
                    short(run.run_id),
                    run.state.to_string(),
                    tree::name(run).to_owned(),
                    run.ended_at.map_or_else(String::new, |at| age(at, now)),
                    why,
                    // The key is last, because that column may be cut.
                    run.parent
                        .as_ref()
                        .map_or("none", |key| key.as_str())
                        .to_owned(),
                ]);
            }
        }
        shown += page.runs.len();
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    if common.json {
        return Ok(0);
    }
    if shown == 0 {
        print::note("nothing is undelivered: every end was announced");
    } else {
        print::answer(&table.lines().join("\n"))?;
        print::note(
            "deliver one again: abide inbox --retry RUN; drop one: abide inbox --dismiss RUN",
        );
    }
    Ok(0)
}

/// What to do with an undelivered announcement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndeliveredAction {
    Retry,
    Dismiss,
}

/// The announcements of these runs are retried or dismissed once this returns.
pub(crate) async fn decide(
    link: &DaemonLink,
    common: &Common,
    decision: UndeliveredAction,
    runs: &[String],
) -> Result<u8, Failure> {
    for text in runs {
        let run_id = ids::run(link, text).await?;
        let raw = match decision {
            UndeliveredAction::Retry => link.raw(&RetryAnnounce { run_id }).await?,
            UndeliveredAction::Dismiss => link.raw(&DismissAnnounce { run_id }).await?,
        };
        if common.json {
            print::object(&raw)?;
            continue;
        }
        let done: AnnounceDecided = link::read(&raw)?;
        let what = match (decision, done.wake_run_id) {
            (UndeliveredAction::Dismiss, _) => {
                "will not be announced; its result: abide wait".to_owned()
            }
            (_, Some(wake)) => format!(
                "is delivered again by run {}; follow it: abide wait",
                short(wake)
            ),
            (_, None) => "is announced again; its result: abide wait".to_owned(),
        };
        let follow = done.wake_run_id.unwrap_or(run_id);
        print::note(&format!(
            "the end of {} {what} {}",
            short(run_id),
            short(follow)
        ));
    }
    Ok(0)
}
