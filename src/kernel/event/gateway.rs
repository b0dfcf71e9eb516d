//! Data of events about the daemon, its agents and skills, and alerts for operators.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::kernel::ids::{BootId, RunId, SessionId};
use crate::kernel::time::Timestamp;

/// The set of agents in effect has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentsChanged {
    /// Version of the set, raised by each change.
    pub version: i64,
    /// Trigger of the change: `start`, `watch`, `manual` or `stored`.
    pub reason: Word,
    /// Names that are newly in effect.
    pub added: Vec<String>,
    /// Names whose definition has changed.
    pub changed: Vec<String>,
    /// Names that are no longer in effect.
    pub removed: Vec<String>,
}

/// The skills available in a workspace have changed; the next runs there use the new set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkillsChanged {
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Version of the skills in the workspace, raised by each change.
    pub version: i64,
    /// Trigger of the change: `start`, `watch`, `manual`, `config` or `remote-node`.
    pub reason: Word,
    /// Number of skills that can be used now.
    pub skills: usize,
}

/// A usage threshold was exceeded; emitted once per hour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageAlert {
    /// `cost_per_hour` or `failure_rate`.
    pub threshold: Word,
    /// Measured value: millionths of the currency of the prices, or percent.
    pub value: u64,
    /// Configured threshold, in the same unit as `value`.
    pub limit: u64,
    /// Start of the hour.
    pub since: Timestamp,
    /// End of the hour.
    pub until: Timestamp,
}

/// A condition that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "alert",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum AlertRaised {
    /// A row could not be decoded and was quarantined.
    RowQuarantined {
        /// Name of the row's table.
        table: Word,
        /// Why the row could not be decoded.
        reason: String,
        /// Effect on the row: `mended` (its readable part stays), `moved` (removed from its table)
        /// or `kept` (still there, unreadable).
        fate: Word,
        /// Session the row belongs to; null if unknown.
        session_id: Option<SessionId>,
        /// Run the row belongs to; null if unknown.
        run_id: Option<RunId>,
    },
    /// At a start the clock was far ahead of the stored times. Nothing expires or is removed by age
    /// until this is resolved.
    ClockAhead {
        /// Difference in milliseconds.
        ahead_ms: u64,
        /// True: the clock was certainly set ahead. False: that much time may really have passed;
        /// this is accepted once the clock has run steadily for ten minutes.
        is_certain: bool,
    },
    /// A file of the store was removed or replaced while the daemon ran. The daemon saved the
    /// store's content and exited.
    StoreMoved {
        /// Which file, and what happened to it.
        what: String,
    },
    /// The store's file was damaged; its readable rows were copied to a new store.
    StoreSalvaged {
        /// What was salvaged.
        report: Salvage,
    },
}

/// Report on the salvage of a damaged store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Salvage {
    /// When the store was salvaged.
    pub at: Timestamp,
    /// What was wrong with the file.
    pub why: String,
    /// Path of the damaged file, which was set aside.
    pub set_aside: PathBuf,
    /// Row counts by table.
    pub tables: Vec<SavedTable>,
    /// Rows that were read but could not be decoded; they are in quarantine.
    pub quarantined: u64,
}

impl Salvage {
    /// One line: the number of rows kept, and the tables that lost rows.
    pub fn summary(&self) -> String {
        let kept: u64 = self.tables.iter().map(|table| table.kept).sum();
        let lost: Vec<String> = self
            .tables
            .iter()
            .filter(|table| table.lost > 0 || table.more)
            .map(|table| {
                let about = if table.more { "at least " } else { "" };
                format!("{about}{} of {}", table.lost, table.table)
            })
            .collect();
        let lost = match lost.is_empty() {
            true => "none is known to be lost".to_owned(),
            false => format!("lost: {}", lost.join(", ")),
        };
        format!("{kept} rows were kept; {lost}")
    }
}

/// Salvage result of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SavedTable {
    /// Name of the table.
    pub table: String,
    /// Number of rows kept.
    pub kept: u64,
    /// Number of rows known to be lost.
    pub lost: u64,
    /// True if more rows may be lost than are counted.
    pub more: bool,
}

/// A model provider stopped accepting requests, or accepts them again.
// Readers treat null, which is written, as absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderHealth {
    /// Name of the provider.
    pub provider: String,
    /// `paused`: it accepts no requests; `recovering` or `ok`: it accepts them again.
    pub state: Word,
    /// When it stopped accepting requests; absent if `ok`.
    #[schemars(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// No request is sent before this time; absent if requests are sent.
    #[schemars(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Failures since the last successful request.
    pub failures: u32,
    /// Its last error message.
    #[schemars(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The daemon has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStarted {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
}

/// The daemon accepts no new work until it stops or resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayDraining {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
    /// What follows the drain: `stop`, `restart` or `resume`.
    pub then: Word,
    /// Time limit for steps in flight, in milliseconds.
    pub timeout_ms: u64,
}

/// The daemon works again after downtime or a drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayResumed {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
    /// Reason for the interruption: `stop` or `drain`.
    pub after: Word,
    /// Length of the interruption in milliseconds.
    pub away_ms: u64,
}
