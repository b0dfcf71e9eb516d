//! The unfinished events of a webhook in memory. Events of one run are a lane: the next one is sent
//! when the one before it is finished. Lanes do not wait for each other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{OpenEvents, Tries};

/// An event as a message for a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its id, the same for each attempt.
    pub(super) id: String,
    /// Cursor of the event.
    pub(super) cursor: i64,
    /// When it happened.
    pub(super) at: Timestamp,
    /// Its kind.
    pub(super) kind: String,
    /// Its session.
    pub(super) session_key: Option<String>,
    /// Its run.
    pub(super) run: Option<RunId>,
    /// What is sent.
    pub(super) body: String,
}

/// What an event is in order with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LaneKey {
    Run(RunId),
    Session(String),
    Daemon,
}

impl LaneKey {
    fn of(message: &Message) -> LaneKey {
        match (message.run, &message.session_key) {
            (Some(run), _) => LaneKey::Run(run),
            (None, Some(session)) => LaneKey::Session(session.clone()),
            (None, None) => LaneKey::Daemon,
        }
    }
}

struct Queued {
    message: Arc<Message>,
    tries: Tries,
}

/// All lanes of a webhook.
#[derive(Default)]
pub(super) struct Lanes {
    /// Never empty; the first event is in flight, in `ready`, or in `later`.
    lanes: HashMap<LaneKey, VecDeque<Queued>>,
    /// The first events of lanes that may be sent now, by cursor.
    ready: BTreeMap<i64, LaneKey>,
    /// The first events of lanes that wait for another attempt, by time and cursor.
    later: BTreeMap<(Timestamp, i64), LaneKey>,
    count: usize,
}

impl Lanes {
    /// The number of unfinished events.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds an event. Events are added in order of their cursors.
    pub(super) fn add(&mut self, message: Arc<Message>, tries: Tries, now: Timestamp) {
        let key = LaneKey::of(&message);
        let lane = self.lanes.entry(key.clone()).or_default();
        lane.push_back(Queued { message, tries });
        self.count += 1;
        if lane.len() == 1 {
            self.schedule(key, now);
        }
    }

    /// The lowest event that may be sent now. It is in flight until [`Lanes::done`] or
    /// [`Lanes::put_back`].
    pub(super) fn take(&mut self, now: Timestamp) -> Option<(Arc<Message>, Tries)> {
        self.promote(now);
        let (_, key) = self.ready.pop_first()?;
        let first = self.lanes.get(&key)?.front()?;
        Some((Arc::clone(&first.message), first.tries))
    }

    /// The event in flight is finished, and the next one of its lane may follow.
    pub(super) fn done(&mut self, message: &Message, now: Timestamp) {
        let key = LaneKey::of(message);
        let Some(lane) = self.lanes.get_mut(&key) else {
            return;
        };
        lane.pop_front();
        self.count -= 1;
        match lane.is_empty() {
            true => drop(self.lanes.remove(&key)),
            false => self.schedule(key, now),
        }
    }

    /// The event in flight is not finished: it is sent again when `tries` are due.
    pub(super) fn put_back(&mut self, message: &Message, tries: Tries, now: Timestamp) {
        let key = LaneKey::of(message);
        let first = self.lanes.get_mut(&key).and_then(VecDeque::front_mut);
        if let Some(first) = first {
            first.tries = tries;
            self.schedule(key, now);
        }
    }

    /// Every event that waits for another attempt may be sent now.
    pub(super) fn hurry(&mut self) {
        for ((_, cursor), key) in std::mem::take(&mut self.later) {
            self.ready.insert(cursor, key);
        }
    }

    /// When the next event that waits for another attempt is due; `None` if none waits.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.later.keys().next().map(|(at, _)| *at)
    }

    /// All unfinished events, those in flight included.
    pub(super) fn open(&self) -> OpenEvents {
        let queued = self.lanes.values().flatten();
        OpenEvents(
            queued
                .map(|queued| (queued.message.cursor, queued.tries))
                .collect(),
        )
    }

    fn schedule(&mut self, key: LaneKey, now: Timestamp) {
        let Some(first) = self.lanes.get(&key).and_then(VecDeque::front) else {
            return;
        };
        let cursor = first.message.cursor;
        match first.tries.next_at.filter(|_| !first.tries.are_due(now)) {
            Some(at) => drop(self.later.insert((at, cursor), key)),
            None => drop(self.ready.insert(cursor, key)),
        }
    }

    /// Moves what is due. The last ones may be due, too, after the clock was set back.
    fn promote(&mut self, now: Timestamp) {
        let is_due = |at: Timestamp| {
            let tries = Tries {
                attempts: 1,
                next_at: Some(at),
            };
            tries.are_due(now)
        };
        while let Some(entry) = self.later.first_entry().filter(|one| is_due(one.key().0)) {
            let cursor = entry.key().1;
            self.ready.insert(cursor, entry.remove());
        }
        while let Some(entry) = self.later.last_entry().filter(|one| is_due(one.key().0)) {
            let cursor = entry.key().1;
            self.ready.insert(cursor, entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn message(cursor: i64, run: Option<u128>, session: Option<&str>) -> Arc<Message> {
        Arc::new(Message {
            id: format!("evt_{cursor}"),
            cursor,
            at: NOW,
            kind: "run.ended".to_owned(),
            session_key: session.map(str::to_owned),
            run: run.map(|run| RunId(uuid::Uuid::from_u128(run))),
            body: "{}".to_owned(),
        })
    }

    fn cursor(taken: Option<(Arc<Message>, Tries)>) -> Option<i64> {
        taken.map(|(message, _)| message.cursor)
    }

    fn failed(attempts: u32, at: i64) -> Tries {
        Tries {
            attempts,
            next_at: Some(Timestamp(at)),
        }
    }

    #[test]
    fn a_run_waits_for_its_own_events_alone() {
        let mut lanes = Lanes::default();
        let all = [
            message(1, Some(1), Some("a")),
            message(2, Some(1), Some("a")),
            message(3, Some(2), Some("a")),
            message(4, None, Some("a")),
            message(5, None, None),
            message(6, None, None),
        ];
        for one in &all {
            lanes.add(Arc::clone(one), Tries::default(), NOW);
        }
        let taken: Vec<i64> = std::iter::from_fn(|| cursor(lanes.take(NOW))).collect();
        assert_eq!(taken, [1, 3, 4, 5]);
        lanes.put_back(&all[0], failed(1, NOW.0 + 10), NOW);
        lanes.done(&all[2], NOW);
        lanes.done(&all[4], NOW);
        assert_eq!(cursor(lanes.take(NOW)), Some(6));
        assert_eq!(cursor(lanes.take(NOW)), None);
        assert_eq!(lanes.next_due(), Some(Timestamp(NOW.0 + 10)));
        let open: Vec<i64> = lanes.open().0.keys().copied().collect();
        assert_eq!((open, lanes.len()), (vec![1, 2, 4, 6], 4));
        let later = Timestamp(NOW.0 + 10);
        assert_eq!(cursor(lanes.take(later)), Some(1));
        lanes.done(&all[0], later);
        assert_eq!(cursor(lanes.take(later)), Some(2));
    }

    #[test]
    fn what_waits_is_hurried_and_a_clock_that_was_set_back_holds_nothing_up() {
        let mut lanes = Lanes::default();
        lanes.add(message(1, Some(1), None), failed(3, NOW.0 + 5000), NOW);
        lanes.add(message(2, Some(2), None), failed(3, NOW.0 + 9000), NOW);
        assert_eq!(cursor(lanes.take(NOW)), None);
        lanes.hurry();
        assert_eq!(cursor(lanes.take(NOW)), Some(1));
        assert_eq!(cursor(lanes.take(NOW)), Some(2));

        lanes.add(message(3, Some(3), None), failed(3, NOW.0 + 5000), NOW);
        lanes.add(message(4, Some(4), None), failed(3, NOW.0 + 9000), NOW);
        let before = Timestamp(NOW.0 - 7 * 24 * 3600 * 1000);
        assert_eq!(cursor(lanes.take(before)), Some(3));
        assert_eq!(cursor(lanes.take(before)), Some(4));
    }
}
