//! The metadata of a transcript entry. It is rarely read, so it stays the stored text.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// JSON that is parsed only when it is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawMetadata(Box<RawValue>);

impl RawMetadata {
    /// Serializes a value; `None` if it cannot be represented in JSON.
    pub fn of(what: &impl Serialize) -> Option<Self> {
        to_raw_value(what).ok().map(RawMetadata)
    }

    /// Length of the JSON text in bytes.
    pub fn bytes(&self) -> usize {
        self.0.get().len()
    }

    /// Deserializes all of it; `None` if it does not have the form of `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// The value under a key; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<Value> {
        let mut all: Value = self.read()?;
        all.get_mut(name).map(Value::take)
    }
}

impl PartialEq for RawMetadata {
    fn eq(&self, other: &Self) -> bool {
        self.read::<Value>() == other.read::<Value>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_noted_is_found_by_its_name_and_as_a_whole() {
        let noted =
            RawMetadata::of(&json!({ "usage": { "inputTokens": 3 }, "from": "a" })).unwrap();
        assert_eq!(noted.get("usage"), Some(json!({ "inputTokens": 3 })));
        assert_eq!(noted.get("from"), Some(json!("a")));
        assert_eq!(noted.get("to"), None);
        assert_eq!(RawMetadata::of(&json!("text")).unwrap().get("from"), None);
        let same: RawMetadata =
            serde_json::from_str(r#"{"from": "a", "usage": {"inputTokens":3}}"#).unwrap();
        assert_eq!(noted, same);
        assert_ne!(noted, RawMetadata::of(&json!({ "from": "a" })).unwrap());
    }
}
