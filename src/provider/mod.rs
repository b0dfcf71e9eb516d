//! Model providers behind one trait; a runner requests the next answer from a provider. `offline`
//! and `script` are built in and need no network. Those over HTTP follow the settings and are
//! replaced when the settings are reloaded.
//!
//! ```text
//! remote (retries) ─▶ http (one attempt) ─▶ openai | anthropic (fields) ─▶ stream ─▶ answer
//!   │      ▲                 └─▶ failure ◀─ verdict ◀─ refusal, wait
//!   │      └─ adapt, repair, history (request form), hide (removes the key)
//!   └─ health (circuit breaker; one for each key, shared by all runs)
//! ```

mod adapt;
mod answer;
mod anthropic;
mod bounds;
mod failure;
mod health;
mod hide;
mod history;
mod http;
mod key;
mod offline;
pub mod ollama;
mod openai;
mod refusal;
mod remote;
mod repair;
mod script;
pub mod stream;
#[cfg(test)]
mod testing;
mod verdict;
mod wait;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::config::ProviderTable;
use crate::contract::BoxFuture;
use crate::contract::control::ModelProvider;
use crate::contract::runner::TextSink;
use crate::kernel::provider_health::HealthReport;
use crate::kernel::run::Usage;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::message::{Block, Message};
use crate::kernel::time::Timestamp;

pub use health::OnChange;
use health::Record;

/// The API kind of providers that need no network. Their answers cost nothing.
pub const BUILT_IN: &str = "built-in";

/// The provider of local models, which exists without a table in the settings.
const OLLAMA: &str = "ollama";
/// The default address of a local Ollama server.
const OLLAMA_URL: &str = "http://127.0.0.1:11434/v1";

/// A tool as it is described to models.
#[derive(Clone, Debug)]
pub struct ToolSchema {
    /// The name by which the model calls it.
    pub name: String,
    /// The description that the model reads.
    pub description: String,
    /// The JSON Schema of its arguments, kept as text: it is sent with every request and never
    /// inspected.
    pub parameters: Box<RawValue>,
}

/// One request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, without the provider.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: String,
    /// The conversation, oldest first, without entries meant only for users and without empty
    /// answers; each tool call is followed by its result.
    pub messages: Vec<Arc<Message>>,
    /// The tools that may be called.
    pub tools: Vec<Arc<ToolSchema>>,
    /// Number of times this same request got an empty answer before.
    pub empty_answers: u32,
    /// The thinking level; `None` = the model's default.
    pub thinking: Option<Thinking>,
    /// The sampling temperature; `None` = the model's default.
    pub temperature: Option<f64>,
    /// Maximum tokens of the answer; `None` = the provider's default.
    pub max_tokens: Option<u32>,
    /// Further request fields under the names of the provider's API; see
    /// [`crate::kernel::run::options`].
    pub options: Map<String, Value>,
    /// Timeout of one attempt with a provider that configures no timeout of its own.
    pub limit: Duration,
    /// Maximum tokens of a request according to the settings; 0 if unknown.
    pub window: u64,
    /// The model is a fallback for another one that failed.
    pub is_fallback: bool,
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Text and tool calls in order, followed by the answer in the provider's own JSON.
    pub blocks: Vec<Block>,
    /// Tokens used and their cost.
    pub usage: Usage,
    /// What the caller should know about the answer, for example that it was cut.
    pub warnings: Vec<String>,
}

/// Why a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderFault {
    /// A stable error kind: `provider`, `provider_timeout`, `provider_auth`, `provider_credit`,
    /// `provider_config`, `provider_request`, `answer_too_large`, `refused` or
    /// [`crate::kernel::run::step::TOO_LONG`].
    pub kind: &'static str,
    /// What happened and what was tried.
    pub message: String,
    /// Another model may be used instead. False if the request itself is invalid.
    pub switches: bool,
    /// Set if the provider accepts no requests now and the run may wait for it.
    pub wait: Option<ProviderBackoff>,
}

/// How long a run may wait for a provider that accepts no requests now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderBackoff {
    /// The provider's name.
    pub provider: String,
    /// When it may be called again.
    pub until: Timestamp,
    /// Maximum total time that one call waits.
    pub max_total: Duration,
}

impl ProviderFault {
    /// A fault of kind `provider`; another model may be used.
    pub fn new(message: impl Into<String>) -> Self {
        ProviderFault {
            kind: "provider",
            message: message.into(),
            switches: true,
            wait: None,
        }
    }

    /// Allows the run to wait for the provider.
    fn waits(mut self, wait: ProviderBackoff) -> Self {
        self.wait = Some(wait);
        self
    }
}

/// The provider and model that gave an answer.
struct AnswerOrigin {
    provider: String,
    api: &'static str,
    /// `provider/name`.
    model: String,
}

impl AnswerOrigin {
    /// The answer's JSON as received, stored so that it can be sent back unchanged.
    fn native(self, json: &str) -> Block {
        Block::Native {
            provider: self.provider,
            api: self.api.to_owned(),
            model: self.model,
            json: json.to_owned(),
        }
    }
}

/// A request prepared for one provider.
struct PreparedRequest<'a> {
    request: &'a ModelRequest,
    provider: &'a str,
    api: &'a str,
    base_url: &'a str,
    /// Sequence number up to which answers are sent as text and tool calls instead of the
    /// provider's own JSON.
    plain_up_to: i64,
    /// Sequence number of the answer whose form the provider refused last; later ones may be sent
    /// in its own form.
    native_from: i64,
    /// What the model was found not to accept.
    switches: adapt::Switches,
}

/// A source of model answers.
pub trait Provider: Send + Sync + 'static {
    /// The part of `provider/name` before the slash.
    fn name(&self) -> &str;

    /// The models it offers, as `provider/name`; `provider/*` means any name.
    fn offered(&self) -> Vec<String>;

    /// Its models that support thinking levels, in the same notation.
    fn thinking(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether each attempt has a timeout of its own, so that the caller need not set one.
    fn limits_itself(&self) -> bool {
        false
    }

    /// Why no call can succeed with the current configuration, for example a missing key.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Health with the most recently used key; `None` if it was never used.
    fn health(&self) -> Option<HealthReport> {
        None
    }

    /// What its models were found not to accept, one line per model.
    fn learned(&self) -> Vec<String> {
        Vec::new()
    }

    /// The API kind: [`BUILT_IN`], or the kind of its table.
    fn kind(&self) -> &'static str {
        BUILT_IN
    }

    /// Requests the model's next answer; its text is emitted to `sink` while it streams. Dropping
    /// the future cancels the call.
    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>>;
}

/// The configuration of [`Providers`].
#[derive(Clone)]
pub struct ProviderOptions {
    /// File with the answers of the `script` provider; without it that provider does not exist.
    pub script: Option<PathBuf>,
    /// The providers over HTTP, by name.
    pub tables: BTreeMap<String, ProviderTable>,
    /// Clock for timeouts and timestamps.
    pub clock: Clock,
    /// Called when a provider stops accepting requests and when it accepts them again.
    pub on_change: OnChange,
}

impl std::fmt::Debug for ProviderOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("script", &self.script)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

/// The registry of all providers, by name.
pub struct Providers {
    built_in: Vec<Arc<dyn Provider>>,
    remote: RwLock<Vec<Arc<dyn Provider>>>,
    /// Health of each provider, by name with API kind, and address. A reload that changes none of
    /// them keeps it.
    records: Mutex<BTreeMap<(String, String), Arc<Record>>>,
    clock: Clock,
    on_change: OnChange,
}

impl Providers {
    /// Creates `offline`, `ollama`, the providers of the tables, and `script` if its file is given.
    /// The error names the script file that cannot be read.
    pub fn new(options: ProviderOptions) -> Result<Self, ProviderFault> {
        let mut built_in: Vec<Arc<dyn Provider>> = vec![Arc::new(offline::Offline)];
        if let Some(path) = &options.script {
            built_in.push(Arc::new(script::ScriptProvider::load(path)?));
        }
        let providers = Providers {
            built_in,
            remote: RwLock::default(),
            records: Mutex::default(),
            clock: options.clock,
            on_change: options.on_change,
        };
        providers.configure(&options.tables);
        Ok(providers)
    }

    /// Replaces the providers over HTTP by those of `tables`. Calls in flight finish with the old
    /// configuration.
    pub fn configure(&self, tables: &BTreeMap<String, ProviderTable>) {
        let ollama = ProviderTable::default();
        let usual = (!tables.contains_key(OLLAMA)).then_some((OLLAMA, &ollama));
        let tables = tables.iter().map(|(name, table)| (name.as_str(), table));
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *records);
        let remote = tables.chain(usual).map(|(name, table)| {
            let url = table.base_url.clone().unwrap_or_default();
            let key = (format!("{name} {:?}", table.kind), url);
            let record = before.get(&key).map(Arc::clone);
            let record = record.unwrap_or_else(|| {
                Record::new(name, self.clock.clone(), Arc::clone(&self.on_change))
            });
            records.insert(key, Arc::clone(&record));
            let remote = remote::HttpProvider::new(name, table, self.clock.clone(), record);
            Arc::new(remote) as Arc<dyn Provider>
        });
        let remote = remote.collect();
        drop(records);
        *self.remote.write().unwrap_or_else(PoisonError::into_inner) = remote;
    }

    fn all(&self) -> Vec<Arc<dyn Provider>> {
        // A panic during the write left either the old or the new list.
        let remote = self.remote.read().unwrap_or_else(PoisonError::into_inner);
        self.built_in.iter().chain(remote.iter()).cloned().collect()
    }

    /// The available models, as `provider/name`; `provider/*` means any name.
    pub fn offered(&self) -> Vec<String> {
        self.all().iter().flat_map(|one| one.offered()).collect()
    }

    /// The models that support thinking levels.
    pub fn thinking(&self) -> Vec<String> {
        self.all().iter().flat_map(|one| one.thinking()).collect()
    }

    /// The state of all providers, for status output.
    pub fn shown(&self) -> Vec<ModelProvider> {
        let all = self.all();
        let shown = all.iter().map(|one| ModelProvider {
            name: one.name().to_owned(),
            kind: one.kind(),
            models: one.offered(),
            problem: one.problem(),
            health: one.health(),
            learned: one.learned(),
        });
        shown.collect()
    }

    /// Why no call of that provider can succeed with the current configuration; `None` if nothing
    /// is wrong or no such provider exists.
    pub fn problem(&self, name: &str) -> Option<String> {
        let all = self.all();
        all.iter().find(|one| one.name() == name)?.problem()
    }

    /// The provider of `model` (`provider/name`) and the model's name without the provider; `None`
    /// if there is no such provider.
    pub fn find<'a>(&self, model: &'a str) -> Option<(Arc<dyn Provider>, &'a str)> {
        let (provider, name) = model.split_once('/')?;
        let found = self.all().into_iter().find(|one| one.name() == provider)?;
        Some((found, name))
    }
}

/// Index of the entry that the model has to answer: the last one that is an input.
fn latest_input(messages: &[Arc<Message>]) -> Option<usize> {
    messages.iter().rposition(|message| message.is_input())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ProviderOptions {
        ProviderOptions {
            script: None,
            tables: BTreeMap::new(),
            clock: Clock::system(),
            on_change: Arc::new(|_, _| {}),
        }
    }

    #[test]
    fn a_model_is_found_by_its_provider() {
        let providers = Providers::new(options()).unwrap();
        assert_eq!(providers.offered(), ["offline/search", "ollama/*"]);
        let (provider, name) = providers.find("offline/search").unwrap();
        assert_eq!((provider.name(), name), ("offline", "search"));
        let (provider, name) = providers.find("ollama/hf.co/a/b:q4").unwrap();
        assert_eq!((provider.name(), name), ("ollama", "hf.co/a/b:q4"));
        assert!(providers.find("script/x").is_none());
        assert!(providers.find("offline").is_none());
    }

    #[test]
    fn a_script_that_cannot_be_read_is_named() {
        let options = ProviderOptions {
            script: Some(PathBuf::from("/no/such/script.json")),
            ..options()
        };
        let fault = Providers::new(options).err().unwrap();
        assert!(fault.message.contains("/no/such/script.json"), "{fault}");
    }

    #[test]
    fn providers_change_with_their_tables_and_say_what_is_wrong_with_them() {
        let providers = Providers::new(options()).unwrap();
        let table = ProviderTable {
            models: vec!["small".to_owned()],
            api_key_env: Some("ABIDE_TEST_NO_SUCH_KEY".to_owned()),
            ..ProviderTable::default()
        };
        providers.configure(&BTreeMap::from([
            ("openai".to_owned(), table.clone()),
            ("mine".to_owned(), ProviderTable::default()),
        ]));
        let shown = providers.shown();
        let of = |name: &str| shown.iter().find(|one| one.name == name).unwrap();
        assert_eq!(of("openai").models, ["openai/small"]);
        let problem = of("openai").problem.as_deref().unwrap();
        assert!(problem.contains("ABIDE_TEST_NO_SUCH_KEY"), "{problem}");
        let problem = of("mine").problem.as_deref().unwrap();
        assert!(problem.contains("providers.mine.kind"), "{problem}");
        assert_eq!(of("ollama").problem, None);
        providers.configure(&BTreeMap::new());
        assert!(providers.find("openai/small").is_none());
    }
}
