//! The Messages API of Anthropic: request format and answer reader. Called by `remote`.

mod request;
mod stream;

pub(super) use request::body;
pub(super) use stream::AnthropicReader;

/// The endpoint's path relative to the base URL.
pub(super) const PATH: &str = "v1/messages";

/// The base URL of Anthropic itself.
pub(super) const BASE_URL: &str = "https://api.anthropic.com";

/// The API version sent with each request.
pub(super) const VERSION: &str = "2023-06-01";
