//! Asks connected nodes for the programs that skills require: after a node has connected, after
//! skills have changed, and at an interval. What was found is stored with the node's pairing, so a
//! start asks again only for what it does not know.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::contract::nodes::{NodeEnd, NodeOutput, NodeView, Nodes};
use crate::contract::skills::SkillCatalog;
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, NodeCall, NodeCommand, OutputStream, Programs};
use crate::registry::{Registry, ReloadReason, SkillsReason};

/// Delay of the next attempt after a failed one.
const FIRST_RETRY: Duration = Duration::from_secs(15);
/// Maximum delay of an attempt.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// What is asked for, and who stores and announces it.
pub struct NodePrograms {
    /// The nodes.
    pub nodes: Arc<dyn Nodes>,
    /// The skills.
    pub skills: Arc<dyn SkillCatalog>,
    /// Records changed skills.
    pub registry: Registry,
    /// Source of time and ids.
    pub clock: Clock,
    /// Interval between two questions to a node.
    pub every: Duration,
    /// Notified when skills have changed.
    pub skills_changed: Arc<Notify>,
}

/// A tenant and the name of a node.
type NodePlace = (String, String);

/// When a node is asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Schedule {
    /// The pairing and the programs that the last answer was about.
    answered: Option<(i64, BTreeSet<String>)>,
    /// When it answered.
    at: Duration,
    /// The delay after the last failure; zero if it answered.
    retry: Duration,
    /// When it failed.
    failed_at: Duration,
    /// A question is open.
    is_asking: bool,
}

impl Schedule {
    /// How long to wait until the node is asked for these programs in this pairing; zero = now,
    /// `None` = not while the open question has no answer.
    fn wait(
        &self,
        pairing: i64,
        wanted: &BTreeSet<String>,
        now: Duration,
        every: Duration,
    ) -> Option<Duration> {
        if self.is_asking {
            return None;
        }
        if !self.retry.is_zero() {
            return Some((self.failed_at + self.retry).saturating_sub(now));
        }
        let knows = |(known, programs): &(i64, BTreeSet<String>)| {
            *known == pairing && wanted.is_subset(programs)
        };
        match self.answered.as_ref().is_some_and(knows) {
            true => Some((self.at + every).saturating_sub(now)),
            false => Some(Duration::ZERO),
        }
    }

    fn succeeded(&mut self, pairing: i64, wanted: BTreeSet<String>, now: Duration) {
        *self = Schedule {
            answered: Some((pairing, wanted)),
            at: now,
            ..Schedule::default()
        };
    }

    fn failed(&mut self, now: Duration) {
        self.is_asking = false;
        self.failed_at = now;
        self.retry = (self.retry * 2).clamp(FIRST_RETRY, LONGEST_RETRY);
    }
}

/// A question that has ended.
struct Asked {
    place: NodePlace,
    pairing: i64,
    wanted: BTreeSet<String>,
    found: Result<BTreeMap<String, String>, String>,
}

/// What decides which skills are usable through which nodes.
type UsableNodes = BTreeMap<NodePlace, (String, BTreeSet<String>)>;

struct NoOutput;

impl NodeOutput for NoOutput {
    fn piece(&self, _: OutputStream, _: &str) {}
}

impl NodePrograms {
    /// Asks until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let mut changes = self.nodes.changes();
        let mut schedules: HashMap<NodePlace, Schedule> = HashMap::new();
        let mut asking: JoinSet<Asked> = JoinSet::new();
        // What skills rely on is recorded since the start of the daemon.
        let mut usable = UsableNodes::new();
        loop {
            changes.mark_unchanged();
            let views = self.nodes.everywhere();
            let next = self.ask(&views, &mut schedules, &mut asking);
            let now_usable = usable_nodes(&views);
            if now_usable != usable {
                self.record().await;
                usable = now_usable;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = self.skills_changed.notified() => {}
                Some(asked) = asking.join_next(), if !asking.is_empty() => match asked {
                    Ok(asked) => self.settle(asked, &mut schedules).await,
                    Err(fault) => tracing::error!(%fault, "a question to a node panicked"),
                },
                () = tokio::time::sleep(next.unwrap_or(self.every)) => {}
            }
        }
    }

    /// Asks the nodes whose time has come; returns the time until the next.
    fn ask(
        &self,
        views: &[(String, NodeView)],
        schedules: &mut HashMap<NodePlace, Schedule>,
        asking: &mut JoinSet<Asked>,
    ) -> Option<Duration> {
        let now = self.clock.monotonic();
        schedules.retain(|(org, name), _| {
            let is_it = |(owner, view): &(String, NodeView)| owner == org && view.name == *name;
            views.iter().any(is_it)
        });
        let mut next: Option<Duration> = None;
        for (org, view) in views {
            if !view.connected || !view.callable.commands.contains(&NodeCommand::Which) {
                continue;
            }
            let wanted = self.skills.required_programs(org);
            if wanted.is_empty() {
                continue;
            }
            let place = (org.clone(), view.name.clone());
            let schedule = schedules.entry(place.clone()).or_insert_with(|| Schedule {
                // What an earlier process has asked for is stored.
                answered: Some((view.pairing, view.asked.clone())),
                at: now,
                ..Schedule::default()
            });
            match schedule.wait(view.pairing, &wanted, now, self.every) {
                None => {}
                Some(Duration::ZERO) => {
                    schedule.is_asking = true;
                    asking.spawn(self.question(place, view.pairing, wanted));
                }
                Some(wait) => next = Some(next.map_or(wait, |next| next.min(wait))),
            }
        }
        next
    }

    fn question(
        &self,
        place: NodePlace,
        pairing: i64,
        wanted: BTreeSet<String>,
    ) -> impl Future<Output = Asked> + use<> {
        let nodes = Arc::clone(&self.nodes);
        let id = CallId(self.clock.new_id());
        async move {
            let (org, name) = &place;
            let programs = wanted.clone();
            let call = NodeCall::Which { programs };
            let ended = nodes.call(org, name, id, call, Arc::new(NoOutput)).await;
            if matches!(ended, NodeEnd::Answered(_)) {
                nodes.release(org, name, id);
            }
            let found = match ended {
                NodeEnd::Answered(CallEnd::Done { value }) => {
                    serde_json::from_value::<Programs>(value)
                        .map(|found| found.programs)
                        .map_err(|error| format!("its answer cannot be read: {error}"))
                }
                NodeEnd::Answered(CallEnd::Failed { message, .. })
                | NodeEnd::Answered(CallEnd::Uncertain { message })
                | NodeEnd::NotSent(message)
                | NodeEnd::Away(message) => Err(message),
            };
            Asked {
                place,
                pairing,
                wanted,
                found,
            }
        }
    }

    async fn settle(&self, asked: Asked, schedules: &mut HashMap<NodePlace, Schedule>) {
        let now = self.clock.monotonic();
        let Some(schedule) = schedules.get_mut(&asked.place) else {
            return;
        };
        let (org, name) = &asked.place;
        let stored = match asked.found {
            Ok(mut found) => {
                found.retain(|program, _| asked.wanted.contains(program));
                let (pairing, wanted) = (asked.pairing, asked.wanted.clone());
                let keeping = self.nodes.keep_programs(org, name, pairing, wanted, found);
                keeping.await.map_err(|fault| fault.message)
            }
            Err(why) => Err(why),
        };
        match stored {
            Ok(()) => schedule.succeeded(asked.pairing, asked.wanted, now),
            Err(why) => {
                schedule.failed(now);
                tracing::info!(node = %name, %why, retry = ?schedule.retry, "the programs of a node could not be found out");
            }
        }
    }

    /// Once this returns, the skills that nodes make usable are recorded.
    async fn record(&self) {
        let changed = self.registry.skills_changed(SkillsReason::RemoteNode).await;
        let changed = changed.unwrap_or_else(|fault| {
            tracing::error!(%fault, "a change of skills could not be recorded; the next change records it");
            false
        });
        if changed && let Err(fault) = self.registry.reload_agents(ReloadReason::Watch).await {
            tracing::error!(%fault, "the agents could not be reloaded; the previous ones stay in force");
        }
    }
}

/// The nodes on which programs can be run, each with its platform and programs.
fn usable_nodes(views: &[(String, NodeView)]) -> UsableNodes {
    let runs = |view: &NodeView| view.callable.commands.contains(&NodeCommand::Run);
    let usable = views.iter().filter(|(_, view)| runs(view));
    usable
        .map(|(org, view)| {
            let programs = view.programs.keys().cloned().collect();
            let place = (org.clone(), view.name.clone());
            (place, (view.platform.clone(), programs))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(1800);

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_asked_once_for_what_is_not_known_of_its_pairing() {
        let mut schedule = Schedule::default();
        let wanted = names(&["git"]);
        assert_eq!(
            schedule.wait(1, &wanted, at(5), EVERY),
            Some(Duration::ZERO)
        );
        schedule.is_asking = true;
        assert_eq!(schedule.wait(1, &wanted, at(5), EVERY), None);
        schedule.succeeded(1, wanted.clone(), at(5));
        // A node that comes back is not asked before the interval has passed.
        assert_eq!(schedule.wait(1, &wanted, at(6), EVERY), Some(at(1799)));
        assert_eq!(
            schedule.wait(1, &wanted, at(1805), EVERY),
            Some(Duration::ZERO)
        );
        // Another pairing or another program is not known.
        assert_eq!(
            schedule.wait(2, &wanted, at(6), EVERY),
            Some(Duration::ZERO)
        );
        let more = names(&["git", "make"]);
        assert_eq!(schedule.wait(1, &more, at(6), EVERY), Some(Duration::ZERO));
        assert_eq!(schedule.wait(1, &names(&[]), at(6), EVERY), Some(at(1799)));
    }

    #[test]
    fn failures_are_tried_again_ever_more_rarely() {
        let mut schedule = Schedule::default();
        let wanted = names(&["git"]);
        let mut now = at(100);
        for seconds in [15, 30, 60, 120, 240, 300, 300] {
            schedule.is_asking = true;
            schedule.failed(now);
            assert_eq!(schedule.wait(1, &wanted, now, EVERY), Some(at(seconds)));
            // Nothing asks earlier, neither a new link nor another skill.
            let more = names(&["git", "make"]);
            assert_eq!(schedule.wait(2, &more, now, EVERY), Some(at(seconds)));
            now += at(seconds);
            assert_eq!(schedule.wait(1, &wanted, now, EVERY), Some(Duration::ZERO));
        }
        schedule.succeeded(1, wanted.clone(), now);
        schedule.failed(now);
        assert_eq!(schedule.retry, FIRST_RETRY);
    }
}
