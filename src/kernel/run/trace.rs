//! W3C Trace Context: the trace that a caller belongs to, and the spans of runs and steps in it.
//! Span ids are derived from row ids, so that they stay the same after a crash.

use serde_json::Value;
use uuid::Uuid;

/// The trace context of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace id, 32 hexadecimal digits.
    pub trace: String,
    /// The id of the caller's span.
    pub span: u64,
}

impl TraceParent {
    /// Reads `meta.traceparent`; `None` if it is missing or invalid.
    pub fn of(meta: Option<&Value>) -> Option<TraceParent> {
        TraceParent::parse(meta?.get("traceparent")?.as_str()?)
    }

    /// Parses `00-<trace>-<span>-<flags>`; a later version may have further fields.
    fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let mut next = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (part.len() == digits && is_hex).then_some(part)
        };
        let (version, trace, span, _) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let more = parts.next().is_some();
        let span = u64::from_str_radix(span, 16).ok()?;
        let is_one = version != "ff" && (version != "00" || !more);
        let named = span != 0 && trace.bytes().any(|digit| digit != b'0');
        (is_one && named).then(|| TraceParent {
            trace: trace.to_owned(),
            span,
        })
    }
}

/// The span id of the run or step with this id: the random half of the UUID.
pub fn span_of(id: Uuid) -> u64 {
    let (_, low) = id.as_u64_pair();
    // A span id of 0 is invalid.
    low.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_caller_is_read_as_the_specification_says() {
        let of = |text: &str| TraceParent::of(Some(&json!({ "traceparent": text, "more": 1 })));
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let found = of(&format!("00-{trace}-00f067aa0ba902b7-01")).unwrap();
        assert_eq!(
            (found.trace.as_str(), found.span),
            (trace, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(of(&format!("cc-{trace}-00f067aa0ba902b7-01-what")).is_some());
        for bad in [
            "",
            "00-1-2-3",
            &format!("00-{trace}-00f067aa0ba902b7-01-more"),
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{trace}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(TraceParent::of(None), None);
        assert_eq!(TraceParent::of(Some(&json!({ "traceparent": 1 }))), None);
    }
}
