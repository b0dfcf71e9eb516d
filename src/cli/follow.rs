//! Waiting for runs and showing how they go on. Used by `run`, `wait` and `demo`.
//!
//! There is no event subscription yet: short waits take its place. A wait that the daemon
//! ends early costs nothing, so the answer comes as soon as the last run has ended.

use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::discover::Where;
use super::failure::Failure;
use super::link::{self, Link};
use super::print;
use super::view::View;
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited};
use crate::wire::shapes::Step;

/// How long one wait lasts while somebody watches.
const GLANCE: Duration = Duration::from_millis(200);
/// How long one wait lasts while nobody does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ctrl-C. From the moment that this is made, it no longer ends the program.
pub(crate) struct Interrupt(Signal);

impl Interrupt {
    /// Made before there is anything that a person would want to come back to.
    pub(crate) fn new() -> Result<Interrupt, Failure> {
        signal(SignalKind::interrupt())
            .map(Interrupt)
            .map_err(|error| Failure::local("Ctrl-C cannot be watched for", error))
    }

    /// Returns when it was pressed.
    pub(crate) async fn pressed(&mut self) {
        self.0.recv().await;
    }
}

/// What to wait for.
pub(crate) struct Task<'a> {
    /// The runs.
    pub(crate) ids: &'a [RunId],
    /// One of them is enough.
    pub(crate) any: bool,
    /// How long; `None` = until they have ended.
    pub(crate) window: Option<Duration>,
    /// Show how they go on.
    pub(crate) show: bool,
}

/// How the waiting ended.
pub(crate) enum End {
    /// What was waited for has ended; the daemon's last answer.
    Done(Value),
    /// The window passed; the daemon's last answer.
    Window(Value),
    /// The person wants to do something else. The runs go on.
    Detached,
}

/// Waits for runs, re-attaching when the link is lost. Changes nothing about the runs.
pub(crate) async fn follow(
    mut link: Link,
    place: &Where,
    task: Task<'_>,
    interrupt: &mut Interrupt,
) -> Result<End, Failure> {
    let clock = Clock::system();
    let started = clock.monotonic();
    let mut view = task.show.then(View::for_people);
    loop {
        let left = task
            .window
            .map(|window| window.saturating_sub(clock.monotonic() - started));
        let glance = if view.is_some() { GLANCE } else { PATIENCE };
        let ask = Wait {
            run_ids: Some(task.ids.to_vec()),
            mode: Some(if task.any {
                WaitMode::Any
            } else {
                WaitMode::All
            }),
            wait_timeout: WaitTimeout(left.map_or(glance, |left| left.min(glance))),
            ..Wait::default()
        };
        let look = async {
            let raw = link.raw("agent.wait", ask).await?;
            let waited: Waited = link::read(&raw)?;
            if let Some(view) = &mut view {
                view.update(&link, &waited).await?;
            }
            Ok::<_, Failure>((raw, waited))
        };
        let looked = tokio::select! {
            looked = look => looked,
            () = interrupt.pressed() => return Ok(End::Detached),
        };
        match looked {
            Ok((raw, waited)) if waited.done => return Ok(End::Done(raw)),
            Ok((raw, _)) if left == Some(Duration::ZERO) => return Ok(End::Window(raw)),
            // A daemon that stops answers every wait at once; its successor knows the rest.
            Ok((_, waited)) if waited.cause == "draining" => tokio::time::sleep(link::RETRY).await,
            Ok(_) => {}
            Err(lost) if link::is_broken(&lost) => {
                let say = |text: &str| match &view {
                    // People are told, which cannot fail.
                    Some(view) => drop(view.tell(text, || Value::Null)),
                    None => print::note(text),
                };
                let find = link::find_again(place, lost, say);
                link = tokio::select! {
                    found = find => found?,
                    () = interrupt.pressed() => return Ok(End::Detached),
                };
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Every step of a run, oldest first.
pub(crate) async fn steps(link: &Link, id: RunId) -> Result<Vec<Step>, Failure> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let page: Steps = link
            .ask(
                "runs.steps",
                ListSteps {
                    run_id: id,
                    limit: PageSize(PAGE_LIMIT),
                    cursor,
                },
            )
            .await?;
        all.extend(page.steps);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}
