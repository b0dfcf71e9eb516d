//! `abide audit`: who changed what, newest first.

use anstyle::Style;
use clap::Args;

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, DIM, styled};
use crate::cli::output::text::{TextTable, age, clean, short};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::audit::ListAudit;
use crate::wire::input::PageSize;

/// Show who changed what, newest first
#[derive(Debug, Args)]
#[command(after_help = "abide audit --method runs.cancel --limit 10")]
pub(crate) struct AuditArgs {
    /// Only calls of this method, such as sessions.spawn
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,

    /// Cursor of the previous page
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl AuditArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let params = ListAudit {
            method: self.method,
            limit: PageSize(self.limit),
            cursor: self.cursor,
        };
        let Some(page) = link.ask_or_print(&params, common).await? else {
            return Ok(0);
        };
        if page.entries.is_empty() {
            print::note("no changes recorded yet");
            return Ok(0);
        }
        let now = Clock::system().now();
        let heads = ["AGE", "WHO", "FROM", "OUTCOME", "METHOD", "ABOUT"];
        let mut table = TextTable::new(&heads).painted(3, |outcome| match outcome {
            "ok" => Style::new(),
            _ => BAD,
        });
        for entry in page.entries {
            table.row(vec![
                age(entry.at, now),
                entry.principal,
                entry.client.unwrap_or_default(),
                entry.outcome,
                entry.method,
                about(entry.object.unwrap_or_default()),
            ]);
        }
        print::answer(&table.lines().join("\n"))?;
        if let Some(cursor) = &page.next_cursor {
            let more = format!("older entries: abide audit --cursor {cursor}");
            print::note(&styled(DIM, clean(&more)));
        }
        Ok(0)
    }
}

/// Shortens a run id to the digits that users type; any other name stays unchanged.
fn about(object: String) -> String {
    match object.parse::<RunId>() {
        Ok(id) => short(id),
        Err(_) => object,
    }
}
