//! Notifies a user outside of the daemon when something waits for them or work has ended, by
//! running the command from the settings. This file has the loop, which the daemon starts;
//! `facts.rs` makes a notification's contents, `send.rs` runs the command. It never changes a run.

mod facts;
mod send;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Config;
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::registry::{
    EventFilter, KindPattern, LogEvent, Principal, Registry, Subscribe, SubscriptionItem,
};
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, State};
use facts::Facts;
use send::Sending;
pub use send::{DESKTOP, Notifier};

/// Events within this time are combined into one notification; what is answered within it is not
/// notified.
const TOGETHER: Duration = Duration::from_millis(300);
/// Retry interval after the store could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// Page size when reading the runs that may wait.
const RUNS: u32 = 500;
/// Maximum number of ends, and of things about nodes, that may wait for a notification; later ones
/// are dropped.
const ENDS: usize = 1000;
/// The states in which a run may wait for a user.
const MAY_WAIT: [State; 3] = [State::Running, State::Paused, State::Settling];

/// The settings under `notify`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifySettings {
    /// The program and its arguments; empty: notifications are off.
    command: Vec<String>,
    needs_person: bool,
    ended: bool,
    timeout: Duration,
}

impl NotifySettings {
    /// The settings of this configuration.
    pub fn of(config: &Config) -> NotifySettings {
        NotifySettings {
            command: config.notify_command.clone(),
            needs_person: config.notify_needs_person,
            ended: config.notify_ended,
            timeout: config.notify_timeout,
        }
    }

    fn are_on(&self) -> bool {
        !self.command.is_empty() && (self.needs_person || self.ended)
    }
}

/// Sends all notifications that the settings request, until dropped. Called once the rows are
/// restored: what still waits from an earlier boot is notified again.
pub async fn keep(
    registry: Registry,
    who: Principal,
    notifier: Notifier,
    mut settings: watch::Receiver<NotifySettings>,
) {
    let mut known = NotifiedState::default();
    // A change of the settings does not stop a running command.
    let mut sending = Sending::default();
    loop {
        let now = settings.borrow_and_update().clone();
        let includes_ends = now.are_on() && now.ended;
        if includes_ends && !known.includes_ends {
            // What ended while that was off is not notified later.
            known.cursor = None;
        }
        known.includes_ends = includes_ends;
        let watching = async {
            match now.are_on() {
                true => {
                    let watching = known.watch(&registry, &who, (&notifier, &now), &mut sending);
                    watching.await
                }
                false => sending.go_on().await,
            }
        };
        tokio::select! {
            fault = watching => {
                tracing::warn!(%fault, "notifications pause: the event log could not be followed");
                tokio::time::sleep(AGAIN).await;
            }
            // The settings channel closes when the daemon ends.
            changed = settings.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// What has been notified.
#[derive(Default)]
struct NotifiedState {
    /// Ids of waiting things that were notified.
    notified: BTreeSet<String>,
    /// Ended runs that are to be notified.
    ends: Vec<RunId>,
    /// What nodes need, to be notified.
    of_nodes: Vec<Facts>,
    /// Everything up to it was taken; `None`: the log is followed from now on.
    cursor: Option<i64>,
    /// The settings ask for ends of runs.
    includes_ends: bool,
}

impl NotifiedState {
    /// Sends notifications until the event log cannot be followed; returns the reason.
    async fn watch(
        &mut self,
        registry: &Registry,
        who: &Principal,
        (notifier, settings): (&Notifier, &NotifySettings),
        sending: &mut Sending,
    ) -> Fault {
        let request = Subscribe {
            filter: EventFilter {
                kinds: kinds(),
                ..EventFilter::default()
            },
            since: self.cursor,
            ..Subscribe::default()
        };
        let mut events = match registry.subscribe(who, request).await {
            Ok(events) => events,
            Err(fault) => {
                // The events after it may be gone.
                self.cursor = None;
                return fault;
            }
        };
        let clock = &notifier.clock;
        let mut due = Some(clock.monotonic());
        loop {
            // While a command runs, new things are collected.
            let at = due.filter(|_| sending.has_room());
            let look = async {
                match at {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock.monotonic())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                items = events.next() => {
                    let Some(items) = items else {
                        return Fault::internal("the subscription to the event log ended");
                    };
                    let heard = items.iter().filter(|item| self.record_event(item, settings)).count();
                    if heard > 0 {
                        due.get_or_insert(clock.monotonic() + TOGETHER);
                    }
                }
                () = look => due = match self.due_notifications(registry, who, settings).await {
                    Ok(news) => {
                        sending.send(notifier, settings, news);
                        None
                    }
                    Err(fault) => {
                        tracing::warn!(%fault, "the things that wait for a user could not be read");
                        Some(clock.monotonic() + AGAIN)
                    }
                },
                () = sending.one_is_over() => {}
            }
        }
    }

    /// Records the event; true if new notifications are due.
    fn record_event(&mut self, item: &SubscriptionItem, settings: &NotifySettings) -> bool {
        let event: &LogEvent = match item {
            SubscriptionItem::Event(event) => event,
            SubscriptionItem::Snapshot(now) => {
                self.cursor = Some(now.cursor);
                return false;
            }
            SubscriptionItem::Lagged { cursor, .. } => {
                self.cursor = Some(*cursor);
                return false;
            }
            SubscriptionItem::Text(_) => return false,
        };
        self.cursor = Some(event.event.cursor);
        if event.event.kind.starts_with("node.") {
            let facts = Facts::of_node(&event.event).filter(|_| settings.needs_person);
            let room = ENDS.saturating_sub(self.of_nodes.len());
            self.of_nodes.extend(facts.into_iter().take(room));
            return !self.of_nodes.is_empty();
        }
        if event.event.kind != "run.ended" {
            return settings.needs_person;
        }
        let Some(run) = event.event.run.filter(|_| settings.ended) else {
            return false;
        };
        if self.ends.len() == ENDS {
            tracing::warn!(%run, "no notification for the end of this run: too many are waiting");
            return false;
        }
        self.ends.push(run);
        true
    }

    /// The notifications that are due now. What was answered meanwhile is omitted.
    async fn due_notifications(
        &mut self,
        registry: &Registry,
        who: &Principal,
        settings: &NotifySettings,
    ) -> Result<Vec<Facts>, Fault> {
        let mut news = Vec::new();
        if settings.needs_person {
            let waiting = waiting(registry, who).await?;
            self.notified.retain(|name| waiting.contains_key(name));
            for (name, facts) in waiting {
                if self.notified.insert(name) {
                    news.push(facts);
                }
            }
        }
        news.append(&mut self.of_nodes);
        for run in std::mem::take(&mut self.ends) {
            // The run may be deleted by now.
            if let Ok(detail) = registry.run(who, run).await
                && detail.run.parent_run.is_none()
            {
                news.push(Facts::of_end(&detail.run));
            }
        }
        Ok(news)
    }
}

/// The event kinds after which something new may wait or has ended.
fn kinds() -> Vec<KindPattern> {
    let kinds = [
        "run.ended",
        "run.paused",
        "approval.requested",
        "question.asked",
        "env.missing",
        "gateway.started",
        "node.waiting",
        "node.asked",
        "node.lost",
    ];
    kinds.into_iter().filter_map(KindPattern::parse).collect()
}

/// Everything that waits for a user now, by id.
async fn waiting(registry: &Registry, who: &Principal) -> Result<BTreeMap<String, Facts>, Fault> {
    let mut all = BTreeMap::new();
    let mut filter = ListRuns {
        states: MAY_WAIT.into(),
        limit: PageSize(RUNS),
        ..ListRuns::default()
    };
    loop {
        let page = registry.runs(who, filter.clone(), |page, _| {
            let facts: Vec<Facts> = page.items.iter().flat_map(Facts::of_waits).collect();
            Ok((facts, page.next))
        });
        let (facts, next) = page.await?;
        all.extend(facts.into_iter().map(|facts| (facts.id.clone(), facts)));
        if next.is_none() {
            return Ok(all);
        }
        filter.cursor = next;
    }
}
