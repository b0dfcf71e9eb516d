//! Compares the figures with the targets: a table for people, JSON for programs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use abide::clock::Clock;
use serde::Serialize;

use crate::Result;
use crate::figure::Figure;
use crate::measure::Figures;
use crate::sample::{Sample, Spread};
use crate::target::{self, Bound, Target, Value};

/// The result of one target.
#[derive(Serialize)]
struct Row {
    id: &'static str,
    what: String,
    unit: &'static str,
    value: Value,
    floor: Option<Spread>,
    product: Spread,
    /// The ratio of speeds for a share, of times for a multiple, the difference for a bound above
    /// the floor; computed from the pairs of each round.
    ratio: Option<Spread>,
    bound: Bound,
    met: bool,
}

/// All results, ready to be printed.
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
    /// Compares the figures of `binary` with the targets.
    pub fn new(binary: &Path, figures: Figures) -> Result<Self> {
        let version = Command::new(binary).arg("--version").output()?;
        let targets = target::all(&figures.plan);
        let rows = targets
            .into_iter()
            .filter_map(|target| row(target, &figures));
        Ok(Report {
            rows: rows.collect(),
            binary: binary.to_owned(),
            version: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
            at: Clock::system().now().to_string(),
            figures,
        })
    }

    /// All results as JSON, with every round.
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

/// The row of a target; `None` where the machine cannot measure it.
fn row(target: Target, figures: &Figures) -> Option<Row> {
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
    let ratio = floor.as_ref().and_then(|floor| {
        let pairs = floor.iter().zip(&product);
        Spread::of(pairs.map(|(floor, product)| match target.bound {
            Bound::ShareOfFloor(_) if !target.value.is_speed() => floor / product,
            Bound::AboveFloor(_) => product - floor,
            _ => product / floor,
        }))
    });
    let product = Spread::of(product)?;
    let met = match (target.bound, &ratio) {
        (Bound::TimesFloor(most) | Bound::AboveFloor(most), Some(ratio)) => ratio.median <= most,
        (Bound::ShareOfFloor(least), Some(ratio)) => ratio.median >= least,
        (Bound::AtMost(most), _) => product.median <= most,
        (Bound::Nothing, _) => true,
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
                Bound::ShareOfFloor(least) => format!("≥ {} ×", (least * 100.0).round() / 100.0),
                Bound::AboveFloor(most) => format!("≤ +{most} {}", row.unit),
                Bound::AtMost(most) => format!("≤ {most} {}", row.unit),
                Bound::Nothing => String::new(),
            };
            line(
                f,
                [
                    row.id,
                    &row.what,
                    &row.floor
                        .map_or(String::new(), |floor| with_unit(floor, row.unit)),
                    &with_unit(row.product, row.unit),
                    &ratio,
                    &target,
                    match (row.bound, row.met) {
                        (Bound::Nothing, _) => "",
                        (_, true) => "met",
                        (_, false) => "NOT MET",
                    },
                ],
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<24} {:>10} {:>10} {:>12} {:>14} {:>8}",
            "figure", "p50 ms", "p99 ms", "rate /s", "server µs each", "others"
        )?;
        for (figure, samples) in samples {
            if figure.is_amount() {
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
                "{:<24} {:>10.3} {:>10.3} {:>12.0} {:>14} {:>8}",
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
        "{id:<3}  {what:<36}  {floor:>25}  {product:>25}  {ratio:>17}  {target:>10}  {verdict}"
    );
    writeln!(f, "{}", text.trim_end())
}

fn with_unit(spread: Spread, unit: &str) -> String {
    let digits = match unit {
        "ms" if spread.median < 10.0 => 3,
        "×" => 2,
        "/s" => 0,
        _ => 1,
    };
    format!("{} {unit}", show(spread, digits))
}

fn show(spread: Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}
