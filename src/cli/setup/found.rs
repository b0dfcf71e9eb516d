//! Model sources on this machine: an Ollama server, and provider keys in this shell. Of keys it is
//! only checked whether they are set.

use serde::Serialize;

use crate::cli::common::failure::Failure;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::clean;
use crate::config::Config;
use crate::daemon::ollama::{self, OllamaClient};

/// Providers that take a key.
const KEYS: [KeyVariable; 5] = [
    KeyVariable::new("openai", "OPENAI_API_KEY", None),
    KeyVariable::new("anthropic", "ANTHROPIC_API_KEY", None),
    KeyVariable::new(
        "openrouter",
        "OPENROUTER_API_KEY",
        Some("https://openrouter.ai/api/v1"),
    ),
    KeyVariable::new(
        "groq",
        "GROQ_API_KEY",
        Some("https://api.groq.com/openai/v1"),
    ),
    KeyVariable::new(
        "mistral",
        "MISTRAL_API_KEY",
        Some("https://api.mistral.ai/v1"),
    ),
];

/// The model sources that were found.
#[derive(Debug, Serialize)]
pub(super) struct ModelSources {
    pub(super) ollama: Ollama,
    /// Providers whose key is set in this shell.
    pub(super) keys: Vec<KeyVariable>,
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
    pub(super) models: Vec<InstalledModel>,
}

/// A model of the Ollama server.
#[derive(Debug, Serialize)]
pub(super) struct InstalledModel {
    pub(super) name: String,
    /// Whether it can call tools; `None` if an old server does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<bool>,
}

/// The key variable of a provider.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct KeyVariable {
    provider: &'static str,
    variable: &'static str,
    /// The base URL, if it is not built in.
    #[serde(skip)]
    base_url: Option<&'static str>,
}

impl KeyVariable {
    const fn new(
        provider: &'static str,
        variable: &'static str,
        base_url: Option<&'static str>,
    ) -> KeyVariable {
        KeyVariable {
            provider,
            variable,
            base_url,
        }
    }

    /// The key variable of a provider, whether it is set or not.
    pub(super) fn of(provider: &str) -> Option<&'static KeyVariable> {
        KEYS.iter().find(|key| key.provider == provider)
    }

    fn is_set(&self) -> bool {
        std::env::var_os(self.variable).is_some_and(|value| !value.is_empty())
    }
}

impl ModelSources {
    /// Checks the Ollama server and the key variables.
    pub(super) async fn look(config: &Config) -> ModelSources {
        ModelSources {
            keys: KEYS.into_iter().filter(KeyVariable::is_set).collect(),
            ollama: look_at(address(config)).await,
        }
    }

    /// The first model of Ollama that calls tools, as far as is known.
    pub(super) fn usual_model(&self) -> Option<String> {
        let mut models = self.ollama.models.iter();
        let usable = models.find(|model| model.tools != Some(false));
        usable.map(|model| format!("{}/{}", ollama::NAME, model.name))
    }

    /// The fields to write into the table of a provider, with their values.
    pub(super) fn fields(&self, config: &Config, provider: &str) -> Vec<(&'static str, String)> {
        if provider == ollama::NAME {
            let url = format!("{}/v1", self.ollama.address);
            let is_known = ollama::base_url(config, provider).as_ref() == Some(&url);
            let is_needed = self.ollama.problem.is_none() && !is_known;
            return is_needed.then_some(("base_url", url)).into_iter().collect();
        }
        let Some(key) = KeyVariable::of(provider) else {
            return Vec::new();
        };
        let known = config
            .named
            .providers
            .get(provider)
            .cloned()
            .unwrap_or_default();
        let has_key = known.api_key_env.is_some()
            || known.api_key_file.is_some()
            || known.api_key_cred.is_some();
        let url = key.base_url.map(str::to_owned);
        let fields = [
            ("api_key_env", (!has_key).then(|| key.variable.to_owned())),
            (
                "kind",
                url.as_ref()
                    .filter(|_| known.kind.is_none())
                    .map(|_| "openai".to_owned()),
            ),
            ("base_url", url.filter(|_| known.base_url.is_none())),
        ];
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Prints what was found.
    pub(super) fn show(&self) -> Result<(), Failure> {
        let ollama = &self.ollama;
        print::answer(&clean(&match (&ollama.version, &ollama.problem) {
            (Some(version), None) => format!("Ollama {version} at {}", ollama.address),
            (_, problem) => format!("Ollama: {}", problem.as_deref().unwrap_or("no answer")),
        }))?;
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

/// Address of the Ollama server: from `OLLAMA_HOST`, else from the settings, else the default.
fn address(config: &Config) -> String {
    match std::env::var("OLLAMA_HOST") {
        Ok(host) if !host.trim().is_empty() => ollama::address(&host),
        _ => ollama::base_url(config, ollama::NAME).unwrap_or_else(|| ollama::ADDRESS.to_owned()),
    }
}

async fn look_at(address: String) -> Ollama {
    let asked = async {
        let server = OllamaClient::at(&address)?;
        let version = server.version().await?;
        let mut models = Vec::new();
        for name in server.models().await? {
            let tools = server.model(&name).await?.and_then(|model| model.tools);
            models.push(InstalledModel { name, tools });
        }
        // First those that call tools, last those that cannot.
        models.sort_by_key(|model| model.tools.map_or(1, |tools| if tools { 0 } else { 2 }));
        Ok::<_, String>(Ollama {
            address: server.base().to_owned(),
            version: Some(version),
            problem: None,
            models,
        })
    };
    asked.await.unwrap_or_else(|problem| Ollama {
        address: address.clone(),
        version: None,
        problem: Some(problem),
        models: Vec::new(),
    })
}
