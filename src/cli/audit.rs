//! `abide audit`: who changed what, newest first.

use clap::Args;

use super::args::Common;
use super::failure::Failure;
use super::link::{self, Link};
use super::print::{self, BAD, DIM, styled};
use super::text::clean;
use crate::wire::audit::{Audit as Answer, ListAudit};
use crate::wire::input::PageSize;

/// Show who changed what, newest first
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Only calls of this method, such as sessions.spawn
    #[arg(long)]
    method: Option<String>,

    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,

    /// Where the page before ended
    #[arg(long)]
    cursor: Option<String>,
}

impl Audit {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let params = ListAudit {
            method: self.method,
            limit: PageSize(self.limit),
            cursor: self.cursor,
        };
        let raw = link.raw("gateway.audit", params).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let page: Answer = link::read(&raw)?;
        if page.entries.is_empty() {
            print::note("nothing was changed yet");
        }
        for entry in &page.entries {
            let object = entry.object.as_deref().unwrap_or("");
            let line = format!(
                "{}  {}  {}  {object}",
                entry.at, entry.principal, entry.method
            );
            let line = clean(&line);
            let line = line.trim_end();
            if entry.outcome == "ok" {
                print::answer(line)?;
            } else {
                let outcome = clean(&entry.outcome);
                print::answer(&format!("{line}  {}", styled(BAD, &outcome)))?;
            }
        }
        if let Some(cursor) = &page.next_cursor {
            let more = clean(&format!("older ones: abide audit --cursor {cursor}"));
            print::note(&styled(DIM, &more));
        }
        Ok(0)
    }
}
