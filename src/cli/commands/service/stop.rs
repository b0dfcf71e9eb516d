//! `abide service stop`: stops the daemon under its service manager, if asked after all runs have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{ScopeArgs, installed};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, duration};
use crate::cli::link::DaemonLink;
use crate::cli::link::discover::Where;
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::lifecycle::CancelRun;
use crate::wire::runs::{ListRuns, State};

/// Polling interval of the open runs.
const LOOK: Duration = Duration::from_millis(100);
/// The states of open runs.
const OPEN: [State; 4] = [
    State::Queued,
    State::Running,
    State::Paused,
    State::Settling,
];
const REASON: &str = "the service was stopped with all runs";

/// Stop the service until the next boot or login
///
/// Open runs stop at a step and continue with the next start. Programs of runs go on meanwhile, until
/// their time limit. With --with-runs every open run is cancelled first, so that nothing goes on.
#[derive(Debug, Args)]
#[command(after_help = "abide service stop
abide service stop --with-runs")]
pub(super) struct ServiceStopArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Cancel all open runs first, and wait until they have ended
    #[arg(long)]
    with_runs: bool,

    /// With --with-runs: how long to wait for them [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "with_runs")]
    timeout: Option<Duration>,
}

impl ServiceStopArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let (manager, place) = installed(self.scope)?;
        let mut cancelled = 0;
        if self.with_runs && manager.state()?.running {
            let limit = self.timeout.unwrap_or(Duration::from_secs(60));
            let mut interrupt = CtrlC::new()?;
            cancelled = tokio::select! {
                ended = end_runs(&place, limit) => ended?,
                () = interrupt.pressed() => {
                    print::note("the service was not stopped; runs that were cancelled stay cancelled");
                    return Ok(exit::NOT_ENDED);
                }
            };
        }
        manager.stop()?;
        if common.json {
            print::object(&json!({ "stopped": true, "cancelled": cancelled }))?;
            return Ok(0);
        }
        let flag = self.scope.scope().flag();
        print::folded(&match (self.with_runs, cancelled) {
            (false, _) => {
                "stopped; all accepted work is kept, and programs of runs go on until their time \
                           limit"
                    .to_owned()
            }
            (true, 0) => "stopped; no run was open".to_owned(),
            (true, 1) => "stopped; 1 run was cancelled".to_owned(),
            (true, count) => format!("stopped; {count} runs were cancelled"),
        })?;
        print::note(&format!("start it again: abide service restart{flag}"));
        Ok(0)
    }
}

/// Once this returns, no run is open. Returns how many were cancelled. Announces of cancelled runs may
/// begin new ones, which are cancelled as well.
async fn end_runs(place: &Where, limit: Duration) -> Result<usize, Failure> {
    let clock = Clock::system();
    let began = clock.monotonic();
    let link = DaemonLink::open(place).await?;
    let mut cancelled = BTreeSet::new();
    loop {
        let open = open_runs(&link).await?;
        if open.is_empty() {
            return Ok(cancelled.len());
        }
        for run_id in &open {
            let order = CancelRun {
                run_id: *run_id,
                reason: Some(REASON.to_owned()),
            };
            match link.ask(&order).await {
                Ok(_) => cancelled.insert(*run_id),
                // It has ended meanwhile.
                Err(failure) if failure.code == exit::NOT_FOUND => false,
                Err(failure) => return Err(failure),
            };
        }
        if clock.monotonic() - began > limit {
            return Err(still_open(open_runs(&link).await?.len()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn still_open(count: usize) -> Failure {
    let message =
        format!("{count} runs are cancelled but have not ended yet. The service was not stopped");
    Failure::new(exit::NOT_ENDED, "not_ended", message)
        .hint("see them: abide ps; wait longer: --timeout 10m")
        .hint("stop without waiting; what is left is ended by the next start: abide service stop")
}

/// Runs that are open now, at most a page of them.
async fn open_runs(link: &DaemonLink) -> Result<Vec<RunId>, Failure> {
    let filter = ListRuns {
        states: OPEN.to_vec(),
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let listed = link.ask(&filter).await?;
    Ok(listed.runs.iter().map(|run| run.run_id).collect())
}
