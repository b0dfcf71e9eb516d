//! Reads for `abide top` what events report as changed, shortly after them. Without events nothing
//! is read.

use std::collections::HashSet;
use std::time::Duration;

use super::model::{ENDED, TopModel};
use crate::cli::asking::open_requests;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::common::failure::Failure;
use crate::cli::link::{self, DaemonLink};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::gateway::GetStatus;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;

/// Changes within this time are read together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Delay until a failed read is tried again.
const AGAIN: Duration = Duration::from_millis(500);

const OPEN: [State; 4] = [
    State::Running,
    State::Paused,
    State::Settling,
    State::Queued,
];
const OVER: [State; 5] = [
    State::Ok,
    State::Error,
    State::Timeout,
    State::Cancelled,
    State::Interrupted,
];

/// Subscription to the events that change the screen.
pub(super) fn events() -> SubscribeEvents {
    let kinds = [
        "run.*",
        "tool.started",
        "tool.completed",
        "approval.*",
        "question.*",
        "env.missing",
        "env.provided",
        "announce.*",
        "session.deleted",
        "provider.health",
        "gateway.*",
    ];
    SubscribeEvents {
        kinds: kinds.map(str::to_owned).into(),
        ..SubscribeEvents::default()
    }
}

/// What has changed since it was read last.
pub(super) struct ScreenRefresh {
    clock: Clock,
    runs: bool,
    asked: bool,
    status: bool,
    /// Time of the next read, by the monotonic clock; `None` if nothing has changed.
    due: Option<Duration>,
    /// The open requests when they were read last.
    known: Vec<OpenRequest>,
}

impl ScreenRefresh {
    /// A reader without changes.
    pub(super) fn new(clock: Clock) -> ScreenRefresh {
        ScreenRefresh {
            clock,
            runs: false,
            asked: false,
            status: false,
            due: None,
            known: Vec::new(),
        }
    }

    /// Marks everything as changed.
    pub(super) fn anew(&mut self) {
        (self.runs, self.asked, self.status) = (true, true, true);
        self.soon();
    }

    /// Marks what an event reports as changed.
    pub(super) fn hear(&mut self, event: &Event) {
        let kind = event.kind.as_str();
        let group = kind.split('.').next().unwrap_or(kind);
        match group {
            "approval" | "question" => (self.runs, self.asked, self.status) = (true, true, true),
            // The requests of a run are closed when it ends.
            "run" if kind == "run.ended" => {
                (self.runs, self.asked, self.status) = (true, true, true);
            }
            "run" if kind != "run.step" => (self.runs, self.status) = (true, true),
            "run" | "tool" | "env" | "session" => self.runs = true,
            _ => self.status = true,
        }
        self.soon();
    }

    fn soon(&mut self) {
        self.due.get_or_insert(self.clock.monotonic() + TOGETHER);
    }

    /// Waits until something is to be read.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep(due.saturating_sub(self.clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    /// Reads what has changed. The subscription restores a lost connection, after which everything
    /// is read.
    pub(super) async fn read(
        &mut self,
        link: &DaemonLink,
        model: &mut TopModel,
    ) -> Result<(), Failure> {
        self.due = None;
        match self.read_changed(link, model).await {
            Err(failure) if link::is_broken(&failure) || failure.kind == "unavailable" => {
                self.due = Some(self.clock.monotonic() + AGAIN);
                Ok(())
            }
            read => read,
        }
    }

    async fn read_changed(
        &mut self,
        link: &DaemonLink,
        model: &mut TopModel,
    ) -> Result<(), Failure> {
        if self.status {
            model.status = Some(link.ask(&GetStatus {}).await?);
            self.status = false;
        }
        if self.asked {
            self.known = open_requests::open(link, None).await?;
            self.asked = false;
        }
        if self.runs {
            let (mut runs, more) = runs(link, &OPEN, PAGE_LIMIT).await?;
            let (over, _) = self::runs(link, &OVER, ENDED).await?;
            // A run that ended between the two requests is in both replies.
            let ended: HashSet<RunId> = over.iter().map(|run| run.run_id).collect();
            runs.retain(|run| !ended.contains(&run.run_id));
            runs.extend(over);
            model.take_runs(runs, more);
            self.runs = false;
        }
        model.take_asked(self.known.clone());
        Ok(())
    }
}

async fn runs(
    link: &DaemonLink,
    states: &[State],
    limit: u32,
) -> Result<(Vec<Run>, bool), Failure> {
    let request = ListRuns {
        states: states.into(),
        limit: PageSize(limit),
        ..ListRuns::default()
    };
    let page: Runs = link.ask(&request).await?;
    Ok((page.runs, page.next_cursor.is_some()))
}
