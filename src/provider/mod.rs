//! Model providers behind one trait. A runner asks a provider for the next answer; which
//! providers there are is decided once, when the daemon starts.

mod offline;
mod script;
#[cfg(test)]
mod testing;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::message::{Block, Message};
use crate::kernel::run::Usage;

/// A tool as models see it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ToolSchema {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
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
    pub tools: Vec<ToolSchema>,
    /// How often this same question was asked and answered with nothing.
    pub empty_answers: u32,
}

/// What a model answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Text and tool calls, in order.
    pub blocks: Vec<Block>,
    /// What it cost.
    pub usage: Usage,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProviderFault(pub String);

/// Answers for models.
pub trait Provider: Send + Sync + 'static {
    /// The part of `provider/name` before the slash.
    fn name(&self) -> &'static str;

    /// The models it offers, as `provider/name`; `provider/*` stands for any name.
    fn offered(&self) -> String;

    /// Those of its models that can think at levels, written likewise.
    fn thinking(&self) -> Option<String>;

    /// The model's next answer; its text goes to `sink` while it comes. Dropping the future
    /// gives it up.
    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>>;
}

/// Which providers there are.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The answers of the `script` provider; without it there is none.
    pub script: Option<PathBuf>,
}

/// All providers by name.
pub struct Providers {
    providers: Vec<Arc<dyn Provider>>,
}

impl Providers {
    /// `offline`, and `script` if its file is given. The fault names the file that cannot be
    /// read.
    pub fn new(options: &Options) -> Result<Self, ProviderFault> {
        let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(offline::Offline)];
        if let Some(path) = &options.script {
            providers.push(Arc::new(script::Script::load(path)?));
        }
        Ok(Providers { providers })
    }

    /// The models there are, as `provider/name`; `provider/*` stands for any name.
    pub fn offered(&self) -> Vec<String> {
        self.providers.iter().map(|one| one.offered()).collect()
    }

    /// Those of the models that can think at levels.
    pub fn thinking(&self) -> Vec<String> {
        self.providers
            .iter()
            .filter_map(|one| one.thinking())
            .collect()
    }

    /// The provider of `model` (`provider/name`), and the name without the provider.
    pub fn find<'a>(&self, model: &'a str) -> Option<(&Arc<dyn Provider>, &'a str)> {
        let (provider, name) = model.split_once('/')?;
        let found = self.providers.iter().find(|one| one.name() == provider)?;
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

    #[test]
    fn a_model_is_found_by_its_provider() {
        let providers = Providers::new(&Options::default()).unwrap();
        assert_eq!(providers.offered(), ["offline/search"]);
        let (provider, name) = providers.find("offline/search").unwrap();
        assert_eq!((provider.name(), name), ("offline", "search"));
        assert!(providers.find("script/x").is_none());
        assert!(providers.find("offline").is_none());
    }

    #[test]
    fn a_script_that_cannot_be_read_is_named() {
        let options = Options {
            script: Some(PathBuf::from("/no/such/script.json")),
        };
        let fault = Providers::new(&options).err().unwrap();
        assert!(fault.0.contains("/no/such/script.json"), "{fault}");
    }
}
