//! What an agent can do: the tools, each with its effect class, and the catalogue through
//! which a runner calls them. The daemon hands their schemas to the agent room.

mod arguments;
mod blocking;
mod catalogue;
mod dealing;
mod glob;
mod grep;
mod list;
mod output;
mod read;
mod shell;
mod walk;
mod workspace;

pub use catalogue::{Catalogue, Options};
pub use dealing::Called;
pub use output::{OUTPUT_LIMIT, ToolOutput};
pub use shell::Shell;
pub use workspace::Workspace;

use serde_json::Value;

use crate::contract::BoxFuture;
use crate::kernel::step::Effect;

/// Something that an agent can do.
pub trait Tool: Send + Sync + 'static {
    /// The name by which models call it.
    fn name(&self) -> &'static str;

    /// What it does, for models and people.
    fn description(&self) -> &'static str;

    /// The JSON Schema of its arguments.
    fn parameters(&self) -> Value;

    /// What a repeat of a call would do to the world.
    fn effect(&self) -> Effect;

    /// Calls it in `workspace`. Arguments that do not fit the schema give a result that says
    /// so, and nothing is done. Dropping the future stops the work.
    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput>;
}
