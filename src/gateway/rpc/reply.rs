//! The texts of responses: results, and faults as errors.

use jsonrpsee::types::{ErrorObjectOwned, Id, Response, ResponsePayload};
use serde::Serialize;

use crate::clock::Clock;
use crate::gateway::methods::JsonText;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// `retryAfterMs` of a refused call.
pub(super) const RETRY_AFTER_MS: u64 = 200;

/// A limit for requests is reached.
pub(super) fn busy(what: &str) -> Fault {
    Fault::new(Kind::Busy, format!("{what}; nothing was done")).with("retryAfterMs", RETRY_AFTER_MS)
}

/// The response is larger than the client's limit.
pub(super) fn reply_too_large(most: usize) -> Fault {
    Fault::new(
        Kind::TooLarge,
        format!("the response exceeds the limit of {most} bytes"),
    )
    .hint("ask for a smaller page")
    .with("limit", "reply")
    .with("value", most)
}

/// Logs a defect under a reference id and adds that id to the fault. Other faults are the client's
/// to handle and pass unchanged.
pub(crate) fn logged(method: &str, fault: Fault, clock: &Clock) -> Fault {
    if fault.kind != Kind::Internal {
        return fault;
    }
    let reference = clock.new_id().to_string();
    tracing::error!(method, %reference, %fault, "a call failed because of a defect");
    fault.with("reference", reference)
}

/// Converts a fault to jsonrpsee's error object.
fn error_object(fault: Fault) -> ErrorObjectOwned {
    let error = WireError::from(fault);
    ErrorObjectOwned::owned(error.code, error.message, Some(error.data))
}

/// Serializes a fault as a response.
pub(crate) fn error_text(id: Id, fault: Fault) -> String {
    let error = ResponsePayload::<()>::error(error_object(fault));
    json(&Response::new(error, id))
}

/// Serializes a result as a response; `None` if it exceeds `most` bytes.
pub(super) fn result_text(id: &Id, result: &JsonText, most: usize) -> Option<String> {
    let id = json(id);
    let before = r#"{"jsonrpc":"2.0","id":"#;
    let parts = [before, &id, r#","result":"#, result.as_str(), "}"];
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    (bytes <= most).then(|| parts.concat())
}

/// Serializes a value of strings and numbers.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers have a JSON form")
}
