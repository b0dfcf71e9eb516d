//! `abide stop`: stops the daemon gracefully and returns once it is gone, or is up again.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, duration};
use crate::cli::link::discover::{NO_DAEMON, process_exists};
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::text::{clean, short, span};
use crate::clock::Clock;
use crate::contract::control::Then;
use crate::kernel::fault::Kind;
use crate::kernel::ids::BootId;
use crate::wire::gateway::{Drain, Draining, GetStatus, Status};
use crate::wire::input::{DrainTimeout, PageSize};
use crate::wire::runs::{ListRuns, State};

/// Polling interval of the process.
const LOOK: Duration = Duration::from_millis(20);
/// How long a daemon that has ended may take to be up again.
const UP_AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of awaited runs that are named.
const NAMED: usize = 5;

/// Stop the daemon gracefully
///
/// Returns once its process is gone, or with --restart once it is up again. Runs stop at a step and
/// continue with the next start; their programs go on meanwhile, until their limits. If no daemon runs, there is nothing to do, which is not an error.
#[derive(Debug, Args)]
#[command(after_help = "abide stop --timeout 10s")]
pub(crate) struct StopArgs {
    /// Deadline for steps in flight, such as 30s [default: as configured]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,

    /// Restart the daemon: by its supervisor or, without one, by itself
    #[arg(long)]
    restart: bool,
}

impl StopArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let is_nothing = |none: &Failure| {
            none.kind == NO_DAEMON && !self.restart && !common.place.may_be_there()
        };
        // Asked before a connection is made, which would start a daemon whose socket a service manager
        // holds.
        if let Err(none) = common.place.target()
            && is_nothing(&none)
        {
            return not_running(common, &none);
        }
        let link = match DaemonLink::open(&common.place).await {
            // A daemon that does not answer, or speaks another protocol, may be running.
            Err(none) if is_nothing(&none) => return not_running(common, &none),
            opened => opened?,
        };
        let before: Status = link.ask(&GetStatus {}).await?;
        let mut interrupt = CtrlC::new()?;
        let order = Drain {
            then: if self.restart {
                Then::Restart
            } else {
                Then::Stop
            },
            timeout: self.timeout.map(DrainTimeout),
        };
        let asked: Result<Draining, Failure> = link.ask(&order).await;
        let drain_timeout = match asked {
            Ok(draining) => {
                if !common.json && before.counts.running > 0 {
                    name_runs(&link, before.counts.running, draining.timeout_ms).await;
                }
                Duration::from_millis(draining.timeout_ms)
            }
            // Another client has already requested the stop: wait for it, too.
            Err(failure) if failure.kind == Kind::Conflict.as_str() && !self.restart => {
                Duration::MAX
            }
            Err(failure) => return Err(failure),
        };
        let here = link.target.is_here();
        drop(link);
        let over = async {
            if self.restart {
                let limit = drain_timeout.saturating_add(UP_AGAIN);
                wait_until_up_again(common, before.boot_id, limit).await
            } else {
                wait_until_gone(common, here, before.pid)
                    .await
                    .map(|()| None)
            }
        };
        let again = tokio::select! {
            over = over => over?,
            () = interrupt.pressed() => {
                print::note("the daemon is still stopping; abide status shows when it has stopped");
                return Ok(exit::NOT_ENDED);
            }
        };
        match (again, common.json) {
            (None, true) => print::object(&json!({ "stopped": true, "pid": before.pid }))?,
            (None, false) => print::note(&stopped(Some(before.kept_programs.len()))),
            (Some(status), true) => {
                print::object(&json!({ "restarted": true, "pid": status.pid, "url": status.url }))?
            }
            (Some(status), false) => print::note(&format!(
                "restarted: process {}, {}",
                status.pid, status.url
            )),
        }
        Ok(0)
    }
}

/// The message about a daemon that has stopped, which had this many programs of runs; `None`: unknown.
pub(super) fn stopped(programs: Option<usize>) -> String {
    let kept = "stopped; all accepted work is kept";
    match programs {
        Some(0) => kept.to_owned(),
        Some(1) => format!("{kept}, and 1 program of a run goes on until its limits"),
        Some(count) => format!("{kept}, and {count} programs of runs go on until their limits"),
        None => format!("{kept}, and programs of runs go on until their limits"),
    }
}

/// Reports that no daemon is running.
fn not_running(common: &Common, none: &Failure) -> Result<u8, Failure> {
    if common.json {
        print::object(&json!({ "stopped": false, "message": none.message }))?;
    } else {
        print::note(&clean(&format!("nothing to stop: {}", none.message)));
    }
    Ok(0)
}

/// Prints the runs that the drain waits for. Optional: if they cannot be read, the stop goes on.
async fn name_runs(link: &DaemonLink, running: u64, timeout_ms: u64) {
    let filter = ListRuns {
        states: vec![State::Running],
        limit: PageSize(NAMED as u32),
        ..ListRuns::default()
    };
    let Ok(listed) = link.ask(&filter).await else {
        return;
    };
    let names: Vec<String> = listed
        .runs
        .iter()
        .map(|run| match &run.label {
            Some(label) => format!("{label} ({})", short(run.run_id)),
            None => short(run.run_id),
        })
        .collect();
    if names.is_empty() {
        return;
    }
    let more = running.saturating_sub(names.len() as u64);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    print::note(&clean(&format!(
        "waiting up to {} for the steps of {}{more}",
        span(timeout_ms),
        names.join(", ")
    )));
}

/// Waits until the process is gone. Its lock on the state folder ends with it, so a new start may
/// follow at once.
async fn wait_until_gone(common: &Common, here: bool, pid: u32) -> Result<(), Failure> {
    loop {
        let gone = if here {
            !process_exists(pid)
        } else {
            matches!(
                DaemonLink::open(&common.place).await,
                Err(failure) if failure.code == exit::NO_DAEMON
            )
        };
        if gone {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a new process of the daemon is ready.
async fn wait_until_up_again(
    common: &Common,
    before: BootId,
    most: Duration,
) -> Result<Option<Status>, Failure> {
    let clock = Clock::system();
    let began = clock.monotonic();
    loop {
        if let Some(status) = link::ready(&common.place, Some(before)).await {
            return Ok(Some(status));
        }
        if clock.monotonic() - began > most {
            return Err(Failure::new(
                exit::NO_DAEMON,
                "not_restarted",
                "the daemon stopped or is stopping, but did not restart in time; all accepted work is kept",
            )
            .hint("check it: abide status; start it: abide serve --detach"));
        }
        tokio::time::sleep(LOOK).await;
    }
}
