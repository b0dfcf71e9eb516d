//! Waiting for runs and showing how they go on. Used by `run`, `wait` and `demo`.
//!
//! The rows say how the runs stand; a subscription says when to look at them again.

use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

use super::asked::Asked;
use super::discover::Where;
use super::failure::Failure;
use super::link::{self, Link};
use super::view::View;
use super::watch::{Seen, Watch};
use super::{asked, print};
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::SubscribeEvents;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited};
use crate::wire::shapes::Step;

/// How often the picture is drawn anew while somebody watches: times go on.
const FRAME: Duration = Duration::from_millis(500);
/// How long after Ctrl-C a second one counts.
const SECOND_THOUGHTS: Duration = Duration::from_secs(2);
/// News that come within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(50);

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
    /// Come back when something is asked, too.
    pub(crate) asks: Option<Asks<'a>>,
}

/// What is asked that somebody is here to answer.
pub(crate) struct Asks<'a> {
    /// Those of the runs in this session and below it.
    pub(crate) session: &'a SessionKey,
    /// They were put to the person already.
    pub(crate) known: &'a [Uuid],
}

/// How the waiting ended.
pub(crate) enum End {
    /// What was waited for has ended; the daemon's last answer.
    Done(Value),
    /// The window passed; the daemon's last answer.
    Window(Value),
    /// This is asked, and was not before.
    Asked(Vec<Asked>),
    /// The person wants to do something else. The runs go on.
    Detached,
}

/// Waits for runs, re-attaching when the link is lost. Changes nothing about the runs.
pub(crate) async fn follow(
    link: Link,
    place: &Where,
    task: Task<'_>,
    interrupt: &mut Interrupt,
) -> Result<End, Failure> {
    let view = task.show.then(View::for_people);
    // From here on every move is an event, so none falls between a look and the next.
    let watch = tokio::select! {
        biased;
        () = interrupt.pressed() => return Ok(End::Detached),
        watch = Watch::open(link, place, news_of(&task), print::note) => watch?,
    };
    let window = task.window;
    let mut follow = Follow { task, view, watch };
    let over = async {
        match window {
            Some(window) => tokio::time::sleep(window).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = interrupt.pressed() => return Ok(End::Detached),
        end = follow.until_done() => return end,
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
    let kinds: &[&str] = match (task.show, &task.asks) {
        (true, _) => &["run.*", "tool.*", "question.asked", "approval.requested"],
        (false, Some(_)) => &["run.ended", "question.asked", "approval.requested"],
        (false, None) => &["run.ended"],
    };
    SubscribeEvents {
        // What runs below it do belongs to the picture.
        tree: match task.ids {
            [only] => Some(*only),
            _ => None,
        },
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..SubscribeEvents::default()
    }
}

struct Follow<'a> {
    task: Task<'a>,
    view: Option<View>,
    watch: Watch<'a>,
}

impl Follow<'_> {
    /// Returns when what is waited for has ended, or when something new is asked.
    async fn until_done(&mut self) -> Result<End, Failure> {
        loop {
            match self.look_and_listen().await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                // The subscription has ended too, and finds the daemon again.
                Err(lost) if link::is_broken(&lost) => {}
                Err(failure) => return Err(failure),
            }
            self.news().await?;
        }
    }

    async fn look_and_listen(&mut self) -> Result<Option<End>, Failure> {
        let (raw, waited) = self.look().await?;
        if waited.done {
            return Ok(Some(End::Done(raw)));
        }
        let Some(asks) = &self.task.asks else {
            return Ok(None);
        };
        let mut open = asked::open(&self.watch.link, Some(asks.session)).await?;
        open.retain(|one| !asks.known.contains(&one.id()));
        Ok((!open.is_empty()).then_some(End::Asked(open)))
    }

    /// How the runs stand; shows it.
    async fn look(&mut self) -> Result<(Value, Waited), Failure> {
        let mode = match self.task.any {
            true => WaitMode::Any,
            false => WaitMode::All,
        };
        let ask = Wait {
            run_ids: Some(self.task.ids.to_vec()),
            mode: Some(mode),
            wait_timeout: WaitTimeout(Duration::ZERO),
            ..Wait::default()
        };
        let raw = self.watch.link.raw("agent.wait", ask).await?;
        let waited: Waited = link::read(&raw)?;
        if let Some(view) = &mut self.view {
            view.update(&self.watch.link, &waited).await?;
        }
        Ok((raw, waited))
    }

    /// Returns when the runs may stand otherwise, or it is time to draw them anew.
    async fn news(&mut self) -> Result<(), Failure> {
        let frame = match self.view {
            Some(_) => FRAME,
            None => Duration::MAX,
        };
        let frame = tokio::time::sleep(frame);
        tokio::pin!(frame);
        loop {
            let seen = tokio::select! {
                seen = self.watch.seen() => seen?,
                () = &mut frame => return Ok(()),
            };
            match seen {
                Some(Seen::Event(event)) => {
                    // Of one run everything comes, and of several also what is not theirs.
                    let ids = self.task.ids;
                    let its = |run| ids.len() == 1 || ids.contains(&run);
                    if event.run_id.is_some_and(its) {
                        if event.kind != "run.ended" {
                            tokio::time::sleep(TOGETHER).await;
                        }
                        return Ok(());
                    }
                }
                Some(Seen::Picture(..)) => return Ok(()),
                None => {
                    let view = &self.view;
                    let say = |text: &str| match view {
                        // People are told, which cannot fail.
                        Some(view) => drop(view.tell(text, || Value::Null)),
                        None => print::note(text),
                    };
                    return self.watch.come_back(&say).await;
                }
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
