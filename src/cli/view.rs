//! What is shown of runs that go on: a tree that is redrawn, a line for each thing that
//! happened, or the same as JSON. Used by everything that follows runs.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::failure::Failure;
use super::follow::steps;
use super::link::Link;
use super::print;
use super::screen::Screen;
use super::text::{COLUMNS, line, short};
use super::tree::{self, Followed};
use crate::kernel::ids::{RunId, StepId};
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, Runs, Waited, WaitedRun};
use crate::wire::shapes::Run;

/// So many runs of a tree are shown.
const TREE: u32 = 100;

/// Runs that are followed, and where they are shown.
pub(crate) struct View {
    runs: Vec<Followed>,
    /// What each run is saying.
    coming: Vec<(RunId, String)>,
    /// Steps and ends that were told already.
    told: (HashSet<StepId>, HashSet<RunId>),
    shown: Shown,
}

enum Shown {
    Tree(Screen),
    Notes,
    Json,
}

impl View {
    /// An empty view for people, on standard error.
    pub(crate) fn for_people() -> View {
        View::of(match Screen::new() {
            Some(screen) => Shown::Tree(screen),
            None => Shown::Notes,
        })
    }

    /// An empty view for programs: an object for each thing that happened, as the answer.
    pub(crate) fn for_programs() -> View {
        View::of(Shown::Json)
    }

    fn of(shown: Shown) -> View {
        View {
            runs: Vec::new(),
            coming: Vec::new(),
            told: Default::default(),
            shown,
        }
    }

    /// The runs as they were last seen.
    pub(crate) fn runs(&self) -> &[Followed] {
        &self.runs
    }

    /// Reads what changed since the last time, of these runs and those below them, and shows
    /// it.
    pub(crate) async fn update(&mut self, link: &Link, waited: &Waited) -> Result<(), Failure> {
        for entry in &waited.runs {
            if let WaitedRun::Known { run, .. } = entry {
                self.refresh(link, run).await?;
                for below in tree_of(link, run.run_id).await? {
                    if below.run_id != run.run_id {
                        self.refresh(link, &below).await?;
                    }
                }
            }
        }
        self.draw()
    }

    /// Shows these runs as they are now; what changed of them is read.
    pub(crate) async fn show(&mut self, link: &Link, runs: &[Run]) -> Result<(), Failure> {
        for run in runs {
            self.refresh(link, run).await?;
        }
        self.draw()
    }

    /// A run is saying this, of which the end is shown below it; nothing: no longer.
    pub(crate) fn comes(&mut self, run: RunId, text: &str) {
        self.coming.retain(|(other, _)| *other != run);
        if !text.trim().is_empty() {
            self.coming.push((run, text.to_owned()));
        }
        if let Shown::Tree(_) = self.shown {
            // A picture that cannot be drawn is no reason to stop looking.
            drop(self.draw());
        }
    }

    /// Prints a text as a part of the answer.
    pub(crate) fn says(&self, text: &str) -> Result<(), Failure> {
        match &self.shown {
            Shown::Tree(screen) => screen.aside(|| print::answer(text)),
            Shown::Notes | Shown::Json => print::answer(text),
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        if let Shown::Tree(screen) = &mut self.shown {
            screen.draw(|frame| tree::draw(&self.runs, &self.coming, frame));
        } else {
            self.tell_news()?;
        }
        Ok(())
    }

    /// Takes over a run as it is now; its journal is read only if it moved.
    async fn refresh(&mut self, link: &Link, run: &Run) -> Result<(), Failure> {
        let known = self
            .runs
            .iter_mut()
            .find(|followed| followed.run.run_id == run.run_id);
        match known {
            Some(followed) => {
                let before = &followed.run;
                if before.last_activity_at != run.last_activity_at || before.state != run.state {
                    followed.steps = steps(link, run.run_id).await?;
                }
                followed.run = run.clone();
            }
            None => self.runs.push(Followed {
                run: run.clone(),
                steps: steps(link, run.run_id).await?,
            }),
        }
        Ok(())
    }

    /// Tells people `text`, and programs `event`. It stays on the screen.
    pub(crate) fn tell(&self, text: &str, event: impl FnOnce() -> Value) -> Result<(), Failure> {
        match &self.shown {
            Shown::Tree(screen) => screen.keep(text),
            Shown::Notes => print::note(text),
            Shown::Json => return print::object(&event()),
        }
        Ok(())
    }

    /// Each finished tool call once, and each end once.
    fn tell_news(&mut self) -> Result<(), Failure> {
        for Followed { run, steps } in &self.runs {
            let who = format!("{} {}", line(tree::name(run), 24), short(run.run_id));
            for step in steps {
                let is_news = step.tool.is_some() && step.ended_at.is_some();
                if is_news && self.told.0.insert(step.step_id) {
                    let what = tree::describe(step);
                    let text = line(&format!("{who}: step {} {what}", step.seq), COLUMNS);
                    self.tell(
                        &text,
                        || json!({ "event": "step", "runId": run.run_id, "step": step }),
                    )?;
                }
            }
            if tree::is_ended(&run.state) && self.told.1.insert(run.run_id) {
                let calls = tree::calls(run.tool_calls);
                let what = format!("{who}: ended {}, {calls}", run.state);
                self.tell(
                    &line(&what, COLUMNS),
                    || json!({ "event": "ended", "runId": run.run_id, "state": run.state }),
                )?;
            }
        }
        Ok(())
    }
}

/// A run and those below it, oldest first.
pub(crate) async fn tree_of(link: &Link, run: RunId) -> Result<Vec<Run>, Failure> {
    let request = ListRuns {
        tree: Some(run),
        limit: PageSize(TREE),
        ..ListRuns::default()
    };
    let mut runs = link.ask::<Runs>("runs.list", &request).await?.runs;
    runs.reverse();
    Ok(runs)
}

impl Drop for View {
    fn drop(&mut self) {
        if let Shown::Tree(_) = self.shown {
            // The live lines go, the last picture stays.
            self.shown = Shown::Notes;
            for line in tree::draw(&self.runs, &[], 0) {
                print::note(&line);
            }
        }
    }
}
