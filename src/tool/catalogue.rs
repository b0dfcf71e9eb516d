//! All tools by name. The runner calls tools through it, so that one place binds every result
//! and every call to the same limits.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::dealing::{self, Called, Dealing};
use super::glob::Glob;
use super::grep::Grep;
use super::list::List;
use super::read::Read;
use super::shell::Shell;
use super::{Tool, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::contract::delegate::{DelegateSlot, Site};
use crate::kernel::step::Effect;

/// What the catalogue must know.
#[derive(Clone, Default)]
pub struct Options {
    /// Folders that no tool may see, even inside a workspace: the daemon's state and
    /// configuration.
    pub denied: Vec<PathBuf>,
    /// The registry, once it is there.
    pub delegate: DelegateSlot,
    /// What commands are started with; `None`: there is no tool `shell`.
    pub shell: Option<Shell>,
}

/// All tools by name.
pub struct Catalogue {
    tools: Vec<Box<dyn Tool>>,
    denied: Vec<PathBuf>,
    delegate: DelegateSlot,
    shell: Option<Shell>,
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
            delegate: options.delegate,
            shell: options.shell,
        }
    }

    fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.tools
            .iter()
            .map(AsRef::as_ref)
            .find(|tool| tool.name() == name)
    }

    /// The tool by which a run deals with the registry.
    fn dealing(name: &str) -> Option<&'static Dealing> {
        dealing::ALL.iter().find(|tool| tool.name == name)
    }

    /// What a repeat of a call of this tool would do; `None` for a tool that does not exist.
    pub fn effect(&self, name: &str) -> Option<Effect> {
        self.get(name)
            .map(Tool::effect)
            .or_else(|| Self::dealing(name).map(|tool| tool.effect))
            .or_else(|| self.shell_called(name).map(|_| Shell::EFFECT))
    }

    fn shell_called(&self, name: &str) -> Option<&Shell> {
        self.shell.as_ref().filter(|_| name == Shell::NAME)
    }

    /// Does a call of this tool keep a time limit of its own, which its arguments may set?
    pub fn keeps_time(&self, name: &str) -> bool {
        self.shell_called(name).is_some()
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
            .chain(dealing::ALL.iter().map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema(),
                })
            }))
            .chain(self.shell.iter().map(|_| Shell::schema()))
            .collect()
    }

    /// Calls a tool on behalf of the step `site`, in the folder `root`. A tool that does not
    /// exist, a folder that cannot be opened and arguments that do not fit are failed results,
    /// in words for the model.
    pub fn call(
        &self,
        name: &str,
        root: &Path,
        site: Site,
        arguments: Value,
    ) -> BoxFuture<'static, Called> {
        if let Some(dealing) = Self::dealing(name) {
            let call = dealing.call(self.delegate.get(), site, arguments);
            return Box::pin(async move {
                match call.await {
                    Called::Done(output) => Called::Done(output.bounded()),
                    Called::Waits => Called::Waits,
                }
            });
        }
        let done = |output: ToolOutput| -> BoxFuture<'static, Called> {
            Box::pin(std::future::ready(Called::Done(output.bounded())))
        };
        if let Some(shell) = self.shell_called(name) {
            return match Workspace::open(root, &self.denied) {
                Ok(workspace) => {
                    let call = shell.call(site, &workspace, arguments);
                    Box::pin(async move { Called::Done(call.await.bounded()) })
                }
                Err(text) => done(ToolOutput::error(text)),
            };
        }
        let Some(tool) = self.get(name) else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            return done(ToolOutput::error(format!(
                "no tool {name:?}; the tools are {}",
                names.join(", ")
            )));
        };
        match Workspace::open(root, &self.denied) {
            Ok(workspace) => {
                let call = tool.call(workspace, arguments);
                Box::pin(async move { Called::Done(call.await.bounded()) })
            }
            Err(text) => done(ToolOutput::error(text)),
        }
    }
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
