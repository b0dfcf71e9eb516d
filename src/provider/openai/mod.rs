//! The Chat Completions API, as OpenAI has it and as everybody else means it: what is sent and
//! how the answer is read. Called by `remote`.

mod request;
mod stream;

pub(super) use request::body;
pub(super) use stream::Answer;

/// The path below the base URL.
pub(super) const PATH: &str = "chat/completions";

/// Where OpenAI itself is.
pub(super) const BASE_URL: &str = "https://api.openai.com/v1";
