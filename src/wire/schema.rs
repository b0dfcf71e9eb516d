//! JSON Schemas of request values with a text form of their own: chosen run ids and durations. The
//! other wire types derive their schemas; those of kernel types are in `kernel/schema.rs`.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Pattern of an id that a client may choose: a UUID of version 7.
const UUID_V7: &str =
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
/// Pattern of the duration texts that [`super::input`] accepts.
const SPAN: &str = "^\\s*[0-9]+\\s*[a-zA-Zµ]+(\\s*[0-9]+\\s*[a-zA-Zµ]+)*\\s*$";

/// Schema of an optional client-chosen run id.
pub(super) fn chosen_run(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": UUID_V7 })
}

/// Schema of a duration in a request: text such as `90s`, or a number of seconds from `least`
/// (exclusive if `above`) to `most`. `what` is the description.
pub(super) fn span(what: &str, least: u64, above: bool, most: u64) -> Schema {
    let bound = if above { "exclusiveMinimum" } else { "minimum" };
    let mut seconds = json_schema!({ "type": "number", "maximum": most });
    seconds.insert(bound.to_owned(), least.into());
    json_schema!({
        "description": what,
        "anyOf": [seconds, { "type": "string", "pattern": SPAN }],
    })
}
