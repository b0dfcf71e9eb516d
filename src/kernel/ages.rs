//! How old stored things are, by a wall clock that may have been set wrong. What ends or is
//! removed by its age asks here which time counts: at a start the restore, later the sweeps.

use serde::{Deserialize, Serialize};

use super::time::{Moment, Timestamp};

/// A clock that was set by less is not said to be wrong.
const SET_MS: u64 = 60_000;
/// A clock that is ahead of all that is stored by less is believed, whatever the settings say.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A clock that is doubted is believed when it has gone on steadily for this long, milliseconds.
pub const SETTLES_MS: u64 = 10 * 60 * 1000;

/// The machine that a daemon runs on, since its own start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Which start of it this is.
    pub boot: String,
    /// How long ago that was, sleep included.
    pub up_ms: u64,
}

/// When the machine had started, by the wall clock as a daemon saw it. Stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    boot: String,
    booted_at: Timestamp,
    /// The clock was doubted then.
    doubted: Option<Doubt>,
}

/// When a clock was doubted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Doubt {
    /// So long after the machine's start.
    up_ms: u64,
    /// Of when the newest thing stored was.
    last_seen: Timestamp,
}

/// How far the wall clock can be believed at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing speaks against it.
    Believed,
    /// It was set ahead by so many milliseconds since the machine was started.
    Ahead(u64),
    /// It is far ahead of all that was stored up to this point, and the machine was started
    /// since: whether that much time has passed is not known.
    Doubted(Timestamp),
}

/// The longest time by which a clock may be ahead of all that is stored and still be believed,
/// milliseconds.
fn believed_ms(max_age_ms: u64) -> u64 {
    max_age_ms.max(DAY_MS)
}

impl Sight {
    /// At `now`, when the newest thing stored is of `last_seen`; and what is to be stored in place
    /// of `known` where the system says which start of the machine this is.
    pub fn of(
        now: Timestamp,
        last_seen: Option<Timestamp>,
        machine: Option<&Machine>,
        known: Option<Baseline>,
        max_age_ms: u64,
    ) -> (Sight, Option<Baseline>) {
        let far = |seen: &Timestamp| now.since(*seen) > believed_ms(max_age_ms);
        let Some(machine) = machine else {
            let doubt = last_seen.filter(far);
            return (doubt.map_or(Sight::Believed, Sight::Doubted), None);
        };
        let fresh = |doubted| Baseline {
            boot: machine.boot.clone(),
            booted_at: now.minus_ms(machine.up_ms),
            doubted,
        };
        let booted_at = now.minus_ms(machine.up_ms);
        let same = known.filter(|known| known.boot == machine.boot);
        let doubt = match &same {
            None => last_seen.filter(far).map(|last_seen| Doubt {
                up_ms: machine.up_ms,
                last_seen,
            }),
            Some(Baseline { doubted: None, .. }) => None,
            Some(
                known @ Baseline {
                    doubted: Some(doubt),
                    ..
                },
            ) => {
                let was_set = distance(booted_at, known.booted_at) > SET_MS;
                let settled = machine.up_ms.saturating_sub(doubt.up_ms) >= SETTLES_MS;
                match was_set {
                    true => Some(Doubt {
                        up_ms: machine.up_ms,
                        ..*doubt
                    }),
                    false => Some(*doubt).filter(|_| !settled),
                }
                .filter(|doubt| far(&doubt.last_seen))
            }
        };
        match (doubt, same) {
            (Some(doubt), _) => (Sight::Doubted(doubt.last_seen), Some(fresh(Some(doubt)))),
            (None, Some(known)) if known.doubted.is_none() => {
                let sight = match booted_at.since(known.booted_at) {
                    0..=SET_MS => Sight::Believed,
                    ahead => Sight::Ahead(ahead),
                };
                (sight, Some(known))
            }
            (None, _) => (Sight::Believed, Some(fresh(None))),
        }
    }
}

fn distance(one: Timestamp, other: Timestamp) -> u64 {
    one.since(other) + other.since(one)
}

/// The time by which ages count in this process: that of its start, and then what has passed on
/// a clock that never jumps.
#[derive(Clone, Debug)]
pub struct Ages {
    start: Moment,
    ahead_ms: u64,
    believed_ms: u64,
    /// How long a doubted clock must go on steadily.
    settles_ms: u64,
    doubted: Option<Doubted>,
}

/// A clock that is not believed yet.
#[derive(Clone, Copy, Debug)]
struct Doubted {
    /// From when on it is, by the steady clock.
    until: Timestamp,
    /// Of when the newest thing stored is.
    last_seen: Timestamp,
}

impl Ages {
    /// From this start on. `now.steady` counts sleep.
    pub fn new(sight: Sight, now: Moment, max_age_ms: u64, settles_ms: u64) -> Ages {
        let until = now.steady.plus_ms(settles_ms);
        let (ahead_ms, doubted) = match sight {
            Sight::Believed => (0, None),
            Sight::Ahead(ahead_ms) => (ahead_ms, None),
            Sight::Doubted(last_seen) => (0, Some(Doubted { until, last_seen })),
        };
        Ages {
            start: now,
            ahead_ms,
            believed_ms: believed_ms(max_age_ms),
            settles_ms,
            doubted,
        }
    }

    /// The time by which ages count now; `None`: nothing may end or go by its age yet.
    pub fn at(&mut self, now: Moment) -> Option<Timestamp> {
        let steady = |start: Moment| start.wall.plus_ms(now.steady.since(start.steady));
        if let Some(doubted) = &mut self.doubted {
            if now.steady < doubted.until {
                return None;
            }
            if distance(now.wall, steady(self.start)) > SET_MS {
                // It was set meanwhile.
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

    fn machine(boot: &str, up_ms: u64) -> Machine {
        Machine {
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

    fn known(boot: &str, up_ms: u64, now: Timestamp) -> Baseline {
        Sight::of(now, None, Some(&machine(boot, up_ms)), None, WEEK)
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
                Sight::of(now, Some(SEEN), Some(&machine), Some(first.clone()), WEEK);
            // Seen once more, it would still be ahead of what was seen first.
            assert_eq!(next.as_ref(), Some(&first));
            sight
        };
        for days in [0, 1, 3, 30] {
            assert_eq!(sight(days * DAY_MS, 0), Sight::Believed, "{days}");
            assert_eq!(sight(days * DAY_MS, SET_MS), Sight::Believed);
            let ahead = Sight::Ahead(30 * DAY_MS);
            assert_eq!(sight(days * DAY_MS, 30 * DAY_MS), ahead, "{days}");
        }
        // Set back: what is stored is not old by it.
        let now = SEEN.minus_ms(DAY_MS);
        let up = machine("a", HOUR);
        let set_back = Sight::of(now, Some(SEEN), Some(&up), Some(first), WEEK);
        assert_eq!(set_back.0, Sight::Believed);
    }

    #[test]
    fn after_a_start_of_the_machine_a_long_way_ahead_is_doubted() {
        for (days, expected) in [
            (1, Sight::Believed),
            (7, Sight::Believed),
            (8, Sight::Doubted(SEEN)),
            (30, Sight::Doubted(SEEN)),
        ] {
            let now = SEEN.plus_ms(days * DAY_MS);
            for machine in [Some(machine("b", HOUR)), None] {
                let first = Some(known("a", HOUR, SEEN));
                let (sight, _) = Sight::of(now, Some(SEEN), machine.as_ref(), first, WEEK);
                assert_eq!(sight, expected, "{days} {machine:?}");
            }
        }
        assert_eq!(Sight::of(SEEN, None, None, None, WEEK).0, Sight::Believed);
        // However short the setting is, a day is nothing to doubt.
        let day = SEEN.plus_ms(DAY_MS);
        let (sight, _) = Sight::of(day, Some(SEEN), None, None, 0);
        assert_eq!(sight, Sight::Believed);
    }

    #[test]
    fn a_doubt_outlives_kills_until_the_clock_has_settled_or_was_set_right() {
        let now = SEEN.plus_ms(30 * DAY_MS);
        let first = known("a", HOUR, SEEN);
        let look = |now: Timestamp, up_ms, known: &Baseline| {
            // What the doubted life has written is as far ahead as its clock.
            let seen = Some(now.minus_ms(1000));
            Sight::of(
                now,
                seen,
                Some(&machine("b", up_ms)),
                Some(known.clone()),
                WEEK,
            )
        };
        let started = machine("b", HOUR);
        let (sight, doubted) = Sight::of(now, Some(SEEN), Some(&started), Some(first), WEEK);
        assert_eq!(sight, Sight::Doubted(SEEN));
        let doubted = doubted.unwrap();
        let soon = SETTLES_MS - 1;
        let (sight, next) = look(now.plus_ms(soon), HOUR + soon, &doubted);
        assert_eq!((sight, next), (Sight::Doubted(SEEN), Some(doubted.clone())));
        let (sight, next) = look(now.plus_ms(SETTLES_MS), HOUR + SETTLES_MS, &doubted);
        assert_eq!(sight, Sight::Believed);
        assert_eq!(next.unwrap().doubted, None);
        let right = SEEN.plus_ms(HOUR);
        let (sight, next) = look(right, HOUR + 1000, &doubted);
        assert_eq!(sight, Sight::Believed);
        assert_eq!(next.unwrap().booted_at, right.minus_ms(HOUR + 1000));
        let other = SEEN.plus_ms(90 * DAY_MS);
        assert_eq!(
            look(other, HOUR + SETTLES_MS, &doubted).0,
            Sight::Doubted(SEEN)
        );
    }

    #[test]
    fn ages_count_by_the_time_of_the_start_and_what_has_passed_since() {
        let start = SEEN.plus_ms(30 * DAY_MS);
        let mut ages = Ages::new(Sight::Believed, at(start, 5), WEEK, SETTLES);
        assert_eq!(ages.at(at(start, 5)), Some(start));
        // The wall clock jumps, and nothing is older by that.
        let jumped = at(start.plus_ms(400 * DAY_MS), 5 + HOUR);
        assert_eq!(ages.at(jumped), Some(start.plus_ms(HOUR)));
        let ahead = Sight::Ahead(30 * DAY_MS);
        let mut ages = Ages::new(ahead, at(start, 5), WEEK, SETTLES);
        assert_eq!(ages.at(at(start, 5)), Some(SEEN));
    }

    #[test]
    fn a_doubted_clock_counts_once_it_has_gone_on_steadily_for_a_while() {
        let start = SEEN.plus_ms(30 * DAY_MS);
        let fresh = || Ages::new(Sight::Doubted(SEEN), at(start, 0), WEEK, SETTLES);
        let mut ages = fresh();
        assert_eq!(ages.at(at(start.plus_ms(SETTLES - 1), SETTLES - 1)), None);
        let later = start.plus_ms(SETTLES);
        assert_eq!(ages.at(at(later, SETTLES)), Some(later));
        // Set right meanwhile: that is believed at once.
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
