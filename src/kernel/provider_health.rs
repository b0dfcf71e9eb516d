//! The breaker of a provider: whether its requests may be sent now, judged from how the last ones
//! of all runs went. Pure; `provider` keeps one for each provider and key.
//!
//! ```text
//! closed ──busy, or failures in a row──▶ open ──its time is over──▶ probing
//!   ▲                                     ▲                           │
//!   │                                     └──────────it fails─────────┤
//!   └──enough were taken── recovering ◀──────────it is taken──────────┘
//! ```
//!
//! While it is open nothing is sent. Then one request is sent as a probe; when that is taken, two
//! may be on their way, then four, so that the runs that waited do not all come at once.

use super::time::Timestamp;

/// So many failures in a row, of all runs, open it.
const FAILURES: u32 = 5;
/// The longest time for which it opens where the provider names none, milliseconds: after it has
/// said that it is busy, and after requests have failed.
const LONGEST_BUSY_MS: u64 = 60_000;
const LONGEST_FAILING_MS: u64 = 10_000;
/// With so many requests on their way at once it has recovered, and after so long in any case,
/// milliseconds.
const RECOVERED: u32 = 64;
const RECOVERED_MS: u64 = 30_000;
/// So long is waited before it is looked again whether a probe was taken, milliseconds.
const LOOK_MS: u64 = 1000;

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It may.
    Go(Pass),
    /// Not before this point.
    Wait {
        /// When to ask again.
        until: Timestamp,
        /// The provider has said that it takes no requests. Otherwise they have failed, and each
        /// failure of a probe is one of every run that waits.
        busy: bool,
    },
}

/// One request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    epoch: u64,
    /// It is counted among those on their way.
    counted: bool,
}

/// How a provider is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// Raised each time it opens: what was sent before says nothing of it since.
    epoch: u64,
    failures: u32,
    busy: bool,
    since: Option<Timestamp>,
    reason: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
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
        on_their_way: u32,
    },
}

super::text_enum::text_enum! {
    /// How a provider is, in a word.
    Condition {
        /// Requests are sent.
        Ok = "ok",
        /// None is sent until a point in time.
        Paused = "paused",
        /// One was sent to see whether it is taken.
        Probing = "probing",
        /// It was taken, and others follow, a few at a time.
        Recovering = "recovering",
    }
}

/// What people are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// In a word.
    pub condition: Condition,
    /// Since when it is not `ok`.
    pub since: Option<Timestamp>,
    /// Until when nothing is sent.
    pub until: Option<Timestamp>,
    /// Failures since the last request that was answered.
    pub failures: u32,
    /// What has failed last.
    pub reason: Option<String>,
}

impl Breaker {
    /// Asks whether a request may be sent now. One that may is on its way.
    pub fn enter(&mut self, now: Timestamp) -> Entry {
        let busy = self.busy;
        let wait = |until| Entry::Wait { until, busy };
        let look = now.plus_ms(LOOK_MS);
        if self.has_recovered(now) {
            self.close();
        }
        let counted = match &mut self.state {
            State::Closed => false,
            // A clock that was put back must not keep it open.
            State::Open { from, until } if *from <= now && now < *until => return wait(*until),
            State::Open { .. } => {
                self.state = State::Probing;
                true
            }
            State::Probing => return wait(look),
            State::Recovering {
                allowed,
                on_their_way,
                ..
            } if *on_their_way >= *allowed => return wait(look),
            State::Recovering { on_their_way, .. } => {
                *on_their_way += 1;
                true
            }
        };
        Entry::Go(Pass {
            epoch: self.epoch,
            counted,
        })
    }

    /// The provider has taken the request. Whether that changes what people are shown.
    pub fn taken(&mut self, pass: &mut Pass, now: Timestamp) -> bool {
        if pass.epoch != self.epoch || !std::mem::take(&mut pass.counted) {
            return false;
        }
        self.state = match self.state {
            State::Probing => State::Recovering {
                from: now,
                allowed: 2,
                on_their_way: 0,
            },
            State::Recovering {
                from,
                allowed,
                on_their_way,
            } => State::Recovering {
                from,
                allowed: allowed.saturating_mul(2),
                on_their_way: on_their_way.saturating_sub(1),
            },
            State::Closed | State::Open { .. } => return false,
        };
        if self.has_recovered(now) {
            self.close();
        }
        true
    }

    fn has_recovered(&self, now: Timestamp) -> bool {
        match self.state {
            State::Recovering { from, allowed, .. } => {
                allowed >= RECOVERED || now.since(from) >= RECOVERED_MS
            }
            _ => false,
        }
    }

    /// The provider has answered the request, or refused it for a reason of its own.
    pub fn answered(&mut self, pass: &mut Pass, now: Timestamp) -> bool {
        let changed = self.taken(pass, now);
        if pass.epoch == self.epoch {
            self.failures = 0;
            if self.state == State::Closed {
                self.reason.clear();
            }
        }
        changed
    }

    /// The request came to nothing without a word of the provider's: its run was cancelled.
    pub fn given_up(&mut self, pass: &mut Pass, now: Timestamp) {
        if pass.epoch != self.epoch || !std::mem::take(&mut pass.counted) {
            return;
        }
        match &mut self.state {
            // The next one is the probe.
            State::Probing => {
                self.state = State::Open {
                    from: now,
                    until: now,
                }
            }
            State::Recovering { on_their_way, .. } => {
                *on_their_way = on_their_way.saturating_sub(1);
            }
            State::Closed | State::Open { .. } => {}
        }
    }

    /// The provider has said that it takes no requests now, for `asked` milliseconds if it says
    /// so, and at most for `most`. Whether that changes what people are shown.
    pub fn busy(
        &mut self,
        pass: &mut Pass,
        now: Timestamp,
        reason: &str,
        base_ms: u64,
        (asked, most): (Option<u64>, u64),
    ) -> bool {
        pass.counted = false;
        if pass.epoch != self.epoch {
            // Sent before it opened: only a longer wait is news.
            let asked = asked.map(|ms| now.plus_ms(ms.min(most)));
            return match (&mut self.state, asked) {
                (State::Open { until, .. }, Some(asked)) if asked > *until => {
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

    /// The request has failed in a way that may pass. Whether that changes what people are shown.
    pub fn failed(&mut self, pass: &mut Pass, now: Timestamp, reason: &str, base_ms: u64) -> bool {
        pass.counted = false;
        if pass.epoch != self.epoch {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        reason.clone_into(&mut self.reason);
        if self.state == State::Closed && self.failures < FAILURES {
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

    /// Failures since the last request that was answered.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why it is not closed, in the provider's words.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What people are shown.
    pub fn seen(&self, now: Timestamp) -> Seen {
        let (condition, until) = match self.state {
            State::Closed => (Condition::Ok, None),
            _ if self.has_recovered(now) => (Condition::Ok, None),
            State::Open { until, .. } if until > now => (Condition::Paused, Some(until)),
            State::Open { .. } | State::Probing => (Condition::Probing, None),
            State::Recovering { .. } => (Condition::Recovering, None),
        };
        Seen {
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
        self.state = State::Open {
            from: now,
            until: now.plus_ms(ms),
        };
    }

    fn close(&mut self) {
        self.state = State::Closed;
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
