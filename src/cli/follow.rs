//! Waiting for runs and showing how they go on. Used by `run`, `wait` and `demo`.
//!
//! There is no event subscription yet: short waits take its place. A wait that the daemon
//! ends early costs nothing, so the answer comes as soon as the last run has ended.

use std::collections::HashSet;
use std::time::Duration;

use super::discover::Where;
use super::failure::Failure;
use super::link::{self, Link};
use super::print;
use super::screen::Screen;
use super::text::{COLUMNS, line, short};
use super::tree::{self, Followed};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, StepId};
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::runs::{ListSteps, Steps, Wait, WaitMode, Waited, WaitedRun};
use crate::wire::shapes::Step;

/// How long one wait lasts while somebody watches.
const GLANCE: Duration = Duration::from_millis(200);
/// How long one wait lasts while nobody does.
const PATIENCE: Duration = Duration::from_secs(30);

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
    Done(serde_json::Value),
    /// The window passed; the daemon's last answer.
    Window(serde_json::Value),
    /// The person wants to do something else. The runs go on.
    Detached,
}

/// Waits for runs, re-attaching when the link is lost. Changes nothing about the runs.
pub(crate) async fn follow(mut link: Link, place: &Where, task: Task<'_>) -> Result<End, Failure> {
    let clock = Clock::system();
    let started = clock.monotonic();
    let mut view = task.show.then(View::new);
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
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
            _ = &mut interrupt => return Ok(End::Detached),
        };
        match looked {
            Ok((raw, waited)) if waited.done => return Ok(End::Done(raw)),
            Ok((raw, _)) if left == Some(Duration::ZERO) => return Ok(End::Window(raw)),
            // A daemon that stops answers every wait at once; its successor knows the rest.
            Ok((_, waited)) if waited.cause == "draining" => tokio::time::sleep(link::RETRY).await,
            Ok(_) => {}
            Err(lost) if link::is_broken(&lost) => {
                let say = |text: &str| match &view {
                    Some(view) => view.keep(text),
                    None => print::note(text),
                };
                let find = link::find_again(place, lost, say);
                link = tokio::select! {
                    found = find => found?,
                    _ = &mut interrupt => return Ok(End::Detached),
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

/// What is shown of the runs: a tree that is redrawn, or a line for each thing that happened.
pub(crate) struct View {
    runs: Vec<Followed>,
    told: HashSet<StepId>,
    screen: Option<Screen>,
}

impl View {
    /// An empty view on standard error.
    pub(crate) fn new() -> View {
        View {
            runs: Vec::new(),
            told: HashSet::new(),
            screen: Screen::new(),
        }
    }

    /// The runs as they were last seen.
    pub(crate) fn runs(&self) -> &[Followed] {
        &self.runs
    }

    /// Reads what changed and shows it.
    pub(crate) async fn update(&mut self, link: &Link, waited: &Waited) -> Result<(), Failure> {
        for entry in &waited.runs {
            let WaitedRun::Known { run, .. } = entry else {
                continue;
            };
            let known = self
                .runs
                .iter()
                .position(|followed| followed.run.run_id == run.run_id);
            let place = match known {
                Some(place) => place,
                None => {
                    self.runs.push(Followed {
                        run: (**run).clone(),
                        steps: Vec::new(),
                    });
                    self.runs.len() - 1
                }
            };
            let is_new = known.is_none();
            let before = &self.runs[place].run;
            if is_new
                || before.last_activity_at != run.last_activity_at
                || before.state != run.state
            {
                let ended = tree::is_ended(&run.state) && (is_new || before.state != run.state);
                self.runs[place].steps = steps(link, run.run_id).await?;
                self.runs[place].run = (**run).clone();
                if self.screen.is_none() {
                    self.tell(place, ended);
                }
            } else {
                self.runs[place].run = (**run).clone();
            }
        }
        if let Some(screen) = &mut self.screen {
            screen.draw(|frame| tree::draw(&self.runs, frame));
        }
        Ok(())
    }

    /// Prints a line that stays.
    pub(crate) fn keep(&self, text: &str) {
        match &self.screen {
            Some(screen) => screen.keep(text),
            None => print::note(text),
        }
    }

    /// Plain lines: each finished step once, and the end of the run.
    fn tell(&mut self, place: usize, ended: bool) {
        let Followed { run, steps } = &self.runs[place];
        let who = format!("{} {}", line(tree::name(run), 24), short(run.run_id));
        for step in steps.iter().filter(|step| step.ended_at.is_some()) {
            if step.tool.is_some() && self.told.insert(step.step_id) {
                let what = format!("{who}: step {} {}", step.seq, tree::describe(step));
                print::note(&line(&what, COLUMNS));
            }
        }
        if ended {
            let what = format!("{who}: ended {}, {} tool calls", run.state, run.tool_calls);
            print::note(&line(&what, COLUMNS));
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // The last picture stays on the screen.
        if self.screen.take().is_some() {
            for line in tree::draw(&self.runs, 0) {
                print::note(&line);
            }
        }
    }
}
