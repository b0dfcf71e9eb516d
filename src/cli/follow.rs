//! Waiting for runs and showing how they go on. Used by `run`, `chat`, `attach`, `wait` and
//! `setup`.
//!
//! The rows say whether the runs have ended; a subscription says when to look at them.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::discover::Where;
use super::failure::Failure;
use super::link::{self, Link};
use super::live::{Left, Live, News};
use super::needs::Needs;
use super::person::Person;
use super::view::View;
use super::watch::Position;
use super::{ids, print, tree};
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::SubscribeEvents;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::lifecycle::CancelRun;
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited, WaitedRun};
use crate::wire::shapes::Step;

/// So long after Ctrl-C a turn is stopped: pressed once more until then, it is left at work.
const GRACE: Duration = Duration::from_secs(1);

/// How long after Ctrl-C a second one counts.
const SECOND_THOUGHTS: Duration = Duration::from_secs(2);

/// How long the events of a run that has ended already may take.
const REST: Duration = Duration::from_secs(2);

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
    /// What they need of a person is announced as JSON.
    pub(crate) json: bool,
    /// Whoever is there to be asked what the only run, and those of its session and below it,
    /// ask.
    pub(crate) person: Option<&'a mut Person>,
    /// The only run is a turn of a conversation, begun after this place in the log: what it says
    /// and does is shown as it comes and stays on the screen, and Ctrl-C cancels it.
    pub(crate) conversation: Option<Position>,
}

/// How the waiting ended.
pub(crate) enum End {
    /// What was waited for has ended; the daemon's last answer.
    Done(Value),
    /// The window passed; the daemon's last answer.
    Window(Value),
    /// They need something of a person, as was announced, and none is at the terminal; the
    /// daemon's last answer.
    NeedsPerson(Value),
    /// The person wants to do something else. The runs go on.
    Detached(Why),
}

/// Why a person does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// They leave the runs at work.
    Leave,
    /// They go on with the conversation; the turn waits for an answer.
    Later,
    /// They leave while the turn is being stopped.
    Stopping,
}

/// Waits for runs, re-attaching when the link is lost. Changes nothing about the runs, apart
/// from what the person decides.
pub(crate) async fn follow(
    link: Link,
    place: &Where,
    task: Task<'_>,
    interrupt: &mut Interrupt,
) -> Result<End, Failure> {
    let mut request = news_of(&task);
    let window = task.window;
    let turn = match (&task.conversation, task.ids) {
        (Some(begin), [only]) => {
            request = begin.clone().onward(request);
            Some(*only)
        }
        _ => None,
    };
    let view = task.show.then(|| match turn {
        Some(run) => View::of_conversation(run),
        None => View::for_people(),
    });
    let needs = Needs::new(task.json, task.person.is_some());
    let live = tokio::select! {
        biased;
        () = interrupt.pressed() => return Ok(End::Detached(Why::Leave)),
        live = Live::open(link, place, request, view, task.person) => live?,
    };
    let mut follow = Follow {
        ids: task.ids,
        any: task.any,
        // A subscription that goes on somewhere begins with what happened after it.
        is_behind: turn.is_some(),
        has_heard_end: false,
        needs,
        live,
    };
    let mut over = pin!(async {
        match window {
            Some(window) => tokio::time::sleep(window).await,
            None => std::future::pending().await,
        }
    });
    let is_sent = Cell::new(false);
    let mut cancelling: Option<Cancelling<'_>> = None;
    loop {
        tokio::select! {
            biased;
            () = interrupt.pressed() => match turn {
                Some(run) if cancelling.is_none() => {
                    let text = "stopping the turn … (Ctrl-C once more: leave it at work)";
                    follow.live.note(&print::styled(print::DIM, text));
                    cancelling = Some(Box::pin(cancel(place, run, &is_sent)));
                }
                Some(_) if is_sent.get() => return Ok(End::Detached(Why::Stopping)),
                _ => return Ok(End::Detached(Why::Leave)),
            },
            until = follow.until_done() => match until? {
                Until::Left(Left::Conversation) => return Ok(End::Detached(Why::Leave)),
                Until::Left(Left::Question) => return Ok(End::Detached(Why::Later)),
                Until::Done(raw) => {
                    if let Some(run) = turn {
                        follow.end(run).await?;
                    }
                    return Ok(End::Done(raw));
                }
                Until::NeedsPerson => {
                    let (raw, _) = follow.look().await?;
                    return Ok(End::NeedsPerson(raw));
                }
            },
            cancelled = heard(&mut cancelling) => {
                if let Err(failure) = cancelled {
                    follow.live.note(&format!("the turn goes on: {failure}"));
                    cancelling = None;
                    is_sent.set(false);
                }
            }
            () = &mut over => break,
        }
    }
    let (raw, waited) = follow.look().await?;
    Ok(match waited.done {
        true => End::Done(raw),
        false => End::Window(raw),
    })
}

/// A cancel that was asked for; it answers once nothing of the run is at work any more.
type Cancelling<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Over a link of its own, so that the run is followed meanwhile.
async fn cancel(place: &Where, run_id: RunId, is_sent: &Cell<bool>) -> Result<(), Failure> {
    tokio::time::sleep(GRACE).await;
    is_sent.set(true);
    let link = Link::open(place).await?;
    let reason = Some("Ctrl-C".to_owned());
    let request = CancelRun { run_id, reason };
    link.raw("runs.cancel", request).await.map(|_| ())
}

/// What a cancel has come to; only once.
async fn heard(cancelling: &mut Option<Cancelling<'_>>) -> Result<(), Failure> {
    let Some(cancel) = cancelling else {
        return std::future::pending().await;
    };
    let answer = cancel.await;
    *cancelling = Some(Box::pin(std::future::pending()));
    answer
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
        (false, _) => &["run.ended", "run.paused", "question.*", "approval.*"],
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

/// Why a wait is over.
enum Until {
    /// What was waited for has ended; the daemon's last answer.
    Done(Value),
    /// It needs a person, and none is there.
    NeedsPerson,
    /// The person does not want to look any more.
    Left(Left),
}

struct Follow<'a> {
    ids: &'a [RunId],
    any: bool,
    /// The rows were not looked at yet.
    is_behind: bool,
    /// The event of an end was heard.
    has_heard_end: bool,
    needs: Needs,
    live: Live<'a>,
}

impl Follow<'_> {
    /// Returns when there is nothing more to wait for.
    async fn until_done(&mut self) -> Result<Until, Failure> {
        loop {
            // The first news is that the subscription was begun.
            while !self.is_behind {
                // Stays so until the rows were looked at, also where this is dropped meanwhile.
                self.is_behind = self.news().await?;
                if let Some(left) = self.live.left {
                    return Ok(Until::Left(left));
                }
                if !self.is_behind && self.need_person().await? {
                    return Ok(Until::NeedsPerson);
                }
            }
            match self.look().await {
                Ok((raw, waited)) if waited.done => return Ok(Until::Done(raw)),
                Ok(_) => self.is_behind = false,
                // The subscription has ended too, and finds the daemon again.
                Err(lost) if link::is_broken(&lost) => self.is_behind = false,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Announces what the runs that do not go on by themselves need of a person. `true`: no
    /// person is there, and with `any` none of the runs goes on.
    async fn need_person(&mut self) -> Result<bool, Failure> {
        let waited = match self.rows().await {
            Ok((_, waited)) => waited,
            // The subscription has ended too, and finds the daemon again.
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => return Ok(false),
            Err(failure) => return Err(failure),
        };
        let mut sessions: Vec<SessionKey> = Vec::new();
        let mut goes_on = false;
        for entry in &waited.runs {
            let WaitedRun::Known { run, .. } = entry else {
                continue;
            };
            match &*run.state {
                "running" => goes_on = true,
                state if tree::is_ended(state) => {}
                _ if sessions.contains(&run.session_key) => {}
                _ => sessions.push(run.session_key.clone()),
            }
        }
        let Live { watch, view, .. } = &mut self.live;
        let say = |text: &str| match view {
            Some(view) => view.note(text),
            None => print::note(text),
        };
        let is_alone = self.needs.announce(&watch.link, &sessions, say).await?;
        Ok(is_alone && !(self.any && goes_on))
    }

    /// Shows what a turn has come to, to its end.
    async fn end(&mut self, run: RunId) -> Result<(), Failure> {
        // It was over before it was looked at: what happened is still on its way.
        let rest = async {
            while !self.has_heard_end {
                self.news().await?;
            }
            Ok::<(), Failure>(())
        };
        if let Ok(heard) = tokio::time::timeout(REST, rest).await {
            heard?;
        }
        let link = &self.live.watch.link;
        let run = ids::details(link, run).await?;
        match &mut self.live.view {
            Some(view) => view.end(link, &run).await,
            None => Ok(()),
        }
    }

    /// How the runs stand; shows it.
    async fn look(&mut self) -> Result<(Value, Waited), Failure> {
        let (raw, waited) = self.rows().await?;
        if let Some(view) = &mut self.live.view {
            view.update(&self.live.watch.link, &waited).await?;
        }
        Ok((raw, waited))
    }

    async fn rows(&mut self) -> Result<(Value, Waited), Failure> {
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
        Ok((raw, waited))
    }

    /// Returns when the runs may have ended; `false`: when they may need something.
    async fn news(&mut self) -> Result<bool, Failure> {
        loop {
            match self.live.next().await? {
                News::Anew => return Ok(true),
                News::Event(event) => {
                    let its = event.run_id.is_some_and(|run| self.ids.contains(&run));
                    if its && event.kind == "run.ended" {
                        self.has_heard_end = true;
                        return Ok(true);
                    }
                    let kind = event.kind.as_str();
                    if kind == "run.paused"
                        || kind.starts_with("question.")
                        || kind.starts_with("approval.")
                    {
                        return Ok(false);
                    }
                }
                // Of runs below another one no event is heard where several are waited for.
                News::Quiet | News::Left => return Ok(false),
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
