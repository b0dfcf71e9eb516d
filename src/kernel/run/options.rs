//! Extra fields of a model request that an agent may set (`provider {…}`), beside those that the
//! daemon sets itself. Validated when agents are loaded, applied when requests are built.

use serde_json::{Map, Value};

/// Fields that the daemon sets itself in each request.
pub const RESERVED_FIELDS: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "thinking",
    "reasoning_effort",
    "n",
];

/// The provider API that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions, with the extensions of compatible servers.
    Chat,
    /// Messages.
    Messages,
}

/// The known fields, each with the APIs that accept it.
const KNOWN: &[(&str, &[Api])] = &[
    ("frequency_penalty", &[Api::Chat]),
    ("keep_alive", &[Api::Chat]),
    ("logit_bias", &[Api::Chat]),
    ("metadata", &[Api::Chat, Api::Messages]),
    ("min_p", &[Api::Chat]),
    ("options", &[Api::Chat]),
    ("parallel_tool_calls", &[Api::Chat]),
    ("presence_penalty", &[Api::Chat]),
    ("prompt_cache_key", &[Api::Chat]),
    ("repetition_penalty", &[Api::Chat]),
    ("response_format", &[Api::Chat]),
    ("seed", &[Api::Chat]),
    ("service_tier", &[Api::Chat, Api::Messages]),
    ("stop", &[Api::Chat]),
    ("stop_sequences", &[Api::Messages]),
    ("tool_choice", &[Api::Chat, Api::Messages]),
    ("top_k", &[Api::Chat, Api::Messages]),
    ("top_p", &[Api::Chat, Api::Messages]),
    ("user", &[Api::Chat]),
    ("verbosity", &[Api::Chat]),
];

/// The names of the known fields.
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).collect()
}

/// True if a field of this name is known.
pub fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|(known, _)| *known == name)
}

/// The fields that are sent to a server of this API. An unknown field is sent to Chat Completions
/// servers, which have many extensions. Messages rejects unknown fields, and a fallback model must
/// not fail because of one.
pub fn for_api(fields: &Map<String, Value>, api: Api) -> Map<String, Value> {
    let goes = |name: &str| match KNOWN.iter().find(|(known, _)| *known == name) {
        Some((_, apis)) => apis.contains(&api),
        None => api == Api::Chat,
    };
    let fields = fields.iter().filter(|(name, _)| goes(name));
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
