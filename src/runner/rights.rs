//! What a run may do, by what it has pinned: its agent's definition, below what its session was
//! given. Asked before each step that acts, and by the tools themselves.

use crate::agent::AgentDefinition;
use crate::contract::journal::RunView;
use crate::kernel::gate::{Bundle, Rights};
use crate::kernel::run::RunError;

/// What the run may do.
pub(super) fn rights(definition: &AgentDefinition, view: &RunView) -> Result<Rights, RunError> {
    let bundle = match &view.bundle {
        None => Bundle::default(),
        Some(body) => serde_json::from_str(body.json()).map_err(|error| {
            let message = format!("what this run may do at most cannot be read: {error}");
            RunError::new("pins", message)
        })?,
    };
    Ok(definition.rights(bundle))
}
