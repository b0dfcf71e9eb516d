//! Fields of a model request that an agent may set beside those that the daemon says itself
//! (`provider {…}`). Read where agents are, obeyed where requests are written.

use serde_json::{Map, Value};

/// What the daemon says itself in each request.
pub const SAID_ELSEWHERE: &[&str] = &[
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

/// Who knows a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions, and whatever servers that speak it have added.
    Chat,
    /// Messages.
    Messages,
}

/// The fields that are known, and in which API.
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

/// Is it a known field?
pub fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|(known, _)| *known == name)
}

/// Those of the fields that go to a server of this API. One that nobody knows goes to servers of
/// Chat Completions, which have many of their own; Messages refuses what it does not know, and
/// a model that stands in for another is not to fail for that.
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
