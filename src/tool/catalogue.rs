//! All tools by name. The runner calls tools through it, so that one place binds every result
//! and every call to the same limits.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::blocking::off_thread;
use super::dealing::{self, By, Called, Dealing};
use super::gate::{self, Aim};
use super::glob::Glob;
use super::grep::Grep;
use super::list::List;
use super::read::Read;
use super::{Tool, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::contract::delegate::{DelegateSlot, Site};
use crate::contract::runner::Admission;
use crate::kernel::approval::Consent;
use crate::kernel::gate::{Decision, Rights, Subject, Verdict, Writes};
use crate::kernel::step::Effect;

/// The tool whose calls are command lines.
const SHELL: &str = "shell";

/// What the catalogue must know.
#[derive(Clone, Default)]
pub struct Options {
    /// Folders that no tool may see, even inside a workspace: the daemon's state and
    /// configuration.
    pub denied: Vec<PathBuf>,
    /// The registry, once it is there.
    pub delegate: DelegateSlot,
}

/// A call of a tool.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Which.
    pub name: &'a str,
    /// The folder that it sees.
    pub root: &'a Path,
    /// What the run that calls it may do.
    pub rights: &'a Rights,
    /// With what.
    pub arguments: &'a Value,
}

/// All tools by name.
pub struct Catalogue {
    tools: Vec<Box<dyn Tool>>,
    denied: Vec<PathBuf>,
    delegate: DelegateSlot,
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
            .collect()
    }

    /// What a tool's calls are about, and what becomes of them where no rule speaks of them.
    fn manner(&self, name: &str) -> (Aim, Decision) {
        match self.get(name) {
            Some(tool) => (tool.aim(), tool.habit()),
            None if name == SHELL => (Aim::Command("command"), Decision::Ask),
            None => (Aim::Whole, Decision::Allow),
        }
    }

    /// Whether a call may be made: the gate, through which every call of every tool goes before
    /// anything of it is done.
    pub fn admit(&self, call: Call<'_>) -> BoxFuture<'static, Admission> {
        let (aim, habit) = self.manner(call.name);
        let is_confined = *call.rights.writes() != Writes::Anywhere;
        if matches!(aim, Aim::Command(_)) && is_confined {
            // Where a program writes, no rule of paths can tell.
            let text = format!(
                "access_denied: {} could write anywhere, and this agent may write {} only (field \
                 write_scope); nothing was done",
                call.name,
                call.rights.writes()
            );
            return Box::pin(std::future::ready(Admission::Refused(text)));
        }
        let (name, rights) = (call.name.to_owned(), call.rights.clone());
        let (root, denied) = (call.root.to_owned(), self.denied.clone());
        let arguments = call.arguments.clone();
        let judge = move |subject: Subject| {
            let Verdict { decision, why } = rights.judge(&name, habit, &subject);
            match decision {
                Decision::Allow => Admission::Goes,
                Decision::Ask => Admission::Asks(Consent {
                    why,
                    covers: subject.covers,
                }),
                Decision::Deny => Admission::Refused(format!(
                    "denied: {why}. The call of {name} was not made, nothing was done. Go on \
                     without it, or say in your result what you could not do."
                )),
            }
        };
        if !call.rights.looks_at_arguments() {
            match judge(Subject::default()) {
                // What a remembered decision covers is in the arguments.
                Admission::Asks(_) => {}
                decided => return Box::pin(std::future::ready(decided)),
            }
        }
        if !matches!(aim, Aim::Path(_)) {
            let nowhere = Err(String::new());
            let decided = judge(gate::subject(aim, &nowhere, &arguments));
            return Box::pin(std::future::ready(decided));
        }
        off_thread(move || {
            let workspace = Workspace::open(&root, &denied);
            judge(gate::subject(aim, &workspace, &arguments))
        })
    }

    /// Makes a call that was admitted. A tool that does not exist, a folder that cannot be opened
    /// and arguments that do not fit are failed results, in words for the model.
    pub fn call(&self, call: Call<'_>, site: Site) -> BoxFuture<'static, Called> {
        let Call {
            name,
            root,
            rights,
            arguments,
        } = call;
        let arguments = arguments.clone();
        if let Some(dealing) = Self::dealing(name) {
            let by = By { site, rights };
            let call = dealing.call(self.delegate.get(), by, arguments);
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
