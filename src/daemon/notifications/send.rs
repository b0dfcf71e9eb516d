//! Runs the command of a notification: bounded in time and in number, and without effect on
//! anything else when it fails.

use std::collections::VecDeque;
use std::path::PathBuf;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::sink;

use super::Settings;
use super::facts::Facts;
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::kernel::env::Environment;
use crate::process::{Ending, Input, Processes, Program, signal_name};

/// The most commands that run at once.
const AT_ONCE: usize = 2;
/// At most this many things are notified each by itself; more become one notification.
const EACH: usize = 3;
/// The most bytes of what the command says that are kept for the log.
const KEEP: usize = 2048;

/// With what commands are run.
#[derive(Clone)]
pub struct Notifier {
    /// How programs are started.
    pub processes: Processes,
    /// What they get of the daemon's environment.
    pub environment: Environment,
    /// Their folder.
    pub folder: PathBuf,
    /// Gives each start a name.
    pub clock: Clock,
}

/// Names by which programs find the desktop or the terminal multiplexer of their user.
pub const DESKTOP: [&str; 7] = [
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "TMUX",
    "TMUX_TMPDIR",
];

/// The commands that run now, and what waits for one of them to end.
#[derive(Default)]
pub(super) struct Sending {
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    waiting: VecDeque<BoxFuture<'static, ()>>,
}

impl Sending {
    /// Can a command be started now?
    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.running.len() < AT_ONCE
    }

    /// Sends these: each by itself, or many as one.
    pub(super) fn send(&mut self, notifier: &Notifier, settings: &Settings, news: Vec<Facts>) {
        let news = match news.len() {
            0..=EACH => news,
            _ => Vec::from_iter(Facts::of_several(&news)),
        };
        for facts in news {
            let (notifier, settings) = (notifier.clone(), settings.clone());
            let sent: BoxFuture<'static, ()> = Box::pin(async move {
                if let Err(why) = notifier.run(&settings, &facts).await {
                    tracing::warn!(
                        kind = facts.kind, run = %facts.run, why,
                        "the notification failed; the run is as it was (settings notify.*)"
                    );
                }
            });
            self.waiting.push_back(sent);
        }
        self.start();
    }

    fn start(&mut self) {
        while self.running.len() < AT_ONCE
            && let Some(next) = self.waiting.pop_front()
        {
            self.running.push(next);
        }
    }

    /// Lets the commands go on, and returns never.
    pub(super) async fn go_on<T>(&mut self) -> T {
        loop {
            self.one_is_over().await;
        }
    }

    /// Returns once one of the commands that run has ended.
    pub(super) async fn one_is_over(&mut self) {
        match self.running.next().await {
            Some(()) => self.start(),
            None => std::future::pending().await,
        }
    }
}

impl Notifier {
    /// Runs the command for one notification; the error says why it is not known to be shown.
    async fn run(&self, settings: &Settings, facts: &Facts) -> Result<(), String> {
        let mut environment = self.environment.clone();
        for (name, value) in facts.variables() {
            environment = environment.with(name, value);
        }
        let program = Program {
            argv: settings.command.iter().map(|one| facts.fill(one)).collect(),
            environment,
            folder: self.folder.clone(),
            input: Input::Nothing,
            time: None,
            keep: KEEP,
        };
        let mut service = self.processes.open(self.clock.new_id(), program, |_| {})?;
        drop(service.input.take());
        let mut output = service.output.take();
        let ended = tokio::time::timeout(settings.timeout, async {
            let reading = async {
                // What it says there is read so that it does not wait, and is of no use.
                if let Some(output) = &mut output {
                    let _ = tokio::io::copy(output, &mut sink()).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = service.ended() => ended,
                () = reading => Ending::Exited(-1),
            }
        });
        let ended = ended.await;
        let said = service.end().await.said;
        let said = said.map_or(String::new(), |said| {
            let said = said.text();
            match said.trim() {
                "" => String::new(),
                said => format!(": {said}"),
            }
        });
        match ended {
            Ok(Ending::Exited(0)) => Ok(()),
            Ok(Ending::Exited(status)) => Err(format!("exit status {status}{said}")),
            Ok(Ending::Signal(signal)) => Err(format!("ended by {}{said}", signal_name(signal))),
            Ok(Ending::TimeOver | Ending::TooMuch(_)) => Err(format!("it was ended{said}")),
            Err(_) => Err(format!(
                "it had not ended after {} (notify.timeout){said}",
                humantime::format_duration(settings.timeout)
            )),
        }
    }
}
