//! What belongs to an entry of a transcript beside what it says. Nearly nobody looks into it, so
//! it stays the text that it is in the store.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// JSON that is read where somebody looks into it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Noted(Box<RawValue>);

impl Noted {
    /// This, as JSON; `None` for what JSON cannot say.
    pub fn of(what: &impl Serialize) -> Option<Self> {
        to_raw_value(what).ok().map(Noted)
    }

    /// Its length as text, bytes.
    pub fn bytes(&self) -> usize {
        self.0.get().len()
    }

    /// All of it, if it has this form.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// What stands below a name.
    pub fn get(&self, name: &str) -> Option<Value> {
        let mut all: Value = self.read()?;
        all.get_mut(name).map(Value::take)
    }
}

impl PartialEq for Noted {
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
        let noted = Noted::of(&json!({ "usage": { "inputTokens": 3 }, "from": "a" })).unwrap();
        assert_eq!(noted.get("usage"), Some(json!({ "inputTokens": 3 })));
        assert_eq!(noted.get("from"), Some(json!("a")));
        assert_eq!(noted.get("to"), None);
        assert_eq!(Noted::of(&json!("text")).unwrap().get("from"), None);
        let same: Noted =
            serde_json::from_str(r#"{"from": "a", "usage": {"inputTokens":3}}"#).unwrap();
        assert_eq!(noted, same);
        assert_ne!(noted, Noted::of(&json!({ "from": "a" })).unwrap());
    }
}
