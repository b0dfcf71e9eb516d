//! Model sources on this machine: an Ollama server, and provider keys in this shell. Of keys it is
//! only checked whether they are set.

use serde::Serialize;

use crate::cli::common::failure::Failure;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::clean;
use crate::config::Config;
use crate::daemon::ollama::{self, Server};

/// Providers that take a key: name, variable, and the base URL if it is not built in.
const KEYS: [(&str, &str, Option<&str>); 5] = [
    ("openai", "OPENAI_API_KEY", None),
    ("anthropic", "ANTHROPIC_API_KEY", None),
    (
        "openrouter",
        "OPENROUTER_API_KEY",
        Some("https://openrouter.ai/api/v1"),
    ),
    (
        "groq",
        "GROQ_API_KEY",
        Some("https://api.groq.com/openai/v1"),
    ),
    (
        "mistral",
        "MISTRAL_API_KEY",
        Some("https://api.mistral.ai/v1"),
    ),
];

/// The model sources that were found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub(super) ollama: Ollama,
    /// Providers whose key is set in this shell.
    pub(super) keys: Vec<Key>,
}

/// An Ollama server, or why none was found.
#[derive(Debug, Serialize)]
pub(super) struct Ollama {
    pub(super) address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// Its models; those that call tools come first.
    pub(super) models: Vec<Model>,
}

/// A model of the Ollama server.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    pub(super) name: String,
    /// Whether it can call tools; `None` if an old server does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<bool>,
}

/// The key variable of a provider.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Key {
    pub(super) provider: &'static str,
    pub(super) variable: &'static str,
    #[serde(skip)]
    pub(super) base_url: Option<&'static str>,
}

impl Found {
    /// Checks the Ollama server and the key variables.
    pub(super) async fn look(config: &Config) -> Found {
        let keys = KEYS
            .iter()
            .filter(|(_, variable, _)| {
                std::env::var_os(variable).is_some_and(|value| !value.is_empty())
            })
            .map(|&entry| key(entry));
        Found {
            keys: keys.collect(),
            ollama: look_at(address(config)).await,
        }
    }

    /// Prints what was found.
    pub(super) fn show(&self) -> Result<(), Failure> {
        let ollama = &self.ollama;
        match (&ollama.version, &ollama.problem) {
            (Some(version), None) => {
                print::answer(&clean(&format!("Ollama {version} at {}", ollama.address)))?
            }
            (_, problem) => {
                let problem = problem.as_deref().unwrap_or("no answer");
                print::answer(&clean(&format!("Ollama: {problem}")))?;
            }
        }
        for model in &ollama.models {
            let about = match model.tools {
                Some(true) => "calls tools",
                Some(false) => "cannot call tools: not usable for agents",
                None => "unknown whether it calls tools: the server is too old to report it",
            };
            let name = clean(&model.name);
            print::answer(&format!("  ollama/{name}  {}", styled(DIM, about)))?;
        }
        if ollama.problem.is_none() && ollama.models.is_empty() {
            print::answer("  no model is installed; get one: ollama pull qwen3:8b")?;
        }
        for key in &self.keys {
            print::answer(&format!(
                "{}: {} is set in this shell  {}",
                key.provider,
                key.variable,
                styled(DIM, "paid")
            ))?;
        }
        if self.keys.is_empty() {
            print::answer("no key of a paid provider is set in this shell")?;
        }
        Ok(())
    }
}

/// The key variable of a provider, whether it is set or not.
pub(super) fn key_of(provider: &str) -> Option<Key> {
    let found = KEYS.iter().find(|(name, _, _)| *name == provider);
    found.map(|&entry| key(entry))
}

fn key((provider, variable, base_url): (&'static str, &'static str, Option<&'static str>)) -> Key {
    Key {
        provider,
        variable,
        base_url,
    }
}

/// Address of the Ollama server: from `OLLAMA_HOST`, else from the settings, else the default.
fn address(config: &Config) -> String {
    match std::env::var("OLLAMA_HOST") {
        Ok(host) if !host.trim().is_empty() => ollama::address(&host),
        _ => ollama::base_url(config, ollama::NAME).unwrap_or_else(|| ollama::ADDRESS.to_owned()),
    }
}

async fn look_at(address: String) -> Ollama {
    let mut found = Ollama {
        address,
        version: None,
        problem: None,
        models: Vec::new(),
    };
    let asked = async {
        let server = Server::at(&found.address)?;
        let version = server.version().await?;
        let mut models = Vec::new();
        for name in server.models().await? {
            let tools = server.model(&name).await?.and_then(|model| model.tools);
            models.push(Model { name, tools });
        }
        models.sort_by_key(|model| match model.tools {
            Some(true) => 0,
            None => 1,
            Some(false) => 2,
        });
        Ok::<_, String>((server.base().to_owned(), version, models))
    };
    match asked.await {
        Ok((base, version, models)) => {
            found.address = base;
            found.version = Some(version);
            found.models = models;
        }
        Err(why) => found.problem = Some(why),
    }
    found
}
