//! `rpc.discover` and `gateway.*`: handshake, status, readiness and drain.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::input::DrainTimeout;
use super::method::no_params;
use super::shapes::Word;
use crate::contract::control::Then;
use crate::kernel::ids::{BootId, RunId, StepId};
use crate::kernel::scope::Scope;
use crate::kernel::time::Timestamp;

no_params! {
    /// Parameters of `rpc.discover`.
    Discover
    /// Parameters of `gateway.ping`.
    Ping
    /// Parameters of `gateway.status`.
    GetStatus
}

/// Result of `rpc.discover`: an OpenRPC document, see <https://spec.open-rpc.org>.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRpc(pub Box<RawValue>);

impl JsonSchema for OpenRpc {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpenRpc".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An OpenRPC document, see https://spec.open-rpc.org.",
            "type": "object",
            "properties": {
                "openrpc": { "type": "string" },
                "info": { "type": "object" },
                "servers": { "type": "array" },
                "methods": { "type": "array" },
                "components": { "type": "object" },
                "x-protocol": { "description": "Protocol version.", "type": "integer" },
                "x-event": { "description": "Schema of the envelope around an event's `data`." },
                "x-events": {
                    "description": "The kinds of events, each with the schema of its `data`.",
                    "type": "array",
                },
            },
            "required": ["openrpc", "info", "methods", "components"],
        })
    }
}

/// Result of a method that only confirms success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// Parameters of `gateway.hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    /// The client program; written to the daemon's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Protocol versions the client supports; any if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolRange>,
}

/// Name and version of a client program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientInfo {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
}

/// Range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtocolRange {
    /// Lowest version.
    pub min: u32,
    /// Highest version.
    pub max: u32,
}

/// Result of `gateway.hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// Protocol version in use.
    pub protocol: u32,
    /// Version of the daemon.
    pub version: String,
    /// Id of the store; event cursors and ids are valid only for this store.
    pub store_id: String,
    /// Names of all available methods.
    pub capabilities: Vec<String>,
    /// Limits for requests of a client.
    pub limits: Limits,
    /// Principal of this connection.
    pub principal: PrincipalInfo,
    /// Current time of the daemon's clock.
    pub server_time: Timestamp,
}

/// Limits for requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Maximum size of a request in bytes.
    pub payload: u64,
    /// Maximum size of a response in bytes.
    pub reply: u64,
    /// Maximum number of calls in flight per connection, waits excluded.
    pub in_flight: u32,
    /// Maximum number of waits in flight per connection.
    pub waits: u32,
    /// Maximum number of event subscriptions per connection.
    #[serde(default)]
    pub subscriptions: u32,
    /// Maximum number of entries in a batch.
    pub batch: u32,
}

/// Principal on whose behalf a connection makes calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrincipalInfo {
    /// Tenant.
    pub org: String,
    /// User.
    pub user: String,
    /// Granted scopes.
    pub scopes: Vec<Scope>,
}

/// Result of `gateway.status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Protocol version of the daemon.
    pub protocol: u32,
    /// Process id of the daemon.
    pub pid: u32,
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
    /// When this boot began.
    pub started_at: Timestamp,
    /// Time since `startedAt` in milliseconds.
    pub uptime_ms: u64,
    /// `starting`, `ready` or `draining`.
    pub phase: String,
    /// Id of the store.
    pub store_id: String,
    /// URL at which the daemon accepts TCP connections.
    pub url: String,
    /// Path of the Unix socket; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Agent used if a request names none.
    pub default_agent: String,
    /// Model of the default agent, `provider/name`.
    pub model: String,
    /// Configured model providers.
    #[serde(default)]
    pub providers: Vec<ModelProvider>,
    /// Report on the salvage of a damaged store; present until the damaged file is deleted or moved
    /// away. `gateway.doctor` has details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvaged: Option<Salvaged>,
    /// The newest backup of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<NewestBackup>,
    /// Deviations from the settings, such as file watches that fell back to polling.
    /// `gateway.doctor` says what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Program of the running daemon; absent if its file is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<RunningProgram>,
    /// Programs of runs that go on while no daemon runs, until their limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_programs: Vec<KeptProgram>,
    /// Load of each lane; the last entry is `global`, the sum of all lanes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneUse>,
    /// Counts of live objects.
    pub counts: Counts,
}

/// A program of a run that goes on while no daemon runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptProgram {
    /// The run.
    pub run_id: RunId,
    /// The step that started it.
    pub step_id: StepId,
}

/// The newest backup of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewestBackup {
    /// Path of the file.
    pub path: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// Size in bytes.
    pub bytes: u64,
}

/// Program of the running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningProgram {
    /// Path of the file that it was started from.
    pub path: String,
    /// What happened to the file since: `replaced` or `removed`; absent if nothing. A restart switches
    /// to the program that is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Word>,
}

/// Load of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaneUse {
    /// `main`, `subagent`, `nested` or `global`.
    pub name: Word,
    /// Number of runs that hold a slot.
    pub running: u64,
    /// Number of runs that wait for a slot.
    pub queued: u64,
    /// Maximum number of slots; 0 means the lane is closed.
    pub limit: u64,
}

/// A model provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelProvider {
    /// Name of the provider, the part of `provider/name` before the slash.
    pub name: String,
    /// API of the provider: `openai`, `anthropic` or `built-in`.
    pub kind: String,
    /// Models it offers; `name/*` means any.
    pub models: Vec<String>,
    /// Why no call can succeed with the present configuration; absent if there is no problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Health with the most recently used key; absent if no request was sent since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Features that its models were found not to support since the start, one per line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<String>,
}

/// Health of a provider, for all runs that use the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProviderState")]
pub struct Health {
    /// `ok`; `paused`: no request is sent; `probing`: one test request is sent; `recovering`: the
    /// test request succeeded and further ones follow, a few at a time.
    pub state: Word,
    /// When it left state `ok`; absent if `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// No request is sent before this time; absent if requests are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Failures since the last successful request.
    pub failures: u32,
    /// Last error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Report on the salvage of a damaged store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Salvaged {
    /// When the store was salvaged.
    pub at: Timestamp,
    /// Path of the damaged file. An operator deletes it or moves it away after review.
    pub set_aside: String,
    /// Number of rows kept.
    pub kept: u64,
    /// Number of rows known to be lost.
    pub lost: u64,
    /// True if more rows may be lost than are counted.
    pub more: bool,
    /// Rows that were read but could not be decoded; they are in quarantine.
    pub quarantined: u64,
}

/// Counts of live objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Runs that wait for a slot.
    pub queued: u64,
    /// Runs that hold a slot.
    pub running: u64,
    /// Paused runs.
    pub paused: u64,
    /// Runs whose turn has ended while runs they requested are still open.
    pub settling: u64,
    /// Announces that are not yet delivered.
    pub pending_announces: u64,
    /// Tool calls that wait for a user's approval.
    #[serde(default)]
    pub approvals: u64,
    /// Questions that wait for a user's answer.
    #[serde(default)]
    pub questions: u64,
    /// Runs with an environment of their own that programs may still carry.
    #[serde(default)]
    pub environments: u64,
}

/// Body of `GET /ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `starting`, `ready` or `draining`.
    pub state: String,
    /// Progress of the restore at startup.
    pub restoring: Restoring,
}

/// Progress of the restore at startup; both 0 if none is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restoring {
    /// Number of rows restored.
    pub done: u64,
    /// Total number of rows to restore.
    pub total: u64,
}

/// Parameters of `gateway.drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// What follows the drain.
    pub then: Then,
    /// Time limit for steps in flight; the configured limit if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DrainTimeout>,
}

/// Result of `gateway.drain`: the drain has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Draining {
    /// Time limit for steps in flight, in milliseconds.
    pub timeout_ms: u64,
}
