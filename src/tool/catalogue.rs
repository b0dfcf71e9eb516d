//! All tools by name. The runner calls tools through it, so that one place binds every result
//! and every call to the same limits.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::glob::Glob;
use super::grep::Grep;
use super::list::List;
use super::read::Read;
use super::{Tool, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::kernel::step::Effect;

/// What the catalogue must know.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders that no tool may see, even inside a workspace: the daemon's state and
    /// configuration.
    pub denied: Vec<PathBuf>,
}

/// All tools by name.
pub struct Catalogue {
    tools: Vec<Box<dyn Tool>>,
    denied: Vec<PathBuf>,
}

impl Catalogue {
    /// The built-in tools.
    pub fn new(options: Options) -> Self {
        Catalogue {
            tools: vec![
                Box::new(Read),
                Box::new(List),
                Box::new(Glob),
                Box::new(Grep),
            ],
            denied: options.denied,
        }
    }

    fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.tools
            .iter()
            .map(AsRef::as_ref)
            .find(|tool| tool.name() == name)
    }

    /// What a repeat of a call of this tool would do; `None` for a tool that does not exist.
    pub fn effect(&self, name: &str) -> Option<Effect> {
        self.get(name).map(Tool::effect)
    }

    /// Every tool as models see it: `{name, description, parameters}`.
    pub fn schemas(&self) -> Vec<Value> {
        self.tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name(),
                    "description": tool.description(),
                    "parameters": tool.parameters(),
                })
            })
            .collect()
    }

    /// Calls a tool in the folder `root`. A tool that does not exist, a folder that cannot be
    /// opened and arguments that do not fit are failed results, in words for the model.
    pub fn call(
        &self,
        name: &str,
        root: &Path,
        arguments: Value,
    ) -> BoxFuture<'static, ToolOutput> {
        let Some(tool) = self.get(name) else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let text = format!("no tool {name:?}; the tools are {}", names.join(", "));
            return Box::pin(std::future::ready(ToolOutput::error(text).bounded()));
        };
        match Workspace::open(root, &self.denied) {
            Ok(workspace) => {
                let call = tool.call(workspace, arguments);
                Box::pin(async move { call.await.bounded() })
            }
            Err(text) => Box::pin(std::future::ready(ToolOutput::error(text).bounded())),
        }
    }
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
