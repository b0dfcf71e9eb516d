//! The tools that wait for runs: `wait` and `send`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::output::RunOutput;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::RunError;
use crate::wire::error::WireError;
use crate::wire::input::{self, WAIT_LIMIT, WaitTimeout};
use crate::wire::runs::{self, WAIT_RUNS, WaitMode};
use crate::wire::sessions;

/// Timeout of a wait that names none: below the 60 s after which hosts commonly give a call up.
const WAIT_DEFAULT: Duration = Duration::from_secs(50);
/// Maximum length of one wait in the daemon; a longer one is several. What a cancelled call waits for
/// in the daemon ends with it at the latest.
const SLICE: Duration = Duration::from_secs(60);
/// Pause before a wait that a drain of the daemon has ended is repeated.
const AGAIN: Duration = Duration::from_millis(250);

/// Waits until runs have ended.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wait {
    /// Ids of the runs, 1 to 256.
    #[serde(deserialize_with = "input::ids")]
    #[schemars(length(min = 1, max = WAIT_RUNS))]
    run_ids: Vec<RunId>,
    /// `all`: until all have ended; `any`: until one has. `all` if unset.
    mode: Option<WaitMode>,
    /// How long to wait at most, such as `10m`, or a number of seconds; 50 s if unset, 1 h at most.
    timeout: Option<WaitTimeout>,
}

/// The runs as they are now.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitOutput {
    /// True if the condition is met. False if the timeout has passed: the runs go on, so wait again
    /// or do other work.
    done: bool,
    /// One entry per id, in the order of the call.
    runs: Vec<RunOutput>,
}

impl McpTool for Wait {
    const NAME: &'static str = "wait";
    const TITLE: &'static str = "Wait for runs";
    const ABOUT: &'static str = "Wait until runs have ended and return their results, or their \
        present state if the timeout passes first. A timeout cancels nothing.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = WaitOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<WaitOutput, WireError> {
        let timeout = self.timeout.map_or(WAIT_DEFAULT, |timeout| timeout.0);
        let waited = call
            .with_progress(&self.run_ids, wait(call, &self.run_ids, self.mode, timeout))
            .await?;
        Ok(WaitOutput {
            done: waited.done,
            runs: waited.runs.into_iter().map(RunOutput::from).collect(),
        })
    }
}

/// Waits for runs, over a restart of the daemon where the API outlives it.
async fn wait<A: Api>(
    call: &McpCall<A>,
    run_ids: &[RunId],
    mode: Option<WaitMode>,
    timeout: Duration,
) -> Result<runs::Waited, WireError> {
    let deadline = call.clock.monotonic() + timeout.min(WAIT_LIMIT);
    loop {
        let left = deadline.saturating_sub(call.clock.monotonic());
        let request = runs::Wait {
            run_ids: Some(run_ids.to_vec()),
            mode,
            wait_timeout: WaitTimeout(left.min(SLICE)),
            ..runs::Wait::default()
        };
        let waited = ask(&call.api, &request).await?;
        let is_answered = !waited.runs.is_empty();
        if waited.done || (left <= SLICE && is_answered && waited.cause == "window") {
            return Ok(waited);
        }
        if waited.cause == "draining" {
            if is_answered && (!A::OUTLIVES_DAEMON || left.is_zero()) {
                return Ok(waited);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Sends a message to a session.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Send {
    /// Key of the session: the `sessionKey` of a run. Give this or `label`.
    session_key: Option<SessionKey>,
    /// Label of the session.
    label: Option<String>,
    /// The message.
    #[serde(deserialize_with = "input::text")]
    #[schemars(length(min = 1))]
    message: String,
    /// How long to wait for the reply at most, such as `2m`, or a number of seconds; 50 s if unset,
    /// 1 h at most, 0 does not wait.
    timeout: Option<WaitTimeout>,
    /// A key of your own choice: a repeat with the same key sends nothing more.
    #[serde(default, deserialize_with = "input::key")]
    idempotency_key: Option<String>,
}

/// What became of the message.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendOutput {
    /// Run of the turn that answers; `wait` for it if there is no reply yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The session.
    session_key: SessionKey,
    /// True if the message is stored in the session.
    delivered: bool,
    /// `accepted` or `pending` without a reply yet, `delivered`, or the outcome of the turn.
    status: String,
    /// The reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    /// Why the turn did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
}

impl McpTool for Send {
    const NAME: &'static str = "send";
    const TITLE: &'static str = "Send a message to a session";
    const ABOUT: &'static str = "Send a message to a session, such as that of an ended run, and wait \
        for its agent's reply. The message is stored: after a timeout wait for the runId instead of \
        sending it again.";
    const EFFECT: ToolEffect = ToolEffect::Adds;
    type Output = SendOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<SendOutput, WireError> {
        let key = self.idempotency_key;
        let request = sessions::Send {
            session_key: self.session_key,
            label: self.label,
            message: self.message,
            // The run is waited for below, which ends with the call and goes on over a restart.
            wait_timeout: WaitTimeout(Duration::ZERO),
            // A repeat over a new connection must find the same message.
            idempotency_key: key.or_else(|| Some(format!("mcp:{}", call.clock.new_id()))),
            ..sessions::Send::default()
        };
        let timeout = self.timeout.map_or(WAIT_DEFAULT, |timeout| timeout.0);
        let mut sent = ask(&call.api, &request).await?;
        if let (Some(run), false) = (sent.run_id, sent.replied || timeout.is_zero()) {
            let runs = [run];
            call.with_progress(&runs, wait(call, &runs, None, timeout))
                .await?;
            // The same key sends nothing more and answers with what there is now.
            sent = ask(&call.api, &request).await?;
        }
        Ok(SendOutput {
            run_id: sent.run_id,
            session_key: sent.session_key,
            delivered: sent.delivered,
            status: sent.status,
            reply: sent.reply,
            error: sent.error,
        })
    }
}
