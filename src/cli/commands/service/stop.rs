//! `abide service stop`: stops the daemon under its service manager, if asked after all runs have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::manager::ServiceManager;
use super::{InstalledService, ScopeArgs, came_up, refuse_other_daemon};
use crate::cli::commands::stop::stopped;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, duration};
use crate::cli::link::discover::Where;
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::clock::Clock;
use crate::wire::lifecycle::CancelAllRuns;

/// Polling interval of the open runs.
const LOOK: Duration = Duration::from_millis(100);
const REASON: &str = "the service was stopped with all runs";
/// What has become of a service that was down, if its runs did not end.
const STARTED: &str =
    "the service had been down; it was started to cancel the runs, and is running";

/// Stop the service until the next boot or login
///
/// Open runs stop at a step and continue with the next start. Programs of runs go on meanwhile, until
/// their limits. With --with-runs every open run of every org is cancelled first, so that nothing goes
/// on; if the daemon is down, it is started for that.
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
        let service = InstalledService::find(self.scope, common)?;
        let manager = &*service.manager;
        let mut cancelled = 0;
        let mut programs = None;
        if self.with_runs {
            let limit = self.timeout.unwrap_or(Duration::from_secs(60));
            let mut interrupt = CtrlC::new()?;
            let mut was_started = false;
            let ended = tokio::select! {
                ended = end_runs(&service, limit, &mut was_started) => Some(ended),
                () = interrupt.pressed() => None,
            };
            let Some(ended) = ended else {
                let what = match was_started {
                    true => STARTED,
                    false => "the service was not stopped",
                };
                print::note(&format!("{what}; runs that were cancelled stay cancelled"));
                return Ok(exit::NOT_ENDED);
            };
            cancelled = ended?;
        } else if let Some(place) = service.place() {
            programs = match manager.state()?.running {
                true => link::answering(&place).await,
                false => None,
            };
        }
        let programs = programs.map(|status| status.kept_programs.len());
        manager.stop()?;
        if common.json {
            print::object(&json!({ "stopped": true, "cancelled": cancelled }))?;
            return Ok(0);
        }
        let flag = self.scope.scope().flag();
        print::folded(&match (self.with_runs, cancelled) {
            (false, _) => stopped(programs),
            (true, 0) => "stopped; no run was open".to_owned(),
            (true, 1) => "stopped; 1 run was cancelled".to_owned(),
            (true, count) => format!("stopped; {count} runs were cancelled"),
        })?;
        print::note(&format!("start it again: abide service restart{flag}"));
        Ok(0)
    }
}

/// Once this returns, no run of any org is open. Returns how many were cancelled. The announce of a
/// cancelled run may start a new run, which is cancelled as well. `was_started` becomes true if the service
/// was down and is started for this.
async fn end_runs(
    service: &InstalledService,
    limit: Duration,
    was_started: &mut bool,
) -> Result<usize, Failure> {
    let state = service.folder()?;
    let place = Where::folder(state);
    let manager = &*service.manager;
    if !manager.state()?.running {
        if !state.exists() {
            return Ok(0);
        }
        refuse_other_daemon(manager, state).await?;
        print::note("the daemon is not running; it is started to cancel the runs that are open");
        *was_started = true;
        manager.restart()?;
        if let Err(failure) = came_up::ready(manager, &place, None).await {
            return Err(stopped_again(manager, failure));
        }
    }
    let clock = Clock::system();
    let began = clock.monotonic();
    let link = DaemonLink::open(&place).await?;
    let mut cancelled = BTreeSet::new();
    let mut not_ended = Vec::new();
    loop {
        let order = CancelAllRuns {
            run_ids: not_ended,
            reason: Some(REASON.to_owned()),
        };
        let done = link.ask(&order).await?;
        cancelled.extend(done.cancelled);
        not_ended = done.not_ended;
        if done.open == 0 && not_ended.is_empty() {
            return Ok(cancelled.len());
        }
        if clock.monotonic() - began > limit {
            return Err(still_open(done.open, *was_started));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Stops a service whose daemon did not come up. A stop that fails as well must not hide why.
fn stopped_again(manager: &dyn ServiceManager, failure: Failure) -> Failure {
    let failure =
        failure.hint("its runs are still open, and their programs go on until their limits");
    match manager.stop() {
        Ok(()) => failure,
        Err(also) => failure.hint(format!(
            "it could not be stopped again: {}; stop it: abide service stop{}",
            also.message,
            manager.scope().flag()
        )),
    }
}

fn still_open(count: u64, was_started: bool) -> Failure {
    let open = match count {
        1 => "1 run is still open".to_owned(),
        _ => format!("{count} runs are still open"),
    };
    let message = match was_started {
        true => format!("{open}; {STARTED}"),
        false => format!("{open}. The service was not stopped"),
    };
    Failure::new(exit::NOT_ENDED, "not_ended", message)
        .hint("see them: abide ps; wait longer: --timeout 10m")
        .hint("stop without waiting; what is left is ended by the next start: abide service stop")
}
