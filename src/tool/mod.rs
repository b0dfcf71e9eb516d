//! The tools of agents, each with its effect class, and the catalogue through which runners call
//! them. The daemon passes the tool schemas to `agent`.

mod arguments;
mod blocking;
mod catalogue;
mod delegating;
mod fetch;
pub(crate) mod files;
mod gate;
mod mcp;
mod memory_tools;
mod output;
mod registry_tool;
mod session_tools;
mod shell;
mod skill;
mod todo;

pub use crate::tool::fetch::address::Private;
pub use crate::tool::files::workspace::{Unopened, Workspace};
pub use arguments::misfit;
pub use catalogue::{Call, Catalogue, Options};
pub use gate::{Aim, admit_program};
pub use mcp::{Options as ServerOptions, Servers};
pub use output::{OUTPUT_LIMIT, ToolOutput};
pub use registry_tool::Called;
pub use session_tools::YIELD;
pub use shell::Shell;

#[cfg(test)]
mod fetch_tests;
#[cfg(test)]
mod writing_tests;

use serde_json::Value;

use crate::contract::BoxFuture;
use crate::kernel::policy::gate::Decision;
use crate::kernel::run::step::Effect;

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
