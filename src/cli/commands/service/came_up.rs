//! Waits until the daemon of a service answers: that the manager accepted the unit says nothing about
//! the daemon.

use std::process::Command;
use std::time::Duration;

use super::manager::{ServiceLog, ServiceManager, ServiceState};
use crate::cli::commands::logs;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::discover::Where;
use crate::cli::output::text::clean;
use crate::clock::Clock;
use crate::kernel::ids::BootId;
use crate::wire::gateway::Status;

/// How long a daemon may take to answer: the units give the previous process 90 s for its drain, and a
/// start gets a minute.
const LIMIT: Duration = Duration::from_secs(150);
/// Polling interval of the daemon.
const LOOK: Duration = Duration::from_millis(50);
/// Number of polls between two questions to the service manager.
const LOOKS_A_QUESTION: u32 = 10;
/// Number of last lines of the log that a failure shows.
const LINES: usize = 12;

/// The status of the service's daemon once it is ready. It is another process than that of `before`. If
/// it does not come up, the failure has the last lines of its log.
pub(super) async fn ready(
    manager: &dyn ServiceManager,
    place: &Where,
    before: Option<BootId>,
) -> Result<Status, Failure> {
    let clock = Clock::system();
    let began = clock.monotonic();
    let mut looks = 0;
    let state = loop {
        if let Some(status) = link::ready(place, before).await {
            return Ok(status);
        }
        let is_over = clock.monotonic() - began > LIMIT;
        looks += 1;
        if is_over || looks % LOOKS_A_QUESTION == 0 {
            let state = manager.state()?;
            if is_over || state.failed {
                break state;
            }
        }
        tokio::time::sleep(LOOK).await;
    };
    Err(not_ready(manager, &state))
}

fn not_ready(manager: &dyn ServiceManager, state: &ServiceState) -> Failure {
    let code = state.exit_status.filter(|_| state.failed);
    let what = state.reason().unwrap_or("the reason is in its log");
    let state = match code {
        Some(code) => format!("{}, exit status {code}: {what}", state.state),
        None => state.state.clone(),
    };
    let log = last_lines(&manager.log());
    let log = match log.is_empty() {
        true => "Its log is empty".to_owned(),
        false => format!("The end of its log:\n{log}"),
    };
    let flag = manager.scope().flag();
    let message = format!(
        "the service is installed and enabled, but its daemon did not come up ({state}). {log}"
    );
    Failure::new(code.unwrap_or(exit::FAILED), "not_started", message)
        .hint(format!(
            "when the cause is removed: abide service restart{flag}"
        ))
        .hint(format!("to see more: abide service logs{flag}"))
        .hint(format!(
            "to remove the service: abide service uninstall{flag}"
        ))
}

/// The last lines of the log; empty if they cannot be read.
fn last_lines(log: &ServiceLog) -> String {
    let text = match log {
        ServiceLog::File(path) => logs::daemon::last_lines(path, LINES).unwrap_or_default(),
        ServiceLog::Journal(arguments) => {
            let mut command = Command::new("journalctl");
            command
                .args(arguments)
                .args(["--no-pager", "--output", "cat", "--lines"]);
            let output = command.arg(LINES.to_string()).output();
            output.map_or(Vec::new(), |output| output.stdout)
        }
    };
    clean(String::from_utf8_lossy(&text).trim())
}
