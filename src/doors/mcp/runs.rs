//! The tools that look at runs and cancel them: `status`, `list` and `cancel`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::output::RunOutput;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::error::WireError;
use crate::wire::input::{self, PageSize, WaitTimeout};
use crate::wire::lifecycle::CancelRun;
use crate::wire::runs::{self, ListRuns, State};

/// Shows one run.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Status {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    run_id: RunId,
}

impl McpTool for Status {
    const NAME: &'static str = "status";
    const TITLE: &'static str = "Show a run";
    const ABOUT: &'static str = "Show what a run is doing and whether it needs a person. To get its \
        result use wait; do not call this in a loop.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = RunOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<RunOutput, WireError> {
        let run_ids = Some(vec![self.run_id]);
        let request = runs::Wait {
            run_ids,
            wait_timeout: WaitTimeout(Duration::ZERO),
            ..runs::Wait::default()
        };
        let waited = ask(&call.api, &request).await?;
        let run = waited.runs.into_iter().next().map(RunOutput::from);
        let run = run.filter(|run| run.session_key.is_some());
        run.ok_or_else(|| Fault::not_found("run", self.run_id).into())
    }
}

/// Lists runs.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct List {
    /// Only runs in these states; `queued`, `running`, `paused` and `settling` are open. Any state
    /// if empty.
    #[serde(default)]
    states: Vec<State>,
    /// Only runs of this session.
    session_key: Option<SessionKey>,
    /// Only runs whose results go to this inbox.
    inbox: Option<SessionKey>,
    /// Only runs of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    agent: Option<String>,
    /// Only runs with this label.
    label: Option<String>,
    /// Maximum number of runs, 1 to 500; 50 if unset.
    #[serde(default)]
    limit: PageSize,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// Runs, newest first; results are cut to 1 KiB.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListOutput {
    /// The runs.
    runs: Vec<RunOutput>,
    /// Pass it as `cursor` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl McpTool for List {
    const NAME: &'static str = "list";
    const TITLE: &'static str = "List runs";
    const ABOUT: &'static str = "List runs, newest first, also those that other hosts or people \
        started. Filter by state, session, inbox, agent or label.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = ListOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<ListOutput, WireError> {
        let request = ListRuns {
            states: self.states,
            session_key: self.session_key,
            parent: self.inbox,
            agent: self.agent,
            label: self.label,
            limit: self.limit,
            cursor: self.cursor,
            ..ListRuns::default()
        };
        let page = ask(&call.api, &request).await?;
        Ok(ListOutput {
            runs: page.runs.into_iter().map(RunOutput::from).collect(),
            next_cursor: page.next_cursor,
        })
    }
}

/// Cancels a run.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Cancel {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    run_id: RunId,
    /// Why, for people.
    #[serde(default, deserialize_with = "input::name")]
    reason: Option<String>,
}

/// What was cancelled. Every run of the tree is in one of the lists.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelOutput {
    /// Runs that this call ended.
    cancelled: Vec<RunId>,
    /// Runs that had ended before.
    already_ended: Vec<RunId>,
    /// Runs marked as cancelled that are still stopping.
    not_ended: Vec<RunId>,
}

impl McpTool for Cancel {
    const NAME: &'static str = "cancel";
    const TITLE: &'static str = "Cancel a run";
    const ABOUT: &'static str = "Cancel a run and the runs that it has started. Its results so far \
        stay readable. Safe to repeat.";
    const EFFECT: ToolEffect = ToolEffect::Ends;
    type Output = CancelOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<CancelOutput, WireError> {
        let request = CancelRun {
            run_id: self.run_id,
            reason: self.reason,
        };
        let ended = ask(&call.api, &request).await?;
        Ok(CancelOutput {
            cancelled: ended.cancelled,
            already_ended: ended.already_ended,
            not_ended: ended.not_ended,
        })
    }
}
