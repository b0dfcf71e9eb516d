//! Waits for runs and shows their progress. Used by `run`, `chat`, `attach`, `wait` and `setup`.
//!
//! The rows tell whether the runs have ended; an event subscription tells when to read them.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::tree;
use super::view::View;
use crate::cli::asking::needs::Needs;
use crate::cli::asking::person::Person;
use crate::cli::common::failure::Failure;
use crate::cli::common::ids;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::link::discover::Where;
use crate::cli::link::watch::LogPosition;
use crate::cli::live::{LiveDisplay, LiveUpdate, StopReason};
use crate::cli::output::print;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::SubscribeEvents;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::lifecycle::CancelRun;
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited, WaitedRun};
use crate::wire::shapes::Step;

/// Delay between Ctrl-C and cancelling a turn; a second Ctrl-C within it detaches instead.
const GRACE: Duration = Duration::from_secs(1);

/// Time within which a second Ctrl-C counts.
const SECOND_CTRL_C_WINDOW: Duration = Duration::from_secs(2);

/// Deadline for the remaining events of a run that has ended.
const REMAINING_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The Ctrl-C signal. Once this exists, Ctrl-C no longer ends the program.
pub(crate) struct CtrlC(Signal);

impl CtrlC {
    /// Installs the handler. Call it before there is work that the user may want to attach to
    /// again.
    pub(crate) fn new() -> Result<CtrlC, Failure> {
        signal(SignalKind::interrupt())
            .map(CtrlC)
            .map_err(|error| Failure::local("cannot handle Ctrl-C", error))
    }

    /// Waits until Ctrl-C is pressed.
    pub(crate) async fn pressed(&mut self) {
        self.0.recv().await;
    }

    /// After Ctrl-C: true if it is pressed again within two seconds.
    pub(crate) async fn pressed_again(&mut self) -> bool {
        print::note("press Ctrl-C once more within 2 s to cancel it");
        tokio::time::timeout(SECOND_CTRL_C_WINDOW, self.pressed())
            .await
            .is_ok()
    }
}

/// What to wait for, and how.
pub(crate) struct Task<'a> {
    /// The runs to wait for.
    pub(crate) ids: &'a [RunId],
    /// Wait for any one of them instead of all.
    pub(crate) any: bool,
    /// Timeout of the wait; `None` waits until the runs have ended.
    pub(crate) timeout: Option<Duration>,
    /// Show their progress.
    pub(crate) show: bool,
    /// Announce requests for a user as JSON.
    pub(crate) json: bool,
    /// The user, if present, who is asked about requests of the only run, its session and its
    /// descendants.
    pub(crate) person: Option<&'a mut Person>,
    /// Set if the only run is a conversation turn that began after this log position: its output is
    /// streamed and stays on the screen, and Ctrl-C cancels it.
    pub(crate) conversation: Option<LogPosition>,
}

/// Outcome of the wait.
pub(crate) enum FollowOutcome {
    /// The awaited runs have ended; the daemon's last reply.
    Done(Value),
    /// The timeout passed; the daemon's last reply.
    TimedOut(Value),
    /// The runs need a user, which was announced, and none is present; the daemon's last reply.
    NeedsPerson(Value),
    /// The user stopped waiting. The runs go on.
    Detached(DetachReason),
}

/// Why the user stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetachReason {
    /// Detach from the runs, which continue.
    Detach,
    /// Return to the conversation; the turn waits for an answer.
    Later,
    /// Quit while the turn is being cancelled.
    Stopping,
}

/// Waits for runs, reconnecting when the connection is lost. Changes nothing about the runs, apart
/// from the user's decisions.
pub(crate) async fn follow(
    link: DaemonLink,
    place: &Where,
    task: Task<'_>,
    interrupt: &mut CtrlC,
) -> Result<FollowOutcome, Failure> {
    let mut request = news_of(&task);
    let window = task.timeout;
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
        () = interrupt.pressed() => return Ok(FollowOutcome::Detached(DetachReason::Detach)),
        live = LiveDisplay::open(link, place, request, view, task.person) => live?,
    };
    let mut follow = Follow {
        ids: task.ids,
        any: task.any,
        // A resumed subscription starts with later events, so the rows must be read first.
        is_behind: turn.is_some(),
        has_heard_end: false,
        needs,
        live,
    };
    let mut over = pin!(passed(window));
    let is_sent = Cell::new(false);
    let mut cancelling: Option<Cancelling<'_>> = None;
    loop {
        tokio::select! {
            biased;
            () = interrupt.pressed() => match turn {
                Some(run) if cancelling.is_none() => {
                    let text = "stopping the turn … (Ctrl-C again: detach, and it continues)";
                    follow.live.note(&print::styled(print::DIM, text));
                    cancelling = Some(Box::pin(cancel(place, run, &is_sent)));
                }
                Some(_) if is_sent.get() => return Ok(FollowOutcome::Detached(DetachReason::Stopping)),
                _ => return Ok(FollowOutcome::Detached(DetachReason::Detach)),
            },
            until = follow.until_done() => match until? {
                Until::Left(StopReason::Conversation) => return Ok(FollowOutcome::Detached(DetachReason::Detach)),
                Until::Left(StopReason::Question) => return Ok(FollowOutcome::Detached(DetachReason::Later)),
                Until::Done(raw) => {
                    if let Some(run) = turn {
                        follow.end(run).await?;
                    }
                    return Ok(FollowOutcome::Done(raw));
                }
                Until::NeedsPerson => {
                    let (raw, _) = follow.look().await?;
                    return Ok(FollowOutcome::NeedsPerson(raw));
                }
            },
            cancelled = cancel_outcome(&mut cancelling) => {
                if let Err(failure) = cancelled {
                    follow.live.note(&format!("the turn was not stopped: {failure}"));
                    cancelling = None;
                    is_sent.set(false);
                }
            }
            () = &mut over => break,
        }
    }
    let (raw, waited) = follow.look().await?;
    Ok(match waited.done {
        true => FollowOutcome::Done(raw),
        false => FollowOutcome::TimedOut(raw),
    })
}

/// Returns after this time; never if there is no limit.
async fn passed(window: Option<Duration>) {
    match window {
        Some(window) => tokio::time::sleep(window).await,
        None => std::future::pending().await,
    }
}

/// A pending cancel; it resolves once nothing of the run is running any more.
type Cancelling<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Cancels over a separate connection, so that the run can be followed meanwhile.
async fn cancel(place: &Where, run_id: RunId, is_sent: &Cell<bool>) -> Result<(), Failure> {
    tokio::time::sleep(GRACE).await;
    is_sent.set(true);
    let link = DaemonLink::open(place).await?;
    let reason = Some("Ctrl-C".to_owned());
    let request = CancelRun { run_id, reason };
    link.raw(&request).await.map(|_| ())
}

/// Result of the pending cancel, returned only once.
async fn cancel_outcome(cancelling: &mut Option<Cancelling<'_>>) -> Result<(), Failure> {
    let Some(cancel) = cancelling else {
        return std::future::pending().await;
    };
    let answer = cancel.await;
    *cancelling = Some(Box::pin(std::future::pending()));
    answer
}

/// Subscription to the events after which the runs must be read again.
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
    // The view includes the run's descendants.
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

/// Why `until_done` returned.
enum Until {
    /// The awaited runs have ended; the daemon's last reply.
    Done(Value),
    /// A run needs a user, and none is present.
    NeedsPerson,
    /// The user detached.
    Left(StopReason),
}

struct Follow<'a> {
    ids: &'a [RunId],
    any: bool,
    /// The rows must be read again.
    is_behind: bool,
    /// The `run.ended` event of an awaited run has arrived.
    has_heard_end: bool,
    needs: Needs,
    live: LiveDisplay<'a>,
}

impl Follow<'_> {
    /// Returns when the runs have ended, need a user who is not present, or the user detached.
    async fn until_done(&mut self) -> Result<Until, Failure> {
        loop {
            // The first news reports that the subscription has started.
            while !self.is_behind {
                // Stays set until the rows were read, even if this future is dropped meanwhile.
                self.is_behind = self.news().await?;
                if let Some(left) = self.live.stop_reason {
                    return Ok(Until::Left(left));
                }
                if !self.is_behind && self.need_person().await? {
                    return Ok(Until::NeedsPerson);
                }
            }
            match self.look().await {
                Ok((raw, waited)) if waited.done => return Ok(Until::Done(raw)),
                Ok(_) => self.is_behind = false,
                // The subscription has ended too, and reconnects.
                Err(lost) if link::is_broken(&lost) => self.is_behind = false,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Announces what blocked runs need from a user. `true`: no user is present, and with `any`
    /// none of the runs is running.
    async fn need_person(&mut self) -> Result<bool, Failure> {
        let waited = match self.rows().await {
            Ok((_, waited)) => waited,
            // The subscription has ended too, and reconnects.
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
        let LiveDisplay { watch, view, .. } = &mut self.live;
        let say = |text: &str| match view {
            Some(view) => view.note(text),
            None => print::note(text),
        };
        let is_alone = self.needs.announce(&watch.link, &sessions, say).await?;
        Ok(is_alone && !(self.any && goes_on))
    }

    /// Shows the rest of a turn up to its end.
    async fn end(&mut self, run: RunId) -> Result<(), Failure> {
        // The turn ended before the rows were read: its last events are still on their way.
        let rest = async {
            while !self.has_heard_end {
                self.news().await?;
            }
            Ok::<(), Failure>(())
        };
        if let Ok(heard) = tokio::time::timeout(REMAINING_EVENTS_TIMEOUT, rest).await {
            heard?;
        }
        let link = &self.live.watch.link;
        let run = ids::details(link, run).await?;
        match &mut self.live.view {
            Some(view) => view.end(link, &run).await,
            None => Ok(()),
        }
    }

    /// Reads the state of the runs and shows it.
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
        let raw = live.watch.link.raw(&ask).await?;
        let waited: Waited = link::read(&raw)?;
        if let [WaitedRun::Known { run, .. }] = &waited.runs[..] {
            live.session = Some(run.session_key.clone());
        }
        Ok((raw, waited))
    }

    /// Waits for news: `true` if the runs may have ended, `false` if they may need a user.
    async fn news(&mut self) -> Result<bool, Failure> {
        loop {
            match self.live.next().await? {
                LiveUpdate::Anew => return Ok(true),
                LiveUpdate::Event(event) => {
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
                // When several runs are awaited, no events of their descendants arrive.
                LiveUpdate::Quiet | LiveUpdate::Left => return Ok(false),
            }
        }
    }
}

/// All steps of a run, oldest first.
pub(crate) async fn steps(link: &DaemonLink, id: RunId) -> Result<Vec<Step>, Failure> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let page: Steps = link
            .ask(&ListSteps {
                run_id: id,
                limit: PageSize(PAGE_LIMIT),
                cursor,
            })
            .await?;
        all.extend(page.steps);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}
