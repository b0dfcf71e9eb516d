//! Connection limits per kind of peer. Each kind has its own seats, so that none can take those of
//! another. All together use only a part of the file descriptors of the process; the rest is for
//! the store, tools and providers.
//!
//! A peer that has not sent the token is a stranger. Strangers have few seats and a short deadline.
//! If all are taken, the oldest is closed: the owner, too, connects over TCP as a stranger and must
//! not be kept out by idle connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::peer::Peer;
use crate::contract::processes::ProcessOrigin;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{LiveToken, Principal, TokenConnection};
use crate::telemetry::metrics::{self, metrics};

/// Deadline for a stranger to send the token.
pub(crate) const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections, regardless of the descriptor limit.
const MAX_CONNECTIONS: u64 = 4096;

/// Maximum number of simultaneous connections per kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// TCP connections with the token.
    pub tcp: usize,
    /// Unix socket connections of the owner.
    pub local: usize,
    /// Unix socket connections of programs started by runs and of processes of unknown origin.
    pub programs: usize,
    /// TCP connections without the token.
    pub strangers: usize,
    /// Unix socket connections of other users.
    pub others: usize,
}

impl Connections {
    /// Limits for a process with this descriptor limit: a quarter of it in total, at most 4,096.
    pub fn within(descriptors: u64) -> Self {
        let all = usize::try_from((descriptors / 4).clamp(16, MAX_CONNECTIONS)).unwrap_or(16);
        let strangers = (all / 8).clamp(2, 64);
        let programs = (all / 8).clamp(2, 64);
        let others = (all / 16).clamp(1, 16);
        let owner = all - strangers - programs - others;
        let local = (owner / 2).min(1024);
        Connections {
            tcp: owner - local,
            local,
            programs,
            strangers,
            others,
        }
    }
}

/// All seats of the daemon.
pub(crate) struct Seats {
    tcp: SeatPool,
    local: SeatPool,
    programs: SeatPool,
    strangers: Arc<Strangers>,
    others: Arc<Strangers>,
}

impl Seats {
    pub(crate) fn new(most: Connections) -> Self {
        Seats {
            tcp: SeatPool::new(most.tcp, "connections with the token are open over TCP"),
            local: SeatPool::new(
                most.local,
                "connections of the owner are open over the socket",
            ),
            programs: SeatPool::new(
                most.programs,
                "connections of programs and of unknown processes are open over the socket",
            ),
            strangers: Strangers::new(most.strangers),
            others: Strangers::new(most.others),
        }
    }

    /// Waits until one more stranger may connect over TCP. Strangers that must close are given a
    /// moment to read the reason.
    pub(crate) async fn room(&self) -> StrangerPermit {
        let permit = Arc::clone(&self.strangers.alive).acquire_owned().await;
        // The semaphore is never closed.
        StrangerPermit {
            _permit: permit.ok(),
        }
    }

    /// Seat of a new TCP connection.
    pub(crate) fn stranger(self: &Arc<Self>, room: StrangerPermit) -> Seat {
        let visitor = Strangers::enter(&self.strangers, room);
        self.seat(SeatKind::Visitor(visitor))
    }

    /// Seat of a new Unix socket connection of another user; `None` means close the connection.
    pub(crate) fn other(self: &Arc<Self>) -> Option<Seat> {
        let room = Arc::clone(&self.others.alive).try_acquire_owned().ok()?;
        let room = StrangerPermit {
            _permit: Some(room),
        };
        let visitor = Strangers::enter(&self.others, room);
        Some(self.seat(SeatKind::Visitor(visitor)))
    }

    /// Seat of a new Unix socket connection of the daemon's own user.
    pub(crate) fn local(self: &Arc<Self>, origin: ProcessOrigin) -> Result<Seat, Fault> {
        let pool = match origin {
            ProcessOrigin::Outside => &self.local,
            _ => &self.programs,
        };
        Ok(self.seat(SeatKind::Permit {
            _held: pool.take()?,
            is_program: origin != ProcessOrigin::Outside,
        }))
    }

    fn seat(self: &Arc<Self>, taken: SeatKind) -> Seat {
        Seat {
            taken: Mutex::new(taken),
            answered: Mutex::new(false),
            token: Mutex::default(),
            seats: Arc::clone(self),
            _counted: metrics().connection(),
        }
    }
}

/// The seats of one kind of peer.
struct SeatPool {
    most: usize,
    what: &'static str,
    free: Arc<Semaphore>,
}

impl SeatPool {
    fn new(most: usize, what: &'static str) -> Self {
        SeatPool {
            most,
            what,
            free: Arc::new(Semaphore::new(most)),
        }
    }

    fn take(&self) -> Result<OwnedSemaphorePermit, Fault> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            Fault::new(
                Kind::Busy,
                format!(
                    "{} {}, which is the limit; nothing was done",
                    self.most, self.what
                ),
            )
            .hint("close connections that are not needed, or raise the limit of open files")
            .with("limit", "connections")
            .with("value", self.most)
            .with("retryAfterMs", 1000)
        })
    }
}

/// Permit for one more stranger connection.
pub(crate) struct StrangerPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Peers without the token, oldest first.
struct Strangers {
    most: usize,
    inside: Mutex<Inside>,
    /// Limits open strangers together with those that are being closed.
    alive: Arc<Semaphore>,
}

#[derive(Default)]
struct Inside {
    last: u64,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

impl Strangers {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Strangers {
            most,
            inside: Mutex::default(),
            alive: Arc::new(Semaphore::new(most * 2)),
        })
    }

    fn enter(visitors: &Arc<Strangers>, room: StrangerPermit) -> StrangerSeat {
        let must_go = Arc::new(Notify::new());
        let mut inside = lock(&visitors.inside);
        while inside.waiting.len() >= visitors.most {
            if let Some((_, oldest)) = inside.waiting.pop_front() {
                oldest.notify_one();
            }
        }
        inside.last += 1;
        let number = inside.last;
        inside.waiting.push_back((number, Arc::clone(&must_go)));
        StrangerSeat {
            number,
            evicted: must_go,
            visitors: Arc::clone(visitors),
            _room: room,
        }
    }
}

/// Seat of a stranger.
struct StrangerSeat {
    number: u64,
    evicted: Arc<Notify>,
    visitors: Arc<Strangers>,
    _room: StrangerPermit,
}

impl Drop for StrangerSeat {
    fn drop(&mut self) {
        let mut inside = lock(&self.visitors.inside);
        inside.waiting.retain(|(number, _)| *number != self.number);
    }
}

enum SeatKind {
    Visitor(StrangerSeat),
    Permit {
        _held: OwnedSemaphorePermit,
        is_program: bool,
    },
    /// Its peer is a node, which has a limit of its own.
    Node,
    /// Its peer has sent the token: a seat of the owner.
    Owner {
        _held: OwnedSemaphorePermit,
    },
}

/// Seat of one connection, released on drop.
pub(crate) struct Seat {
    taken: Mutex<SeatKind>,
    /// Whether a request was answered on this connection.
    answered: Mutex<bool>,
    /// The connection counts towards the limit of this access token.
    token: Mutex<Option<TokenConnection>>,
    seats: Arc<Seats>,
    _counted: metrics::GaugeGuard,
}

impl Seat {
    /// Records that the peer acts as `who`. A stranger that proves to be the owner gets one of the
    /// owner's seats, or is refused if none is free. The holder of an access token is refused if
    /// that allows no more connections.
    pub(crate) fn assign_to(&self, who: &Principal, peer: &Peer) -> Result<(), Fault> {
        self.count_for(who.token.as_ref())?;
        if who.run.is_some() || !who.with_token {
            return Ok(());
        }
        let mut taken = lock(&self.taken);
        let pool = match (&*taken, peer) {
            (SeatKind::Owner { .. }, _) => return Ok(()),
            (_, Peer::Tcp(_)) => &self.seats.tcp,
            // The connection already holds an owner seat.
            (_, Peer::Local(local)) if local.origin == ProcessOrigin::Outside => return Ok(()),
            (_, Peer::Local(_)) => &self.seats.local,
        };
        *taken = SeatKind::Owner {
            _held: pool.take()?,
        };
        Ok(())
    }

    /// Releases the seat: from now on the connection counts towards the limits of nodes.
    pub(crate) fn hand_over(&self) {
        *lock(&self.taken) = SeatKind::Node;
    }

    /// The connection counts for the access token that it has presented last.
    fn count_for(&self, token: Option<&Arc<LiveToken>>) -> Result<(), Fault> {
        let mut counted = lock(&self.token);
        let known = counted.as_ref().map(TokenConnection::token);
        match (known, token) {
            (Some(known), Some(token)) if Arc::ptr_eq(known, token) => {}
            (_, Some(token)) => *counted = Some(token.connect()?),
            (_, None) => *counted = None,
        }
        Ok(())
    }

    /// Whether the peer is a program of a run or of unknown origin, without the token.
    pub(crate) fn is_of_program(&self) -> bool {
        let taken = lock(&self.taken);
        matches!(
            &*taken,
            SeatKind::Permit {
                is_program: true,
                ..
            }
        )
    }

    /// Records that a request was answered on this connection.
    pub(crate) fn mark_answered(&self) {
        *lock(&self.answered) = true;
    }

    /// Resolves when the connection must be closed, with the error to send if no request was
    /// answered on it. Pending forever for a peer that is entitled to its seat.
    pub(crate) async fn must_close(&self) -> Option<Fault> {
        let must_go = match &*lock(&self.taken) {
            SeatKind::Visitor(visitor) => {
                Some((Arc::clone(&visitor.evicted), visitor.visitors.most))
            }
            _ => None,
        };
        let Some((must_go, most)) = must_go else {
            return std::future::pending().await;
        };
        let seconds = STRANGER_TIMEOUT.as_secs();
        let why = tokio::select! {
            () = must_go.notified() => Fault::new(
                Kind::Busy,
                format!(
                    "{most} connections without the token are open, which is the limit, and \
                     this one was the oldest; nothing was done"
                ),
            )
            .hint("send a request with the token at once")
            .with("retryAfterMs", 1000),
            () = tokio::time::sleep(STRANGER_TIMEOUT) => Fault::new(
                Kind::Unauthorized,
                format!("no request with the token arrived within {seconds} s; nothing was done"),
            ),
        };
        if !matches!(&*lock(&self.taken), SeatKind::Visitor(_)) {
            return std::future::pending().await;
        }
        (!*lock(&self.answered)).then_some(why)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment or one list operation, so the data is consistent after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_a_quarter_of_the_descriptors_and_every_kind_of_peer_has_some() {
        let all = |descriptors| {
            let seats = Connections::within(descriptors);
            let Connections {
                tcp,
                local,
                programs,
                strangers,
                others,
            } = seats;
            let kinds = [tcp, local, programs, strangers, others];
            assert!(
                kinds.iter().all(|count| *count > 0),
                "{descriptors}: {seats:?}"
            );
            assert!(strangers + others < local + tcp, "{descriptors}: {seats:?}");
            kinds.iter().sum::<usize>()
        };
        assert_eq!([128, 1024, 4096].map(all), [32, 256, 1024]);
        assert_eq!(all(1 << 20), 4096);
        assert_eq!(all(u64::MAX), 4096);
        // The minimum: too few descriptors to take a quarter.
        assert_eq!(all(20), 16);
    }
}
