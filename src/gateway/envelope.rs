//! The outside of JSON-RPC messages, read without looking into parameters: who asks for what,
//! what a batch holds, and what can be said of a message that is no request.

use std::borrow::Cow;

use jsonrpsee::types::Id;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::rpc::error_text;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// A message as it comes. `id` and `params` tell absent and null apart.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow)]
    pub(super) jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) params: Option<&'a RawValue>,
}

/// What can be saved of a message that is no request.
#[derive(Deserialize)]
pub(super) struct OnlyId<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) id: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The entries of a batch, as far as the limit goes that [`MOST_ENTRIES`] sets; the rest is
/// counted and not kept.
pub(super) struct Entries<'a> {
    pub(super) list: Vec<&'a RawValue>,
    pub(super) count: usize,
}

/// More entries than any limit lets through are not held in memory.
const MOST_ENTRIES: usize = 1024;

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entries<'de>, A::Error> {
                let mut list = Vec::new();
                while list.len() < MOST_ENTRIES {
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
        from.deserialize_seq(Read)
    }
}

/// The answer to a message that is no request: is it JSON at all, and whose is it?
pub(super) fn broken(text: &str, what: &str) -> String {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let fault = Fault::new(
            Kind::ParseError,
            format!("the message is not JSON: {error}"),
        );
        return error_text(Id::Null, fault);
    }
    let fault = Fault::new(
        Kind::InvalidRequest,
        format!("the message is JSON, but no JSON-RPC request: {what}"),
    );
    let id = serde_json::from_str::<OnlyId>(text)
        .ok()
        .and_then(|only| only.id);
    let Some(id) = id.map(RawValue::get) else {
        return error_text(Id::Null, fault);
    };
    match serde_json::from_str::<Id>(id) {
        Ok(id) => error_text(id, fault),
        // A number that is no valid id comes back all the same, so that its sender can tell
        // which call was refused.
        Err(_) if id.parse::<f64>().is_ok() => {
            let error = serde_json::to_string(&WireError::from(fault)).unwrap_or_default();
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
        }
        Err(_) => error_text(Id::Null, fault),
    }
}
