//! The settings that `abide setup` writes into the table of a provider.

use super::found::{self, Found};
use crate::config::Config;
use crate::daemon::ollama;

/// The fields to write into the table of a provider, with their values.
pub(super) fn table(config: &Config, found: &Found, provider: &str) -> Vec<(&'static str, String)> {
    let known = config.named.providers.get(provider);
    if provider == ollama::NAME {
        let url = format!("{}/v1", found.ollama.address);
        let there = ollama::base_url(config, provider).is_some_and(|known| known == url);
        let works = found.ollama.problem.is_none();
        return match works && !there {
            true => vec![("base_url", url)],
            false => Vec::new(),
        };
    }
    let Some(key) = found::key_of(provider) else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    let has_key = known.is_some_and(|table| {
        table.api_key_env.is_some() || table.api_key_file.is_some() || table.api_key_cred.is_some()
    });
    if !has_key {
        fields.push(("api_key_env", key.variable.to_owned()));
    }
    if let Some(url) = key.base_url {
        if known.is_none_or(|table| table.kind.is_none()) {
            fields.push(("kind", "openai".to_owned()));
        }
        if known.is_none_or(|table| table.base_url.is_none()) {
            fields.push(("base_url", url.to_owned()));
        }
    }
    fields
}
