//! Tracks calls that are not answered yet. Messages are parsed no further than their ids require.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;
use serde_json::value::RawValue;

/// The id of a call as JSON text; `None` for null and for invalid ids.
pub(super) type Id = Option<String>;

/// An answer that is expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpectedResponse {
    /// A single object.
    One(Id),
    /// The array of a batch.
    Batch(Vec<Id>),
}

/// Calls that were sent and not answered yet, in order.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(Vec<ExpectedResponse>);

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl OpenCalls {
    /// Records a message that is sent to the daemon.
    pub(super) fn sent(&mut self, text: &str) {
        let expected = if text.trim_start().starts_with('[') {
            batch(text)
        } else {
            single(text).map(ExpectedResponse::One)
        };
        self.0.extend(expected);
    }

    /// Removes the calls that a message from the daemon answers.
    pub(super) fn answered(&mut self, text: &str) {
        let at = if text.trim_start().starts_with('[') {
            let entries: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let ids: Vec<Id> = entries.iter().map(|entry| answer_id(entry.get())).collect();
            let fits = |expected: &ExpectedResponse| match expected {
                ExpectedResponse::Batch(open) => open.iter().any(|id| ids.contains(id)),
                ExpectedResponse::One(_) => false,
            };
            self.0.iter().position(fits)
        } else if is_call(text) {
            None
        } else {
            let id = answer_id(text);
            let one = self
                .0
                .iter()
                .position(|open| *open == ExpectedResponse::One(id.clone()));
            // A batch that is refused as a whole gets one answer, without an id.
            one.or_else(|| {
                let batch = |open: &ExpectedResponse| matches!(open, ExpectedResponse::Batch(_));
                id.is_none()
                    .then(|| self.0.iter().position(batch))
                    .flatten()
            })
        };
        if let Some(at) = at {
            self.0.remove(at);
        }
    }

    /// True if every call is answered.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the calls that will not be answered any more.
    pub(super) fn give_up(&mut self) -> Vec<ExpectedResponse> {
        std::mem::take(&mut self.0)
    }
}

/// The id of the answer that a message, or an entry of a batch, will get; `None` for a
/// notification.
fn single(text: &str) -> Option<Id> {
    let Ok(head) = serde_json::from_str::<Head>(text) else {
        return Some(None);
    };
    match head.id {
        Some(id) => Some(id_of(id)),
        None => {
            let notifies = head
                .method
                .is_some_and(|method| method.get().starts_with('"'))
                && head
                    .jsonrpc
                    .is_some_and(|version| version.get() == "\"2.0\"");
            (!notifies).then_some(None)
        }
    }
}

fn batch(text: &str) -> Option<ExpectedResponse> {
    let entries: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(entries) => entries,
        Err(_) => return Some(ExpectedResponse::One(None)),
    };
    if entries.is_empty() {
        return Some(ExpectedResponse::One(None));
    }
    let ids: Vec<Id> = entries
        .iter()
        .filter_map(|entry| single(entry.get()))
        .collect();
    (!ids.is_empty()).then_some(ExpectedResponse::Batch(ids))
}

fn answer_id(text: &str) -> Id {
    let head = serde_json::from_str::<Head>(text).ok()?;
    id_of(head.id?)
}

/// True for a message that the daemon sends by itself, such as an event for a subscriber.
fn is_call(text: &str) -> bool {
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.method.is_some())
}

fn id_of(raw: &RawValue) -> Id {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(id @ (Value::Number(_) | Value::String(_))) => Some(id.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sent: &[&str], answered: &[&str]) -> usize {
        let mut open = OpenCalls::default();
        for text in sent {
            open.sent(text);
        }
        for text in answered {
            open.answered(text);
        }
        open.0.len()
    }

    #[test]
    fn a_call_is_open_until_its_own_answer_comes() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#;
        let other = r#"{"jsonrpc":"2.0","id":"1","method":"a"}"#;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(after(&[call], &[]), 1);
        assert_eq!(after(&[call], &[answer]), 0);
        assert_eq!(after(&[other], &[answer]), 1, "a text is no number");
        assert_eq!(after(&[call, call], &[answer]), 1);
        // A notification to a subscriber answers no call.
        let event = r#"{"jsonrpc":"2.0","method":"event","params":{"id":1}}"#;
        assert_eq!(after(&[call], &[event]), 1);
    }

    #[test]
    fn what_has_no_answer_is_not_waited_for_and_what_is_broken_is() {
        assert_eq!(after(&[r#"{"jsonrpc":"2.0","method":"a"}"#], &[]), 0);
        let null = r#"{"jsonrpc":"2.0","id":null,"error":{}}"#;
        for broken in [
            "{",
            "{}",
            r#"{"method":"a"}"#,
            "[",
            "[]",
            r#"{"id":{},"method":"a"}"#,
        ] {
            assert_eq!(after(&[broken], &[]), 1, "{broken}");
            assert_eq!(after(&[broken], &[null]), 0, "{broken}");
        }
    }

    #[test]
    fn a_batch_is_answered_by_its_array_or_refused_by_one_error() {
        let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]"#;
        let answer = r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#;
        let other = r#"[{"jsonrpc":"2.0","id":2,"result":{}}]"#;
        let refused = r#"{"jsonrpc":"2.0","id":null,"error":{}}"#;
        assert_eq!(after(&[batch], &[answer]), 0);
        assert_eq!(after(&[batch], &[other]), 1);
        assert_eq!(after(&[batch], &[refused]), 0);
        assert_eq!(after(&[r#"[{"jsonrpc":"2.0","method":"b"}]"#], &[]), 0);
    }
}
