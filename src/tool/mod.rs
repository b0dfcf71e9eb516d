//! The tools of agents, each with its effect class, and the catalogue through which runners call
//! them. The daemon passes the tool schemas to `agent`.

mod address;
mod arguments;
mod blocking;
mod catalogue;
mod definition_files;
mod delegating;
mod diff;
mod edit;
mod fetch;
mod gate;
mod glob;
mod grep;
mod ignored;
mod list;
mod mcp;
mod memory_tools;
mod open_folder;
mod output;
mod preview;
mod read;
mod registry_tool;
mod session_tools;
mod shell;
mod skill;
mod text_file;
mod todo;
mod walk;
mod workspace;
mod write;

pub use address::Private;
pub use arguments::misfit;
pub use catalogue::{Call, Catalogue, Options};
pub use gate::{Aim, admit_program};
pub use mcp::{Options as ServerOptions, Servers};
pub use output::{OUTPUT_LIMIT, ToolOutput};
pub use registry_tool::Called;
pub use session_tools::YIELD;
pub use shell::Shell;
pub use workspace::{Unopened, Workspace};

#[cfg(test)]
mod fetch_tests;
#[cfg(test)]
mod writing_tests;

use serde_json::Value;

use crate::contract::BoxFuture;
use crate::kernel::gate::Decision;
use crate::kernel::step::Effect;

/// A tool that an agent can call.
pub trait Tool: Send + Sync + 'static {
    /// The name by which models call it.
    fn name(&self) -> &'static str;

    /// What it does, for models and people.
    fn description(&self) -> &'static str;

    /// The JSON Schema of its arguments.
    fn parameters(&self) -> Value;

    /// Why these arguments do not fit the schema, so that the call is refused; `None` if they fit.
    fn misfit(&self, arguments: &Value) -> Option<String>;

    /// The effect of repeating a call; decides whether a call may be retried.
    fn effect(&self) -> Effect;

    /// The decision on a call that no rule of the agent's gate matches.
    fn default_decision(&self) -> Decision {
        Decision::Allow
    }

    /// The arguments that gate rules look at.
    fn aim(&self) -> Aim {
        Aim::Whole
    }

    /// Calls the tool in `workspace`. Arguments that do not fit the schema give an error result
    /// without any effect. Dropping the future stops the work.
    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput>;
}
