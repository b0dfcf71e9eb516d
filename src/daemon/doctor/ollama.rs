//! The doctor's findings on Ollama servers whose models are in use: common problems of models on
//! one's own machine. Called by `abide doctor`; `abide setup` uses the same server.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::contract::finding::{Finding, Health};
pub use crate::provider::ollama::{ADDRESS, OllamaClient, address};

/// The name of the provider that needs no table.
pub const NAME: &str = "ollama";
/// Minimum context in tokens: an agent's prompt, its tools and one file do not fit in less.
const WINDOW: u64 = 16_384;
/// The first version that streams tool calls.
const STREAMS_CALLS: (u64, u64) = (0, 8);

/// Findings on the servers of those of `models` (`provider/name`) that are Ollama's. Sends no
/// request if there are none.
pub async fn look(config: &Config, models: &BTreeSet<String>) -> Vec<Finding> {
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for model in models {
        if let Some((provider, name)) = model.split_once('/')
            && base_url(config, provider).is_some()
        {
            used.entry(provider).or_default().push(name);
        }
    }
    let mut findings = Vec::new();
    for (provider, names) in used {
        if let Some(url) = base_url(config, provider) {
            findings.extend(provider_of(provider, &url, &names).await);
        }
    }
    findings
}

/// The base URL of an Ollama provider; `None` if the provider is not one. A table with another name
/// counts if it uses Ollama's port.
pub fn base_url(config: &Config, provider: &str) -> Option<String> {
    let table = config.named.providers.get(provider);
    let url = table.and_then(|table| table.base_url.clone());
    match (provider, url) {
        (NAME, url) => Some(url.unwrap_or_else(|| format!("{ADDRESS}/v1"))),
        (_, Some(url)) if url.contains(":11434") => Some(url),
        _ => None,
    }
}

async fn provider_of(provider: &str, url: &str, models: &[&str]) -> Vec<Finding> {
    let (server, version) = match reach(provider, url).await {
        Ok(reached) => reached,
        Err(finding) => return vec![finding],
    };
    let mut findings = vec![of_version(server.base(), &version)];
    for model in models {
        match of_model(&server, model).await {
            Ok(found) => findings.extend(found),
            Err(why) => findings.push(Finding::new("ollama.model", Health::Warn, why)),
        }
    }
    findings
}

/// The server and its version, or a finding on its address.
async fn reach(provider: &str, url: &str) -> Result<(OllamaClient, String), Finding> {
    let failed = |why| Finding::new("ollama.server", Health::Fail, why);
    let server = OllamaClient::at(url).map_err(failed)?;
    let why = match server.version().await {
        Ok(version) => return Ok((server, version)),
        Err(why) => why,
    };
    // The path may be wrong: too long, or that of another API.
    let root = root(server.base());
    if root != server.base()
        && let Ok(other) = OllamaClient::at(root)
        && other.version().await.is_ok()
    {
        let message =
            format!("Ollama answers at {root}, but providers.{provider}.base_url is {url}");
        return Err(
            Finding::new("ollama.address", Health::Fail, message).fix(format!(
                "providers.{provider}.base_url = \"{root}/v1\", then abide config reload"
            )),
        );
    }
    Err(failed(why).fix(format!(
        "start it: ollama serve; if it is elsewhere, set providers.{provider}.base_url"
    )))
}

/// The address without its path.
fn root(base: &str) -> &str {
    let host = base.find("://").map_or(0, |at| at + 3);
    let end = base[host..].find('/').map_or(base.len(), |at| host + at);
    &base[..end]
}

fn of_version(base: &str, version: &str) -> Finding {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    let known = parts.next().flatten().zip(parts.next().flatten());
    let message = format!("Ollama {version} answers at {base}");
    match known {
        Some(found) if found < STREAMS_CALLS => Finding::new(
            "ollama.server",
            Health::Warn,
            format!("{message}; versions before 0.8 do not stream tool calls"),
        )
        .fix("install a newer Ollama"),
        _ => Finding::new("ollama.server", Health::Ok, message),
    }
}

async fn of_model(server: &OllamaClient, name: &str) -> Result<Vec<Finding>, String> {
    let Some(model) = server.model(name).await? else {
        let message = format!("the server does not have {name}");
        let missing = Finding::new("ollama.model", Health::Fail, message);
        return Ok(vec![missing.fix(format!("ollama pull {name}"))]);
    };
    let tools = match model.tools {
        Some(true) => Finding::new(
            "ollama.model",
            Health::Ok,
            format!("{name} is installed and supports tool calls"),
        ),
        Some(false) => Finding::new(
            "ollama.tools",
            Health::Fail,
            format!("{name} does not support tool calls, which agents need"),
        )
        .fix("choose another model: abide setup lists those with tools first"),
        None => Finding::new(
            "ollama.tools",
            Health::Warn,
            format!("{name} is installed; this server does not say whether it supports tool calls"),
        )
        .fix("install a newer Ollama, or try it: abide setup"),
    };
    let loaded = server.loaded_window(name).await?;
    // The context of the loaded model counts first, then that of its definition.
    let window = loaded.or(model.window);
    let longest = model.longest.unwrap_or(u64::MAX);
    let context = match window.map(|window| window.min(longest)) {
        _ if longest < WINDOW => Finding::new(
            "ollama.context",
            Health::Warn,
            format!("{name} supports at most {longest} tokens of context; an agent needs {WINDOW}"),
        )
        .fix("choose another model: abide setup"),
        None => Finding::new(
            "ollama.context",
            Health::Skip,
            format!("{name} is not loaded and sets no num_ctx: its context is the server default"),
        ),
        Some(window) if window < WINDOW => Finding::new(
            "ollama.context",
            Health::Warn,
            format!(
                "the context window of {name} has {window} tokens; an agent needs {WINDOW}, and what \
                 does not fit is silently dropped"
            ),
        )
        .fix(
            "start the server with OLLAMA_CONTEXT_LENGTH=32768, or make a model with PARAMETER \
             num_ctx 32768",
        ),
        Some(window) => Finding::new(
            "ollama.context",
            Health::Ok,
            format!("the context window of {name} has {window} tokens"),
        ),
    };
    Ok(vec![tools, context])
}
