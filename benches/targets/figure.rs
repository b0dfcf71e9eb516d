//! What is measured.

use serde::Serialize;

/// One figure. Those with a number are taken with so many finished runs in the store, or rows
/// in each table of the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// 4 KiB and a sync.
    Sync,
    /// The bare server, 1 call in flight.
    FloorPing1,
    /// The bare server, 64 in flight.
    FloorPing64,
    /// The storing server, 1 in flight.
    FloorInsert1,
    /// The storing server, 64 in flight.
    FloorInsert64,
    /// `gateway.ping`, 1 in flight.
    Ping1,
    /// `gateway.ping`, 64 in flight.
    Ping64,
    /// `runs.get`, 1 in flight.
    Get1,
    /// `runs.get`, 64 in flight.
    Get64,
    /// `sessions.spawn`, 1 in flight.
    Spawn1,
    /// `sessions.spawn`, 64 in flight.
    Spawn64,
    /// `gateway.ping` just before the waits.
    WaitPing,
    /// From a run's end to the answer of the wait for it.
    WaitAnswer,
    /// What 10,000 open waits add to the memory, MiB.
    WaitsMemory,
    /// What they add to the threads.
    WaitsThreads,
    /// Three inserts of the storing server and one exchange with a model.
    FloorTurn,
    /// A whole turn, one after another.
    Turn,
    /// From one turn's end to the next one's, where 32 sessions have them, milliseconds.
    TurnEach,
    /// Processor time of the daemon for each of those, milliseconds.
    TurnCpu,
    /// From a spawn to its announce in the parent's transcript.
    Announced,
    /// The same for 40 spawns of 8 parents at once, until the last.
    AnnouncedAll,
    /// Start on a folder that is not there yet.
    StartEmpty,
    /// Start with finished runs in the store.
    StartFull,
    /// Start with so many finished runs in the store.
    StartGrown(u64),
    /// Start with open runs in the store, until the first answer.
    StartOpen,
    /// Memory when ready, on a fresh folder.
    Rss,
    /// `gateway.ping` beside the history.
    GrownPing,
    /// `sessions.list`, a page of 50.
    SessionsList,
    /// `runs.list` of a tree, a page of 50.
    RunsTree,
    /// `sessions.history`, 100 messages.
    HistoryPage,
    /// The storing server, 1 in flight.
    FloorInsert1At(u64),
    /// The storing server, 64 in flight.
    FloorInsert64At(u64),
    /// `sessions.spawn`, 1 in flight.
    Spawn1At(u64),
    /// `sessions.spawn`, 64 in flight.
    Spawn64At(u64),
    /// From a spawn to its announce in the parent's transcript.
    AnnouncedAt(u64),
    /// The storing server's rate, 64 in flight, beside that without rows.
    FloorKeeps(u64),
    /// The rate of `sessions.spawn`, 64 in flight, beside that of an empty store.
    SpawnKeeps(u64),
    /// Reading 5,000 files.
    FloorReadSkills,
    /// The first look at as many skills.
    SkillsFirst,
    /// Asking for the state of 5,000 files.
    FloorStatSkills,
    /// A look that finds no change.
    SkillsAgain,
    /// From an edit to the event that tells of it.
    SkillsEdit,
    /// What watching costs when nothing happens, percent of a core.
    SkillsIdle,
    /// Processor time of the daemon for a turn with so many earlier messages, where so many
    /// sessions have them at once, milliseconds.
    LongTurn(u64, u64),
    /// The same beyond what its bytes may cost.
    LongTurnBeyond(u64, u64),
    /// How much the model is sent for it, KiB.
    LongTurnSent(u64, u64),
    /// Pages that an insert of the floor writes.
    FloorPages,
    /// The same of a spawn.
    SpawnPages,
    /// The same of a turn without tool calls.
    TurnPages,
    /// The same of a turn with one tool call.
    ToolTurnPages,
    /// About 100 events a second to 100 subscribers.
    FanOut100,
    /// What that takes of a core, percent.
    FanOutCore100,
    /// About 1,000 events a second to 100 subscribers.
    FanOut1000,
    /// What that takes of a core, percent.
    FanOutCore1000,
}

impl Figure {
    /// Is it an amount, not a time?
    pub fn is_amount(self) -> bool {
        matches!(
            self,
            Figure::Rss
                | Figure::WaitsMemory
                | Figure::WaitsThreads
                | Figure::TurnEach
                | Figure::TurnCpu
                | Figure::LongTurn(..)
                | Figure::LongTurnBeyond(..)
                | Figure::LongTurnSent(..)
                | Figure::FloorPages
                | Figure::SpawnPages
                | Figure::TurnPages
                | Figure::ToolTurnPages
                | Figure::FloorKeeps(_)
                | Figure::SpawnKeeps(_)
                | Figure::SkillsIdle
                | Figure::FanOutCore100
                | Figure::FanOutCore1000
        )
    }
}
