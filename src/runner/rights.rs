//! The permissions of a run by what it has pinned: its agent's definition, limited by its session's
//! bundle. Evaluated before each step with an effect, and by the tools themselves.

use crate::agent::AgentDefinition;
use crate::contract::journal::RunView;
use crate::kernel::policy::gate::{Bundle, Rights};
use crate::kernel::run::RunError;

/// The effective rights of the run.
pub(super) fn rights(definition: &AgentDefinition, view: &RunView) -> Result<Rights, RunError> {
    let bundle = match &view.bundle {
        None => Bundle::default(),
        Some(body) => serde_json::from_str(body.json()).map_err(|error| {
            let message = format!("the permissions that this run pinned cannot be read: {error}");
            RunError::new("pins", message)
        })?,
    };
    Ok(definition.rights(bundle))
}
