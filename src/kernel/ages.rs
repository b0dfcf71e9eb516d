//! The age of stored things, judged by a wall clock that may have been set wrong. Expiry and
//! retention ask here which time counts: the restore at a start, and later the sweeps.

use serde::{Deserialize, Serialize};

use super::time::{Moment, Timestamp};

/// Wall-clock changes up to this size are ignored.
const SET_MS: u64 = 60_000;
/// A clock that is ahead of everything stored by less than this is always trusted, whatever the
/// settings.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A doubted clock is trusted once it has run steadily for this long, in milliseconds.
pub const SETTLES_MS: u64 = 10 * 60 * 1000;

/// The machine that the daemon runs on, since its last boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBoot {
    /// The id of this machine boot.
    pub boot: String,
    /// Milliseconds since that boot, including sleep.
    pub up_ms: u64,
}

/// When the machine booted, by the wall clock as a daemon read it; stored across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootBaseline {
    boot: String,
    booted_at: Timestamp,
    /// Set while the clock is doubted.
    doubted: Option<ClockDoubt>,
}

/// When a clock was first doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClockDoubt {
    /// Milliseconds between the machine's boot and the doubt.
    up_ms: u64,
    /// The time of the newest stored row at that point.
    last_seen: Timestamp,
}

/// How far the wall clock can be trusted at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockTrust {
    /// Nothing contradicts it.
    Trusted,
    /// It was set ahead by this many milliseconds since the machine booted.
    Ahead(u64),
    /// It is far ahead of everything stored up to this point, and the machine was rebooted since:
    /// it is unknown whether that much time has passed.
    Doubted(Timestamp),
}

/// The longest time by which a clock may be ahead of everything stored and still be trusted, in
/// milliseconds.
fn believed_ms(max_age_ms: u64) -> u64 {
    max_age_ms.max(DAY_MS)
}

impl ClockTrust {
    /// Judges the clock at `now`, where the newest stored row is of `last_seen`. Also returns the
    /// baseline to store in place of `known`, if the system identifies the machine's boot.
    pub fn of(
        now: Timestamp,
        last_seen: Option<Timestamp>,
        machine: Option<&HostBoot>,
        known: Option<BootBaseline>,
        max_age_ms: u64,
    ) -> (ClockTrust, Option<BootBaseline>) {
        let far = |seen: &Timestamp| now.since(*seen) > believed_ms(max_age_ms);
        let Some(machine) = machine else {
            let doubt = last_seen.filter(far);
            return (doubt.map_or(ClockTrust::Trusted, ClockTrust::Doubted), None);
        };
        let fresh = |doubted| BootBaseline {
            boot: machine.boot.clone(),
            booted_at: now.minus_ms(machine.up_ms),
            doubted,
        };
        let booted_at = now.minus_ms(machine.up_ms);
        let same = known.filter(|known| known.boot == machine.boot);
        let doubt = match &same {
            None => last_seen.filter(far).map(|last_seen| ClockDoubt {
                up_ms: machine.up_ms,
                last_seen,
            }),
            Some(BootBaseline { doubted: None, .. }) => None,
            Some(
                known @ BootBaseline {
                    doubted: Some(doubt),
                    ..
                },
            ) => {
                let was_set = distance(booted_at, known.booted_at) > SET_MS;
                let settled = machine.up_ms.saturating_sub(doubt.up_ms) >= SETTLES_MS;
                match was_set {
                    true => Some(ClockDoubt {
                        up_ms: machine.up_ms,
                        ..*doubt
                    }),
                    false => Some(*doubt).filter(|_| !settled),
                }
                .filter(|doubt| far(&doubt.last_seen))
            }
        };
        match (doubt, same) {
            (Some(doubt), _) => (
                ClockTrust::Doubted(doubt.last_seen),
                Some(fresh(Some(doubt))),
            ),
            (None, Some(known)) if known.doubted.is_none() => {
                let sight = match booted_at.since(known.booted_at) {
                    0..=SET_MS => ClockTrust::Trusted,
                    ahead => ClockTrust::Ahead(ahead),
                };
                (sight, Some(known))
            }
            (None, _) => (ClockTrust::Trusted, Some(fresh(None))),
        }
    }
}

fn distance(one: Timestamp, other: Timestamp) -> u64 {
    one.since(other) + other.since(one)
}

/// The time by which ages count in this process: the time of its start plus what has passed since
/// on a clock that never jumps.
#[derive(Clone, Debug)]
pub struct AgeClock {
    start: Moment,
    ahead_ms: u64,
    believed_ms: u64,
    /// How long a doubted clock must run steadily, in milliseconds.
    settles_ms: u64,
    doubted: Option<Doubted>,
}

/// A clock that is not trusted yet.
#[derive(Clone, Copy, Debug)]
struct Doubted {
    /// When it is trusted, by the steady clock.
    until: Timestamp,
    /// The time of the newest stored row.
    last_seen: Timestamp,
}

impl AgeClock {
    /// Ages from this start on. `now.steady` must include sleep.
    pub fn new(sight: ClockTrust, now: Moment, max_age_ms: u64, settles_ms: u64) -> AgeClock {
        let until = now.steady.plus_ms(settles_ms);
        let (ahead_ms, doubted) = match sight {
            ClockTrust::Trusted => (0, None),
            ClockTrust::Ahead(ahead_ms) => (ahead_ms, None),
            ClockTrust::Doubted(last_seen) => (0, Some(Doubted { until, last_seen })),
        };
        AgeClock {
            start: now,
            ahead_ms,
            believed_ms: believed_ms(max_age_ms),
            settles_ms,
            doubted,
        }
    }

    /// The time by which ages count now; `None` while nothing may expire or be removed by its age.
    pub fn at(&mut self, now: Moment) -> Option<Timestamp> {
        let steady = |start: Moment| start.wall.plus_ms(now.steady.since(start.steady));
        if let Some(doubted) = &mut self.doubted {
            if now.steady < doubted.until {
                return None;
            }
            if distance(now.wall, steady(self.start)) > SET_MS {
                // The clock was set meanwhile.
                self.start = now;
                if now.wall.since(doubted.last_seen) > self.believed_ms {
                    doubted.until = now.steady.plus_ms(self.settles_ms);
                    return None;
                }
            }
            self.doubted = None;
        }
        Some(steady(self.start).minus_ms(self.ahead_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600 * 1000;
    const WEEK: u64 = 7 * DAY_MS;
    const SETTLES: u64 = 600_000;
    const SEEN: Timestamp = Timestamp(1_000_000_000_000);

    fn machine(boot: &str, up_ms: u64) -> HostBoot {
        HostBoot {
            boot: boot.to_owned(),
            up_ms,
        }
    }

    fn at(wall: Timestamp, steady: u64) -> Moment {
        Moment {
            wall,
            steady: Timestamp(0).plus_ms(steady),
        }
    }

    fn known(boot: &str, up_ms: u64, now: Timestamp) -> BootBaseline {
        ClockTrust::of(now, None, Some(&machine(boot, up_ms)), None, WEEK)
            .1
            .unwrap()
    }

    #[test]
    fn on_a_machine_that_stayed_up_a_clock_that_was_set_is_told_from_time_that_passed() {
        let first = known("a", HOUR, SEEN);
        let sight = |passed: u64, set: u64| {
            let now = SEEN.plus_ms(passed + set);
            let machine = machine("a", HOUR + passed);
            let (sight, next) =
                ClockTrust::of(now, Some(SEEN), Some(&machine), Some(first.clone()), WEEK);
            // On a second look it would still be ahead of the first one.
            assert_eq!(next.as_ref(), Some(&first));
            sight
        };
        for days in [0, 1, 3, 30] {
            assert_eq!(sight(days * DAY_MS, 0), ClockTrust::Trusted, "{days}");
            assert_eq!(sight(days * DAY_MS, SET_MS), ClockTrust::Trusted);
            let ahead = ClockTrust::Ahead(30 * DAY_MS);
            assert_eq!(sight(days * DAY_MS, 30 * DAY_MS), ahead, "{days}");
        }
        // Set back: stored rows do not become older by it.
        let now = SEEN.minus_ms(DAY_MS);
        let up = machine("a", HOUR);
        let set_back = ClockTrust::of(now, Some(SEEN), Some(&up), Some(first), WEEK);
        assert_eq!(set_back.0, ClockTrust::Trusted);
    }

    #[test]
    fn after_a_start_of_the_machine_a_long_way_ahead_is_doubted() {
        for (days, expected) in [
            (1, ClockTrust::Trusted),
            (7, ClockTrust::Trusted),
            (8, ClockTrust::Doubted(SEEN)),
            (30, ClockTrust::Doubted(SEEN)),
        ] {
            let now = SEEN.plus_ms(days * DAY_MS);
            for machine in [Some(machine("b", HOUR)), None] {
                let first = Some(known("a", HOUR, SEEN));
                let (sight, _) = ClockTrust::of(now, Some(SEEN), machine.as_ref(), first, WEEK);
                assert_eq!(sight, expected, "{days} {machine:?}");
            }
        }
        assert_eq!(
            ClockTrust::of(SEEN, None, None, None, WEEK).0,
            ClockTrust::Trusted
        );
        // However short the setting is, one day is never doubted.
        let day = SEEN.plus_ms(DAY_MS);
        let (sight, _) = ClockTrust::of(day, Some(SEEN), None, None, 0);
        assert_eq!(sight, ClockTrust::Trusted);
    }

    #[test]
    fn a_doubt_outlives_kills_until_the_clock_has_settled_or_was_set_right() {
        let now = SEEN.plus_ms(30 * DAY_MS);
        let first = known("a", HOUR, SEEN);
        let look = |now: Timestamp, up_ms, known: &BootBaseline| {
            // Rows that the doubted process has written are as far ahead as its clock.
            let seen = Some(now.minus_ms(1000));
            ClockTrust::of(
                now,
                seen,
                Some(&machine("b", up_ms)),
                Some(known.clone()),
                WEEK,
            )
        };
        let started = machine("b", HOUR);
        let (sight, doubted) = ClockTrust::of(now, Some(SEEN), Some(&started), Some(first), WEEK);
        assert_eq!(sight, ClockTrust::Doubted(SEEN));
        let doubted = doubted.unwrap();
        let soon = SETTLES_MS - 1;
        let (sight, next) = look(now.plus_ms(soon), HOUR + soon, &doubted);
        assert_eq!(
            (sight, next),
            (ClockTrust::Doubted(SEEN), Some(doubted.clone()))
        );
        let (sight, next) = look(now.plus_ms(SETTLES_MS), HOUR + SETTLES_MS, &doubted);
        assert_eq!(sight, ClockTrust::Trusted);
        assert_eq!(next.unwrap().doubted, None);
        let right = SEEN.plus_ms(HOUR);
        let (sight, next) = look(right, HOUR + 1000, &doubted);
        assert_eq!(sight, ClockTrust::Trusted);
        assert_eq!(next.unwrap().booted_at, right.minus_ms(HOUR + 1000));
        let other = SEEN.plus_ms(90 * DAY_MS);
        assert_eq!(
            look(other, HOUR + SETTLES_MS, &doubted).0,
            ClockTrust::Doubted(SEEN)
        );
    }

    #[test]
    fn ages_count_by_the_time_of_the_start_and_what_has_passed_since() {
        let start = SEEN.plus_ms(30 * DAY_MS);
        let mut ages = AgeClock::new(ClockTrust::Trusted, at(start, 5), WEEK, SETTLES);
        assert_eq!(ages.at(at(start, 5)), Some(start));
        // The wall clock jumps, and nothing gets older by that.
        let jumped = at(start.plus_ms(400 * DAY_MS), 5 + HOUR);
        assert_eq!(ages.at(jumped), Some(start.plus_ms(HOUR)));
        let ahead = ClockTrust::Ahead(30 * DAY_MS);
        let mut ages = AgeClock::new(ahead, at(start, 5), WEEK, SETTLES);
        assert_eq!(ages.at(at(start, 5)), Some(SEEN));
    }

    #[test]
    fn a_doubted_clock_counts_once_it_has_gone_on_steadily_for_a_while() {
        let start = SEEN.plus_ms(30 * DAY_MS);
        let fresh = || AgeClock::new(ClockTrust::Doubted(SEEN), at(start, 0), WEEK, SETTLES);
        let mut ages = fresh();
        assert_eq!(ages.at(at(start.plus_ms(SETTLES - 1), SETTLES - 1)), None);
        let later = start.plus_ms(SETTLES);
        assert_eq!(ages.at(at(later, SETTLES)), Some(later));
        // Corrected in the meantime: trusted immediately.
        let mut ages = fresh();
        let right = SEEN.plus_ms(HOUR);
        assert_eq!(ages.at(at(right, SETTLES)), Some(right));
        // Set to another time far ahead: that has to settle, too.
        let mut ages = fresh();
        let other = SEEN.plus_ms(90 * DAY_MS);
        assert_eq!(ages.at(at(other, SETTLES)), None);
        assert_eq!(ages.at(at(other, 2 * SETTLES - 1)), None);
        let settled = other.plus_ms(SETTLES);
        assert_eq!(ages.at(at(settled, 2 * SETTLES)), Some(settled));
    }
}
