//! The targets, and how the figures stand against them: a table for people, JSON for the rest.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use abide::clock::Clock;
use serde::Serialize;

use crate::Result;
use crate::measure::{Figure, Figures};
use crate::sample::{Sample, Spread};

/// Which value of a sample counts.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Value {
    P50,
    P99,
    Rate,
}

impl Value {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Value::P50 => sample.p50,
            Value::P99 => sample.p99,
            Value::Rate => sample.rate,
        }
    }
}

/// What is asked of a value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "value")]
enum Bound {
    /// It takes at most so many times as long as the floor.
    TimesFloor(f64),
    /// It is at least so many times as fast as the floor.
    ShareOfFloor(f64),
    /// It is at most this.
    AtMost(f64),
}

struct Target {
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    value: Value,
    floor: Option<Figure>,
    product: Figure,
    bound: Bound,
}

const fn target(
    id: &'static str,
    what: &'static str,
    value: Value,
    floor: Figure,
    product: Figure,
    bound: Bound,
) -> Target {
    Target {
        id,
        what,
        unit: match value {
            Value::Rate => "/s",
            Value::P50 | Value::P99 => "ms",
        },
        value,
        floor: Some(floor),
        product,
        bound,
    }
}

const fn absolute(
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    product: Figure,
    most: f64,
) -> Target {
    Target {
        id,
        what,
        unit,
        value: Value::P50,
        floor: None,
        product,
        bound: Bound::AtMost(most),
    }
}

/// The slowest of a hundred takes at most so many milliseconds.
const fn late(id: &'static str, what: &'static str, product: Figure, most: f64) -> Target {
    Target {
        value: Value::P99,
        ..absolute(id, what, "ms", product, most)
    }
}

#[rustfmt::skip]
const TARGETS: [Target; 15] = [
    target("P1", "spawn, 1 in flight, p50", Value::P50, Figure::FloorInsert1, Figure::Spawn1, Bound::TimesFloor(1.6)),
    target("P1", "spawn, 1 in flight, p99", Value::P99, Figure::FloorInsert1, Figure::Spawn1, Bound::TimesFloor(2.5)),
    target("P2", "spawn, 64 in flight, rate", Value::Rate, Figure::FloorInsert64, Figure::Spawn64, Bound::ShareOfFloor(0.6)),
    target("P2", "spawn, 64 in flight, p99", Value::P99, Figure::FloorInsert64, Figure::Spawn64, Bound::TimesFloor(1.5)),
    target("P3", "gateway.ping, 1 in flight, p50", Value::P50, Figure::FloorPing1, Figure::Ping1, Bound::ShareOfFloor(0.8)),
    target("P3", "gateway.ping, 64 in flight, rate", Value::Rate, Figure::FloorPing64, Figure::Ping64, Bound::ShareOfFloor(0.8)),
    target("P3", "runs.get, 1 in flight, p50", Value::P50, Figure::FloorPing1, Figure::Get1, Bound::ShareOfFloor(0.5)),
    target("P3", "runs.get, 64 in flight, rate", Value::Rate, Figure::FloorPing64, Figure::Get64, Bound::ShareOfFloor(0.5)),
    absolute("P7", "start to ready, fresh folder", "ms", Figure::StartEmpty, 40.0),
    absolute("P7", "start to ready, 10,000 finished", "ms", Figure::StartFull, 60.0),
    absolute("P8", "memory at ready", "MiB", Figure::Rss, 20.0),
    late("P12", "100 subscribers, 100 events/s, p99", Figure::FanOut100, 20.0),
    absolute("P12", "the same, share of a core", "%", Figure::FanOutCore100, 10.0),
    late("P12", "100 subscribers, 1,000 events/s, p99", Figure::FanOut1000, 20.0),
    absolute("P12", "the same, share of a core", "%", Figure::FanOutCore1000, 80.0),
];

/// How one target stands.
#[derive(Serialize)]
struct Row {
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    value: Value,
    floor: Option<Spread>,
    product: Spread,
    /// Speed against speed for a share, time against time else; from the pairs of each round.
    ratio: Option<Spread>,
    bound: Bound,
    met: bool,
}

/// Everything, ready to be shown.
pub struct Report {
    figures: Figures,
    rows: Vec<Row>,
    binary: PathBuf,
    version: String,
    at: String,
}

#[derive(Serialize)]
struct Json<'a> {
    at: &'a str,
    binary: &'a Path,
    version: &'a str,
    machine: &'a crate::machine::Machine,
    plan: &'a crate::measure::Plan,
    idle: &'a [f64],
    targets: &'a [Row],
    samples: Vec<(Figure, &'a [Sample])>,
}

impl Report {
    /// How the figures of `binary` stand.
    pub fn new(binary: &Path, figures: Figures) -> Result<Self> {
        let version = Command::new(binary).arg("--version").output()?;
        let rows = TARGETS.iter().filter_map(|target| row(target, &figures));
        Ok(Report {
            rows: rows.collect(),
            binary: binary.to_owned(),
            version: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
            at: Clock::system().now().to_string(),
            figures,
        })
    }

    /// As JSON, with every round.
    pub fn json(&self) -> Result<String> {
        let samples = self.figures.samples.iter();
        Ok(serde_json::to_string_pretty(&Json {
            at: &self.at,
            binary: &self.binary,
            version: &self.version,
            machine: &self.figures.machine,
            plan: &self.figures.plan,
            idle: &self.figures.idle,
            targets: &self.rows,
            samples: samples
                .map(|(figure, samples)| (*figure, samples.as_slice()))
                .collect(),
        })?)
    }
}

/// `None` where the machine does not let it be measured.
fn row(target: &Target, figures: &Figures) -> Option<Row> {
    let values = |figure: &Figure| -> Option<Vec<f64>> {
        let samples = figures.samples.get(figure)?;
        Some(
            samples
                .iter()
                .map(|sample| target.value.of(sample))
                .collect(),
        )
    };
    let product = values(&target.product)?;
    let floor = target.floor.as_ref().and_then(values);
    let faster_is_more = matches!(target.value, Value::Rate);
    let ratio = floor.as_ref().and_then(|floor| {
        let pairs = floor.iter().zip(&product);
        Spread::of(pairs.map(|(floor, product)| match target.bound {
            Bound::ShareOfFloor(_) if !faster_is_more => floor / product,
            _ => product / floor,
        }))
    });
    let product = Spread::of(product)?;
    let met = match (target.bound, &ratio) {
        (Bound::TimesFloor(most), Some(ratio)) => ratio.median <= most,
        (Bound::ShareOfFloor(least), Some(ratio)) => ratio.median >= least,
        (Bound::AtMost(most), _) => product.median <= most,
        _ => return None,
    };
    Some(Row {
        id: target.id,
        what: target.what,
        unit: target.unit,
        value: target.value,
        floor: floor.and_then(Spread::of),
        product,
        ratio,
        bound: target.bound,
        met,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures {
            machine,
            plan,
            idle,
            samples,
        } = &self.figures;
        writeln!(f, "{}  {}", self.at, self.version)?;
        writeln!(
            f,
            "{} processors{}, {} rounds of {} ms each; medians of the rounds (smallest to largest)",
            machine.processors,
            match &machine.file_system {
                Some(name) => format!(", state on {name}"),
                None => String::new(),
            },
            plan.rounds,
            plan.lasts.as_millis(),
        )?;
        if let Some(idle) = Spread::of(idle.iter().copied()) {
            let Spread { median, min, max } = idle;
            writeln!(
                f,
                "idle before the rounds: {:.0} % ({:.0} to {:.0})",
                median * 100.0,
                min * 100.0,
                max * 100.0
            )?;
        }
        writeln!(f)?;
        line(f, ["", "", "floor", "abide", "ratio", "target", ""])?;
        for row in &self.rows {
            let ratio = row.ratio.map_or(String::new(), |ratio| show(ratio, 2));
            let target = match row.bound {
                Bound::TimesFloor(most) => format!("≤ {most} ×"),
                Bound::ShareOfFloor(least) => format!("≥ {least} ×"),
                Bound::AtMost(most) => format!("≤ {most} {}", row.unit),
            };
            line(
                f,
                [
                    row.id,
                    row.what,
                    &row.floor
                        .map_or(String::new(), |floor| with_unit(floor, row.unit)),
                    &with_unit(row.product, row.unit),
                    &ratio,
                    &target,
                    if row.met { "met" } else { "NOT MET" },
                ],
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<16} {:>10} {:>10} {:>12} {:>14} {:>8}",
            "figure", "p50 ms", "p99 ms", "rate /s", "server µs each", "others"
        )?;
        for (figure, samples) in samples {
            if *figure == Figure::Rss {
                continue;
            }
            let middle = |value: &dyn Fn(&Sample) -> Option<f64>| {
                Spread::of(samples.iter().filter_map(value)).map(|spread| spread.median)
            };
            let optional = |value: Option<f64>, unit| match value {
                Some(value) => format!("{value:.0}{unit}"),
                None => "-".to_owned(),
            };
            writeln!(
                f,
                "{:<16} {:>10.3} {:>10.3} {:>12.0} {:>14} {:>8}",
                format!("{figure:?}"),
                middle(&|sample| Some(sample.p50)).unwrap_or_default(),
                middle(&|sample| Some(sample.p99)).unwrap_or_default(),
                middle(&|sample| Some(sample.rate)).unwrap_or_default(),
                optional(middle(&|sample| sample.server_cpu_us), ""),
                optional(middle(&|sample| Some(sample.others? * 100.0)), " %"),
            )?;
        }
        write!(
            f,
            "\nothers: processor time of the machine that went to neither server nor load"
        )
    }
}

fn line(f: &mut fmt::Formatter<'_>, cells: [&str; 7]) -> fmt::Result {
    let [id, what, floor, product, ratio, target, verdict] = cells;
    let text = format!(
        "{id:<2}  {what:<32}  {floor:>25}  {product:>25}  {ratio:>17}  {target:>8}  {verdict}"
    );
    writeln!(f, "{}", text.trim_end())
}

fn with_unit(spread: Spread, unit: &str) -> String {
    let digits = match unit {
        "ms" if spread.median < 10.0 => 3,
        "/s" => 0,
        _ => 1,
    };
    format!("{} {unit}", show(spread, digits))
}

fn show(spread: Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}
