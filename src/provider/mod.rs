//! Model providers behind one trait. A runner asks a provider for the next answer. Two are
//! built in and need no network; those over HTTP are as the settings describe them, and change
//! with them at a reload.
//!
//! ```text
//! remote (how often) ─▶ http (one try) ─▶ openai | anthropic (fields) ─▶ stream ─▶ answer
//!   │      ▲                 └─▶ failure ◀─ verdict ◀─ refusal, wait
//!   │      └─ adapt, repair, history (in which form), hide (without the key)
//!   └─ health (whether now; one for each key, for all runs)
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
use crate::kernel::message::{Block, Message};
use crate::kernel::provider_health::Seen;
use crate::kernel::run::Usage;
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;

pub use health::OnChange;
use health::Record;

/// What a provider speaks that needs no network. Its answers cost nothing.
pub const BUILT_IN: &str = "built-in";

/// The provider of models on this machine, which is there without a table.
const OLLAMA: &str = "ollama";
/// Where it listens.
const OLLAMA_URL: &str = "http://127.0.0.1:11434/v1";

/// A tool as models see it.
#[derive(Clone, Debug)]
pub struct ToolSchema {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments: as text, since it goes along with every request and
    /// nothing is looked for in it.
    pub parameters: Box<RawValue>,
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, without the provider.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The conversation, oldest first: no entries for people only, each tool call followed
    /// by its result, no empty answers.
    pub messages: Vec<Arc<Message>>,
    /// The tools that may be called.
    pub tools: Vec<Arc<ToolSchema>>,
    /// How often this same question was asked and answered with nothing.
    pub empty_answers: u32,
    /// How much the model may think; `None` = its own habit.
    pub thinking: Option<Thinking>,
    /// How freely it chooses its words; `None` = its own habit.
    pub temperature: Option<f64>,
    /// The most tokens of the answer; `None` = the provider's own limit.
    pub max_tokens: Option<u32>,
    /// Further fields, as the provider's API names them; see [`crate::kernel::options`].
    pub options: Map<String, Value>,
    /// How long one try may take at a provider that has no limit of its own.
    pub limit: Duration,
    /// The most tokens that a request may have by the settings; 0: not known.
    pub window: u64,
    /// It is asked in place of another model, which has failed.
    pub stands_in: bool,
}

/// What a model answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Text and tool calls, in order, and the answer as the provider gave it.
    pub blocks: Vec<Block>,
    /// What it cost.
    pub usage: Usage,
    /// What whoever asked should know of it: it was cut, for one.
    pub warnings: Vec<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderFault {
    /// A stable name: `provider`, `provider_timeout`, `provider_auth`, `provider_credit`,
    /// `provider_config`, `provider_request`, `answer_too_large`, `refused` or
    /// [`crate::kernel::step::TOO_LONG`].
    pub kind: &'static str,
    /// What happened and what was tried.
    pub message: String,
    /// Another model may be asked in its place. Not so where the request itself is wrong.
    pub switches: bool,
    /// The provider takes no requests now; a run may wait for it.
    pub wait: Option<Wait>,
}

/// A provider that takes no requests now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its name.
    pub provider: String,
    /// When it may be asked again.
    pub until: Timestamp,
    /// The longest time for which one call waits in all.
    pub most: Duration,
}

impl ProviderFault {
    /// One for which another model may be asked.
    pub fn new(message: impl Into<String>) -> Self {
        ProviderFault {
            kind: "provider",
            message: message.into(),
            switches: true,
            wait: None,
        }
    }

    /// A run may wait for the provider.
    fn waits(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }
}

/// Who gave an answer.
struct Origin {
    provider: String,
    api: &'static str,
    /// `provider/name`.
    model: String,
}

impl Origin {
    /// The answer as it came, to be sent back so.
    fn native(self, json: &str) -> Block {
        Block::Native {
            provider: self.provider,
            api: self.api.to_owned(),
            model: self.model,
            json: json.to_owned(),
        }
    }
}

/// A request on its way to a provider.
struct Call<'a> {
    request: &'a ModelRequest,
    provider: &'a str,
    api: &'a str,
    base_url: &'a str,
    /// Entries up to this one go back as text and calls, not as the provider gave them.
    plain_up_to: i64,
    /// The entry whose form the provider refused last; what follows may go back in its own.
    own_from: i64,
    /// What the model was found not to take.
    switches: adapt::Switches,
}

/// Answers for models.
pub trait Provider: Send + Sync + 'static {
    /// The part of `provider/name` before the slash.
    fn name(&self) -> &str;

    /// The models it offers, as `provider/name`; `provider/*` stands for any name.
    fn offered(&self) -> Vec<String>;

    /// Those of its models that can think at levels, written likewise.
    fn thinking(&self) -> Vec<String> {
        Vec::new()
    }

    /// Each of its tries has a limit, so that nobody else needs to set one.
    fn limits_itself(&self) -> bool {
        false
    }

    /// Why no call can succeed as things are: its key is missing, for one.
    fn problem(&self) -> Option<String> {
        None
    }

    /// How it is with the key that was used last; `None`: it was not asked yet.
    fn health(&self) -> Option<Seen> {
        None
    }

    /// What its models were found not to take, a line each.
    fn learned(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it speaks.
    fn kind(&self) -> &'static str {
        BUILT_IN
    }

    /// The model's next answer; its text goes to `sink` while it comes. Dropping the future
    /// gives it up.
    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>>;
}

/// Which providers there are.
#[derive(Clone)]
pub struct Options {
    /// The answers of the `script` provider; without it there is none.
    pub script: Option<PathBuf>,
    /// Those over HTTP, by name.
    pub tables: BTreeMap<String, ProviderTable>,
    /// Measures and dates.
    pub clock: Clock,
    /// Is told when a provider takes no requests, and when it does again.
    pub on_change: OnChange,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("script", &self.script)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

/// All providers by name.
pub struct Providers {
    built_in: Vec<Arc<dyn Provider>>,
    remote: RwLock<Vec<Arc<dyn Provider>>>,
    /// What is known of each, by its name and address: a reload that changes neither keeps it.
    records: Mutex<BTreeMap<(String, String), Arc<Record>>>,
    clock: Clock,
    on_change: OnChange,
}

impl Providers {
    /// `offline`, `ollama`, those of the tables, and `script` if its file is given. The fault
    /// names the file that cannot be read.
    pub fn new(options: Options) -> Result<Self, ProviderFault> {
        let mut built_in: Vec<Arc<dyn Provider>> = vec![Arc::new(offline::Offline)];
        if let Some(path) = &options.script {
            built_in.push(Arc::new(script::Script::load(path)?));
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

    /// The providers over HTTP are from now on those of `tables`; calls under way end as they
    /// began.
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
            let remote = remote::Remote::new(name, table, self.clock.clone(), record);
            Arc::new(remote) as Arc<dyn Provider>
        });
        let remote = remote.collect();
        drop(records);
        *self.remote.write().unwrap_or_else(PoisonError::into_inner) = remote;
    }

    fn all(&self) -> Vec<Arc<dyn Provider>> {
        // A panic while it was written left the old list or the new one.
        let remote = self.remote.read().unwrap_or_else(PoisonError::into_inner);
        self.built_in.iter().chain(remote.iter()).cloned().collect()
    }

    /// The models there are, as `provider/name`; `provider/*` stands for any name.
    pub fn offered(&self) -> Vec<String> {
        self.all().iter().flat_map(|one| one.offered()).collect()
    }

    /// Those of the models that can think at levels.
    pub fn thinking(&self) -> Vec<String> {
        self.all().iter().flat_map(|one| one.thinking()).collect()
    }

    /// All of them, for people.
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

    /// Why no call of that provider can succeed as things are, if there is one of that name.
    pub fn problem(&self, name: &str) -> Option<String> {
        let all = self.all();
        all.iter().find(|one| one.name() == name)?.problem()
    }

    /// The provider of `model` (`provider/name`), and the name without the provider.
    pub fn find<'a>(&self, model: &'a str) -> Option<(Arc<dyn Provider>, &'a str)> {
        let (provider, name) = model.split_once('/')?;
        let found = self.all().into_iter().find(|one| one.name() == provider)?;
        Some((found, name))
    }
}

/// Index of the entry that the model is to answer: the last one that is not its own doing.
fn latest_input(messages: &[Arc<Message>]) -> Option<usize> {
    messages.iter().rposition(|message| message.is_input())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
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
        let options = Options {
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
