//! Errors of the daemon as errors of the protocol, for the editor.

use serde_json::Value;

use crate::acp_protocol::{RpcError, code};
use crate::client::ClientError;
use crate::kernel::fault::Kind;

impl From<ClientError> for RpcError {
    /// Editors show the message alone, so it also says what to do.
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        let (code, data) = match &error {
            ClientError::Unauthorized { .. } => (code::AUTH_REQUIRED, None),
            ClientError::Rpc(fault) => {
                let code = match fault.kind() {
                    Some(Kind::NotFound) => code::NOT_FOUND,
                    Some(Kind::InvalidParams) => code::INVALID_PARAMS,
                    Some(Kind::Unauthorized) => code::AUTH_REQUIRED,
                    _ => code::INTERNAL,
                };
                (code, Some(Value::Object(fault.data.clone())))
            }
            _ => (code::INTERNAL, None),
        };
        RpcError {
            code,
            message,
            data,
        }
    }
}
