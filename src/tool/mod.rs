//! The tools of agents, each with its effect class, and the catalogue through which runners call
//! them. The daemon passes the tool schemas to `agent`.

mod arguments;
mod blocking;
mod built_in;
mod catalogue;
mod delegating;
mod fetch;
pub(crate) mod files;
mod gate;
mod mcp;
mod memory_tools;
mod nodes;
mod output;
mod registry_tool;
mod session_tools;
mod shell;
mod skill;
mod todo;

pub use crate::tool::files::workspace::{Unopened, Workspace};
pub use arguments::misfit;
pub use catalogue::{Call, Catalogue, ToolOptions};
pub use gate::{Aim, admit_argv, admit_program, admit_unknown};
pub use mcp::{McpOptions as ServerOptions, McpServers};
pub use nodes::NodeContext;
pub use output::{OUTPUT_LIMIT, ToolOutput};
pub use registry_tool::Called;
pub use session_tools::YIELD;
pub use shell::Shell;

#[cfg(test)]
mod fetch_tests;
#[cfg(test)]
mod writing_tests;
