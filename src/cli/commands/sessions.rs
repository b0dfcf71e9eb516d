//! `abide sessions`: lists sessions, or changes one.

use anstyle::Style;
use clap::Args;
use serde_json::{Value, json};

use super::change::{SessionChange, absolute};
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, BUSY};
use crate::cli::output::text::{TextTable, age, short};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::sessions::{ListSessions, SessionKind, Sessions as Page};
use crate::wire::shapes::Session;

/// Maximum length of a key that is shown completely; of a longer one the end is shown.
const SHOWN: usize = 24;

/// List sessions, or change one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = r#"abide sessions --search docs
abide sessions patch agent:build:chat --title "The long talk""#)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    change: Option<SessionChange>,

    /// Only sessions that were spawned from others
    #[arg(long, conflicts_with = "all")]
    children: bool,

    /// Root sessions and spawned ones
    #[arg(long)]
    all: bool,

    /// Only sessions with this working folder
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Only sessions whose key, label or title contains this
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    /// Include archived sessions
    #[arg(long)]
    archived: bool,
}

impl SessionsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        if let Some(change) = self.change {
            return change.run(common).await;
        }
        let link = DaemonLink::open(&common.place).await?;
        let kind = match (self.children, self.all) {
            (true, _) => SessionKind::Child,
            (_, true) => SessionKind::All,
            _ => SessionKind::Main,
        };
        let mut filter = ListSessions {
            kind: Some(kind),
            cwd: self.cwd.clone().map(absolute).transpose()?,
            search: self.search.clone(),
            archived: self.archived,
            limit: PageSize(PAGE_LIMIT),
            ..ListSessions::default()
        };
        let mut rows: Vec<Value> = Vec::new();
        loop {
            let mut raw = link.raw(&filter).await?;
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
            print::note(self.nothing());
            return Ok(0);
        }
        let now = Clock::system().now();
        let heads = ["SESSION", "STATE", "ACTIVE", "MSGS", "AGENT", "WHAT"];
        let mut table = TextTable::new(&heads)
            .fit(print::screen_width())
            .painted(1, |state| match state {
                "busy" | "waiting" => BUSY,
                "stopped" => BAD,
                _ => Style::new(),
            });
        for row in &rows {
            let session: Session = link::read(row)?;
            table.row(vec![
                name(&session.key),
                state(&session),
                format!("{} ago", age(session.updated_at, now)),
                session.messages.to_string(),
                session.agent.to_string(),
                session.label.or(session.title).unwrap_or_default(),
            ]);
        }
        print::answer(&table.lines().join("\n"))?;
        print::note(&match rows.len() {
            1 => "1 session".to_owned(),
            count => format!("{count} sessions"),
        });
        Ok(0)
    }

    /// Why the list is empty, and what to do.
    fn nothing(&self) -> &'static str {
        if self.cwd.is_some() {
            "no session works in that folder"
        } else if self.search.is_some() {
            "no session's key, label or title contains that"
        } else if self.children {
            "no session was spawned from another one"
        } else if self.all {
            "no sessions; start one: abide chat"
        } else {
            "no sessions; start one: abide chat; include spawned ones: abide sessions --all"
        }
    }
}

/// State for display: `stopped` if a user has cancelled the work and none has started since.
fn state(session: &Session) -> String {
    let by_person = session.stopped.as_ref();
    let by_person = by_person.is_some_and(|stopped| &*stopped.by == "person");
    match by_person && &*session.state == "idle" {
        true => "stopped".to_owned(),
        false => session.state.to_string(),
    }
}

/// Name that users type for a session: its key, or the last digits of a generated or long one.
fn name(key: &SessionKey) -> String {
    let key = key.as_str();
    let made_up = |last: &str| last.parse::<RunId>().is_ok();
    match key.rsplit_once(':') {
        Some((_, last)) if made_up(last) => short(key),
        _ if key.len() > SHOWN => short(key),
        _ => key.to_owned(),
    }
}
