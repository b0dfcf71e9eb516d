//! The tools `inbox` and `ack`. An inbox is a client-owned session: results of runs are stored there
//! until they are acknowledged, whichever host spawned the runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{AgentId, AnnounceId, RunId, SessionKey};
use crate::kernel::session::Owner;
use crate::kernel::time::Timestamp;
use crate::wire::error::WireError;
use crate::wire::input::{self, PageSize};
use crate::wire::sessions;
use crate::wire::shapes::{Announce, Word};

/// Key of the inbox of calls that name none.
pub(super) const DEFAULT_INBOX: &str = "mcp:inbox";

/// The inbox that a call names, or the default one.
pub(super) fn key_of(named: Option<SessionKey>) -> SessionKey {
    named.unwrap_or_else(|| {
        SessionKey::parse(DEFAULT_INBOX).expect("the default key is a valid session key")
    })
}

/// The inbox exists once this returns.
pub(super) async fn ensure(api: &impl Api, key: &SessionKey) -> Result<(), WireError> {
    let session_key = key.clone();
    match ask(api, &sessions::GetSession { session_key }).await {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == Some(Kind::NotFound) => {}
        Err(error) => return Err(error),
    }
    let create = sessions::Create {
        key: Some(key.clone()),
        owner: Some(Owner::Client),
        ..sessions::Create::default()
    };
    ask(api, &create).await.map(|_| ())
}

/// Reads results that no host has acknowledged.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Inbox {
    /// Key of the inbox that was named in `spawn`; the common inbox of all MCP hosts if unset.
    inbox: Option<SessionKey>,
    /// Include acknowledged results.
    #[serde(default)]
    acked: bool,
    /// Maximum number of results, 1 to 500; 50 if unset.
    #[serde(default)]
    limit: PageSize,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// Results, oldest first.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct InboxOutput {
    /// The results.
    results: Vec<InboxResult>,
    /// Pass it as `cursor` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The result of a run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct InboxResult {
    /// Pass it to `ack`.
    announce_id: AnnounceId,
    /// Id of the run.
    run_id: RunId,
    /// Session the run worked in.
    session_key: SessionKey,
    /// Agent that executed it.
    agent: AgentId,
    /// Label given when it was spawned.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// `ok`, `error`, `timeout`, `cancelled` or `interrupted`.
    status: Word,
    /// Its final text; the tool `result` returns all of a truncated one.
    result: String,
    /// True if `result` is truncated.
    result_truncated: bool,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// When it arrived.
    at: Timestamp,
    /// When it was acknowledged; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    acked_at: Option<Timestamp>,
}

impl From<Announce> for InboxResult {
    fn from(announce: Announce) -> Self {
        InboxResult {
            announce_id: announce.announce_id,
            run_id: announce.run_id,
            session_key: announce.session_key,
            agent: announce.agent,
            label: announce.label,
            status: announce.outcome,
            result: announce.result,
            result_truncated: announce.truncated,
            error: announce.error,
            at: announce.at,
            acked_at: announce.acked_at,
        }
    }
}

impl McpTool for Inbox {
    const NAME: &'static str = "inbox";
    const TITLE: &'static str = "Read results of runs";
    const ABOUT: &'static str = "List results of ended runs that were not acknowledged yet, oldest \
        first, also of runs that an earlier conversation or another host spawned. Acknowledge each \
        with ack once you have used it.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = InboxOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<InboxOutput, WireError> {
        let is_default = self.inbox.is_none();
        let request = sessions::GetInbox {
            session_key: key_of(self.inbox),
            acked: self.acked,
            limit: self.limit,
            cursor: self.cursor,
        };
        let page = match ask(&call.api, &request).await {
            // The common inbox is created by the first spawn.
            Err(error) if is_default && error.kind() == Some(Kind::NotFound) => sessions::Inbox {
                announces: Vec::new(),
                next_cursor: None,
            },
            page => page?,
        };
        Ok(InboxOutput {
            results: page.announces.into_iter().map(InboxResult::from).collect(),
            next_cursor: page.next_cursor,
        })
    }
}

/// Acknowledges results.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Ack {
    /// The `announceId` of each result.
    #[serde(deserialize_with = "input::ids")]
    #[schemars(length(min = 1))]
    announce_ids: Vec<AnnounceId>,
    /// Key of the inbox; the common inbox of all MCP hosts if unset.
    inbox: Option<SessionKey>,
}

/// What is acknowledged.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AckOutput {
    /// Results acknowledged by this or an earlier call.
    announce_ids: Vec<AnnounceId>,
}

impl McpTool for Ack {
    const NAME: &'static str = "ack";
    const TITLE: &'static str = "Acknowledge results";
    const ABOUT: &'static str = "Acknowledge results of the inbox, so that no host sees them as new. \
        Safe to repeat.";
    const EFFECT: ToolEffect = ToolEffect::Marks;
    type Output = AckOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<AckOutput, WireError> {
        let request = sessions::Ack {
            session_key: key_of(self.inbox),
            announce_ids: self.announce_ids,
        };
        let acked = ask(&call.api, &request).await?;
        Ok(AckOutput {
            announce_ids: acked.announce_ids,
        })
    }
}
