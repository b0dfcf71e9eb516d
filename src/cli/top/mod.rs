//! `abide top`: a full-screen view of all open work. This file has the main loop: it takes events,
//! keys, signals and replies of the daemon, and draws the screen after each. `model.rs` holds the
//! state, `press.rs` handles keys, `draw.rs` draws, and `terminal.rs` controls the terminal.

mod act;
mod detail;
mod draw;
mod help;
mod keys;
mod model;
mod press;
mod read;
mod rows;
mod terminal;
#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::time::Duration;

use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use ratatui::Terminal;
use tokio::time::{MissedTickBehavior, interval};

use super::link::DaemonLink;
use crate::cli::asking::person::Person;
use crate::cli::commands::attach::Attach;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::common::signals::ExitSignals;
use crate::cli::link::watch::{EventWatch, WatchItem};
use crate::cli::output::print;
use crate::clock::Clock;
use crate::failpoint;
use crate::kernel::ids::RunId;
use act::ActionOutcome;
use keys::{Keys, PressedKey};
use model::TopModel;
use press::KeyOutcome;
use read::ScreenRefresh;
use terminal::{Crossterm, TerminalGuard};

/// Interval at which ages are redrawn.
const TICK: Duration = Duration::from_secs(1);

/// Watch and control all runs on a full screen
///
/// Shows runs as trees, open requests, the usage of the lanes and the health of the model
/// providers, as they change. Approvals are shown completely, with their diff, before they can be
/// given. Keys are shown below the lists, and all of them with ?. The connection is restored after
/// a restart of the daemon. Without a terminal use abide ps; programs use abide ps --json or abide
/// events --json.
#[derive(Debug, Args)]
#[command(after_help = "abide top")]
pub(crate) struct Top {}

impl Top {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        failpoint::configure_from_env().map_err(Failure::usage)?;
        if common.json {
            return Err(Failure::usage("abide top has no JSON output")
                .hint("for programs: abide ps --json, abide events --json"));
        }
        terminal::check()?;
        let link = DaemonLink::open(&common.place).await?;
        let watch = EventWatch::open(link, &common.place, read::events(), print::note).await?;
        let mut ends = ExitSignals::new()?;
        let mut screen = TopScreen {
            taken: TerminalGuard::over()?,
            terminal: Terminal::new(Crossterm::new()).map_err(failed)?,
            model: TopModel::default(),
            clock: Clock::system(),
        };
        screen.terminal.clear().map_err(failed)?;
        let mut looking = Looking {
            common,
            watch,
            person: Person::new(),
            reader: ScreenRefresh::new(Clock::system()),
            acts: FuturesUnordered::new(),
            keys: Keys::default(),
        };
        loop {
            match looking.look(&mut screen, &mut ends).await? {
                Out::Quit(code) => return Ok(code),
                Out::Attach(run) => {
                    if let Some(code) = looking.attach(run, &mut screen, &mut ends).await? {
                        return Ok(code);
                    }
                    ends.forget_interrupt()?;
                }
            }
        }
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::local("the screen cannot be drawn", error)
}

/// Why the loop has ended.
enum Out {
    /// Quit, with this exit code.
    Quit(u8),
    /// Attach to this run.
    Attach(RunId),
}

/// The terminal and its content.
struct TopScreen {
    // Fields are dropped in this order: the drawing ends before `taken` gives the terminal back.
    terminal: Terminal<Crossterm>,
    model: TopModel,
    clock: Clock,
    taken: TerminalGuard,
}

impl TopScreen {
    fn draw(&mut self) -> Result<(), Failure> {
        failpoint::reach("cli.top.draw");
        let now = self.clock.now();
        let model = &mut self.model;
        self.terminal
            .draw(|frame| draw::draw(frame, model, now))
            .map_err(failed)?;
        Ok(())
    }
}

/// A pending action.
type Acting<'a> = Pin<Box<dyn Future<Output = ActionOutcome> + 'a>>;

/// All inputs of the loop.
struct Looking<'a> {
    common: &'a Common,
    watch: EventWatch<'a>,
    person: Person,
    reader: ScreenRefresh,
    acts: FuturesUnordered<Acting<'a>>,
    keys: Keys,
}

impl<'a> Looking<'a> {
    /// Runs until the user quits or attaches, or a signal arrives.
    async fn look(
        &mut self,
        screen: &mut TopScreen,
        ends: &mut ExitSignals,
    ) -> Result<Out, Failure> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            screen.draw()?;
            tokio::select! {
                code = ends.next() => if let Some(code) = code {
                    return Ok(Out::Quit(code));
                },
                bytes = self.person.bytes() => {
                    if let Some(out) = self.press(screen, bytes)? {
                        return Ok(out);
                    }
                }
                seen = self.watch.seen() => match seen? {
                    Some(WatchItem::Event(event)) => self.reader.hear(&event),
                    Some(WatchItem::Picture(..)) => self.reader.anew(),
                    None => {
                        if let Some(code) = self.come_back(screen, ends).await? {
                            return Ok(Out::Quit(code));
                        }
                    }
                },
                () = self.reader.due() => {
                    self.reader.read(&self.watch.link, &mut screen.model).await?;
                }
                Some(outcome) = self.acts.next(), if !self.acts.is_empty() => {
                    screen.model.acted(outcome);
                    self.reader.anew();
                }
                _ = tick.tick() => {}
            }
        }
    }

    /// Handles keys one by one: what a key decides on was drawn before the key counts.
    fn press(
        &mut self,
        screen: &mut TopScreen,
        bytes: Option<Vec<u8>>,
    ) -> Result<Option<Out>, Failure> {
        // The terminal is gone.
        let Some(bytes) = bytes else {
            return Ok(Some(Out::Quit(0)));
        };
        for key in self.keys.read(&bytes) {
            let now = screen.clock.now();
            match press::press(&mut screen.model, key, now) {
                KeyOutcome::Draw => {}
                KeyOutcome::Redraw => screen.terminal.clear().map_err(failed)?,
                KeyOutcome::Quit => return Ok(Some(Out::Quit(0))),
                KeyOutcome::Attach(run) => return Ok(Some(Out::Attach(run))),
                KeyOutcome::Do(act) => self.acts.push(Box::pin(act.carry_out(&self.common.place))),
            }
            screen.draw()?;
        }
        Ok(None)
    }

    /// Reconnects to the daemon with the last picture on the screen; returns the exit code if the
    /// user or a signal ends that. Fails if the daemon has not come back in time.
    async fn come_back(
        &mut self,
        screen: &mut TopScreen,
        ends: &mut ExitSignals,
    ) -> Result<Option<u8>, Failure> {
        screen.model.lost = true;
        let text = "the connection to the daemon was lost; retrying for up to a minute";
        screen.model.message = Some(text.to_owned());
        let Looking {
            watch,
            person,
            reader,
            keys,
            ..
        } = self;
        let mut back = pin!(watch.come_back(|_| {}));
        loop {
            screen.draw()?;
            tokio::select! {
                back = &mut back => {
                    back?;
                    screen.model.lost = false;
                    screen.model.message = Some("the daemon is back".to_owned());
                    reader.anew();
                    return Ok(None);
                }
                code = ends.next() => if code.is_some() {
                    return Ok(code);
                },
                bytes = person.bytes() => {
                    let pressed = keys.read(&bytes.unwrap_or(vec![b'q']));
                    if pressed.iter().any(|key| matches!(key, PressedKey::Char('q') | PressedKey::Interrupt)) {
                        return Ok(Some(0));
                    }
                }
            }
        }
    }

    /// Follows a run as `abide attach` does, with the terminal restored, and returns; an exit code
    /// if a signal ends it.
    async fn attach(
        &mut self,
        run: RunId,
        screen: &mut TopScreen,
        ends: &mut ExitSignals,
    ) -> Result<Option<u8>, Failure> {
        self.person.rest().await;
        screen.taken.leave();
        let attach = Attach::to(run.to_string());
        let attached = Box::pin(attach.run(self.common));
        tokio::select! {
            ended = attached => if let Err(failure) = ended {
                print::note(&failure.to_string());
            },
            code = ends.terminated() => return Ok(Some(code)),
        }
        print::note(&print::styled(print::DIM, "Enter goes back to abide top"));
        tokio::select! {
            // The end of the input ends the main loop, too.
            _ = self.person.line() => {}
            code = ends.terminated() => return Ok(Some(code)),
        }
        self.person.rest().await;
        screen.taken.enter()?;
        screen.terminal.clear().map_err(failed)?;
        self.reader.anew();
        Ok(None)
    }
}
