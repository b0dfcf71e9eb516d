//! `abide sessions`: which conversations there are.

use clap::Args;
use serde_json::{Value, json};

use super::args::Common;
use super::change::Change;
use super::failure::Failure;
use super::link::{self, Link};
use super::print;
use super::text::{Table, age};
use crate::clock::Clock;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::sessions::{ListSessions, SessionKind, Sessions as Page};
use crate::wire::shapes::Session;

/// List sessions, or change one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    change: Option<Change>,

    /// Those that were spawned from others
    #[arg(long, conflicts_with = "all")]
    children: bool,

    /// Root sessions and children
    #[arg(long)]
    all: bool,

    /// Only those whose key, label or title contains this
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    /// The archived ones, too
    #[arg(long)]
    archived: bool,
}

impl Sessions {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        if let Some(change) = self.change {
            return change.run(common).await;
        }
        let link = Link::open(&common.place).await?;
        let kind = match (self.children, self.all) {
            (true, _) => SessionKind::Child,
            (_, true) => SessionKind::All,
            _ => SessionKind::Main,
        };
        let mut filter = ListSessions {
            kind: Some(kind),
            search: self.search,
            archived: self.archived,
            limit: PageSize(PAGE_LIMIT),
            ..ListSessions::default()
        };
        let mut rows: Vec<Value> = Vec::new();
        loop {
            let mut raw = link.raw("sessions.list", &filter).await?;
            filter.cursor = link::read::<Page>(&raw)?.next_cursor;
            if let Value::Array(page) = raw["sessions"].take() {
                rows.extend(page);
            }
            if filter.cursor.is_none() {
                break;
            }
        }
        if common.json {
            print::object(&json!({ "sessions": rows }))?;
            return Ok(0);
        }
        if rows.is_empty() {
            print::note("no sessions of this kind; all of them: abide sessions --all");
            return Ok(0);
        }
        let now = Clock::system().now();
        let mut table = Table::new(&["STATE", "AGE", "MSGS", "KEY"]);
        for row in &rows {
            let session: Session = link::read(row)?;
            let name = session.label.or(session.title);
            let key = match name {
                Some(name) => format!("{} ({name})", session.key),
                None => session.key.to_string(),
            };
            table.row(vec![
                session.state.to_string(),
                age(session.updated_at, now),
                session.messages.to_string(),
                key,
            ]);
        }
        print::answer(&table.lines().join("\n"))?;
        Ok(0)
    }
}
