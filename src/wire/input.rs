//! Values in requests: durations, ids, texts and enums. Each is checked where it is decoded, so
//! that the error names the parameter.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use super::schema;
use crate::kernel::ids::AgentId;

/// Maximum size of `meta` as JSON, in bytes.
pub const META_LIMIT: usize = 4 * 1024;
/// Maximum number of characters of an idempotency key.
pub const KEY_LIMIT: usize = 256;
/// Maximum number of characters of a label or title.
pub const NAME_LIMIT: usize = 256;
/// Maximum timeout of one wait.
pub const WAIT_LIMIT: Duration = Duration::from_secs(3600);
/// Maximum timeout of a drain.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Maximum run timeout in a request.
pub const RUN_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Default page size.
pub const PAGE_DEFAULT: u32 = 50;
/// Maximum page size.
pub const PAGE_LIMIT: u32 = 500;

/// A duration in a request: humantime text (`"90s"`, `"1h 30m"`) or a number of seconds. Precise to
/// the millisecond.
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"90s\" or a number of seconds")
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_secs(seconds)))
            }

            fn visit_i64<E: Error>(self, seconds: i64) -> Result<Span, E> {
                match u64::try_from(seconds) {
                    Ok(seconds) => self.visit_u64(seconds),
                    Err(_) => Err(E::custom("a duration is not negative")),
                }
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<Span, E> {
                Duration::try_from_secs_f64(seconds)
                    .map(Span)
                    .map_err(|error| E::custom(format!("not a duration: {error}")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                humantime::parse_duration(text).map(Span).map_err(|error| {
                    let text = crate::kernel::text::prefix(text, 80);
                    E::custom(format!(
                        "{text:?} is not a duration such as \"90s\": {error}"
                    ))
                })
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// A duration, as every other one in a request.
pub(crate) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    Span::deserialize(from).map(|span| span.0)
}

impl JsonSchema for WaitTimeout {
    fn schema_name() -> Cow<'static, str> {
        "WaitTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what = "Timeout of this call: text such as \"90s\", or seconds; 0 returns immediately.";
        schema::span(what, 0, false, WAIT_LIMIT.as_secs())
    }
}

impl JsonSchema for DrainTimeout {
    fn schema_name() -> Cow<'static, str> {
        "DrainTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what = "Time limit for steps in flight: text such as \"90s\", or seconds.";
        schema::span(what, 0, false, DRAIN_LIMIT.as_secs())
    }
}

impl JsonSchema for RunTimeout {
    fn schema_name() -> Cow<'static, str> {
        "RunTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what = "Maximum running time: text such as \"90s\", or seconds.";
        schema::span(what, 0, true, RUN_LIMIT.as_secs())
    }
}

impl JsonSchema for PageSize {
    fn schema_name() -> Cow<'static, str> {
        "PageSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Maximum number of entries of a page.",
            "type": "integer",
            "minimum": 1,
            "maximum": PAGE_LIMIT,
        })
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write_ms<S: Serializer>(ms: u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{ms}ms"))
}

/// Timeout of a call that waits, at most [`WAIT_LIMIT`]; zero answers immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeout(pub Duration);

impl Default for WaitTimeout {
    fn default() -> Self {
        WaitTimeout(Duration::from_secs(30))
    }
}

impl Serialize for WaitTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_ms(milliseconds(self.0), serializer)
    }
}

impl<'de> Deserialize<'de> for WaitTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Span(span) = Span::deserialize(deserializer)?;
        if span > WAIT_LIMIT {
            return Err(D::Error::custom(
                "longer than 1 h, the maximum timeout of one wait; wait again after it",
            ));
        }
        Ok(WaitTimeout(span))
    }
}

/// Time limit of a drain for steps in flight, at most [`DRAIN_LIMIT`]; zero gives them no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTimeout(pub Duration);

impl Serialize for DrainTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_ms(milliseconds(self.0), serializer)
    }
}

impl<'de> Deserialize<'de> for DrainTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Span(span) = Span::deserialize(deserializer)?;
        if span > DRAIN_LIMIT {
            return Err(D::Error::custom(
                "longer than 24 h, the maximum time limit of a drain",
            ));
        }
        Ok(DrainTimeout(span))
    }
}

/// Run timeout in milliseconds; more than zero and at most [`RUN_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimeout(pub u64);

impl Serialize for RunTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_ms(self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for RunTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Span(span) = Span::deserialize(deserializer)?;
        let ms = milliseconds(span);
        if ms == 0 {
            return Err(D::Error::custom(
                "0 means no limit, which only the configuration file can set",
            ));
        }
        if span > RUN_LIMIT {
            return Err(D::Error::custom(
                "longer than 30 days, the maximum run timeout in a request",
            ));
        }
        Ok(RunTimeout(ms))
    }
}

/// Maximum number of entries of a page: 1 to [`PAGE_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PageSize(pub u32);

impl Default for PageSize {
    fn default() -> Self {
        PageSize(PAGE_DEFAULT)
    }
}

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let size = u64::deserialize(deserializer)?;
        match u32::try_from(size) {
            Ok(size @ 1..=PAGE_LIMIT) => Ok(PageSize(size)),
            _ => Err(D::Error::custom(format!(
                "a page has 1 to {PAGE_LIMIT} entries, not {size}"
            ))),
        }
    }
}

/// Client data that is returned unchanged; at most [`META_LIMIT`] bytes of JSON.
pub(crate) fn meta<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    let value = Option::<Value>::deserialize(from)?;
    if let Some(value) = &value {
        let bytes = value.to_string().len();
        if bytes > META_LIMIT {
            return Err(D::Error::custom(format!(
                "{bytes} bytes of JSON; the limit is {META_LIMIT}"
            )));
        }
    }
    Ok(value)
}

/// Text that is not blank.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.trim().is_empty() {
        return Err(D::Error::custom("it is empty"));
    }
    Ok(text)
}

/// An optional label or title: 1 to [`NAME_LIMIT`] characters.
pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    bounded(from, NAME_LIMIT)
}

/// An optional idempotency key: 1 to [`KEY_LIMIT`] characters.
pub(crate) fn key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    bounded(from, KEY_LIMIT)
}

fn bounded<'de, D: Deserializer<'de>>(from: D, most: usize) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    match text.as_deref().map(|text| text.chars().count()) {
        Some(0) => Err(D::Error::custom("it is empty")),
        Some(count) if count > most => Err(D::Error::custom(format!(
            "{count} characters; the limit is {most}"
        ))),
        _ => Ok(text),
    }
}

/// An optional agent name, as [`AgentId::given`] reads it.
pub(crate) fn agent<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.as_deref().and_then(AgentId::given).map(str::to_owned))
}

/// An optional absolute path.
pub(crate) fn folder<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    if let Some(text) = &text {
        if !std::path::Path::new(text).is_absolute() {
            return Err(D::Error::custom("it must be an absolute path"));
        }
        if text.contains('\0') {
            return Err(D::Error::custom("a path has no NUL character"));
        }
    }
    Ok(text)
}

/// As [`folder`], but required.
pub(crate) fn required_folder<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    folder(from)?.ok_or_else(|| D::Error::custom("an absolute path is expected"))
}

/// An id, parsed by its own stricter rule instead of the UUID library's.
pub(crate) fn id<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// As [`id`], but optional.
pub(crate) fn maybe_id<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    Option::<String>::deserialize(from)?
        .map(|text| text.parse().map_err(D::Error::custom))
        .transpose()
}

/// As [`id`], for an optional list.
pub(crate) fn maybe_ids<'de, D, T>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let texts = Option::<Vec<String>>::deserialize(from)?;
    let Some(texts) = texts else { return Ok(None) };
    let ids: Result<Vec<T>, _> = texts.iter().map(|text| text.parse()).collect();
    ids.map(Some).map_err(D::Error::custom)
}

/// As [`id`], for a list.
pub(crate) fn ids<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let texts = Vec::<String>::deserialize(from)?;
    let ids: Result<Vec<T>, _> = texts.iter().map(|text| text.parse()).collect();
    ids.map_err(D::Error::custom)
}

/// A client-chosen run id: UUID version 7, so that it sorts with the generated ones.
pub(crate) fn chosen_run<'de, D>(from: D) -> Result<Option<crate::kernel::ids::RunId>, D::Error>
where
    D: Deserializer<'de>,
{
    let id: Option<crate::kernel::ids::RunId> = maybe_id(from)?;
    match id {
        Some(id) if id.0.get_version_num() != 7 => {
            Err(D::Error::custom("a chosen id must be a UUID of version 7"))
        }
        id => Ok(id),
    }
}
