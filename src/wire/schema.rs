//! JSON Schemas of values that requests give in forms of their own: chosen ids, lengths of time. The
//! wire's types derive theirs; those of the kernel's types are in `kernel/schema.rs`.

use schemars::{Schema, SchemaGenerator, json_schema};

/// An id that a client may choose.
const UUID_V7: &str =
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
/// Texts that [`super::input`] takes for a length of time.
const SPAN: &str = "^\\s*[0-9]+\\s*[a-zA-Zµ]+(\\s*[0-9]+\\s*[a-zA-Zµ]+)*\\s*$";

/// The id of a run that a client chose, or null.
pub(super) fn chosen_run(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": UUID_V7 })
}

/// A length of time as requests give it: text such as `90s`, or seconds from `least` (not
/// itself where `above`) to `most`.
pub(super) fn span(what: &str, least: u64, above: bool, most: u64) -> Schema {
    let bound = if above { "exclusiveMinimum" } else { "minimum" };
    let mut seconds = json_schema!({ "type": "number", "maximum": most });
    seconds.insert(bound.to_owned(), least.into());
    json_schema!({
        "description": what,
        "anyOf": [seconds, { "type": "string", "pattern": SPAN }],
    })
}
