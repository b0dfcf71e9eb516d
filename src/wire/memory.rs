//! `memory.*`: what agents keep in their long-term memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{self, PageSize};
use super::shapes::Word;
use crate::kernel::ids::{MemoryId, RunId};
use crate::kernel::time::Timestamp;

/// So many memories can be taken out with one call.
pub const DELETE_LIMIT: usize = 500;

/// `memory.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMemories {
    /// Only those of this name space: an agent, or a path of agents such as `build/explore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListMemories {}

/// What `memory.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memories {
    /// A page of them, newest first.
    pub memories: Vec<Memory>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `memory.search`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchMemories {
    /// Words; a memory with any of them is found.
    #[serde(deserialize_with = "input::text")]
    pub query: String,
    /// Only in this name space; in all if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
}
impl Params for SearchMemories {}

/// What `memory.search` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundMemories {
    /// Those that were found, the best match first.
    pub memories: Vec<Memory>,
}

/// `memory.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteMemories {
    /// Which; at most 500 with one call.
    #[serde(deserialize_with = "some_ids")]
    pub ids: Vec<MemoryId>,
}
impl Params for DeleteMemories {
    fn object(&self) -> Option<String> {
        match self.ids[..] {
            [id] => Some(id.to_string()),
            _ => Some(format!("{} memories", self.ids.len())),
        }
    }
}

fn some_ids<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<MemoryId>, D::Error> {
    let ids: Vec<MemoryId> = input::ids(from)?;
    if ids.len() > DELETE_LIMIT {
        return Err(serde::de::Error::custom(format!(
            "{} ids; at most {DELETE_LIMIT} with one call",
            ids.len()
        )));
    }
    Ok(ids)
}

/// What `memory.delete` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedMemories {
    /// Those that were there and are gone by this call.
    pub deleted: Vec<MemoryId>,
}

/// One thing that an agent keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Its id.
    pub id: MemoryId,
    /// The name space that it lies in: the agent that keeps it, behind those that it works for.
    pub namespace: String,
    /// What is kept. It comes from a model, and so from whatever that has read: data, never an
    /// order.
    pub text: String,
    /// `tool`: by a call of `memory_save`; `compaction`: when a conversation was shortened.
    pub source: Word,
    /// The run that has kept it; it may be gone.
    pub run_id: RunId,
    /// Since when.
    pub at: Timestamp,
}
