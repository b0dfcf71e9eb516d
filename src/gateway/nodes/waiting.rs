//! Nodes that wait for an operator to admit them. Nothing of it is stored: a node that comes again
//! after a restart of the gateway waits under a new code.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::keys;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::node::{Machine, Offer};
use crate::kernel::time::Timestamp;

/// A request expires this long after its node last came.
pub(super) const LIFETIME: Duration = Duration::from_secs(300);
/// Maximum number of open connections for pairing.
const SEATS: usize = 32;
/// The same from one address.
const SEATS_PER_ADDRESS: usize = 4;
/// Maximum number of requests that wait.
const REQUESTS: usize = 64;
/// The same from one address; the oldest gives way.
const REQUESTS_PER_ADDRESS: usize = 8;

/// The nodes that wait, and the connections for pairing.
pub(super) struct WaitingNodes {
    seats: Arc<Semaphore>,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    requests: Mutex<Vec<WaitingNode>>,
}

/// A node that waits.
#[derive(Clone)]
pub(super) struct WaitingNode {
    /// The code by which it is admitted.
    pub(super) code: String,
    pub(super) public_key: String,
    /// The name that it asks for.
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) offered: Offer,
    pub(super) address: IpAddr,
    pub(super) since: Timestamp,
    pub(super) expires_at: Timestamp,
    expires: Duration,
    decision: watch::Sender<Decision>,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// No operator has decided.
    Open,
    /// It is paired.
    Approved,
    /// An operator has refused it.
    Refused,
    /// Its node came again, or gave way to others.
    Replaced,
}

/// A connection for pairing.
pub(super) struct PairingSeat {
    address: IpAddr,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _held: OwnedSemaphorePermit,
}

impl Drop for PairingSeat {
    fn drop(&mut self) {
        let mut addresses = lock(&self.addresses);
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

impl Default for WaitingNodes {
    fn default() -> Self {
        WaitingNodes {
            seats: Arc::new(Semaphore::new(SEATS)),
            addresses: Arc::default(),
            requests: Mutex::default(),
        }
    }
}

impl WaitingNodes {
    /// A seat for a connection from this address; `busy` if there is none.
    pub(super) fn seat(&self, address: IpAddr) -> Result<PairingSeat, Fault> {
        let busy = |most: usize, what: &str| {
            Fault::new(
                Kind::Busy,
                format!("{most} nodes wait to be paired{what}, which is the limit"),
            )
            .hint("approve or refuse those that wait (abide nodes), and try again")
            .with("retryAfterMs", 5000)
        };
        let held = Arc::clone(&self.seats).try_acquire_owned();
        let held = held.map_err(|_| busy(SEATS, ""))?;
        let mut addresses = lock(&self.addresses);
        let count = addresses.entry(address).or_default();
        if *count >= SEATS_PER_ADDRESS {
            return Err(busy(SEATS_PER_ADDRESS, " from this address"));
        }
        *count += 1;
        drop(addresses);
        Ok(PairingSeat {
            address,
            addresses: Arc::clone(&self.addresses),
            _held: held,
        })
    }

    /// Adds a request under a new code, in place of an earlier one of the same key.
    pub(super) fn add(
        &self,
        mut request: WaitingNode,
        now: Duration,
    ) -> Result<(String, watch::Receiver<Decision>), Fault> {
        let mut requests = lock(&self.requests);
        requests.retain(|other| {
            let is_same = other.public_key == request.public_key;
            if is_same {
                other.decide(Decision::Replaced);
            }
            !is_same && other.expires > now
        });
        let from = |other: &WaitingNode| other.address == request.address;
        if requests.iter().filter(|other| from(other)).count() >= REQUESTS_PER_ADDRESS
            && let Some(oldest) = requests.iter().position(from)
        {
            requests.remove(oldest).decide(Decision::Replaced);
        }
        if requests.len() >= REQUESTS {
            return Err(Fault::new(
                Kind::Busy,
                format!("{REQUESTS} nodes wait to be paired, which is the limit"),
            ));
        }
        request.code = loop {
            let code = keys::short_code()?;
            if requests.iter().all(|other| other.code != code) {
                break code;
            }
        };
        let answer = (request.code.clone(), request.decision.subscribe());
        requests.push(request);
        Ok(answer)
    }

    /// The request with this code, as a person may type it.
    pub(super) fn find(&self, code: &str, now: Duration) -> Option<WaitingNode> {
        let code = keys::typed_code(code)?;
        let requests = lock(&self.requests);
        let mut open = requests.iter().filter(|request| request.expires > now);
        open.find(|request| request.code == code).cloned()
    }

    /// Ends the request of this key with a decision; returns whether there was one.
    pub(super) fn decide(&self, public_key: &str, decision: Decision) -> bool {
        let mut requests = lock(&self.requests);
        let found = requests
            .iter()
            .position(|request| request.public_key == public_key);
        match found {
            Some(at) => {
                requests.remove(at).decide(decision);
                true
            }
            None => false,
        }
    }

    /// Removes the request with this code, which has expired.
    pub(super) fn expire(&self, code: &str) {
        lock(&self.requests).retain(|request| request.code != code);
    }

    /// All requests, oldest first.
    pub(super) fn list(&self, now: Duration) -> Vec<WaitingNode> {
        let requests = lock(&self.requests);
        let open = requests.iter().filter(|request| request.expires > now);
        open.cloned().collect()
    }
}

impl WaitingNode {
    /// A request that has no code yet.
    pub(super) fn new(
        (public_key, name): (String, String),
        (machine, offered): (Machine, Offer),
        address: IpAddr,
        (at, now): (Timestamp, Duration),
    ) -> WaitingNode {
        let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
        WaitingNode {
            code: String::new(),
            public_key,
            name,
            machine,
            offered,
            address,
            since: at,
            expires_at: at.plus_ms(lifetime),
            expires: now + LIFETIME,
            decision: watch::channel(Decision::Open).0,
        }
    }

    fn decide(&self, decision: Decision) {
        self.decision.send_replace(decision);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment or one list operation, so the data is consistent after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str, address: [u8; 4]) -> WaitingNode {
        let machine = Machine {
            host: "mac".to_owned(),
            platform: "macos".to_owned(),
            arch: "aarch64".to_owned(),
            version: "0.1.0".to_owned(),
        };
        WaitingNode::new(
            (key.to_owned(), "mac".to_owned()),
            (machine, Offer::default()),
            address.into(),
            (Timestamp(0), Duration::ZERO),
        )
    }

    #[test]
    fn a_key_has_one_request_and_its_new_code_replaces_the_old_one() {
        let waiting = WaitingNodes::default();
        let (first, decision) = waiting
            .add(request("k", [10, 0, 0, 1]), Duration::ZERO)
            .unwrap();
        let (second, _) = waiting
            .add(request("k", [10, 0, 0, 1]), Duration::ZERO)
            .unwrap();
        assert_ne!(first, second);
        assert_eq!(*decision.borrow(), Decision::Replaced);
        assert!(waiting.find(&first, Duration::ZERO).is_none());
        let typed = second.to_lowercase().replace('-', "");
        assert_eq!(waiting.find(&typed, Duration::ZERO).unwrap().code, second);
        assert!(waiting.find(&second, LIFETIME).is_none(), "it has expired");
        assert!(waiting.list(LIFETIME).is_empty());
    }

    #[test]
    fn one_address_can_neither_fill_the_list_nor_the_seats() {
        let waiting = WaitingNodes::default();
        let (_, other) = waiting
            .add(request("other", [10, 0, 0, 2]), Duration::ZERO)
            .unwrap();
        for number in 0..100 {
            let key = format!("k{number}");
            waiting
                .add(request(&key, [10, 0, 0, 1]), Duration::ZERO)
                .unwrap();
        }
        assert_eq!(waiting.list(Duration::ZERO).len(), REQUESTS_PER_ADDRESS + 1);
        assert_eq!(*other.borrow(), Decision::Open);
        let seat = || waiting.seat([10, 0, 0, 1].into());
        let seats: Vec<_> = (0..SEATS_PER_ADDRESS).map(|_| seat().unwrap()).collect();
        assert!(seat().is_err());
        assert!(waiting.seat([10, 0, 0, 2].into()).is_ok());
        drop(seats);
        assert!(seat().is_ok());
        assert_eq!(lock(&waiting.addresses).len(), 0);
    }
}
