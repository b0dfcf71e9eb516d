//! `abide cancel`: cancels runs, or everything in a session, with all descendants.

use clap::Args;

use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids::RunOrSession;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::kernel::ids::RunId;
use crate::wire::lifecycle::{CancelRun, CancelSession, Cancelled};
use crate::wire::shapes::Run;

/// Cancel runs and all their descendants
///
/// Work done so far is kept. A session key cancels everything that is open in that session. Returns
/// once none of it is running any more. In a cancelled session no agent is called and no run starts
/// until you start new work there.
#[derive(Debug, Args)]
#[command(after_help = r#"abide cancel @last --reason "no longer needed"
abide cancel agent:build:chat
abide cancel agent:build:chat --all"#)]
pub(crate) struct CancelArgs {
    /// Runs or sessions
    #[arg(required = true, value_name = "RUN|SESSION")]
    what: Vec<String>,

    /// Cancel the whole conversation of a session or run: all sessions below it, pending work
    /// there, and requests it has sent to other sessions
    #[arg(long)]
    all: bool,

    /// Reason, for those who inspect the runs later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl CancelArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let mut code = 0;
        for what in &self.what {
            let named = match self.all {
                true => RunOrSession::Session(ids::session(&link, what).await?),
                false => ids::either(&link, what).await?,
            };
            let raw = match named {
                RunOrSession::Run(run_id) => {
                    let reason = self.reason.clone();
                    link.raw(&CancelRun { run_id, reason }).await?
                }
                RunOrSession::Session(session_key) => {
                    let reason = self.reason.clone();
                    let request = CancelSession {
                        session_key,
                        all: self.all,
                        reason,
                    };
                    link.raw(&request).await?
                }
            };
            let done: Cancelled = link::read(&raw)?;
            if common.json {
                print::object(&raw)?;
            } else {
                print::answer(&summary(what, &done))?;
                if self.all {
                    print::note("no agent runs there until you start new work");
                }
            }
            if !done.not_ended.is_empty() {
                code = exit::NOT_ENDED;
            }
        }
        Ok(code)
    }
}

/// The run is cancelled, or marked to end, once this returns; prints a summary.
pub(crate) async fn after_second_ctrl_c(link: &DaemonLink, run_id: RunId) -> Result<Run, Failure> {
    let reason = Some("Ctrl-C".to_owned());
    let done: Cancelled = link.ask(&CancelRun { run_id, reason }).await?;
    print::note(&summary(&text::short(run_id), &done));
    ids::details(link, run_id).await
}

/// Summary of a cancellation, one line for each group of runs.
fn summary(what: &str, done: &Cancelled) -> String {
    let list = |runs: &[RunId]| {
        let shown: Vec<String> = runs.iter().take(6).map(text::short).collect();
        match runs.len() - shown.len() {
            0 => shown.join(" "),
            more => format!("{} and {more} more", shown.join(" ")),
        }
    };
    let what = text::line(what, 40);
    let mut lines = Vec::new();
    if !done.cancelled.is_empty() {
        lines.push(format!("cancelled: {}", list(&done.cancelled)));
    }
    if !done.already_ended.is_empty() {
        lines.push(format!("already ended: {}", list(&done.already_ended)));
    }
    if !done.not_ended.is_empty() {
        lines.push(format!(
            "marked to end, still running: {}; see: abide ps",
            list(&done.not_ended)
        ));
    }
    if lines.is_empty() {
        lines.push(format!("nothing to cancel in {what}"));
    }
    lines.join("\n")
}
