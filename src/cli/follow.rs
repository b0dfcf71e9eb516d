//! Waiting for runs and showing how they go on. Used by `run`, `chat`, `attach`, `wait` and
//! `setup`.
//!
//! The rows say whether the runs have ended; a subscription says when to look at them.

use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::discover::Where;
use super::failure::Failure;
use super::link::{self, Link};
use super::live::{Live, News};
use super::person::Person;
use super::print;
use super::view::View;
use crate::kernel::ids::RunId;
use crate::wire::events::SubscribeEvents;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited, WaitedRun};
use crate::wire::shapes::Step;

/// How long after Ctrl-C a second one counts.
const SECOND_THOUGHTS: Duration = Duration::from_secs(2);

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

    /// After it was pressed: is it pressed once more within two seconds?
    pub(crate) async fn pressed_again(&mut self) -> bool {
        print::note("press Ctrl-C once more within 2 s to cancel it");
        tokio::time::timeout(SECOND_THOUGHTS, self.pressed())
            .await
            .is_ok()
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
    /// Whoever is there to be asked what the only run, and those of its session and below it,
    /// ask.
    pub(crate) person: Option<&'a mut Person>,
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

/// Waits for runs, re-attaching when the link is lost. Changes nothing about the runs, apart
/// from what the person decides.
pub(crate) async fn follow(
    link: Link,
    place: &Where,
    task: Task<'_>,
    interrupt: &mut Interrupt,
) -> Result<End, Failure> {
    let request = news_of(&task);
    let window = task.window;
    let view = task.show.then(View::for_people);
    let live = tokio::select! {
        biased;
        () = interrupt.pressed() => return Ok(End::Detached),
        live = Live::open(link, place, request, view, task.person) => live?,
    };
    let mut follow = Follow {
        ids: task.ids,
        any: task.any,
        live,
    };
    let over = async {
        match window {
            Some(window) => tokio::time::sleep(window).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = interrupt.pressed() => return Ok(End::Detached),
        raw = follow.until_done() => return raw.map(End::Done),
        () = over => {}
    }
    let (raw, waited) = follow.look().await?;
    Ok(match waited.done {
        true => End::Done(raw),
        false => End::Window(raw),
    })
}

/// The events after which the runs stand otherwise.
fn news_of(task: &Task<'_>) -> SubscribeEvents {
    let kinds: &[&str] = match (task.show, &task.person) {
        (true, _) => &[
            "run.*",
            "tool.*",
            "sub_agent.call_start",
            "message.added",
            "question.*",
            "approval.*",
        ],
        (false, Some(_)) => &["run.ended", "question.*", "approval.*"],
        (false, None) => &["run.ended"],
    };
    // What runs below it do belongs to the picture.
    let tree = match task.ids {
        [only] => Some(*only),
        _ => None,
    };
    SubscribeEvents {
        tree,
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        deltas: task.show && tree.is_some() && print::notes_are_watched(),
        ..SubscribeEvents::default()
    }
}

struct Follow<'a> {
    ids: &'a [RunId],
    any: bool,
    live: Live<'a>,
}

impl Follow<'_> {
    /// Returns when what is waited for has ended, with the daemon's last answer.
    async fn until_done(&mut self) -> Result<Value, Failure> {
        loop {
            // The first news is that the subscription was begun.
            self.news().await?;
            match self.look().await {
                Ok((raw, waited)) if waited.done => return Ok(raw),
                Ok(_) => {}
                // The subscription has ended too, and finds the daemon again.
                Err(lost) if link::is_broken(&lost) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// How the runs stand; shows it.
    async fn look(&mut self) -> Result<(Value, Waited), Failure> {
        let mode = match self.any {
            true => WaitMode::Any,
            false => WaitMode::All,
        };
        let ask = Wait {
            run_ids: Some(self.ids.to_vec()),
            mode: Some(mode),
            wait_timeout: WaitTimeout(Duration::ZERO),
            ..Wait::default()
        };
        let live = &mut self.live;
        let raw = live.watch.link.raw("agent.wait", ask).await?;
        let waited: Waited = link::read(&raw)?;
        if let [WaitedRun::Known { run, .. }] = &waited.runs[..] {
            live.session = Some(run.session_key.clone());
        }
        if let Some(view) = &mut live.view {
            view.update(&live.watch.link, &waited).await?;
        }
        Ok((raw, waited))
    }

    /// Returns when the runs may have ended.
    async fn news(&mut self) -> Result<(), Failure> {
        loop {
            match self.live.next().await? {
                News::Anew => return Ok(()),
                News::Event(event) => {
                    let its = event.run_id.is_some_and(|run| self.ids.contains(&run));
                    if its && event.kind == "run.ended" {
                        return Ok(());
                    }
                }
                News::Quiet => {}
            }
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
