//! Display of followed runs: a live tree, notes, or JSON events. Used by everything that follows
//! runs.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::follow::steps;
use super::stream::{self, AnswerStream};
use super::tree::{self, DrawOptions, Followed, RunTree};
use crate::cli::asking::blocker;
use crate::cli::asking::open_requests::{OpenRequest, Prompted, RESERVED_ROWS};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::screen::Screen;
use crate::cli::output::text::{line, short};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, StepId};
use crate::wire::events::Event;
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, Waited, WaitedRun};
use crate::wire::shapes::{Run, Step};

/// Maximum number of runs of a tree that are shown.
const TREE: u32 = 100;
/// Duration of one frame of a spinner.
pub(crate) const FRAME: Duration = Duration::from_millis(80);
/// Number of lines that a picture always has below a page of a request; a prompt has two more.
const PROMPTED_ROWS: usize = RESERVED_ROWS - 2;
/// Minimum and maximum width of a picture, whatever the screen is.
const COLUMNS_DRAWN: (usize, usize) = (20, 120);

/// Followed runs, and their display.
pub(crate) struct View {
    tree: RunTree,
    printed: Printed,
    shown: ViewMode,
    /// In a conversation: the streamed answer of its run.
    stream: Option<AnswerStream>,
    /// What the listed runs are.
    heading: Option<&'static str>,
    /// Number of lines of the page that is shown of the request that the user is answering.
    page_lines: usize,
    clock: Clock,
}

/// Steps, ends and requests that were already printed.
#[derive(Default)]
struct Printed {
    steps: HashSet<StepId>,
    ends: HashSet<RunId>,
    asked: HashSet<Uuid>,
    /// Runs that are waited for: the waiting command itself reports at the end how they failed.
    waited: HashSet<RunId>,
}

enum ViewMode {
    Tree(Screen),
    Notes,
    Json,
}

impl View {
    /// An empty view for users, on standard error.
    pub(crate) fn for_people() -> View {
        View::of(match Screen::new() {
            Some(screen) => ViewMode::Tree(screen),
            None => ViewMode::Notes,
        })
    }

    /// An empty view for a conversation turn: its output is streamed and stays on the screen, and
    /// open work is drawn below it.
    pub(crate) fn of_conversation(run: RunId) -> View {
        let mut view = View::for_people();
        if view.takes_keys() {
            view.stream = Some(AnswerStream::of(run));
        }
        view
    }

    /// An empty view for programs: a JSON object for each event, as the answer.
    pub(crate) fn for_programs() -> View {
        View::of(ViewMode::Json)
    }

    fn of(shown: ViewMode) -> View {
        View {
            tree: RunTree::default(),
            printed: Printed::default(),
            shown,
            stream: None,
            heading: None,
            page_lines: 0,
            clock: Clock::system(),
        }
    }

    /// Sets the heading of the listed runs. As plain notes it is printed once, before the first run.
    pub(crate) fn set_heading(&mut self, heading: &'static str) {
        self.heading = Some(heading);
    }

    /// The heading as a line, if there are runs below it.
    fn heading_line(&self, columns: usize) -> Option<String> {
        let heading = self.heading.filter(|_| !self.tree.runs().is_empty())?;
        Some(print::styled(print::HEAD, line(heading, columns)))
    }

    /// The runs as they were last read.
    pub(crate) fn runs(&self) -> &[Followed] {
        self.tree.runs()
    }

    /// Reads what has changed of these runs and their descendants since the last time, and shows
    /// it.
    pub(crate) async fn update(
        &mut self,
        link: &DaemonLink,
        waited: &Waited,
    ) -> Result<(), Failure> {
        if let [WaitedRun::Known { run, .. }] = &waited.runs[..] {
            self.tree.set_focus(run.run_id);
        }
        for entry in &waited.runs {
            if let WaitedRun::Known { run, .. } = entry {
                self.printed.waited.insert(run.run_id);
                self.refresh(link, (**run).clone()).await?;
                for below in tree_of(link, run.run_id).await? {
                    if below.run_id != run.run_id {
                        self.refresh(link, below).await?;
                    }
                }
            }
        }
        self.draw()
    }

    /// Takes over these runs, reading what has changed of them. Other runs are dropped, unless they
    /// descend from one of these.
    pub(crate) async fn take(&mut self, link: &DaemonLink, runs: Vec<Run>) -> Result<(), Failure> {
        let ids: BTreeSet<RunId> = runs.iter().map(|run| run.run_id).collect();
        for run in runs {
            self.refresh(link, run).await?;
        }
        self.tree.keep(&ids);
        Ok(())
    }

    /// Applies an event.
    pub(crate) fn hear(&mut self, event: &Event) {
        self.tree.hear(event);
        if let Some(stream) = &mut self.stream {
            stream.hear(event);
        }
    }

    /// Reads the rows and messages that events did not carry completely.
    pub(crate) async fn catch_up(&mut self, link: &DaemonLink) -> Result<(), Failure> {
        loop {
            self.read_tree(link).await?;
            let look = self.look();
            let Some(stream) = &mut self.stream else {
                return Ok(());
            };
            let read = stream.catch_up(link, look.columns).await;
            self.keep(&look);
            if read? {
                return Ok(());
            }
            self.read_calls(link).await?;
        }
    }

    /// Reads the calls that the run has made before a message begins: text arrives faster than the
    /// events of calls.
    async fn read_calls(&mut self, link: &DaemonLink) -> Result<(), Failure> {
        let Some(id) = self.stream.as_ref().map(AnswerStream::run) else {
            return Ok(());
        };
        let mut ended = Vec::new();
        match ids::details(link, id).await {
            Ok(run) => {
                let steps = steps(link, id).await?;
                let has_ended = |step: &&Step| step.tool.is_some() && step.ended_at.is_some();
                ended.extend(steps.iter().filter(has_ended).map(|step| step.step_id));
                self.tree.take(run, Some(steps));
            }
            Err(gone) if gone.code == exit::NOT_FOUND => {}
            Err(failure) => return Err(failure),
        }
        if let Some(stream) = &mut self.stream {
            stream.calls_before(ended.into_iter());
        }
        Ok(())
    }

    async fn read_tree(&mut self, link: &DaemonLink) -> Result<(), Failure> {
        for id in self.tree.unread() {
            match ids::details(link, id).await {
                Ok(run) => {
                    let steps = steps(link, id).await?;
                    self.tree.take(run, Some(steps));
                }
                // It was deleted meanwhile.
                Err(gone) if gone.code == exit::NOT_FOUND => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// The complete answer of a conversation's run is on the screen once this returns.
    pub(crate) async fn end(&mut self, link: &DaemonLink, run: &Run) -> Result<(), Failure> {
        self.catch_up(link).await?;
        let look = self.look();
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let its = self
            .tree
            .runs()
            .iter()
            .filter(|one| one.run.run_id == run.run_id);
        let steps = its.flat_map(|one| &one.steps);
        let ended = steps.filter(|step| step.tool.is_some() && step.ended_at.is_some());
        stream.hear_calls(ended.map(|step| step.step_id));
        stream.catch_up(link, look.columns).await?;
        stream.end(run, look.columns);
        self.keep(&look);
        Ok(())
    }

    /// Prints permanently what the run has written and done.
    fn keep(&mut self, look: &DrawOptions) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut lines = Vec::new();
        for shown in stream.ready() {
            match shown {
                stream::StreamOutput::Lines(said) => lines.extend(said),
                stream::StreamOutput::Call(step) => {
                    match self.tree.permanent_call_line(stream.run(), step, look) {
                        Some(call) => lines.push(call),
                        // It was not read yet; the journal has it at the end.
                        None => stream.forget_call(step),
                    }
                }
            }
        }
        self.tree.set_printed(stream.run(), stream.calls());
        let picture = self.picture();
        if let ViewMode::Tree(screen) = &mut self.shown
            && !lines.is_empty()
        {
            screen.keep_above(&lines.join("\n"), picture);
        }
    }

    /// Parameters for drawing now.
    fn look(&self) -> DrawOptions {
        let (columns, rows) = Screen::room();
        let frame = self.clock.monotonic().as_millis() / FRAME.as_millis();
        // A conversation uses the whole width.
        let widest = match self.stream {
            Some(_) => usize::MAX,
            None => COLUMNS_DRAWN.1,
        };
        DrawOptions {
            now: self.clock.now(),
            frame: usize::try_from(frame).unwrap_or(0),
            columns: columns.clamp(COLUMNS_DRAWN.0, widest),
            rows,
        }
    }

    /// Replaces the open requests.
    pub(crate) fn set_open_requests(&mut self, asked: Vec<OpenRequest>) {
        self.tree.asks(asked);
    }

    /// Prints text as a part of the answer.
    pub(crate) fn says(&mut self, text: &str) -> Result<(), Failure> {
        match &mut self.shown {
            ViewMode::Tree(screen) => screen.aside(|| print::answer(text)),
            ViewMode::Notes | ViewMode::Json => print::answer(text),
        }
    }

    /// True if the terminal delivers keys as they are pressed, and this view draws them.
    pub(crate) fn takes_keys(&self) -> bool {
        matches!(self.shown, ViewMode::Tree(_))
    }

    /// True for a conversation turn at a terminal.
    pub(crate) fn is_of_conversation(&self) -> bool {
        self.stream.is_some()
    }

    /// Shows a prompt with the text typed so far.
    pub(crate) fn ask(&mut self, prompt: &str, typed: &str) {
        match &mut self.shown {
            ViewMode::Tree(screen) => screen.ask(Some((prompt, typed))),
            ViewMode::Notes | ViewMode::Json => print::prompt(prompt),
        }
    }

    /// Sets the request that the user is answering. While there is one, the picture leaves room for
    /// the page that is shown of it.
    pub(crate) fn set_prompted(&mut self, request: Option<&Prompted>) {
        self.tree.set_prompted(request.map(|open| open.asked.id()));
        self.page_lines = request.map_or(0, |open| open.page_lines);
        let picture = self.picture();
        if let (ViewMode::Tree(screen), true) = (&mut self.shown, request.is_some()) {
            screen.draw(picture);
        }
    }

    /// Removes the prompt.
    pub(crate) fn hide_prompt(&mut self) {
        if let ViewMode::Tree(screen) = &mut self.shown {
            screen.ask(None);
        }
    }

    /// Draws the current state.
    pub(crate) fn draw(&mut self) -> Result<(), Failure> {
        let picture = self.picture();
        let ViewMode::Tree(screen) = &mut self.shown else {
            return self.print_news();
        };
        screen.draw(picture);
        Ok(())
    }

    /// Lines of the live part: the text that is being written, and the tree.
    fn picture(&self) -> Vec<String> {
        let mut look = self.look();
        if self.page_lines > 0 {
            let room = look.rows.saturating_sub(self.page_lines);
            look.rows = look.rows.min(room.max(PROMPTED_ROWS));
        }
        let rows = look.rows;
        let said = self.stream.as_ref().map_or_else(Vec::new, |stream| {
            stream.tail(look.columns, rows.saturating_sub(1).max(1))
        });
        // The tree gets at least half of the screen, the text the rest of it.
        look.rows = rows - (said.len() + 1).min(rows / 2);
        if self.stream.is_none() {
            look.rows = rows;
        }
        let heading = self.heading_line(look.columns).filter(|_| look.rows > 1);
        look.rows -= usize::from(heading.is_some());
        let picture: Vec<String> = heading.into_iter().chain(self.tree.draw(&look)).collect();
        let room = rows.saturating_sub(picture.len() + 1);
        let mut lines = said[said.len().saturating_sub(room)..].to_vec();
        if self.stream.is_some() && rows > picture.len() + lines.len() {
            lines.push(String::new());
        }
        lines.extend(picture);
        lines
    }

    /// Takes over the current row of a run; its journal is read only if the run has changed.
    async fn refresh(&mut self, link: &DaemonLink, run: Run) -> Result<(), Failure> {
        let mut run = run;
        if &*run.state == "queued" && run.held_up.is_none() {
            run.held_up = blocker::of_queued(link, &run).await?;
        }
        let steps = match self.tree.is_behind(&run) {
            true => Some(steps(link, run.run_id).await?),
            false => None,
        };
        self.tree.take(run, steps);
        Ok(())
    }

    /// Prints `text` for users, or `event` for programs. It stays on the screen.
    pub(crate) fn tell(
        &mut self,
        text: &str,
        event: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        tell(&mut self.shown, text, event)
    }

    /// Prints a note for users, which cannot fail.
    pub(crate) fn note(&mut self, text: &str) {
        match &mut self.shown {
            ViewMode::Tree(screen) => screen.keep(text),
            ViewMode::Notes | ViewMode::Json => print::note(text),
        }
    }

    /// Prints each finished tool call, each end and each request once.
    fn print_news(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        // Commands that follow runs announce requests themselves, with the command that answers
        // them.
        let asked = match self.shown {
            ViewMode::Json => self.tree.asked(),
            ViewMode::Tree(_) | ViewMode::Notes => &[],
        };
        for asked in asked {
            if self.printed.asked.insert(asked.id()) {
                let text = asked.in_short(now, None);
                tell(
                    &mut self.shown,
                    &text,
                    || json!({ "event": "asked", "id": asked.id() }),
                )?;
            }
        }
        if let (Some(heading), ViewMode::Notes) = (self.heading_line(usize::MAX), &self.shown) {
            print::note(&heading);
            self.heading = None;
        }
        for Followed { run, steps, .. } in self.tree.runs() {
            let who = format!("{} {}", line(tree::name(run), 24), short(run.run_id));
            for step in steps {
                let is_news = step.tool.is_some() && step.ended_at.is_some();
                if is_news && self.printed.steps.insert(step.step_id) {
                    let what = tree::describe(step);
                    let text = line(
                        &format!("{who}: step {} {what}", step.seq),
                        print::note_room(0),
                    );
                    tell(
                        &mut self.shown,
                        &text,
                        || json!({ "event": "step", "runId": run.run_id, "step": step }),
                    )?;
                }
            }
            if tree::is_ended(&run.state) && self.printed.ends.insert(run.run_id) {
                let is_said = &*run.state != "ok" && self.printed.waited.contains(&run.run_id);
                if is_said && matches!(self.shown, ViewMode::Notes) {
                    continue;
                }
                let calls = tree::calls(run.tool_calls);
                let what = format!("{who}: ended {}, {calls}", run.state);
                tell(
                    &mut self.shown,
                    &line(&what, print::note_room(0)),
                    || json!({ "event": "ended", "runId": run.run_id, "state": run.state }),
                )?;
            }
        }
        Ok(())
    }
}

fn tell(shown: &mut ViewMode, text: &str, event: impl FnOnce() -> Value) -> Result<(), Failure> {
    match shown {
        ViewMode::Tree(screen) => screen.keep(text),
        ViewMode::Notes => print::note(text),
        ViewMode::Json => return print::object(&event()),
    }
    Ok(())
}

/// A run and its descendants, oldest first.
pub(crate) async fn tree_of(link: &DaemonLink, run: RunId) -> Result<Vec<Run>, Failure> {
    let request = ListRuns {
        tree: Some(run),
        limit: PageSize(TREE),
        ..ListRuns::default()
    };
    let mut runs = link.ask(&request).await?.runs;
    runs.reverse();
    Ok(runs)
}

impl Drop for View {
    fn drop(&mut self) {
        if let ViewMode::Tree(_) = self.shown {
            // The live lines are removed, and the last picture stays.
            self.shown = ViewMode::Notes;
            if self.stream.is_some() {
                return;
            }
            self.tree.asks(Vec::new());
            let look = DrawOptions {
                frame: 0,
                rows: usize::MAX,
                ..self.look()
            };
            for line in self
                .heading_line(look.columns)
                .into_iter()
                .chain(self.tree.draw(&look))
            {
                print::note(&line);
            }
        }
    }
}
