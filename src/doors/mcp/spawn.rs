//! The tool `spawn`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::inbox;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::RunError;
use crate::wire::error::WireError;
use crate::wire::input::{self, RunTimeout};
use crate::wire::sessions;
use crate::wire::shapes::Word;

/// Starts an agent in the background.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spawn {
    /// The task, with everything the agent needs to know: it does not see this conversation.
    #[serde(deserialize_with = "input::text")]
    #[schemars(length(min = 1))]
    task: String,
    /// Name of the agent; the default agent if unset.
    #[serde(default, deserialize_with = "input::agent")]
    agent: Option<String>,
    /// Short label, shown to people and in lists.
    #[serde(default, deserialize_with = "input::name")]
    label: Option<String>,
    /// Model as `provider/name`; the agent's model if unset.
    model: Option<String>,
    /// Absolute working directory of its tools.
    #[serde(default, deserialize_with = "input::folder")]
    cwd: Option<String>,
    /// Maximum running time, such as `30m`, or a number of seconds.
    run_timeout: Option<RunTimeout>,
    /// Key of the inbox that receives the result; the common inbox of all MCP hosts if unset. Name
    /// one, such as `mcp:reviews`, to keep results apart.
    inbox: Option<SessionKey>,
    /// A key of your own choice: a repeat with the same key starts nothing and returns the same
    /// run.
    #[serde(default, deserialize_with = "input::key")]
    idempotency_key: Option<String>,
}

/// The run that was started.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpawnOutput {
    /// Id of the run, for `wait`, `status`, `result` and `cancel`.
    pub(super) run_id: RunId,
    /// Session the run works in; `send` continues the conversation with its agent.
    pub(super) session_key: SessionKey,
    /// `accepted`; in the result of a task, its outcome.
    pub(super) status: Word,
    /// Agent that executes it.
    pub(super) agent: String,
    /// Model it uses, `provider/name`.
    pub(super) model: String,
    /// Warnings to take note of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// In the result of a task: its final text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<String>,
    /// In the result of a task: why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunError>,
}

impl McpTool for Spawn {
    const NAME: &'static str = "spawn";
    const TITLE: &'static str = "Start a background agent";
    const ABOUT: &'static str = "Start an agent on a task in the background and return at once with \
        its runId. The run is stored: it survives the end of this conversation and every restart. \
        Get its result with wait, or later with inbox. Do not poll.";
    const EFFECT: ToolEffect = ToolEffect::Adds;
    type Output = SpawnOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<SpawnOutput, WireError> {
        let parent = inbox::key_of(self.inbox);
        let request = sessions::Spawn {
            task: self.task,
            // A repeat over a new connection must find the same run.
            run_id: match self.idempotency_key {
                Some(_) => None,
                None => Some(RunId(call.clock.new_id())),
            },
            parent: Some(parent.clone()),
            agent: self.agent,
            label: self.label,
            model: self.model,
            cwd: self.cwd,
            run_timeout: self.run_timeout,
            idempotency_key: self.idempotency_key,
            ..sessions::Spawn::default()
        };
        let spawned = match ask(&call.api, &request).await {
            // Mostly the inbox exists, so it is created only after this. Another call may have created it
            // meanwhile; where something else was not found, the repeat says so again.
            Err(error) if error.kind() == Some(Kind::NotFound) => {
                inbox::ensure(&call.api, &parent).await?;
                ask(&call.api, &request).await?
            }
            spawned => spawned?,
        };
        Ok(SpawnOutput {
            run_id: spawned.run_id,
            session_key: spawned.child_session_key,
            status: spawned.status.into(),
            agent: spawned.agent,
            model: spawned.model,
            warnings: spawned.warnings,
            result: None,
            error: None,
        })
    }
}
