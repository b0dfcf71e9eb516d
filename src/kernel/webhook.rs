//! Webhooks: which events of the log one delivers, how far it has come, and how long it waits after a
//! failure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::KindPattern;
use super::ids::RunId;
use super::scope::OWNER_ORG;
use super::time::Timestamp;

/// The longest wait before another attempt, without the random part.
pub const LONGEST_WAIT_MS: u64 = 6 * 3600 * 1000;
/// Maximum number of dead letters of a webhook. Older ones are dropped.
pub const DEAD_LIMIT: u32 = 1000;
/// A dead letter is dropped after this long, milliseconds.
pub const DEAD_MS: u64 = 30 * 24 * 3600 * 1000;
/// A webhook whose table was removed from the settings keeps its place for this long, milliseconds.
pub const REMOVED_MS: u64 = 7 * 24 * 3600 * 1000;

/// The key of a session, or the beginning of one that ends with a star (`agent:build:*`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionPattern(String);

impl SessionPattern {
    /// Parses a pattern; `None` for a star before its end, or nothing at all.
    pub fn parse(text: &str) -> Option<SessionPattern> {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        let fits = !text.is_empty() && !beginning.contains('*');
        fits.then(|| SessionPattern(text.to_owned()))
    }

    fn fits(&self, session: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => session.starts_with(beginning),
            None => session == self.0,
        }
    }
}

/// Which events a webhook delivers. Both conditions must hold; an empty list selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The kinds of events.
    pub kinds: Vec<KindPattern>,
    /// The sessions. Events without a session are not selected by any pattern.
    pub sessions: Vec<SessionPattern>,
}

impl Selection {
    /// True if this event is delivered. The settings are those of the daemon's owner, so they reach
    /// the owner's events and those of the daemon itself, which have no org.
    pub fn selects(&self, org: &str, kind: &str, session: Option<&str>) -> bool {
        let of_session = |pattern: &SessionPattern| session.is_some_and(|key| pattern.fits(key));
        (org == OWNER_ORG || org.is_empty())
            && (self.kinds.is_empty() || self.kinds.iter().any(|pattern| pattern.fits(kind)))
            && (self.sessions.is_empty() || self.sessions.iter().any(of_session))
    }
}

/// The failed attempts of an event so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// Their number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// When the next one is due; `None`: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Tries {
    /// True if an attempt may be made now. A time further away than any wait comes from a clock that
    /// was set back since.
    pub fn are_due(&self, now: Timestamp) -> bool {
        self.next_at
            .is_none_or(|at| at <= now || at.since(now) > 2 * LONGEST_WAIT_MS)
    }
}

/// Events that were read and are not finished, by cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpenEvents(pub BTreeMap<i64, Tries>);

/// A webhook as it is stored: its place in the log, and what has become of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its name, that of its table in the settings.
    pub name: String,
    /// Which events it delivers.
    pub selection: Selection,
    /// A keyed digest of its table; another one means that the table has changed.
    pub digest: String,
    /// When it was first configured.
    pub created_at: Timestamp,
    /// The log was read up to here.
    pub read_to: i64,
    /// The selected events up to there that are not finished.
    pub open: OpenEvents,
    /// Number of deliveries that succeeded, those of dead letters included.
    pub delivered: u64,
    /// Number of attempts that failed.
    pub failed: u64,
    /// Number of events that were given up.
    pub given_up: u64,
    /// Number of selected events that retention removed from the log before they were read.
    pub missed: u64,
    /// When the last attempt succeeded.
    pub delivered_at: Option<Timestamp>,
    /// When the last failed attempt ended.
    pub failed_at: Option<Timestamp>,
    /// Why it failed.
    pub failure: Option<String>,
    /// When its receiver answered that it is gone for good. Nothing is sent until its table changes.
    pub stopped_at: Option<Timestamp>,
    /// When its table was removed from the settings.
    pub removed_at: Option<Timestamp>,
}

impl Webhook {
    /// Its cursor: every selected event up to here is finished.
    pub fn cursor(&self) -> i64 {
        let lowest = self.open.0.keys().next();
        lowest.map_or(self.read_to, |cursor| cursor - 1)
    }
}

/// An event that was given up after its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The webhook.
    pub webhook: String,
    /// Cursor of the event.
    pub cursor: i64,
    /// When it happened.
    pub at: Timestamp,
    /// Its kind.
    pub kind: String,
    /// Its session.
    pub session_key: Option<String>,
    /// Its run.
    pub run: Option<RunId>,
    /// Number of attempts.
    pub attempts: u32,
    /// Why the last one failed.
    pub failure: String,
    /// When that was.
    pub died_at: Timestamp,
    /// The number of the request to deliver it again that it waits for.
    pub replay: Option<i64>,
    /// The body of the message.
    pub body: String,
}

/// The wait after this number of failed attempts, at least 1, in milliseconds: it doubles from
/// `first_ms` on, up to [`LONGEST_WAIT_MS`]. `random`, from 0 to 1, adds up to a quarter, so that what
/// failed together is not tried together.
pub fn wait_after(attempts: u32, first_ms: u64, random: f64) -> u64 {
    let doubled = 2u64.saturating_pow(attempts.saturating_sub(1));
    let wait = first_ms.saturating_mul(doubled).min(LONGEST_WAIT_MS);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a quarter of some hours fits, and its precision does not matter"
    )]
    let more = (wait as f64 / 4.0 * random.clamp(0.0, 1.0)) as u64;
    wait + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(kinds: &[&str], sessions: &[&str]) -> Selection {
        Selection {
            kinds: kinds
                .iter()
                .map(|text| KindPattern::parse(text).unwrap())
                .collect(),
            sessions: sessions
                .iter()
                .map(|text| SessionPattern::parse(text).unwrap())
                .collect(),
        }
    }

    #[test]
    fn an_event_is_selected_by_kind_and_session_together() {
        let both = selection(&["run.*"], &["agent:build:*", "client:desk"]);
        assert!(both.selects(OWNER_ORG, "run.ended", Some("agent:build:main")));
        assert!(both.selects(OWNER_ORG, "run.ended", Some("client:desk")));
        assert!(!both.selects(OWNER_ORG, "run.ended", Some("client:desk2")));
        assert!(!both.selects(OWNER_ORG, "message.added", Some("client:desk")));
        assert!(!both.selects(OWNER_ORG, "run.ended", None));
        let all = Selection::default();
        assert!(all.selects("", "gateway.started", None));
    }

    #[test]
    fn events_of_other_orgs_are_never_selected() {
        assert!(!Selection::default().selects("team", "run.ended", None));
    }

    #[test]
    fn patterns_of_sessions_have_a_star_only_at_the_end() {
        for wrong in ["", "a*b", "*a", "a**"] {
            assert_eq!(SessionPattern::parse(wrong), None, "{wrong}");
        }
        assert!(SessionPattern::parse("*").unwrap().fits("a"));
    }

    #[test]
    fn waits_grow_to_their_limit_and_fill_about_a_day() {
        let waits: Vec<u64> = (1..=15).map(|n| wait_after(n, 5000, 0.0)).collect();
        assert_eq!(waits[..3], [5000, 10_000, 20_000]);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        let day = 24 * 3600 * 1000;
        let sum: u64 = waits.iter().sum();
        assert!((day / 2..day * 2).contains(&sum), "{sum}");
        assert_eq!(wait_after(u32::MAX, 5000, 0.0), LONGEST_WAIT_MS);
        assert_eq!(wait_after(1, 1000, 1.0), 1250);
        assert_eq!(wait_after(1, 1000, 7.0), 1250);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_nothing_for_long() {
        let tries = |at| Tries {
            attempts: 1,
            next_at: Some(Timestamp(at)),
        };
        let now = Timestamp(1_000_000);
        assert!(Tries::default().are_due(now) && tries(now.0).are_due(now));
        assert!(!tries(now.0 + 1).are_due(now));
        assert!(tries(i64::MAX).are_due(now));
    }

    #[test]
    fn the_cursor_is_before_the_lowest_unfinished_event() {
        let mut open = OpenEvents::default();
        let mut hook = Webhook {
            name: "a".to_owned(),
            selection: Selection::default(),
            digest: String::new(),
            created_at: Timestamp(0),
            read_to: 9,
            open: open.clone(),
            delivered: 0,
            failed: 0,
            given_up: 0,
            missed: 0,
            delivered_at: None,
            failed_at: None,
            failure: None,
            stopped_at: None,
            removed_at: None,
        };
        assert_eq!(hook.cursor(), 9);
        let failed = Tries {
            attempts: 2,
            next_at: Some(Timestamp(1_796_000_000_123)),
        };
        open.0.extend([(4, failed), (7, Tries::default())]);
        let text = serde_json::to_string(&open).unwrap();
        assert_eq!(
            text,
            r#"{"4":{"attempts":2,"next_at":"2026-11-30T00:53:20.123Z"},"7":{}}"#
        );
        assert_eq!(serde_json::from_str::<OpenEvents>(&text).unwrap(), open);
        hook.open = open;
        assert_eq!(hook.cursor(), 3);
    }
}
