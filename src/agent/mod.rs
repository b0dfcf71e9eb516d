//! Agent definitions, their sources, and the catalog that the registry queries. [`folder`] finds a
//! definition file, [`raw`] parses it, [`fields`] checks it, [`set`] decides whether it takes
//! effect, and [`view`] prepares it for spawns and lists.

mod agents;
mod base;
mod command;
mod definition;
mod delegating;
mod dialects;
mod fields;
mod folder;
mod folder_cache;
mod health;
mod last_read;
mod merge;
mod names;
mod nodes;
mod presets;
mod project;
mod raw;
mod served;
mod set;
mod tools;
mod values;
mod view;

#[cfg(test)]
mod agents_tests;
#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod health_tests;

pub use agents::{AgentCatalog, AgentCatalogOptions, CheckedAgent};
pub use command::{CommandSpec, ProgramCheck, Progress, Speaks, Stdin, TASK};
pub use definition::{AgentDefinition, Strategy};
pub use health::ProviderCheck;
pub use project::find as project;
pub use raw::LoadError;
pub use view::AvailableModels;
