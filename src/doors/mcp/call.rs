//! One call of a tool, and its progress notifications: what the awaited runs do, and a sign of life
//! in between, so that a host does not give the call up.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use serde_json::Value;

use crate::clock::Clock;
use crate::doors::api::{Api, EventFeed};
use crate::kernel::ids::RunId;
use crate::kernel::text;
use crate::wire::events::{Event, SNAPSHOT, SubscribeEvents};

/// Interval of signs of life. Hosts commonly give a request up after 60 s without one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Maximum length of a message of progress in characters.
const MESSAGE_CHARS: usize = 200;
/// Kinds of events that are worth a message.
const KINDS: [&str; 9] = [
    "run.started",
    "run.paused",
    "run.resumed",
    "run.settling",
    "run.ended",
    "tool.started",
    "tool.progress",
    "question.asked",
    "approval.requested",
];

/// A call of a tool by a host.
pub(super) struct McpCall<A> {
    /// The daemon, with the rights of the host.
    pub(super) api: A,
    /// Source of time and ids.
    pub(super) clock: Clock,
    /// The host.
    pub(super) peer: Peer<RoleServer>,
    /// Token of the notifications of progress, if the host wants them.
    pub(super) progress: Option<ProgressToken>,
}

impl<A: Api> McpCall<A> {
    /// Carries out `work`, which waits for `runs`, and meanwhile notifies the host of their
    /// progress.
    pub(super) async fn with_progress<T>(
        &self,
        runs: &[RunId],
        work: impl Future<Output = T>,
    ) -> T {
        let Some(token) = &self.progress else {
            return work.await;
        };
        tokio::select! {
            biased;
            done = work => done,
            never = self.report(token, runs) => match never {},
        }
    }

    /// Notifies the host until it is dropped.
    async fn report(&self, token: &ProgressToken, runs: &[RunId]) -> Infallible {
        let began = self.clock.monotonic();
        let mut sent = 0.0;
        let mut feed = self.feed(runs).await;
        let mut life = tokio::time::interval(SIGN_OF_LIFE);
        life.reset();
        loop {
            let message = tokio::select! {
                event = next(&mut feed) => match event {
                    Some(event) => match message(&event, runs) {
                        Some(message) => message,
                        None => continue,
                    },
                    None => {
                        feed = None;
                        continue;
                    }
                },
                _ = life.tick() => {
                    // The previous feed has ended with its connection.
                    if feed.is_none() {
                        feed = self.feed(runs).await;
                    }
                    let waited = self.clock.monotonic().saturating_sub(began);
                    format!("waiting for {} s", waited.as_secs())
                }
            };
            sent += 1.0;
            let note = ProgressNotificationParam::new(token.clone(), sent).with_message(message);
            if let Err(error) = self.peer.notify_progress(note).await {
                tracing::debug!(%error, "a notification of progress could not be sent");
            }
        }
    }

    async fn feed(&self, runs: &[RunId]) -> Option<EventFeed> {
        let request = SubscribeEvents {
            tree: match runs {
                [run] => Some(*run),
                _ => None,
            },
            kinds: KINDS.map(str::to_owned).to_vec(),
            ..SubscribeEvents::default()
        };
        let feed = self.api.follow(request).await;
        feed.inspect_err(|error| tracing::debug!(%error, "no events for notifications of progress"))
            .ok()
    }
}

/// The next event; never, if there is no feed.
async fn next(feed: &mut Option<EventFeed>) -> Option<Event> {
    match feed {
        Some(feed) => feed.next().await,
        None => std::future::pending().await,
    }
}

/// The message of an event; `None` if it says nothing about the awaited runs.
fn message(event: &Event, runs: &[RunId]) -> Option<String> {
    if event.kind == SNAPSHOT {
        return None;
    }
    // One run is followed with its descendants, by the subscription itself.
    let is_awaited = match (runs, event.run_id) {
        ([_], _) => true,
        (runs, Some(run)) => runs.contains(&run),
        (_, None) => false,
    };
    if !is_awaited {
        return None;
    }
    let field = |name: &str| event.data.get(name).and_then(Value::as_str);
    let what = match event.kind.as_str() {
        "run.started" => "has started".to_owned(),
        "run.paused" => format!("is paused: {}", field("pause").unwrap_or("waiting")),
        "run.resumed" => "continues".to_owned(),
        "run.settling" => "waits for runs that it requested".to_owned(),
        "run.ended" => format!("has ended: {}", field("state").unwrap_or("ended")),
        "tool.started" => {
            let tool = field("toolName").unwrap_or("a tool");
            format!(
                "calls {tool} {}",
                field("paramsSummary").unwrap_or_default()
            )
        }
        "tool.progress" => {
            let step = event.data.get("progress")?;
            let tool = step.get("toolName").and_then(Value::as_str)?;
            format!("has a subagent call {tool}")
        }
        "question.asked" => format!("asks: {}", field("text").unwrap_or_default()),
        "approval.requested" => {
            format!("needs an approval of {}", field("tool").unwrap_or("a call"))
        }
        _ => return None,
    };
    let run = event.run_id.map(|run| run.to_string()).unwrap_or_default();
    let short = &run[run.len().saturating_sub(6)..];
    let line = format!("run {short} {}", what.trim_end());
    Some(text::preview(&line, MESSAGE_CHARS))
}
