//! Runs the command of a notification, limited in time and concurrency. Its failures are only
//! logged.

use std::collections::VecDeque;
use std::path::PathBuf;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::sink;

use super::NotifySettings;
use super::facts::Facts;
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::kernel::policy::env::Environment;
use crate::process::{ExitReason, Processes, Program, ProgramInput, signal_name};

/// Maximum number of concurrent commands.
const AT_ONCE: usize = 2;
/// Maximum number of things that get a notification each; more are combined into one.
const EACH: usize = 3;
/// Maximum bytes of the command's output that are kept for the log.
const KEEP: usize = 2048;

/// What is needed to run notification commands.
#[derive(Clone)]
pub struct Notifier {
    /// Starts the programs.
    pub processes: Processes,
    /// The environment of the commands.
    pub environment: Environment,
    /// The working folder of the commands.
    pub folder: PathBuf,
    /// Creates an id for each start.
    pub clock: Clock,
}

/// Variables by which programs find the desktop or the terminal multiplexer of their user.
pub const DESKTOP: [&str; 7] = [
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "TMUX",
    "TMUX_TMPDIR",
];

/// The running commands, and the queue of those to start next.
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

    /// Queues these notifications: one command each, or one for all if they are many.
    pub(super) fn send(
        &mut self,
        notifier: &Notifier,
        settings: &NotifySettings,
        news: Vec<Facts>,
    ) {
        let news = match news.len() <= EACH {
            true => news,
            false => Vec::from_iter(Facts::of_several(&news)),
        };
        for facts in news {
            let (notifier, settings) = (notifier.clone(), settings.clone());
            let sent: BoxFuture<'static, ()> = Box::pin(async move {
                if let Err(why) = notifier.run(&settings, &facts).await {
                    tracing::warn!(
                        kind = facts.kind, run = %facts.run, why,
                        "the notification failed; the run is unaffected (settings notify.*)"
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

    /// Drives the running commands; never returns.
    pub(super) async fn go_on<T>(&mut self) -> T {
        loop {
            self.one_is_over().await;
        }
    }

    /// Returns once one of the running commands has ended.
    pub(super) async fn one_is_over(&mut self) {
        match self.running.next().await {
            Some(()) => self.start(),
            None => std::future::pending().await,
        }
    }
}

impl Notifier {
    /// Runs the command for one notification; the error says why it may not have been shown.
    async fn run(&self, settings: &NotifySettings, facts: &Facts) -> Result<(), String> {
        let mut environment = self.environment.clone();
        for (name, value) in facts.variables() {
            environment = environment.with(name, value);
        }
        let program = Program {
            argv: settings.command.iter().map(|one| facts.fill(one)).collect(),
            environment,
            folder: self.folder.clone(),
            input: ProgramInput::Nothing,
            time: None,
            keep: KEEP,
            detach: false,
        };
        let mut service = self.processes.open(self.clock.new_id(), program, |_| {})?;
        drop(service.input.take());
        let mut output = service.output.take();
        let ended = tokio::time::timeout(settings.timeout, async {
            let reading = async {
                // Its standard output is drained so that it does not block, and discarded.
                if let Some(output) = &mut output {
                    let _ = tokio::io::copy(output, &mut sink()).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = service.ended() => ended,
                () = reading => ExitReason::Exited(-1),
            }
        });
        let ended = ended.await;
        let said = service.end().await.stderr;
        let said = said.map_or(String::new(), |said| {
            let said = said.text();
            match said.trim() {
                "" => String::new(),
                said => format!(": {said}"),
            }
        });
        match ended {
            Ok(ExitReason::Exited(0)) => Ok(()),
            Ok(ExitReason::Exited(status)) => Err(format!("exit status {status}{said}")),
            Ok(ExitReason::Signal(signal)) => {
                Err(format!("ended by {}{said}", signal_name(signal)))
            }
            Ok(_) => Err(format!("it was stopped{said}")),
            Err(_) => Err(format!(
                "it did not finish within {} (notify.timeout){said}",
                humantime::format_duration(settings.timeout)
            )),
        }
    }
}
