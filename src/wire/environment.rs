//! Environment variables in requests: literal values, or references to where a value is read from.
//! Error messages and debug output never contain a value.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::input;
use crate::kernel::ids::RunId;
use crate::kernel::policy::overlay::MOST_NAMES;
use crate::kernel::secret::{GivenValue, Reference};

/// Description of the accepted forms, used in error messages.
const EXPECTED: &str = "expected an object of variable names, each with a string or {\"from\": \"env:NAME\"}, \
                        {\"from\": \"file:/PATH\"}, {\"from\": \"cred:NAME\"}";

/// Environment variables by name: literal values or references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env(pub BTreeMap<String, GivenValue>);

impl Serialize for Env {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, given) in &self.0 {
            match given {
                GivenValue::Text(text) => map.serialize_entry(name, text.expose())?,
                GivenValue::From(place) => {
                    let from = BTreeMap::from([("from", place.to_string())]);
                    map.serialize_entry(name, &from)?;
                }
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Env {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not deserialized into the shape directly: serde would repeat the offending value in the
        // error.
        let Value::Object(fields) = Value::deserialize(deserializer)? else {
            return Err(D::Error::custom(EXPECTED));
        };
        let given = fields.into_iter().map(|(name, value)| {
            let given = match value {
                Value::String(text) => GivenValue::text(text),
                Value::Object(fields) if fields.len() == 1 => {
                    let from = fields.get("from").and_then(Value::as_str);
                    let from = from.ok_or_else(|| D::Error::custom(EXPECTED))?;
                    GivenValue::From(Reference::parse(from).map_err(D::Error::custom)?)
                }
                _ => return Err(D::Error::custom(EXPECTED)),
            };
            Ok((name, given))
        });
        given.collect::<Result<_, _>>().map(Env)
    }
}

impl JsonSchema for Env {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Env".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Environment variables by name: each a value, or a reference to where it is read from.",
            "type": "object",
            "maxProperties": MOST_NAMES,
            "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$" },
            "additionalProperties": {
                "anyOf": [
                    { "type": "string" },
                    {
                        "type": "object",
                        "required": ["from"],
                        "properties": {
                            "from": { "type": "string", "pattern": "^(env:.+|file:/.*|cred:.+)$" }
                        },
                        "additionalProperties": false
                    }
                ]
            }
        })
    }
}

/// Parameters of `runs.provide_env`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvideEnv {
    /// Id of a run that has not ended.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Values for variables that the run's environment already names.
    pub env: Env,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode::decode;
    use crate::wire::sessions::Spawn;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_and_what_does_not_fit_is_not_repeated() {
        let written = json!({ "A": "text", "B": { "from": "file:/a" } });
        let env: Env = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&env).unwrap(), written);
        assert!(!format!("{env:?}").contains("text"));
        for broken in [
            json!("canary"),
            json!(["canary"]),
            json!({ "A": ["canary"] }),
            json!({ "A": { "from": "canary" } }),
            json!({ "A": { "from": "env:B", "canary": 1 } }),
            json!({ "A": { "value": "canary" } }),
        ] {
            let spawn = json!({ "task": "t", "env": broken }).to_string();
            let fault = decode::<Spawn>(Some(&spawn)).unwrap_err();
            assert_eq!(fault.data["path"], "env", "{fault}");
            assert!(!fault.to_string().contains("canary"), "{fault}");
        }
    }
}
