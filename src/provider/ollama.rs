//! Queries an Ollama server about itself and its models over its native API, not the
//! OpenAI-compatible one used for model calls. Used by the doctor and `abide setup`.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The default address of the server.
pub const ADDRESS: &str = "http://127.0.0.1:11434";
/// Timeout of one query; kept short because the caller waits for it.
const LIMIT: Duration = Duration::from_secs(2);

/// A client for one Ollama server.
pub struct OllamaClient {
    base: String,
    client: Client,
}

/// A model that the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OllamaModel {
    /// Whether it can call tools; `None` if the server is too old to report it.
    pub tools: Option<bool>,
    /// The context window set in its definition, tokens.
    pub window: Option<u64>,
    /// The largest context window that it was built for, tokens.
    pub longest: Option<u64>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct ModelList {
    models: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    name: String,
    context_length: Option<u64>,
}

#[derive(Deserialize)]
struct Described {
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    parameters: String,
    #[serde(default)]
    model_info: Map<String, Value>,
}

impl OllamaClient {
    /// A client for the server at this address; a trailing `/v1`, the path of the OpenAI-compatible
    /// API, is removed.
    pub fn at(address: &str) -> Result<OllamaClient, String> {
        let address = address.trim_end_matches('/');
        let base = address.strip_suffix("/v1").unwrap_or(address);
        Ok(OllamaClient {
            base: base.to_owned(),
            client: super::http::client(base)?,
        })
    }

    /// The server's address without an API path.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The server's version. The error says why it is not an Ollama server or cannot be reached.
    pub async fn version(&self) -> Result<String, String> {
        let found: Option<Version> = self.ask("version", None).await?;
        found
            .map(|found| found.version)
            .ok_or_else(|| self.unknown())
    }

    /// The names of the models that it has.
    pub async fn models(&self) -> Result<Vec<String>, String> {
        let found: Option<ModelList> = self.ask("tags", None).await?;
        let found = found.ok_or_else(|| self.unknown())?;
        Ok(found.models.into_iter().map(|model| model.name).collect())
    }

    /// The model of that name; `None` if the server does not have it.
    pub async fn model(&self, name: &str) -> Result<Option<OllamaModel>, String> {
        let asked = json!({ "model": name });
        let found: Option<Described> = self.ask("show", Some(&asked)).await?;
        Ok(found.map(|found| OllamaModel {
            tools: found
                .capabilities
                .map(|known| known.iter().any(|one| one == "tools")),
            window: parameter(&found.parameters, "num_ctx"),
            longest: found
                .model_info
                .iter()
                .find(|(key, _)| key.ends_with(".context_length"))
                .and_then(|(_, value)| value.as_u64()),
        }))
    }

    /// The context window with which this model is loaded, tokens; `None` if it is not loaded or
    /// the server does not report it.
    pub async fn loaded_window(&self, name: &str) -> Result<Option<u64>, String> {
        let found: Option<ModelList> = self.ask("ps", None).await?;
        let loaded = found.map(|found| found.models).unwrap_or_default();
        let whole = tagged(name);
        let same = loaded
            .into_iter()
            .find(|model| tagged(&model.name) == whole);
        Ok(same.and_then(|model| model.context_length))
    }

    fn unknown(&self) -> String {
        format!("the server at {} is not an Ollama server", self.base)
    }

    /// Sends one query to the native API; `None` if the server answers 404.
    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        body: Option<&Value>,
    ) -> Result<Option<T>, String> {
        let url = format!("{}/api/{what}", self.base);
        let request = match body {
            Some(body) => self.client.post(&url).body(body.to_string()),
            None => self.client.get(&url),
        };
        let sent = async {
            let answer = request.timeout(LIMIT).send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.text().await?))
        };
        let (status, text) = sent.await.map_err(|fault| match fault.is_timeout() {
            true => format!("{} does not answer within {} s", self.base, LIMIT.as_secs()),
            false => format!("cannot connect to {}", self.base),
        })?;
        match status {
            StatusCode::OK => serde_json::from_str(&text)
                .map(Some)
                .map_err(|_| self.unknown()),
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(format!(
                "{} refused the query {what}: status {other}",
                self.base
            )),
        }
    }
}

/// A numeric parameter from a model definition, which has one parameter per line.
fn parameter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// The full name of a model: without a tag it means the tag `latest`.
fn tagged(name: &str) -> String {
    match name
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains(':'))
    {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    }
}

/// The client address for a value of `OLLAMA_HOST`: a missing scheme or port is filled in, and a
/// wildcard listen address becomes the loopback address.
pub fn address(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest, usual_port) = match host.split_once("://") {
        Some(("https", rest)) => ("https", rest, 443),
        Some((_, rest)) => ("http", rest, 80),
        None => ("http", host, 11434),
    };
    let (place, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let has_port = place
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let (name, port) = match place.rsplit_once(':') {
        Some((name, port)) if has_port && (!name.contains(':') || name.ends_with(']')) => {
            (name, port.to_owned())
        }
        _ => (place, usual_port.to_string()),
    };
    let name = match name {
        "" | "0.0.0.0" | "[::]" | "::" => "127.0.0.1",
        name => name,
    };
    format!("{scheme}://{name}:{port}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_the_server_is_an_address_to_ask() {
        for (host, meant) in [
            ("", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:9000", "http://127.0.0.1:9000"),
            (":9000", "http://127.0.0.1:9000"),
            ("[::]:9000", "http://127.0.0.1:9000"),
            ("[::1]", "http://[::1]:11434"),
            ("box.lan/", "http://box.lan:11434"),
            ("http://box.lan", "http://box.lan:80"),
            ("https://box.lan/ollama", "https://box.lan:443/ollama"),
        ] {
            assert_eq!(address(host), meant, "{host:?}");
        }
    }

    #[test]
    fn a_name_without_a_tag_is_the_latest_and_parameters_are_lines() {
        assert_eq!(tagged("qwen3"), "qwen3:latest");
        assert_eq!(tagged("hub:80/me/qwen3"), "hub:80/me/qwen3:latest");
        assert_eq!(tagged("qwen3:8b"), "qwen3:8b");
        let text = "stop \"x\"\nnum_ctx    8192\n";
        assert_eq!(parameter(text, "num_ctx"), Some(8192));
        assert_eq!(parameter("stop x", "num_ctx"), None);
    }
}
