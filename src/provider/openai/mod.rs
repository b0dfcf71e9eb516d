//! The Chat Completions API of OpenAI and compatible servers: request format and answer reader.
//! Called by `remote`.

mod request;
mod stream;

pub(super) use request::body;
pub(super) use stream::OpenAiReader;

/// The endpoint's path relative to the base URL.
pub(super) const PATH: &str = "chat/completions";

/// The base URL of OpenAI itself.
pub(super) const BASE_URL: &str = "https://api.openai.com/v1";
