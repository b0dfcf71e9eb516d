//! The messages of the Agent Client Protocol, version 1, that this program reads and writes: `acp`
//! as the agent of an editor, `runner` as the client of outside agents. The tests compare everything
//! that is written with the protocol's published schema.
//!
//! The official Rust crates are not used: their types would add 26 packages to the lock file.

pub(crate) mod answer;
pub(crate) mod request;
pub(crate) mod terminal;
pub(crate) mod update;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The protocol version that is spoken here.
pub(crate) const VERSION: u16 = 1;

/// Error codes of JSON-RPC and of the protocol.
pub(crate) mod code {
    pub(crate) const PARSE: i32 = -32700;
    pub(crate) const INVALID_REQUEST: i32 = -32600;
    pub(crate) const UNKNOWN_METHOD: i32 = -32601;
    pub(crate) const INVALID_PARAMS: i32 = -32602;
    pub(crate) const INTERNAL: i32 = -32603;
    pub(crate) const AUTH_REQUIRED: i32 = -32000;
    pub(crate) const NOT_FOUND: i32 = -32002;
    pub(crate) const CANCELLED: i32 = -32800;
}

/// An error object of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i32,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        RpcError {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        RpcError::new(code::INVALID_PARAMS, message)
    }

    pub(crate) fn with(self, data: Value) -> Self {
        RpcError {
            data: Some(data),
            ..self
        }
    }
}

/// The result of a request.
pub(crate) type Answered<T> = Result<T, RpcError>;

/// A message from the other side.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The response to a request of this program.
    Response {
        id: Value,
        result: Answered<Value>,
    },
    /// It is answered with this error.
    Invalid {
        id: Value,
        error: RpcError,
    },
}

/// Reads one message.
pub(crate) fn read(text: &str) -> Incoming {
    let invalid = |id: Value, code: i32, message: String| Incoming::Invalid {
        id,
        error: RpcError::new(code, message),
    };
    let mut message = match serde_json::from_str(text) {
        Ok(Value::Object(message)) => message,
        Ok(Value::Array(_)) => {
            let message = "batches are not part of the protocol; send one message a line";
            return invalid(Value::Null, code::INVALID_REQUEST, message.to_owned());
        }
        Ok(_) => {
            let message = "a message is a JSON object".to_owned();
            return invalid(Value::Null, code::INVALID_REQUEST, message);
        }
        Err(error) => {
            let message = format!("the line is not JSON: {error}");
            return invalid(Value::Null, code::PARSE, message);
        }
    };
    let id = message.remove("id");
    if !matches!(
        id,
        None | Some(Value::Null | Value::Number(_) | Value::String(_))
    ) {
        let message = "an id is a string, an integer or null".to_owned();
        return invalid(Value::Null, code::INVALID_REQUEST, message);
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => Some(method),
        Some(_) => {
            let message = "the method is not a string".to_owned();
            return invalid(id.unwrap_or_default(), code::INVALID_REQUEST, message);
        }
        None => None,
    };
    let params = message.remove("params").unwrap_or_default();
    match (method, id) {
        (Some(method), Some(id)) => Incoming::Request { id, method, params },
        (Some(method), None) => Incoming::Notification { method, params },
        (None, Some(id)) if message.contains_key("result") || message.contains_key("error") => {
            let result = match message.remove("result") {
                Some(result) => Ok(result),
                None => Err(refusal(message.remove("error").unwrap_or_default())),
            };
            Incoming::Response { id, result }
        }
        (None, id) => {
            let message = "the message has no method".to_owned();
            invalid(id.unwrap_or_default(), code::INVALID_REQUEST, message)
        }
    }
}

/// The error of a response, also of one that is not formed as the protocol demands.
fn refusal(error: Value) -> RpcError {
    RpcError::deserialize(&error)
        .unwrap_or_else(|_| RpcError::new(code::INTERNAL, error.to_string()))
}

/// A request or notification as one line.
pub(crate) fn call(id: Option<u64>, method: &str, params: &impl Serialize) -> String {
    let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if let Some(id) = id {
        message["id"] = id.into();
    }
    message.to_string()
}

/// Reads the parameters of a request.
pub(crate) fn params<T: DeserializeOwned>(params: Value) -> Answered<T> {
    let params = match params {
        Value::Null => json!({}),
        params => params,
    };
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        RpcError::params(format!("{path}: {}", error.inner())).with(json!({ "path": path }))
    })
}

/// The text of a response.
pub(crate) fn response<T: Serialize>(id: &Value, answered: Answered<T>) -> String {
    let answered = answered.and_then(|result| {
        serde_json::to_value(result)
            .map_err(|error| RpcError::new(code::INTERNAL, error.to_string()))
    });
    match answered {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_told_apart() {
        let request = read(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
        assert!(
            matches!(
                request,
                Incoming::Request {
                    params: Value::Null,
                    ..
                }
            ),
            "{request:?}"
        );
        let note = read(r#"{"method":"session/cancel","params":{"sessionId":"a"}}"#);
        assert!(matches!(note, Incoming::Notification { .. }), "{note:?}");
        let failed = read(r#"{"id":7,"error":{"code":1,"message":"x"}}"#);
        assert!(
            matches!(failed, Incoming::Response { result: Err(_), .. }),
            "{failed:?}"
        );
        for (line, expected) in [
            ("{", code::PARSE),
            ("[]", code::INVALID_REQUEST),
            ("7", code::INVALID_REQUEST),
            (r#"{"id":{},"method":"x"}"#, code::INVALID_REQUEST),
            (r#"{"id":1,"method":2}"#, code::INVALID_REQUEST),
            (r#"{"id":1}"#, code::INVALID_REQUEST),
        ] {
            let Incoming::Invalid { error, .. } = read(line) else {
                panic!("{line}");
            };
            assert_eq!(error.code, expected, "{line}");
        }
    }
}
