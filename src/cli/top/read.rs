//! Reads for `abide top` what events say has changed, soon after they have said it. While nothing
//! happens, nothing is asked.

use std::collections::HashSet;
use std::time::Duration;

use super::model::{ENDED, Model};
use crate::cli::asked::{self, Asked};
use crate::cli::failure::Failure;
use crate::cli::link::{self, Link};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::gateway::NoParams;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;

/// What happens within this time is read at once.
const TOGETHER: Duration = Duration::from_millis(100);
/// After a reading that has failed it is tried again.
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

/// The events that change the picture.
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

/// What has changed since it was read.
pub(super) struct Reader {
    clock: Clock,
    runs: bool,
    asked: bool,
    status: bool,
    /// When that is to be read, by the clock; `None`: nothing has changed.
    due: Option<Duration>,
    /// What people were asked when that was read last.
    known: Vec<Asked>,
}

impl Reader {
    /// Nothing has changed.
    pub(super) fn new(clock: Clock) -> Reader {
        Reader {
            clock,
            runs: false,
            asked: false,
            status: false,
            due: None,
            known: Vec::new(),
        }
    }

    /// Everything is to be read.
    pub(super) fn anew(&mut self) {
        (self.runs, self.asked, self.status) = (true, true, true);
        self.soon();
    }

    /// Takes over what an event says has changed.
    pub(super) fn hear(&mut self, event: &Event) {
        let kind = event.kind.as_str();
        let group = kind.split('.').next().unwrap_or(kind);
        match group {
            "approval" | "question" => (self.runs, self.asked, self.status) = (true, true, true),
            // A run that ends takes what it has asked with it.
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

    /// Returns when something is to be read.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep(due.saturating_sub(self.clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    /// Reads it. A link that is lost is found again by the subscription, and then all is read.
    pub(super) async fn read(&mut self, link: &Link, model: &mut Model) -> Result<(), Failure> {
        self.due = None;
        match self.read_changed(link, model).await {
            Err(failure) if link::is_broken(&failure) || failure.kind == "unavailable" => {
                self.due = Some(self.clock.monotonic() + AGAIN);
                Ok(())
            }
            read => read,
        }
    }

    async fn read_changed(&mut self, link: &Link, model: &mut Model) -> Result<(), Failure> {
        if self.status {
            model.status = Some(link.ask("gateway.status", NoParams {}).await?);
            self.status = false;
        }
        if self.asked {
            self.known = asked::open(link, None).await?;
            self.asked = false;
        }
        if self.runs {
            let (mut runs, more) = runs(link, &OPEN, PAGE_LIMIT).await?;
            let (over, _) = self::runs(link, &OVER, ENDED).await?;
            // A run that ended between the two questions is in both answers.
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

async fn runs(link: &Link, states: &[State], limit: u32) -> Result<(Vec<Run>, bool), Failure> {
    let request = ListRuns {
        states: states.into(),
        limit: PageSize(limit),
        ..ListRuns::default()
    };
    let page: Runs = link.ask("runs.list", &request).await?;
    Ok((page.runs, page.next_cursor.is_some()))
}
