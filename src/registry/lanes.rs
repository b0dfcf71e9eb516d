//! The scheduler: decides which waiting run starts next. A run gets its session's turn, a slot of
//! its lane and a global slot together or not at all, fairly by root session, then by requester. A
//! paused run may lease its session's turn to the runs that it called, one at a time in call order;
//! the session stays busy, and the turn returns to it. Rebuilt from rows at start; nothing here is
//! durable.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::options::LaneCaps;
use crate::contract::commit::Ticket;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::Lane;
use crate::kernel::time::{Moment, Timestamp};

/// The waiting runs and the slot holders.
pub struct Lanes {
    caps: LaneCaps,
    waiting: HashMap<Lane, LaneQueue>,
    /// Index of the lane that is tried first; it rotates, so that no lane starves another.
    next_lane: usize,
    /// Waiting runs, including delayed ones.
    known: HashMap<RunId, (SessionId, QueuePosition)>,
    /// Delayed runs, each with the monotonic time at which it may start; setting the wall clock
    /// back delays no run.
    delayed: Vec<(Timestamp, Ticket)>,
    holders: HashMap<RunId, (Lane, SessionId)>,
    /// The runs that have a session's turn, with or without a slot, by depth: the run that owns it,
    /// and those to which it is leased. The deepest one has the turn now.
    turns: HashMap<SessionId, BTreeMap<u32, RunId>>,
    /// For each paused run, the called runs that wait to lease its turn, by step.
    called: HashMap<RunId, BTreeMap<u32, RunId>>,
    /// Runs without a slot that keep their session's turn: paused runs, and runs that wait to
    /// resume.
    kept: HashSet<RunId>,
    /// The runs that wait for each session's turn, in order.
    queues: HashMap<SessionId, BTreeMap<QueuePosition, RunId>>,
    arrivals: u64,
}

/// Position in a session's queue: resuming runs before new ones, then by arrival.
type QueuePosition = (bool, u64);

/// One lane's queue, round-robin over root sessions.
#[derive(Default)]
struct LaneQueue {
    ring: VecDeque<SessionId>,
    roots: HashMap<SessionId, RootQueue>,
}

/// The tickets of one root session: resuming runs first, then round-robin over requesters.
#[derive(Default)]
struct RootQueue {
    back: VecDeque<Ticket>,
    ring: VecDeque<SessionId>,
    tickets: HashMap<SessionId, VecDeque<Ticket>>,
}

impl Lanes {
    /// Creates an empty scheduler.
    pub fn new(caps: LaneCaps) -> Self {
        Lanes {
            caps,
            waiting: HashMap::new(),
            next_lane: 0,
            known: HashMap::new(),
            delayed: Vec::new(),
            holders: HashMap::new(),
            turns: HashMap::new(),
            called: HashMap::new(),
            kept: HashSet::new(),
            queues: HashMap::new(),
            arrivals: 0,
        }
    }

    /// Applies new slot limits; current holders keep their slots.
    ///
    /// A ticket of a closed lane is not in its session's queue, so it does not block runs of other
    /// lanes; when its lane opens, it gets its old position back.
    pub fn configure(&mut self, caps: LaneCaps) {
        let before = std::mem::replace(&mut self.caps, caps);
        let waiting = self.waiting.values().flat_map(LaneQueue::tickets);
        let delayed = self.delayed.iter().map(|(_, ticket)| ticket);
        for ticket in waiting.chain(delayed) {
            if ticket.called_by.is_some() {
                continue;
            }
            let is_open = caps.of(ticket.lane) > 0;
            if is_open == (before.of(ticket.lane) > 0) {
                continue;
            }
            let Some((session, place)) = self.known.get(&ticket.run) else {
                continue;
            };
            let queue = self.queues.entry(*session).or_default();
            if is_open {
                queue.insert(*place, ticket.run);
            } else {
                queue.remove(place);
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    /// Adds a waiting run. A run that already waits keeps its position.
    pub fn enqueue(&mut self, ticket: Ticket, now: Moment) {
        if self.known.contains_key(&ticket.run) {
            return;
        }
        self.arrivals += 1;
        let place = (!ticket.first, self.arrivals);
        self.known.insert(ticket.run, (ticket.session, place));
        let delay = ticket.not_before.map_or(0, |at| at.since(now.wall));
        // A delayed run is in the middle of its session's turn.
        if ticket.in_turn || delay > 0 {
            self.keep(ticket.run, ticket.session, ticket.depth);
        }
        if let Some((caller, step)) = ticket.called_by {
            let queue = self.called.entry(caller).or_default();
            queue.insert(step, ticket.run);
        } else if self.caps.of(ticket.lane) > 0 {
            let queue = self.queues.entry(ticket.session).or_default();
            queue.insert(place, ticket.run);
        }
        match delay {
            0 => self.wait(ticket),
            delay => self.delayed.push((now.steady.plus_ms(delay), ticket)),
        }
    }

    /// Marks the run, at this depth, as keeping its session's turn (owned or leased) without a
    /// slot.
    pub fn keep(&mut self, run: RunId, session: SessionId, depth: u32) {
        self.kept.insert(run);
        let turn = self.turns.entry(session).or_default();
        turn.entry(depth).or_insert(run);
    }

    /// True if the run keeps its session's turn without a slot.
    pub fn keeps(&self, run: RunId) -> bool {
        self.kept.contains(&run)
    }

    fn wait(&mut self, ticket: Ticket) {
        let lane = self.waiting.entry(ticket.lane).or_default();
        let root = lane.roots.entry(ticket.root_session).or_default();
        if root.is_empty() {
            lane.ring.push_back(ticket.root_session);
        }
        root.wait(ticket);
    }

    /// Moves delayed runs whose start time has come to the waiting runs.
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
        for offset in 0..Lane::ALL.len() {
            let at = (self.next_lane + offset) % Lane::ALL.len();
            let lane = Lane::ALL[at];
            if self.held_in(lane) >= self.caps.of(lane) {
                continue;
            }
            let (turns, queues, holders) = (&self.turns, &self.queues, &self.holders);
            let called = &self.called;
            let free = |ticket: &Ticket| {
                let turn = turns.get(&ticket.session);
                let owner = turn.and_then(|turn| turn.values().next_back());
                match (owner, &ticket.called_by) {
                    (Some(owner), _) if holders.contains_key(owner) => false,
                    (Some(owner), _) if *owner == ticket.run => true,
                    (Some(owner), Some((caller, _))) => {
                        let first = called.get(caller).and_then(|queue| queue.values().next());
                        owner == caller && first == Some(&ticket.run)
                    }
                    (Some(_), None) => false,
                    // Its caller is gone, so there is no turn to lease.
                    (None, Some(_)) => true,
                    (None, None) => queues
                        .get(&ticket.session)
                        .and_then(|queue| queue.values().next())
                        .is_some_and(|first| *first == ticket.run),
                }
            };
            let Some(ticket) = self
                .waiting
                .get_mut(&lane)
                .and_then(|waiting| waiting.take(free))
            else {
                continue;
            };
            self.next_lane = (at + 1) % Lane::ALL.len();
            self.leave_queue(ticket.run);
            self.kept.remove(&ticket.run);
            self.holders.insert(ticket.run, (lane, ticket.session));
            let turn = self.turns.entry(ticket.session).or_default();
            turn.insert(ticket.depth, ticket.run);
            return Some(ticket);
        }
        None
    }

    /// Frees the run's slot, and its session's turn unless the run keeps that.
    pub fn release(&mut self, run: RunId) {
        if let Some((_, session)) = self.holders.remove(&run)
            && !self.kept.contains(&run)
            && let Some(turn) = self.turns.get_mut(&session)
        {
            turn.retain(|_, owner| *owner != run);
            if turn.is_empty() {
                self.turns.remove(&session);
            }
        }
    }

    /// Removes an ended run: it no longer waits or keeps a turn.
    pub fn forget(&mut self, run: RunId) {
        if self.kept.remove(&run) && !self.holders.contains_key(&run) {
            self.turns.retain(|_, turn| {
                turn.retain(|_, owner| *owner != run);
                !turn.is_empty()
            });
        }
        if !self.known.contains_key(&run) {
            return;
        }
        self.leave_queue(run);
        self.delayed.retain(|(_, ticket)| ticket.run != run);
        for waiting in self.waiting.values_mut() {
            waiting.forget(run);
        }
    }

    fn leave_queue(&mut self, run: RunId) {
        let Some((session, place)) = self.known.remove(&run) else {
            return;
        };
        self.called.retain(|_, queue| {
            queue.retain(|_, waiting| *waiting != run);
            !queue.is_empty()
        });
        if let Some(queue) = self.queues.get_mut(&session) {
            queue.remove(&place);
            if queue.is_empty() {
                self.queues.remove(&session);
            }
        }
    }

    /// True if the run waits or holds a slot.
    pub fn knows(&self, run: RunId) -> bool {
        self.known.contains_key(&run) || self.holders.contains_key(&run)
    }

    fn held_in(&self, lane: Lane) -> usize {
        self.holders.values().filter(|held| held.0 == lane).count()
    }
}

impl LaneQueue {
    /// Takes the first ticket that may start, round-robin over root sessions.
    fn take(&mut self, free: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        for _ in 0..self.ring.len() {
            let id = self.ring.pop_front()?;
            let root = self.roots.get_mut(&id)?;
            let ticket = root.take(&free);
            if root.is_empty() {
                self.roots.remove(&id);
            } else {
                self.ring.push_back(id);
            }
            if ticket.is_some() {
                return ticket;
            }
        }
        None
    }

    fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.roots
            .values()
            .flat_map(|root| root.back.iter().chain(root.tickets.values().flatten()))
    }

    fn forget(&mut self, run: RunId) {
        self.roots.retain(|_, root| {
            root.forget(run);
            !root.is_empty()
        });
        let roots = &self.roots;
        self.ring.retain(|root| roots.contains_key(root));
    }
}

impl RootQueue {
    fn is_empty(&self) -> bool {
        self.back.is_empty() && self.tickets.is_empty()
    }

    fn wait(&mut self, ticket: Ticket) {
        if ticket.first {
            self.back.push_back(ticket);
            return;
        }
        let tickets = self.tickets.entry(ticket.requester).or_default();
        if tickets.is_empty() {
            self.ring.push_back(ticket.requester);
        }
        tickets.push_back(ticket);
    }

    fn take(&mut self, free: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        if let Some(at) = self.back.iter().position(&free) {
            return self.back.remove(at);
        }
        for _ in 0..self.ring.len() {
            let id = self.ring.pop_front()?;
            let tickets = self.tickets.get_mut(&id)?;
            let found = tickets.iter().position(&free);
            let ticket = found.and_then(|at| tickets.remove(at));
            if tickets.is_empty() {
                self.tickets.remove(&id);
            } else {
                self.ring.push_back(id);
            }
            if ticket.is_some() {
                return ticket;
            }
        }
        None
    }

    fn forget(&mut self, run: RunId) {
        self.back.retain(|ticket| ticket.run != run);
        self.tickets.retain(|_, tickets| {
            tickets.retain(|ticket| ticket.run != run);
            !tickets.is_empty()
        });
        let tickets = &self.tickets;
        self.ring.retain(|id| tickets.contains_key(id));
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
