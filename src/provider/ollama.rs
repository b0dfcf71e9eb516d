//! What an Ollama server says about itself and its models, over its own API beside the one that
//! models are asked through. The doctor and `abide setup` look here.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Where it listens unless told otherwise.
pub const ADDRESS: &str = "http://127.0.0.1:11434";
/// A look is short: whoever asks waits for it.
const LIMIT: Duration = Duration::from_secs(2);

/// A server.
pub struct Server {
    base: String,
    client: Client,
}

/// A model that the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Can it call tools? `None`: the server is too old to say.
    pub tools: Option<bool>,
    /// The window that its definition sets, tokens.
    pub window: Option<u64>,
    /// The longest window that it was made for, tokens.
    pub longest: Option<u64>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Models {
    models: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
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

impl Server {
    /// The one at this address; a path `/v1` at its end, which is that of the other API, does
    /// not count.
    pub fn at(address: &str) -> Result<Server, String> {
        let address = address.trim_end_matches('/');
        let base = address.strip_suffix("/v1").unwrap_or(address);
        Ok(Server {
            base: base.to_owned(),
            client: super::http::client(base)?,
        })
    }

    /// Its address, without a path for an API.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Its version. The fault says why it is no such server, or cannot be reached.
    pub async fn version(&self) -> Result<String, String> {
        let found: Option<Version> = self.ask("version", None).await?;
        found
            .map(|found| found.version)
            .ok_or_else(|| self.unknown())
    }

    /// The models that it has, by name.
    pub async fn models(&self) -> Result<Vec<String>, String> {
        let found: Option<Models> = self.ask("tags", None).await?;
        let found = found.ok_or_else(|| self.unknown())?;
        Ok(found.models.into_iter().map(|model| model.name).collect())
    }

    /// One of them; `None`: it does not have it.
    pub async fn model(&self, name: &str) -> Result<Option<Model>, String> {
        let asked = json!({ "model": name });
        let found: Option<Described> = self.ask("show", Some(&asked)).await?;
        Ok(found.map(|found| Model {
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

    /// The window, in tokens, with which it has loaded this model; `None` where it has not, or
    /// does not say.
    pub async fn loaded_window(&self, name: &str) -> Result<Option<u64>, String> {
        let found: Option<Models> = self.ask("ps", None).await?;
        let loaded = found.map(|found| found.models).unwrap_or_default();
        let whole = tagged(name);
        let same = loaded
            .into_iter()
            .find(|model| tagged(&model.name) == whole);
        Ok(same.and_then(|model| model.context_length))
    }

    fn unknown(&self) -> String {
        format!("what answers at {} is no Ollama server", self.base)
    }

    /// `None`: it knows no such thing.
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
            false => format!("nobody can be reached at {}", self.base),
        })?;
        match status {
            StatusCode::OK => serde_json::from_str(&text)
                .map(Some)
                .map_err(|_| self.unknown()),
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(format!("{} refuses {what}: status {other}", self.base)),
        }
    }
}

/// A number among the parameters of a model's definition, each on a line of its own.
fn parameter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// A name without a tag means the tag `latest`.
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

/// The address that `OLLAMA_HOST` means: its scheme and port may be missing, and an address to
/// listen at everywhere is not one to ask.
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
