//! Selects the events of a subscription. Evaluated per event and subscriber.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

pub use crate::kernel::event::KindPattern;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::scope::OWNER_ORG;
use crate::store::tables::events::Event;

/// The conditions of a subscription, which are combined with AND. Events of other tenants never
/// match.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only events of this session.
    pub session: Option<SessionKey>,
    /// Only events of this run.
    pub run: Option<RunId>,
    /// Only events of this run and its descendants.
    pub tree: Option<RunId>,
    /// The known runs of `tree` if it is not a root run; filled in by the registry.
    pub branch: Branch,
    /// Only events of these kinds; empty means all.
    pub kinds: Vec<KindPattern>,
}

/// The known runs of the subtree of a run that is not a root. The set grows while the log is read:
/// the first event of a run comes after its parent's.
#[derive(Clone, Debug, Default)]
pub struct Branch(Arc<Mutex<HashSet<RunId>>>);

impl Branch {
    /// Starts with these runs.
    pub(super) fn of(runs: impl IntoIterator<Item = RunId>) -> Self {
        Branch(Arc::new(Mutex::new(runs.into_iter().collect())))
    }

    /// True if the run belongs to the subtree; adds it if only its parent was known.
    fn holds(&self, run: Option<RunId>, parent: Option<RunId>) -> bool {
        // Inserts are atomic, so a poisoned lock is safe to use.
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = run.filter(|_| !runs.is_empty()) else {
            return false;
        };
        if runs.contains(&run) {
            return true;
        }
        parent.is_some_and(|parent| runs.contains(&parent)) && runs.insert(run)
    }
}

/// The attributes of an event or answer that a filter checks.
pub(super) struct EventAttributes<'a> {
    pub(super) org: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) run: Option<RunId>,
    pub(super) parent: Option<RunId>,
    pub(super) root: Option<RunId>,
}

impl EventFilter {
    /// True if `org` may see this event and the filter selects it.
    pub(super) fn lets_through(&self, org: &str, event: &Event) -> bool {
        let about = &event.circumstances;
        let place = EventAttributes {
            org: &event.org,
            session: about.session_key.as_deref(),
            run: event.run,
            parent: about.parent_run,
            root: about.root_run,
        };
        // What the daemon itself met may concern rows and calls of any org: only its start, drains
        // and returns are for all.
        let is_for_all = org == OWNER_ORG || event.kind.starts_with("gateway.");
        (is_for_all || !event.org.is_empty())
            && self.covers(org, &place)
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.fits(&event.kind)))
    }

    /// True if `org` may see what belongs to `place` and the filter selects it; ignores kinds.
    pub(super) fn covers(&self, org: &str, place: &EventAttributes<'_>) -> bool {
        // Events of the daemon itself have no tenant.
        let may_see = place.org == org || place.org.is_empty();
        let in_session = |key: &SessionKey| place.session == Some(key.as_str());
        let in_tree = |tree: RunId| {
            place.root == Some(tree)
                || place.run == Some(tree)
                || self.branch.holds(place.run, place.parent)
        };
        may_see
            && self.session.as_ref().is_none_or(in_session)
            && self.run.is_none_or(|run| place.run == Some(run))
            && self.tree.is_none_or(in_tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn g9_6_another_tenants_events_are_never_let_through() {
        let place = |org| EventAttributes {
            org,
            session: Some("agent:build:main"),
            run: Some(run(2)),
            parent: Some(run(1)),
            root: Some(run(1)),
        };
        let session = SessionKey::parse("agent:build:main").unwrap();
        for filter in [
            EventFilter::default(),
            EventFilter {
                session: Some(session),
                ..EventFilter::default()
            },
            EventFilter {
                run: Some(run(2)),
                ..EventFilter::default()
            },
            EventFilter {
                tree: Some(run(1)),
                ..EventFilter::default()
            },
        ] {
            assert!(filter.covers("a", &place("a")), "{filter:?}");
            assert!(!filter.covers("b", &place("a")), "{filter:?}");
        }
        let all = EventFilter::default();
        assert!(all.covers("b", &place("")), "the daemon's own are for all");
    }

    #[test]
    fn conditions_hold_together() {
        let place = EventAttributes {
            org: "a",
            session: Some("s"),
            run: Some(run(2)),
            parent: Some(run(1)),
            root: Some(run(1)),
        };
        let filter = EventFilter {
            session: Some(SessionKey::parse("s").unwrap()),
            run: Some(run(3)),
            ..EventFilter::default()
        };
        assert!(!filter.covers("a", &place));
        let of_the_child = EventFilter {
            tree: Some(run(2)),
            ..EventFilter::default()
        };
        assert!(of_the_child.covers("a", &place));
    }

    #[test]
    fn the_tree_of_a_run_that_is_no_root_grows_with_what_is_told() {
        let filter = EventFilter {
            tree: Some(run(2)),
            branch: Branch::of([run(2)]),
            ..EventFilter::default()
        };
        let covers = |one, parent| {
            let place = EventAttributes {
                org: "a",
                session: None,
                run: Some(run(one)),
                parent: Some(run(parent)),
                root: Some(run(1)),
            };
            filter.covers("a", &place)
        };
        assert!(!covers(4, 3), "its parent is not below");
        assert!(covers(2, 1) && covers(3, 2));
        assert!(covers(4, 3) && covers(5, 4));
        assert!(!covers(6, 1) && !covers(7, 6));
    }
}
