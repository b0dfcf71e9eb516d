//! Who runs: agent definitions, the built-in ones, and the catalog that the registry asks.

mod agents;
mod definition;
mod presets;

pub use agents::{Agents, Options};
pub use definition::AgentDefinition;
