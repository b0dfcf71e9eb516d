//! What an agent can do: the tools, each with its effect class, and the catalogue through
//! which a runner calls them. The daemon hands their schemas to the agent room.

mod address;
mod arguments;
mod beneath;
mod blocking;
mod catalogue;
mod dealing;
mod defining;
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
mod output;
mod preview;
mod put;
mod read;
mod session_tools;
mod shell;
mod skill;
mod todo;
mod walk;
mod workspace;
mod write;

pub use address::Private;
pub use arguments::misfit;
pub use catalogue::{Call, Catalogue, Options};
pub use dealing::Called;
pub use gate::{Aim, admit_program};
pub use mcp::{Options as ServerOptions, Servers};
pub use output::{OUTPUT_LIMIT, ToolOutput};
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

/// Something that an agent can do.
pub trait Tool: Send + Sync + 'static {
    /// The name by which models call it.
    fn name(&self) -> &'static str;

    /// What it does, for models and people.
    fn description(&self) -> &'static str;

    /// The JSON Schema of its arguments.
    fn parameters(&self) -> Value;

    /// Why a call with these arguments is not carried out: they do not fit the schema.
    fn misfit(&self, arguments: &Value) -> Option<String>;

    /// What a repeat of a call would do to the world.
    fn effect(&self) -> Effect;

    /// What becomes of a call where no rule of the agent's gate speaks of it.
    fn habit(&self) -> Decision {
        Decision::Allow
    }

    /// Which of its arguments a rule of a gate looks at.
    fn aim(&self) -> Aim {
        Aim::Whole
    }

    /// Calls it in `workspace`. Arguments that do not fit the schema give a result that says
    /// so, and nothing is done. Dropping the future stops the work.
    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput>;
}
