//! The targets: which figure is compared with which, and the bound that must hold.

use serde::Serialize;

use crate::figure::Figure;
use crate::long;
use crate::measure::Plan;
use crate::sample::Sample;

/// The value of a sample that a target uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
    /// Number per second: more is better.
    Rate,
    /// A share of speed: more is better.
    Share,
}

impl Value {
    /// The value of this kind in `sample`.
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Value::P50 | Value::Share => sample.p50,
            Value::P99 => sample.p99,
            Value::Rate => sample.rate,
        }
    }

    /// Is a higher value better?
    pub fn is_speed(self) -> bool {
        matches!(self, Value::Rate | Value::Share)
    }
}

/// The bound of a value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
pub enum Bound {
    /// It takes at most this multiple of the floor's time.
    TimesFloor(f64),
    /// It reaches at least this share of the floor's speed.
    ShareOfFloor(f64),
    /// It exceeds the floor by at most this much.
    AboveFloor(f64),
    /// It is at most this value.
    AtMost(f64),
    /// No bound: the value is shown for comparison.
    Nothing,
}

/// One row of the table.
pub struct Target {
    /// Id of the target, such as `P4`.
    pub id: &'static str,
    /// Description of the measurement.
    pub what: String,
    /// Unit of floor and product.
    pub unit: &'static str,
    /// The value that is compared.
    pub value: Value,
    /// The figure to compare with, if any.
    pub floor: Option<Figure>,
    /// The measured figure.
    pub product: Figure,
    /// The bound that must hold.
    pub bound: Bound,
}

fn target(
    id: &'static str,
    what: impl Into<String>,
    value: Value,
    floor: Figure,
    product: Figure,
    bound: Bound,
) -> Target {
    Target {
        id,
        what: what.into(),
        unit: match value {
            Value::Rate => "/s",
            Value::Share => "×",
            Value::P50 | Value::P99 => "ms",
        },
        value,
        floor: Some(floor),
        product,
        bound,
    }
}

fn absolute(
    id: &'static str,
    what: impl Into<String>,
    unit: &'static str,
    product: Figure,
    most: f64,
) -> Target {
    Target {
        id,
        what: what.into(),
        unit,
        value: Value::P50,
        floor: None,
        product,
        bound: Bound::AtMost(most),
    }
}

/// A target whose 99th percentile must be at most `most` milliseconds.
fn late(id: &'static str, what: &'static str, product: Figure, most: f64) -> Target {
    Target {
        value: Value::P99,
        ..absolute(id, what, "ms", product, most)
    }
}

/// Every target, in the order of the table.
#[rustfmt::skip]
pub fn all(plan: &Plan) -> Vec<Target> {
    use Bound::{AboveFloor, Nothing, ShareOfFloor, TimesFloor};
    use Value::{P50, P99, Rate, Share};
    let mut targets = vec![
        target("P1", "spawn, 1 in flight, p50", P50, Figure::FloorInsert1, Figure::Spawn1, TimesFloor(1.6)),
        target("P1", "spawn, 1 in flight, p99", P99, Figure::FloorInsert1, Figure::Spawn1, TimesFloor(2.5)),
        target("P2", "spawn, 64 in flight, rate", Rate, Figure::FloorInsert64, Figure::Spawn64, ShareOfFloor(0.6)),
        target("P2", "spawn, 64 in flight, p99", P99, Figure::FloorInsert64, Figure::Spawn64, TimesFloor(1.5)),
        target("P3", "gateway.ping, 1 in flight, p50", P50, Figure::FloorPing1, Figure::Ping1, ShareOfFloor(0.8)),
        target("P3", "gateway.ping, 64 in flight, rate", Rate, Figure::FloorPing64, Figure::Ping64, ShareOfFloor(0.8)),
        target("P3", "runs.get, 1 in flight, p50", P50, Figure::FloorPing1, Figure::Get1, ShareOfFloor(0.5)),
        target("P3", "runs.get, 64 in flight, rate", Rate, Figure::FloorPing64, Figure::Get64, ShareOfFloor(0.5)),
        target("P4", "wait answered after the end, p50", P50, Figure::WaitPing, Figure::WaitAnswer, AboveFloor(0.2)),
        absolute("P4", "10,000 open waits, memory", "MiB", Figure::WaitsMemory, 50.0),
        absolute("P4", "10,000 open waits, threads", "", Figure::WaitsThreads, 0.0),
        target("P5", "a turn vs. its floor, p50", P50, Figure::FloorTurn, Figure::Turn, TimesFloor(2.5)),
        absolute("P5", "a turn, p50", "ms", Figure::Turn, 4.0),
        absolute("P5", "32 sessions, time for each turn", "ms", Figure::TurnEach, 1.0),
        absolute("P5", "the same, processor time", "ms", Figure::TurnCpu, 0.8),
        absolute("P6", "spawn to announced, p50", "ms", Figure::Announced, 8.0),
        absolute("P6", "40 by 8 parents at once, last", "ms", Figure::AnnouncedAll, 150.0),
        absolute("P7", "start to ready, fresh folder", "ms", Figure::StartEmpty, 40.0),
        absolute("P7", "start to ready, 10,000 finished", "ms", Figure::StartFull, 60.0),
    ];
    if let Some(largest) = plan.histories.last().copied() {
        targets.push(absolute("P7", format!("start to ready, {largest} finished"), "ms", Figure::StartGrown(largest), 150.0));
    }
    targets.extend([
        absolute("P7", "10,000 open, to first answer", "ms", Figure::StartOpen, 500.0),
        absolute("P8", "memory at ready", "MiB", Figure::Rss, 25.0),
        absolute("P9", "5,000 skills, first scan", "ms", Figure::SkillsFirst, 150.0),
        target("P9", "the same vs. reading the files", P50, Figure::FloorReadSkills, Figure::SkillsFirst, TimesFloor(4.0)),
        absolute("P9", "a scan without a change", "ms", Figure::SkillsAgain, 10.0),
        target("P9", "the same vs. their metadata", P50, Figure::FloorStatSkills, Figure::SkillsAgain, TimesFloor(2.0)),
        absolute("P9", "edit to version, 250 ms of quiet", "ms", Figure::SkillsEdit, 270.0),
        absolute("P9", "watching, share of a core", "%", Figure::SkillsIdle, 0.05),
        target("P10", "sessions.list, 50", P50, Figure::GrownPing, Figure::SessionsList, AboveFloor(1.0)),
        target("P10", "runs.list of a tree, 50", P50, Figure::GrownPing, Figure::RunsTree, AboveFloor(1.0)),
        target("P10", "sessions.history, 100", P50, Figure::GrownPing, Figure::HistoryPage, AboveFloor(1.0)),
    ]);
    for runs in plan.histories.iter().copied() {
        targets.extend([
            target("P11", format!("P1 vs. empty, {runs}"), P50, Figure::Spawn1At(0), Figure::Spawn1At(runs), TimesFloor(1.15)),
            target("P11", format!("P2 vs. empty, {runs}"), Rate, Figure::Spawn64At(0), Figure::Spawn64At(runs), ShareOfFloor(1.0 / 1.3)),
            target("P11", format!("P2 kept vs. floor's, {runs}"), Share, Figure::FloorKeeps(runs), Figure::SpawnKeeps(runs), ShareOfFloor(1.0)),
            target("P11", format!("P6 vs. empty, {runs}"), P50, Figure::AnnouncedAt(0), Figure::AnnouncedAt(runs), TimesFloor(1.15)),
        ]);
    }
    for sessions in long::SESSIONS {
        let short = || Figure::LongTurn(long::LENGTHS[0], sessions);
        for length in long::LENGTHS {
            let what = format!("{length} messages, {sessions} at once");
            let sent = absolute("P15", format!("{what}, sent"), "KiB", Figure::LongTurnSent(length, sessions), 0.0);
            targets.push(Target { bound: Nothing, ..sent });
            targets.push(target("P15", format!("{what}, cpu"), P50, short(), Figure::LongTurn(length, sessions), Nothing));
            targets.push(target("P15", format!("{what}, minus 1 ns/byte"), P50, short(), Figure::LongTurnBeyond(length, sessions), TimesFloor(2.0)));
        }
    }
    targets.extend([
        late("P12", "100 subscribers, 100 events/s, p99", Figure::FanOut100, 20.0),
        absolute("P12", "the same, share of a core", "%", Figure::FanOutCore100, 10.0),
        late("P12", "100 subscribers, 1,000 events/s, p99", Figure::FanOut1000, 20.0),
        absolute("P12", "the same, share of a core", "%", Figure::FanOutCore1000, 80.0),
        Target { bound: Nothing, ..absolute("P16", "an insert of the floor, pages", "", Figure::FloorPages, 0.0) },
        absolute("P16", "a spawn, pages", "", Figure::SpawnPages, 12.0),
        absolute("P16", "a turn without tools, pages", "", Figure::TurnPages, 16.0),
        absolute("P16", "a turn with one tool call, pages", "", Figure::ToolTurnPages, 24.0),
        absolute("P17", "system.run true on a node, p50", "ms", Figure::NodeRun, 5.0),
        absolute("P17", "200 connected nodes, memory", "MiB", Figure::NodesMemory, 40.0),
        absolute("P17", "the same, share of a core", "%", Figure::NodesIdle, 1.0),
        Target { bound: Nothing, ..absolute("P18", "a shell started directly, p50", "ms", Figure::FloorProgram, 0.0) },
        target("P18", "a turn with shell vs. one with read, p50", P50, Figure::ReadTurn, Figure::ShellTurn, AboveFloor(15.0)),
        target("P20", "spawn by MCP vs. sessions.spawn, p50", P50, Figure::SpawnToInbox, Figure::McpSpawn, TimesFloor(2.0)),
        absolute("P20", "first token at an editor, p50", "ms", Figure::FirstToken, 5.0),
        target("P19", "webhooks vs. bare POSTs, 64 at once, rate", Rate, Figure::FloorPost, Figure::WebhookRate, Nothing),
        absolute("P19", "webhooks to a fast receiver, time for each", "ms", Figure::WebhookEach, 1.0),
    ]);
    targets
}
