//! The outer structure of JSON-RPC messages, parsed without their parameters: requests, batches,
//! and error responses to invalid messages.

use std::borrow::Cow;

use jsonrpsee::types::Id;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::gateway::rpc::error_text;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// A request as received. For `id` and `params`, absent and null are distinct.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow)]
    pub(crate) jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) params: Option<&'a RawValue>,
}

/// The id of a message that is not a valid request.
#[derive(Deserialize)]
pub(crate) struct OnlyId<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) id: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The entries of a batch, up to [`MOST_ENTRIES`]; further ones are counted but not kept.
pub(crate) struct Entries<'a> {
    pub(crate) list: Vec<&'a RawValue>,
    pub(crate) count: usize,
}

/// Maximum number of batch entries kept in memory; above every configurable limit.
const MAX_ENTRIES: usize = 1024;

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entries<'de>, A::Error> {
                let mut list = Vec::new();
                while list.len() < MAX_ENTRIES {
                    match seq.next_element()? {
                        Some(entry) => list.push(entry),
                        None => {
                            let count = list.len();
                            return Ok(Entries { list, count });
                        }
                    }
                }
                let mut count = list.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Entries { list, count })
            }
        }
        from.deserialize_seq(EntriesVisitor)
    }
}

/// The error response to an invalid message: `parse_error` if it is not JSON, otherwise
/// `invalid_request` with its id if that can be read.
pub(crate) fn broken(text: &str, what: &str) -> String {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let fault = Fault::new(
            Kind::ParseError,
            format!("the message is not JSON: {error}"),
        );
        return error_text(Id::Null, fault);
    }
    let fault = Fault::new(
        Kind::InvalidRequest,
        format!("the message is JSON but not a JSON-RPC request: {what}"),
    );
    let id = serde_json::from_str::<OnlyId>(text)
        .ok()
        .and_then(|only| only.id);
    let Some(id) = id.map(RawValue::get) else {
        return error_text(Id::Null, fault);
    };
    match serde_json::from_str::<Id>(id) {
        Ok(id) => error_text(id, fault),
        // A number that is not a valid id is returned as it is, so that the sender can tell which
        // call was refused.
        Err(_) if id.parse::<f64>().is_ok() => {
            let error = serde_json::to_string(&WireError::from(fault)).unwrap_or_default();
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
        }
        Err(_) => error_text(Id::Null, fault),
    }
}
