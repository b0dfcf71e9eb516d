//! The circuit breaker of a provider: decides whether requests may be sent now, from the outcomes
//! of recent requests of all runs. Pure; `provider` keeps one per provider and key.
//!
//! ```text
//! closed ──busy, or failures in a row──▶ open ──its time is over──▶ probing
//!   ▲                                     ▲                           │
//!   │                                     └──────────it fails─────────┤
//!   └──enough were taken── recovering ◀──────────it is taken──────────┘
//! ```
//!
//! While it is open, no request is sent. Then one request is sent as a probe; after it is accepted,
//! two may be in flight, then four, so that waiting runs do not all start at once.

use super::time::Timestamp;

/// Number of consecutive failures, across all runs, that opens it.
const FAILURES: u32 = 5;
/// Maximum time that it stays open if the provider names none, in milliseconds: after the provider
/// reported that it is busy, and after requests failed.
const LONGEST_BUSY_MS: u64 = 60_000;
const LONGEST_FAILING_MS: u64 = 10_000;
/// It has recovered with this many requests allowed in flight, or after this many milliseconds.
const RECOVERED: u32 = 64;
const RECOVERED_MS: u64 = 30_000;
/// Delay before checking again whether a probe was accepted, in milliseconds.
const LOOK_MS: u64 = 1000;

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerDecision {
    /// It may be sent.
    Go(BreakerPermit),
    /// It may not be sent before a point in time.
    Wait {
        /// When to ask again.
        until: Timestamp,
        /// True if the provider reported that it accepts no requests. Otherwise requests failed,
        /// and each failed probe counts as a failure of every waiting run.
        busy: bool,
    },
}

/// The permit of one request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPermit {
    epoch: u64,
    /// True while it counts among the requests in flight.
    counted: bool,
}

/// The circuit breaker of one provider and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    state: BreakerState,
    /// Raised each time it opens: the outcome of a request sent before is not evidence about the
    /// time since.
    epoch: u64,
    failures: u32,
    busy: bool,
    since: Option<Timestamp>,
    reason: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BreakerState {
    #[default]
    Closed,
    Open {
        from: Timestamp,
        until: Timestamp,
    },
    Probing,
    Recovering {
        from: Timestamp,
        allowed: u32,
        in_flight: u32,
    },
}

crate::kernel::text::text_enum::text_enum! {
    /// The state of a provider, for clients.
    Condition {
        /// Requests are sent.
        Ok = "ok",
        /// No request is sent until a point in time.
        Paused = "paused",
        /// One request was sent to test whether it is accepted.
        Probing = "probing",
        /// The probe was accepted, and further requests follow in small numbers.
        Recovering = "recovering",
    }
}

/// The state of a provider as shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// The state in one word.
    pub condition: Condition,
    /// When it left the state `ok`.
    pub since: Option<Timestamp>,
    /// Until when no request is sent.
    pub until: Option<Timestamp>,
    /// Failures since the last answered request.
    pub failures: u32,
    /// The latest failure, in the provider's words.
    pub reason: Option<String>,
}

impl Breaker {
    /// Asks whether a request may be sent now; a permitted request counts as in flight.
    pub fn enter(&mut self, now: Timestamp) -> BreakerDecision {
        let busy = self.busy;
        let wait = |until| BreakerDecision::Wait { until, busy };
        let look = now.plus_ms(LOOK_MS);
        if self.has_recovered(now) {
            self.close();
        }
        let counted = match &mut self.state {
            BreakerState::Closed => false,
            // A clock that was set back must not keep it open.
            BreakerState::Open { from, until } if *from <= now && now < *until => {
                return wait(*until);
            }
            BreakerState::Open { .. } => {
                self.state = BreakerState::Probing;
                true
            }
            BreakerState::Probing => return wait(look),
            BreakerState::Recovering {
                allowed,
                in_flight: on_their_way,
                ..
            } if *on_their_way >= *allowed => return wait(look),
            BreakerState::Recovering {
                in_flight: on_their_way,
                ..
            } => {
                *on_their_way += 1;
                true
            }
        };
        BreakerDecision::Go(BreakerPermit {
            epoch: self.epoch,
            counted,
        })
    }

    /// Records that the provider accepted the request. Returns whether the shown state changes.
    pub fn taken(&mut self, pass: &mut BreakerPermit, now: Timestamp) -> bool {
        if pass.epoch != self.epoch || !std::mem::take(&mut pass.counted) {
            return false;
        }
        self.state = match self.state {
            BreakerState::Probing => BreakerState::Recovering {
                from: now,
                allowed: 2,
                in_flight: 0,
            },
            BreakerState::Recovering {
                from,
                allowed,
                in_flight: on_their_way,
            } => BreakerState::Recovering {
                from,
                allowed: allowed.saturating_mul(2),
                in_flight: on_their_way.saturating_sub(1),
            },
            BreakerState::Closed | BreakerState::Open { .. } => return false,
        };
        if self.has_recovered(now) {
            self.close();
        }
        true
    }

    fn has_recovered(&self, now: Timestamp) -> bool {
        match self.state {
            BreakerState::Recovering { from, allowed, .. } => {
                allowed >= RECOVERED || now.since(from) >= RECOVERED_MS
            }
            _ => false,
        }
    }

    /// Records that the provider answered the request, or refused it for a reason that concerns
    /// only this request. Returns whether the shown state changes.
    pub fn answered(&mut self, pass: &mut BreakerPermit, now: Timestamp) -> bool {
        let changed = self.taken(pass, now);
        if pass.epoch == self.epoch {
            self.failures = 0;
            if self.state == BreakerState::Closed {
                self.reason.clear();
            }
        }
        changed
    }

    /// Records that the request ended without an answer because its run was cancelled.
    pub fn given_up(&mut self, pass: &mut BreakerPermit, now: Timestamp) {
        if pass.epoch != self.epoch || !std::mem::take(&mut pass.counted) {
            return;
        }
        match &mut self.state {
            // The next request becomes the probe.
            BreakerState::Probing => {
                self.state = BreakerState::Open {
                    from: now,
                    until: now,
                }
            }
            BreakerState::Recovering {
                in_flight: on_their_way,
                ..
            } => {
                *on_their_way = on_their_way.saturating_sub(1);
            }
            BreakerState::Closed | BreakerState::Open { .. } => {}
        }
    }

    /// Records that the provider accepts no requests now, for `asked` milliseconds if it gave a
    /// time, and at most for `most`. Returns whether the shown state changes.
    pub fn busy(
        &mut self,
        pass: &mut BreakerPermit,
        now: Timestamp,
        reason: &str,
        base_ms: u64,
        (asked, most): (Option<u64>, u64),
    ) -> bool {
        pass.counted = false;
        if pass.epoch != self.epoch {
            // Sent before it opened: only a longer wait changes anything.
            let asked = asked.map(|ms| now.plus_ms(ms.min(most)));
            return match (&mut self.state, asked) {
                (BreakerState::Open { until, .. }, Some(asked)) if asked > *until => {
                    *until = asked;
                    true
                }
                _ => false,
            };
        }
        self.failures = self.failures.saturating_add(1);
        let backoff = doubled(base_ms, self.failures - 1, LONGEST_BUSY_MS);
        self.open(now, asked.unwrap_or(backoff).min(most), reason, true);
        true
    }

    /// Records a transient failure of the request. Returns whether the shown state changes.
    pub fn failed(
        &mut self,
        pass: &mut BreakerPermit,
        now: Timestamp,
        reason: &str,
        base_ms: u64,
    ) -> bool {
        pass.counted = false;
        if pass.epoch != self.epoch {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        reason.clone_into(&mut self.reason);
        if self.state == BreakerState::Closed && self.failures < FAILURES {
            return false;
        }
        let times = self.failures.saturating_sub(FAILURES);
        self.open(
            now,
            doubled(base_ms, times, LONGEST_FAILING_MS),
            reason,
            false,
        );
        true
    }

    /// Failures since the last answered request.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why it is not closed, in the provider's words; empty if it is.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The state as shown to people at `now`.
    pub fn seen(&self, now: Timestamp) -> HealthReport {
        let (condition, until) = match self.state {
            BreakerState::Closed => (Condition::Ok, None),
            _ if self.has_recovered(now) => (Condition::Ok, None),
            BreakerState::Open { until, .. } if until > now => (Condition::Paused, Some(until)),
            BreakerState::Open { .. } | BreakerState::Probing => (Condition::Probing, None),
            BreakerState::Recovering { .. } => (Condition::Recovering, None),
        };
        HealthReport {
            condition,
            since: self.since.filter(|_| condition != Condition::Ok),
            until,
            failures: self.failures,
            reason: (!self.reason.is_empty()).then(|| self.reason.clone()),
        }
    }

    fn open(&mut self, now: Timestamp, ms: u64, reason: &str, busy: bool) {
        self.epoch += 1;
        self.busy = busy;
        self.since.get_or_insert(now);
        reason.clone_into(&mut self.reason);
        self.state = BreakerState::Open {
            from: now,
            until: now.plus_ms(ms),
        };
    }

    fn close(&mut self) {
        self.state = BreakerState::Closed;
        self.since = None;
        self.reason.clear();
    }
}

fn doubled(base_ms: u64, times: u32, most: u64) -> u64 {
    base_ms
        .max(1)
        .saturating_mul(1_u64.checked_shl(times).unwrap_or(u64::MAX))
        .min(most)
}

#[cfg(test)]
#[path = "provider_health_tests.rs"]
mod tests;
