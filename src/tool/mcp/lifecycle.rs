//! The lifecycle of a server: start, handshake in each suitable form, supervision, and end with all
//! its descendants. Called by `server`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::connection::{McpConnection, ToolChanges};
use super::exit::{badly_closed, ended, or_ended, with_stderr, words};
use super::handshake::{Greeting, Handshake, is_followed};
use super::names::offer;
use super::server::{McpConnectionState, McpServer};
use super::wire::Wire;
use crate::contract::servers::ServerState;
use crate::file_work::DEFINITIONS;
use crate::process::Service;

/// The backoff before retrying a failed server without known tools; it doubles with each failure up
/// to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The pause between two lists of tools; it doubles up to [`LONGEST_LIST_PAUSE`] while the tools
/// keep changing.
const LIST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_LIST_PAUSE: Duration = Duration::from_secs(30);

/// The result of one start.
struct Start {
    greeting: Greeting,
    /// Why it ended; `None` if it was stopped on purpose.
    why: Option<String>,
    /// What went wrong when it was ended.
    badly: Option<String>,
}

impl McpServer {
    /// Runs the server from start to end; returns what went wrong when it was ended.
    pub(super) async fn supervise(self: Arc<Self>) -> Option<String> {
        let mut start = Start {
            greeting: Greeting::None,
            why: None,
            badly: None,
        };
        for handshake in self.remembered.to_try() {
            let before = start.why.take();
            start = self.start(handshake).await;
            if start.greeting != Greeting::Ready && handshake == Handshake::Oldest {
                // The oldest revision is tried last; its refusal is the least informative.
                start.why = before.or(start.why);
            }
            if self.stop.is_cancelled() || !is_followed(handshake, start.greeting) {
                break;
            }
            let why = start.why.as_deref().unwrap_or_default();
            tracing::info!(server = %self.name, why, ?handshake, "the handshake with a tool server failed");
        }
        let Start {
            greeting,
            why,
            badly,
        } = start;
        if let Some(why) = &why {
            tracing::warn!(server = %self.name, why, "a tool server has failed");
            self.failures.fetch_add(1, Ordering::Relaxed);
            if greeting != Greeting::Ready {
                self.remembered.forget();
            }
        }
        self.show(|view| {
            view.pid = None;
            view.state = match &why {
                Some(_) => ServerState::Failed,
                None => ServerState::Stopped,
            };
            view.last_error.clone_from(&why);
        });
        let has_failed = why.is_some();
        self.link.send_replace(McpConnectionState::Down(why));
        if has_failed && !self.is_leased {
            self.try_later().await;
        }
        badly
    }

    /// Starts the server, performs this handshake, and supervises it until its end.
    async fn start(self: &Arc<Self>, handshake: Handshake) -> Start {
        self.noise.forget();
        self.show(|view| {
            view.starts += 1;
            view.stray_line_count = 0;
            view.stray_lines.clear();
        });
        let closed = CancellationToken::new();
        let mut program = None;
        let reading = Arc::clone(self);
        let read = DEFINITIONS.run(move |_| reading.environment()).await;
        let wire = match read.unwrap_or_else(|busy| Err(busy.to_string())) {
            Ok(environment) => self.wire(environment, &mut program, closed.clone()),
            Err(why) => Err(why),
        };
        self.show(|view| view.pid = program.as_ref().map(Service::pid));
        let (greeting, why) = match wire {
            Ok(wire) => self.serve(wire, handshake, &mut program, &closed).await,
            Err(why) => (Greeting::None, Some(why)),
        };
        if greeting == Greeting::Ready {
            self.link.send_replace(McpConnectionState::Ending);
        }
        let (why, badly) = match program {
            None => (why, None),
            Some(program) => {
                let ended = program.end().await;
                if !ended.remaining.is_empty() {
                    tracing::error!(server = %self.name, pids = ?ended.remaining, "a tool server could not be ended");
                }
                // A server that died by itself was not asked to end.
                let badly = badly_closed(&ended, why.is_none());
                (
                    why.map(|why| with_stderr(why, ended.stderr.as_ref())),
                    badly,
                )
            }
        };
        Start {
            greeting,
            why: why.map(|why| self.without_secrets(&why)),
            badly,
        }
    }

    /// Retries a server without known tools after a pause, since no call can trigger its start.
    async fn try_later(self: &Arc<Self>) {
        let view = self.view();
        if view.is_none_or(|view| !view.tools.is_empty()) {
            return;
        }
        let failures = self.failures.load(Ordering::Relaxed);
        let doubled = failures.saturating_sub(1).min(8);
        let pause = (FIRST_PAUSE * (1 << doubled)).min(LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep(pause) => self.begin(),
            () = self.stop.cancelled() => {}
        }
    }

    /// Performs the handshake and supervises the server. Returns the outcome, and why it ended;
    /// `None` if it was stopped on purpose.
    async fn serve(
        &self,
        wire: Wire,
        handshake: Handshake,
        program: &mut Option<Service>,
        closed: &CancellationToken,
    ) -> (Greeting, Option<String>) {
        let opening = async {
            let (connection, at_once) = McpConnection::open(wire, handshake).await?;
            let list = connection.tools().await?;
            Ok::<_, String>((connection, at_once, list))
        };
        let limit = self.table.start_timeout;
        let opened = tokio::select! {
            opened = tokio::time::timeout(limit, opening) => opened,
            ending = ended(program) => {
                let why = format!("it ended during its start, {}", words(ending));
                return (Greeting::Failed, Some(why));
            }
            () = self.stop.cancelled() => return (Greeting::None, None),
        };
        let (connection, at_once, list) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => {
                let why = or_ended(program, "it ended during its start", why).await;
                return (Greeting::Failed, Some(why));
            }
            Err(_) => {
                let limit = humantime::format_duration(limit);
                let why = format!("it was not ready after {limit} (start_timeout), and was ended");
                return (Greeting::Silent, Some(why));
            }
        };
        self.remembered.works(at_once);
        self.failures.store(0, Ordering::Relaxed);
        self.take(offer(&self.name, self.is_local(), list)).await;
        self.show(|view| {
            view.state = match self.noise.is_much() {
                true => ServerState::Noisy,
                false => ServerState::Ready,
            };
            view.protocol = connection.protocol();
            view.last_error = None;
        });
        self.link
            .send_replace(McpConnectionState::Up(connection.clone()));
        let why = self.watch(&connection, program, closed).await;
        connection.close(why.as_deref().unwrap_or("it was stopped"));
        (Greeting::Ready, why)
    }

    /// Follows changes of the tools until the server ends; returns why, or `None` if it was stopped
    /// on purpose.
    async fn watch(
        &self,
        connection: &McpConnection,
        program: &mut Option<Service>,
        closed: &CancellationToken,
    ) -> Option<String> {
        let mut following = std::pin::pin!(self.follow(connection));
        tokio::select! {
            // A stop on purpose must win over the end of the program that it causes.
            biased;
            () = self.stop.cancelled() => None,
            ending = ended(program) => Some(format!("it ended, {}", words(ending))),
            () = closed.cancelled() => {
                Some(or_ended(program, "it ended", "it closed its output".to_owned()).await)
            }
            () = connection.broken() => {
                Some(or_ended(program, "it ended", "it does not answer any more".to_owned()).await)
            }
            never = &mut following => match never {},
        }
    }

    /// Lists the tools again whenever they change, at a limited rate.
    async fn follow(&self, connection: &McpConnection) -> std::convert::Infallible {
        let mut changes: ToolChanges = connection.changes().await;
        let mut pause = LIST_PAUSE;
        loop {
            if changes.next().now_or_never().is_some() {
                pause = (pause * 2).min(LONGEST_LIST_PAUSE);
            } else {
                pause = LIST_PAUSE;
                changes.next().await;
            }
            if changes.has_lost() {
                changes = connection.changes().await;
            }
            let listed = tokio::time::timeout(self.table.call_timeout, connection.tools()).await;
            match listed {
                Ok(Ok(list)) => self.take(offer(&self.name, self.is_local(), list)).await,
                Ok(Err(why)) => self.show(|view| view.last_error = Some(why.clone())),
                Err(_) => self.show(|view| {
                    view.last_error = Some("listing its changed tools timed out".to_owned());
                }),
            }
            tokio::time::sleep(pause).await;
        }
    }
}
