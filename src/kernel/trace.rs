//! Traces as others know them (W3C Trace Context): which trace a caller brings, and how runs and
//! steps are named in it. Their ids come from the ids of the rows, so that they are the same
//! whatever dies in between.

use serde_json::Value;
use uuid::Uuid;

/// The place in a trace from which a caller calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The trace, 32 hexadecimal digits.
    pub trace: String,
    /// The caller's span.
    pub span: u64,
}

impl Caller {
    /// Out of `meta.traceparent`, if it holds one.
    pub fn of(meta: Option<&Value>) -> Option<Caller> {
        Caller::parse(meta?.get("traceparent")?.as_str()?)
    }

    /// `00-<trace>-<span>-<flags>`; a later version may have more behind it.
    fn parse(text: &str) -> Option<Caller> {
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
        (is_one && named).then(|| Caller {
            trace: trace.to_owned(),
            span,
        })
    }
}

/// The span of the run or step with this id: the part of it that is chance.
pub fn span_of(id: Uuid) -> u64 {
    let (_, low) = id.as_u64_pair();
    // No span has the number 0.
    low.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_caller_is_read_as_the_specification_says() {
        let of = |text: &str| Caller::of(Some(&json!({ "traceparent": text, "more": 1 })));
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
        assert_eq!(Caller::of(None), None);
        assert_eq!(Caller::of(Some(&json!({ "traceparent": 1 }))), None);
    }
}
