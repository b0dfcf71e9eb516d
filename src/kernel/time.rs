//! Points in time as stored and sent.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time in whole milliseconds since 1970-01-01 UTC.
///
/// Stored as an integer; on the wire RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Milliseconds from `earlier` to `self`; 0 if the clock went backwards.
    pub fn since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// The point `ms` milliseconds after this one.
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// The point `ms` milliseconds before this one.
    pub fn minus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Wall-clock time, for rows and people. It may jump.
    pub wall: Timestamp,
    /// Milliseconds on the steady clock of this process. It never jumps: limits are measured with
    /// it.
    pub steady: Timestamp,
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_rfc3339_millis((*self).into()))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> SystemTime {
        // Years before 1970 or after 9999 do not occur; they are clamped rather than panicking.
        let ms = at.0.clamp(0, 253_402_300_799_999) as u64;
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        // A time before 1970 does not occur; it counts as 1970.
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at = humantime::parse_rfc3339(&text).map_err(serde::de::Error::custom)?;
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_err(serde::de::Error::custom)?;
        Ok(Timestamp(
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let at = Timestamp(1_796_000_000_123);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2026-11-30T00:53:20.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
    }

    #[test]
    fn a_clock_that_went_back_counts_nothing() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), 0);
    }
}
