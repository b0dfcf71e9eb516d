//! The figures that are measured.

use serde::Serialize;

/// One figure. The `u64` of a variant is the number of finished runs in the store, or of rows in
/// each table of the floor, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// A write of 4 KiB and a sync.
    Sync,
    /// The bare server, 1 call in flight.
    FloorPing1,
    /// The bare server, 64 calls in flight.
    FloorPing64,
    /// The storing server, 1 call in flight.
    FloorInsert1,
    /// The storing server, 64 calls in flight.
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
    /// `gateway.ping`, measured just before the waits.
    WaitPing,
    /// Latency from the end of a run to the answer of its `agent.wait`.
    WaitAnswer,
    /// Memory added by 10,000 open waits, MiB.
    WaitsMemory,
    /// Threads added by 10,000 open waits.
    WaitsThreads,
    /// Three inserts into the storing server and one exchange with a model.
    FloorTurn,
    /// A whole turn, run sequentially.
    Turn,
    /// Interval between the ends of consecutive turns while 32 sessions run them, milliseconds.
    TurnEach,
    /// Processor time of the daemon per turn of [`Figure::TurnEach`], milliseconds.
    TurnCpu,
    /// Latency from a spawn to its announce in the parent's transcript.
    Announced,
    /// As [`Figure::Announced`], for 40 spawns of 8 parents at once, until the last announce.
    AnnouncedAll,
    /// Start on a folder that does not exist yet.
    StartEmpty,
    /// Start with finished runs in the store.
    StartFull,
    /// Start with this number of finished runs in the store.
    StartGrown(u64),
    /// Start with open runs in the store, until the first answer.
    StartOpen,
    /// Memory when ready, on a fresh folder.
    Rss,
    /// `gateway.ping` with the history in the store.
    GrownPing,
    /// `sessions.list`, a page of 50.
    SessionsList,
    /// `runs.list` of a tree, a page of 50.
    RunsTree,
    /// `sessions.history`, 100 messages.
    HistoryPage,
    /// The storing server with this number of rows, 1 call in flight.
    FloorInsert1At(u64),
    /// The storing server with this number of rows, 64 calls in flight.
    FloorInsert64At(u64),
    /// `sessions.spawn` with this number of finished runs, 1 call in flight.
    Spawn1At(u64),
    /// `sessions.spawn` with this number of finished runs, 64 calls in flight.
    Spawn64At(u64),
    /// Latency from a spawn to its announce in the parent's transcript.
    AnnouncedAt(u64),
    /// The storing server's rate with 64 calls in flight, relative to its rate without rows.
    FloorKeeps(u64),
    /// The rate of `sessions.spawn` with 64 calls in flight, relative to that of an empty store.
    SpawnKeeps(u64),
    /// Reading 5,000 files.
    FloorReadSkills,
    /// The first scan of as many skills.
    SkillsFirst,
    /// Reading the metadata of 5,000 files.
    FloorStatSkills,
    /// A scan that finds no change.
    SkillsAgain,
    /// Latency from an edit to the event that reports it.
    SkillsEdit,
    /// Cost of watching while nothing changes, percent of a core.
    SkillsIdle,
    /// Processor time of the daemon for a turn, milliseconds: the number of earlier messages, and
    /// the number of sessions that run such turns at the same time.
    LongTurn(u64, u64),
    /// As [`Figure::LongTurn`], minus the time allowed for the bytes sent.
    LongTurnBeyond(u64, u64),
    /// Size of the model request of such a turn, KiB.
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
    /// Processor time of the daemon for [`Figure::FanOut100`], percent of a core.
    FanOutCore100,
    /// About 1,000 events a second to 100 subscribers.
    FanOut1000,
    /// Processor time of the daemon for [`Figure::FanOut1000`], percent of a core.
    FanOutCore1000,
    /// `system.run true` on a node over loopback, 1 call in flight.
    NodeRun,
    /// A shell that runs `true`, started by the benchmark.
    FloorProgram,
    /// A turn with one `shell` call of `true`.
    ShellTurn,
    /// A turn with one call of `read`.
    ReadTurn,
    /// `sessions.spawn` with a session of the client as parent, 1 in flight.
    SpawnToInbox,
    /// The same by the tool `spawn` of the MCP server over HTTP.
    McpSpawn,
    /// Latency from the model's first token to the first chunk of text at an editor.
    FirstToken,
    /// Bare POSTs to a fast receiver, 64 at once.
    FloorPost,
    /// Webhooks to a fast receiver from a backlog of events.
    WebhookRate,
    /// The same, time for each.
    WebhookEach,
    /// Memory added by 200 connected nodes, MiB.
    NodesMemory,
    /// Processor time of the daemon for them while nothing happens, percent of a core.
    NodesIdle,
}

impl Figure {
    /// Is the figure an amount rather than a duration?
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
                | Figure::NodesMemory
                | Figure::NodesIdle
        )
    }
}
