//! Who may run now. A session's turn, a lane's slot and a global slot are taken together or
//! not at all, fairly by root session. Rebuilt from rows at start; nothing here is durable.

use std::collections::{HashMap, HashSet, VecDeque};

use super::options::LaneCaps;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::Lane;
use crate::kernel::time::{Moment, Timestamp};
use crate::store::Ticket;

/// Who waits for a slot, and who holds one.
pub struct Lanes {
    caps: LaneCaps,
    waiting: HashMap<Lane, Waiting>,
    /// Waiting runs, and those that must not start before a point in time.
    known: HashSet<RunId>,
    /// Each with the steady reading at which it may start: a wall clock that is set back
    /// holds nobody up.
    delayed: Vec<(Timestamp, Ticket)>,
    holders: HashMap<RunId, (Lane, SessionId)>,
    busy_sessions: HashSet<SessionId>,
}

/// One lane's queue: root sessions take turns, each with its own tickets in order.
#[derive(Default)]
struct Waiting {
    ring: VecDeque<SessionId>,
    tickets: HashMap<SessionId, VecDeque<Ticket>>,
}

impl Lanes {
    /// Nobody waits, nobody holds.
    pub fn new(caps: LaneCaps) -> Self {
        Lanes {
            caps,
            waiting: HashMap::new(),
            known: HashSet::new(),
            delayed: Vec::new(),
            holders: HashMap::new(),
            busy_sessions: HashSet::new(),
        }
    }

    /// From now on so many hold a slot at once. Nobody who holds one loses it.
    pub fn configure(&mut self, caps: LaneCaps) {
        self.caps = caps;
    }

    /// The run waits for a slot. A run that waits already keeps its place.
    pub fn enqueue(&mut self, ticket: Ticket, now: Moment) {
        if !self.known.insert(ticket.run) {
            return;
        }
        match ticket.not_before.map_or(0, |at| at.since(now.wall)) {
            0 => self.wait(ticket),
            delay => self.delayed.push((now.steady.plus_ms(delay), ticket)),
        }
    }

    fn wait(&mut self, ticket: Ticket) {
        let lane = self.waiting.entry(ticket.lane).or_default();
        let root = ticket.root_session;
        let tickets = lane.tickets.entry(root).or_default();
        if tickets.is_empty() {
            lane.ring.push_back(root);
        }
        if ticket.first {
            // Before new work, behind others that came back earlier.
            let at = tickets.iter().take_while(|other| other.first).count();
            tickets.insert(at, ticket);
        } else {
            tickets.push_back(ticket);
        }
    }

    /// Puts delayed runs whose time has come among the waiting.
    pub fn wake_delayed(&mut self, now: Moment) {
        let (due, later) = std::mem::take(&mut self.delayed)
            .into_iter()
            .partition(|(at, _)| *at <= now.steady);
        self.delayed = later;
        for (_, ticket) in due {
            self.wait(ticket);
        }
    }

    /// The next run that may start; it holds its slot from now on.
    pub fn admit(&mut self) -> Option<Ticket> {
        if self.holders.len() >= self.caps.global {
            return None;
        }
        for lane in [Lane::Main, Lane::Subagent] {
            if self.held_in(lane) >= self.cap(lane) {
                continue;
            }
            let busy = &self.busy_sessions;
            // A run that must wait a while is in the middle of its session's turn.
            let delayed = &self.delayed;
            let free = |session: &SessionId| {
                !busy.contains(session)
                    && delayed.iter().all(|(_, ticket)| ticket.session != *session)
            };
            let Some(ticket) = self
                .waiting
                .get_mut(&lane)
                .and_then(|waiting| waiting.take(free))
            else {
                continue;
            };
            self.known.remove(&ticket.run);
            self.holders.insert(ticket.run, (lane, ticket.session));
            self.busy_sessions.insert(ticket.session);
            return Some(ticket);
        }
        None
    }

    /// The run's slot and its session's turn are free.
    pub fn release(&mut self, run: RunId) {
        if let Some((_, session)) = self.holders.remove(&run) {
            self.busy_sessions.remove(&session);
        }
    }

    /// The run has ended before it got a slot.
    pub fn forget(&mut self, run: RunId) {
        if !self.known.remove(&run) {
            return;
        }
        self.delayed.retain(|(_, ticket)| ticket.run != run);
        for waiting in self.waiting.values_mut() {
            waiting.forget(run);
        }
    }

    /// Does the run wait or hold?
    pub fn knows(&self, run: RunId) -> bool {
        self.known.contains(&run) || self.holders.contains_key(&run)
    }

    fn held_in(&self, lane: Lane) -> usize {
        self.holders.values().filter(|held| held.0 == lane).count()
    }

    fn cap(&self, lane: Lane) -> usize {
        match lane {
            Lane::Main => self.caps.main,
            Lane::Subagent => self.caps.subagent,
        }
    }
}

impl Waiting {
    /// Takes the first ticket whose session is free, root sessions in turn. A session's own
    /// order is kept: of its tickets only the first can be taken.
    fn take(&mut self, free: impl Fn(&SessionId) -> bool) -> Option<Ticket> {
        for _ in 0..self.ring.len() {
            let root = self.ring.pop_front()?;
            let tickets = self.tickets.get_mut(&root)?;
            let found = tickets.iter().position(|ticket| free(&ticket.session));
            let ticket = found.and_then(|at| tickets.remove(at));
            if tickets.is_empty() {
                self.tickets.remove(&root);
            } else {
                self.ring.push_back(root);
            }
            if ticket.is_some() {
                return ticket;
            }
        }
        None
    }

    fn forget(&mut self, run: RunId) {
        self.tickets.retain(|_, tickets| {
            tickets.retain(|ticket| ticket.run != run);
            !tickets.is_empty()
        });
        let tickets = &self.tickets;
        self.ring.retain(|root| tickets.contains_key(root));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Moment = Moment {
        wall: Timestamp(1000),
        steady: Timestamp(70),
    };

    /// So many milliseconds later, while the wall clock was set back an hour.
    fn later(ms: u64) -> Moment {
        Moment {
            wall: Timestamp(1000 - 3_600_000),
            steady: NOW.steady.plus_ms(ms),
        }
    }

    fn ticket(run: u128, session: u128, root: u128) -> Ticket {
        Ticket {
            run: RunId(Uuid::from_u128(run)),
            session: SessionId(Uuid::from_u128(session)),
            root_session: SessionId(Uuid::from_u128(root)),
            lane: Lane::Subagent,
            first: false,
            not_before: None,
        }
    }

    fn lanes(subagent: usize, global: usize) -> Lanes {
        Lanes::new(LaneCaps {
            main: 8,
            subagent,
            global,
        })
    }

    fn admitted(lanes: &mut Lanes) -> Vec<u128> {
        std::iter::from_fn(|| lanes.admit())
            .map(|ticket| ticket.run.0.as_u128())
            .collect()
    }

    #[test]
    fn a_lane_and_the_global_cap_bound_who_runs() {
        let mut lanes = lanes(2, 3);
        for run in 1..=4 {
            lanes.enqueue(ticket(run, run, run), NOW);
        }
        assert_eq!(admitted(&mut lanes), [1, 2]);
        lanes.release(RunId(Uuid::from_u128(1)));
        assert_eq!(admitted(&mut lanes), [3]);
    }

    #[test]
    fn a_closed_lane_admits_nobody() {
        let mut lanes = lanes(0, 8);
        lanes.enqueue(ticket(1, 1, 1), NOW);
        assert_eq!(admitted(&mut lanes), [] as [u128; 0]);
        assert!(lanes.knows(RunId(Uuid::from_u128(1))));
    }

    #[test]
    fn a_session_has_one_turn_at_a_time_in_order() {
        let mut lanes = lanes(8, 8);
        lanes.enqueue(ticket(1, 7, 7), NOW);
        lanes.enqueue(ticket(2, 7, 7), NOW);
        lanes.enqueue(ticket(3, 7, 7), NOW);
        assert_eq!(admitted(&mut lanes), [1]);
        lanes.release(RunId(Uuid::from_u128(1)));
        assert_eq!(admitted(&mut lanes), [2]);
    }

    #[test]
    fn g5_2_one_root_with_much_work_does_not_starve_another() {
        let mut lanes = lanes(2, 2);
        for run in 1..=10 {
            lanes.enqueue(ticket(run, run, 100), NOW);
        }
        lanes.enqueue(ticket(11, 11, 200), NOW);
        assert_eq!(admitted(&mut lanes), [1, 11]);
    }

    #[test]
    fn runs_that_come_back_go_before_new_ones() {
        let mut lanes = lanes(8, 1);
        lanes.enqueue(ticket(1, 1, 9), NOW);
        let mut back = ticket(2, 2, 9);
        back.first = true;
        lanes.enqueue(back, NOW);
        assert_eq!(admitted(&mut lanes), [2]);
    }

    #[test]
    fn a_delayed_run_starts_when_its_time_has_come() {
        let mut lanes = lanes(8, 8);
        let mut delayed = ticket(1, 1, 1);
        delayed.not_before = Some(NOW.wall.plus_ms(10));
        lanes.enqueue(delayed, NOW);
        assert!(lanes.admit().is_none());
        lanes.wake_delayed(later(9));
        assert!(lanes.admit().is_none());
        lanes.wake_delayed(later(10));
        assert_eq!(admitted(&mut lanes), [1]);
    }

    #[test]
    fn no_other_turn_begins_while_a_delayed_run_has_its_sessions_turn() {
        let mut lanes = lanes(8, 8);
        let mut delayed = ticket(1, 7, 7);
        delayed.first = true;
        delayed.not_before = Some(NOW.wall.plus_ms(10));
        lanes.enqueue(delayed, NOW);
        lanes.enqueue(ticket(2, 7, 7), NOW);
        lanes.enqueue(ticket(3, 8, 7), NOW);
        assert_eq!(
            admitted(&mut lanes),
            [3],
            "another session of the same root is free"
        );
        lanes.wake_delayed(later(10));
        assert_eq!(admitted(&mut lanes), [1]);
        lanes.release(RunId(Uuid::from_u128(1)));
        assert_eq!(admitted(&mut lanes), [2]);
    }

    #[test]
    fn a_forgotten_run_frees_the_place_of_the_next() {
        let mut lanes = lanes(8, 8);
        lanes.enqueue(ticket(1, 7, 7), NOW);
        lanes.enqueue(ticket(2, 7, 7), NOW);
        lanes.forget(RunId(Uuid::from_u128(1)));
        assert!(!lanes.knows(RunId(Uuid::from_u128(1))));
        assert_eq!(admitted(&mut lanes), [2]);
    }

    #[test]
    fn enqueueing_twice_runs_once() {
        let mut lanes = lanes(8, 8);
        lanes.enqueue(ticket(1, 1, 1), NOW);
        lanes.enqueue(ticket(1, 1, 1), NOW);
        assert_eq!(admitted(&mut lanes), [1]);
    }
}
