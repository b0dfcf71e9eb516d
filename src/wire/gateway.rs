//! `gateway.*`: who answers, how it is, and its drain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{DrainTimeout, choice};
use super::shapes::Word;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;

/// A request without parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}
impl Params for NoParams {}

/// An answer that says only that it worked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// `gateway.hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hello {
    /// Who calls; for the daemon's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Which protocols the client can speak; all if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolRange>,
}
impl Params for Hello {}

/// A client program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Protocol numbers, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtocolRange {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

/// What `gateway.hello` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The protocol in use.
    pub protocol: u32,
    /// The daemon's version.
    pub version: String,
    /// Which store answers; event cursors and ids belong to it.
    pub store_id: String,
    /// The methods that there are.
    pub capabilities: Vec<String>,
    /// How much a client may ask for.
    pub limits: Limits,
    /// On whose behalf this connection speaks.
    pub principal: PrincipalInfo,
    /// The daemon's clock.
    pub server_time: Timestamp,
}

/// How much a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of a request.
    pub payload: u64,
    /// Bytes of an answer.
    pub reply: u64,
    /// Calls in flight on one connection, without waits.
    pub in_flight: u32,
    /// Waits in flight on one connection.
    pub waits: u32,
    /// Event subscriptions of one connection.
    #[serde(default)]
    pub subscriptions: u32,
    /// Entries of a batch.
    pub batch: u32,
}

/// On whose behalf a connection speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrincipalInfo {
    /// The tenant.
    pub org: String,
    /// The user.
    pub user: String,
    /// What it may do.
    pub scopes: Vec<String>,
}

/// What `gateway.status` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The protocol it speaks.
    pub protocol: u32,
    /// Its process.
    pub pid: u32,
    /// This life of the process.
    pub boot_id: BootId,
    /// When this life began.
    pub started_at: Timestamp,
    /// How long ago that was.
    pub uptime_ms: u64,
    /// `starting`, `ready` or `draining`.
    pub phase: String,
    /// Which store answers.
    pub store_id: String,
    /// Where it listens.
    pub url: String,
    /// The path of its Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The agent used where none is named.
    pub default_agent: String,
    /// The model in force for that agent, `provider/name`.
    pub model: String,
    /// Who answers for models.
    #[serde(default)]
    pub providers: Vec<ModelProvider>,
    /// What was saved of a damaged store, as long as the damaged file lies where it was put:
    /// `gateway.doctor` says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvaged: Option<Salvaged>,
    /// What works otherwise than the settings say, such as files that are watched by looking at
    /// them: `gateway.doctor` says what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// How full the lanes are; the last is `global`, all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneUse>,
    /// What is live.
    pub counts: Counts,
}

/// A lane and how full it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaneUse {
    /// `main`, `subagent`, `nested` or `global`.
    pub name: Word,
    /// Runs that hold a slot of it.
    pub running: u64,
    /// Runs that want one.
    pub queued: u64,
    /// How many may hold one at once; 0: it is closed.
    pub limit: u64,
}

/// A provider of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelProvider {
    /// Its name, the part of `provider/name` before the slash.
    pub name: String,
    /// What it speaks: `openai`, `anthropic` or `built-in`.
    pub kind: String,
    /// The models it offers; `name/*` stands for any.
    pub models: Vec<String>,
    /// Why no call can succeed as things are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How it is with the key that was used last; unset: it was not asked since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// What its models were found not to take since the start, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<String>,
}

/// How a provider is, for all runs that ask it with one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`; `paused`: no request is sent; `probing`: one is, to see whether it is taken;
    /// `recovering`: it was, and others follow, a few at a time.
    pub state: Word,
    /// Since when it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when no request is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Failures since the last request that was answered.
    pub failures: u32,
    /// What has failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What was saved of a damaged store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Salvaged {
    /// When.
    pub at: Timestamp,
    /// Where the damaged file lies. Whoever has seen to it deletes it, or moves it away.
    pub set_aside: String,
    /// Rows that were kept.
    pub kept: u64,
    /// Rows that are known to be lost.
    pub lost: u64,
    /// There may be more lost rows than are known.
    pub more: bool,
    /// Rows that were read and did not fit; they lie in quarantine.
    pub quarantined: u64,
}

/// What is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Runs that want a slot.
    pub queued: u64,
    /// Runs that hold a slot.
    pub running: u64,
    /// Runs that hold still.
    pub paused: u64,
    /// Runs whose turn is over, but not all that they asked for.
    pub settling: u64,
    /// Announces that wait to be delivered.
    pub pending_announces: u64,
    /// Calls of tools that wait for a person's leave.
    #[serde(default)]
    pub approvals: u64,
    /// Questions that wait for a person's answer.
    #[serde(default)]
    pub questions: u64,
    /// Runs with an environment of their own that programs may still carry.
    #[serde(default)]
    pub environments: u64,
}

/// What `GET /ready` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `starting`, `ready` or `draining`.
    pub state: String,
    /// How far the restore has come.
    pub restoring: Restoring,
}

/// Rows restored, and to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restoring {
    /// Rows restored.
    pub done: u64,
    /// Rows to restore.
    pub total: u64,
}

choice! {
    /// What follows a drain.
    Then {
        /// The process ends.
        Stop = "stop",
        /// The process ends and is started again.
        Restart = "restart",
        /// Work is taken again.
        Resume = "resume",
    }
}

/// `gateway.drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// What follows.
    pub then: Then,
    /// How long steps in flight may go on; as configured if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DrainTimeout>,
}
impl Params for Drain {}

/// What `gateway.drain` answers: it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Draining {
    /// How long steps in flight may go on.
    pub timeout_ms: u64,
}
