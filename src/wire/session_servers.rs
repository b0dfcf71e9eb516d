//! `sessions.set_servers`: MCP servers that belong to one session. How a server is started or reached
//! may be secret: debug output and error messages never contain it, and no method returns it.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::kernel::ids::SessionKey;
use crate::kernel::secret::Secret;

/// Maximum number of servers of a session.
pub const SERVER_LIMIT: usize = 32;

/// Parameters of `sessions.set_servers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetServers {
    /// Key of the session.
    pub session_key: SessionKey,
    /// The servers that it has from now on; none of the earlier ones is kept.
    #[schemars(length(max = SERVER_LIMIT))]
    pub servers: Vec<GivenServer>,
}

/// An MCP server of a session: a program, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GivenServer {
    /// Name for users; the names of its tools begin with a form of it.
    pub name: String,
    /// Program to start, by name or path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<HiddenText>,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<HiddenText>,
    /// Variables of the program's environment, in addition to those of every program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, HiddenText>,
    /// Address of a server over streamable HTTP, instead of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<HiddenText>,
    /// Headers sent with each call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HiddenText>,
}

/// A text of a request that is never shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenText(pub Secret);

impl HiddenText {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> HiddenText {
        HiddenText(Secret::new(text))
    }
}

impl Serialize for HiddenText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for HiddenText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not deserialized into a text directly: serde would repeat another value in the error.
        match Value::deserialize(deserializer)? {
            Value::String(text) if text.contains('\0') => Err(D::Error::custom(
                "a text without a NUL character is expected",
            )),
            Value::String(text) => Ok(HiddenText::new(text)),
            _ => Err(D::Error::custom("a text is expected")),
        }
    }
}

impl JsonSchema for HiddenText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HiddenText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Result of `sessions.set_servers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServersSet {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Its servers, sorted by name.
    pub servers: Vec<SessionServer>,
}

/// An MCP server of a session as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionServer {
    /// The name by which its tools begin. It differs from all names under `[mcp]`.
    pub name: String,
    /// The name that the client gave it.
    pub given: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// `ready` (its tools are known), `starting` (they are known from a later turn on) or `failed`
    /// (it is asked again at the next turn).
    pub state: String,
    /// Names by which models call its tools, sorted.
    pub tools: Vec<String>,
    /// Why it did not list its tools when it was last asked; absent if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode::decode;
    use serde_json::json;

    #[test]
    fn what_a_server_is_given_is_read_and_never_shown() {
        let written = json!({
            "sessionKey": "agent:build:desk",
            "servers": [{ "name": "Files", "command": "canary", "args": ["canary"], "env": { "A": "canary" } }],
        });
        let read: SetServers = decode(Some(&written.to_string())).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), written);
        assert!(!format!("{read:?}").contains("canary"), "{read:?}");
        for broken in [
            json!([{ "name": "Files", "command": ["canary"] }]),
            json!([{ "name": "Files", "env": { "A": { "from": "canary" } } }]),
            json!([{ "name": "Files", "args": [{ "canary": 1 }] }]),
            json!([{ "name": "Files", "headers": { "A": "canary\0" } }]),
        ] {
            let written = json!({ "sessionKey": "agent:build:desk", "servers": broken });
            let refused = decode::<SetServers>(Some(&written.to_string())).unwrap_err();
            let shown = format!("{refused:?}");
            assert!(
                shown.contains("expected") && !shown.contains("canary"),
                "{shown}"
            );
        }
    }
}
