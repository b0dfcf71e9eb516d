//! `abide usage`: counts, durations and costs of runs.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, duration, ids};
use crate::cli::link::DaemonLink;
use crate::cli::output::text::{TextTable, clean, span};
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::run::usage::UsageBy;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::usage::{Row, Summarize};

/// Show how many runs there were, how they ended, how long they took and what they cost
///
/// Durations are from accepted to ended; P50 and P95 are accurate to a sixteenth. Costs are in the
/// currency of the prices in the configuration ([prices]).
#[derive(Debug, Args)]
#[command(after_help = "abide usage
abide usage --by model --since 7d
abide usage --by agent --tree @last")]
pub(crate) struct UsageArgs {
    /// What to group by
    #[arg(long, value_name = "WHAT", default_value = "agent", value_parser = PossibleValuesParser::new(["agent", "user", "model", "session", "tree", "org"]))]
    by: String,

    /// How far back to look, such as 90m, 24h or 7d
    #[arg(long, value_name = "AGE", default_value = "24h", value_parser = duration)]
    since: Duration,

    /// Only runs of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Only runs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Only runs of this model
    #[arg(long, value_name = "PROVIDER/NAME")]
    model: Option<String>,

    /// Only this root run and its descendants
    #[arg(long, value_name = "RUN")]
    tree: Option<String>,
}

impl UsageArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let tree = match &self.tree {
            Some(run) => Some(ids::run(&link, run).await?),
            None => None,
        };
        let now = Clock::system().now();
        let back = i64::try_from(self.since.as_millis()).unwrap_or(i64::MAX);
        let request = Summarize {
            by: UsageBy::parse(&self.by),
            since: Some(Timestamp(now.0.saturating_sub(back).max(0))),
            agent: self.agent,
            user: self.user,
            model: self.model,
            tree,
            limit: PageSize(PAGE_LIMIT),
            ..Summarize::default()
        };
        let Some(summary) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        if summary.rows.is_empty() {
            print::note("no run has ended in that time");
            return Ok(0);
        }
        let mut table = TextTable::new(&[
            "RUNS", "OK", "FAILED", "P50", "P95", "IN", "OUT", "COST", "NAME",
        ]);
        for row in &summary.rows {
            let name = row.name.as_deref().unwrap_or_default();
            table.row(cells(row, &told_apart(name)));
        }
        if summary.rows.len() > 1 {
            table.row(cells(&summary.total, "total"));
        }
        print::answer(&table.lines().join("\n"))?;
        if summary.omitted > 0 {
            let more = format!("{} more rows with less usage are left out", summary.omitted);
            print::note(&more);
        }
        Ok(0)
    }
}

fn cells(row: &Row, name: &str) -> Vec<String> {
    let took = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), span);
    vec![
        row.calls.to_string(),
        row.ok.to_string(),
        row.failed.to_string(),
        took(row.p50_ms),
        took(row.p95_ms),
        short(row.input_tokens),
        short(row.output_tokens),
        money(row.cost_micros),
        clean(name),
    ]
}

/// Maximum number of characters of a name.
const NAME: usize = 30;

/// Shortens a name but keeps its end, because keys of sessions differ only there.
fn told_apart(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    let end = text::short(name);
    format!("{}{end}", text::line(name, NAME - end.len()))
}

/// Formats a number of tokens: 950, 12k, 3.4M.
pub(crate) fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

/// Formats millionths as an amount: to the cent, or below one cent with six decimals.
pub(crate) fn money(micros: u64) -> String {
    match micros {
        0 => "-".to_owned(),
        1..10_000 => format!("0.{micros:06}"),
        _ => {
            let cents = (micros + 5000) / 10_000;
            format!("{}.{:02}", cents / 100, cents % 100)
        }
    }
}

/// A number of model calls, in words.
pub(crate) fn model_calls(count: u64) -> String {
    match count {
        1 => "1 model call".to_owned(),
        count => format!("{count} model calls"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_differ_in_what_is_shown() {
        let key = |end: &str| format!("agent:explore:sub:01936f0e-0000-7000-8000-0000{end}");
        let (one, other) = (told_apart(&key("4f2a91c3")), told_apart(&key("4f2a91c4")));
        assert_eq!(one, "agent:explore:sub:019…4f2a91c3");
        assert_ne!(one, other);
        assert_eq!(told_apart("agent:build:main"), "agent:build:main");
    }

    #[test]
    fn numbers_are_short_and_say_what_they_are() {
        assert_eq!(short(9_999), "9999");
        assert_eq!(short(12_345), "12k");
        assert_eq!(short(3_456_789), "3.4M");
        assert_eq!(money(0), "-");
        assert_eq!(money(42), "0.000042");
        assert_eq!(money(1_234_567), "1.23");
        assert_eq!(money(9_995_000), "10.00");
    }
}
