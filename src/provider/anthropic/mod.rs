//! The Messages API of Anthropic: what is sent and how the answer is read. Called by `remote`.

mod request;
mod stream;

pub(super) use request::body;
pub(super) use stream::Answer;

/// The path below the base URL.
pub(super) const PATH: &str = "v1/messages";

/// Where Anthropic itself is.
pub(super) const BASE_URL: &str = "https://api.anthropic.com";

/// The version of the API that is spoken.
pub(super) const VERSION: &str = "2023-06-01";
