//! `abide history`: prints the messages of a session.

use std::fmt::Write;

use clap::Args;
use serde_json::Value;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, clean, cut, json, line};
use crate::clock::Clock;
use crate::kernel::session::message::Block;
use crate::kernel::time::Timestamp;
use crate::wire::input::PageSize;
use crate::wire::sessions::GetHistory;
use crate::wire::shapes::Message;

/// Show the messages of a session
#[derive(Debug, Args)]
#[command(after_help = "abide history @last
abide history agent:build:chat --limit 5 --full")]
pub(crate) struct HistoryArgs {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,

    /// Maximum number of messages, the newest ones
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,

    /// Only messages before this sequence number
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,

    /// Leave out tool calls and their results
    #[arg(long)]
    no_tools: bool,

    /// Show complete tool results, not only their first lines
    #[arg(long, conflicts_with = "no_tools")]
    full: bool,
}

impl HistoryArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let request = GetHistory {
            session_key: ids::session(&link, &self.session).await?,
            before: self.before,
            after: None,
            tools: Some(!self.no_tools),
            limit: PageSize(self.limit),
        };
        let Some(page) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        let now = Clock::system().now();
        let texts: Vec<String> = page
            .messages
            .iter()
            .map(|entry| show(entry, now, self.full))
            .collect();
        if texts.is_empty() {
            print::note("no messages yet");
        } else {
            print::answer(&texts.join("\n"))?;
        }
        if let Some(first) = page.messages.first().filter(|_| page.truncated) {
            print::note(&format!("earlier messages: --before {}", first.seq));
        }
        Ok(0)
    }
}

/// Number of lines of a tool result that are shown without `--full`.
const FIRST: usize = 6;

/// Formats a message with its head. Tool results are cut to their first lines unless `full`.
pub(crate) fn show(message: &Message, now: Timestamp, full: bool) -> String {
    // Most messages are text; for the others the kind says more than the role.
    let what = match &*message.kind {
        "text" => message.role.to_string(),
        kind => kind.replace('_', " "),
    };
    let head = format!("#{} {what} · {} ago", message.seq, age(message.at, now));
    let mut text = print::styled(print::HEAD, line(&head, print::room(0)));
    text.push('\n');
    for block in &message.content {
        // Writing to a string cannot fail.
        let _ = match block {
            Block::Text { text: said } => writeln!(text, "{}", print::for_screen(said, 0)),
            Block::ToolCall {
                name, arguments, ..
            } => {
                let call = format!("{name} {}", plain(arguments));
                writeln!(text, "→ {}", line(&call, print::room(2)))
            }
            Block::Native { .. } | Block::Note { .. } => Ok(()),
            Block::ToolResult {
                text: said,
                is_error,
                ..
            } => {
                let mark = if *is_error { "✗" } else { "←" };
                let said = clean(said);
                let said = said.trim_end();
                match full {
                    true => writeln!(text, "{mark} {said}"),
                    false => writeln!(text, "{mark} {}", beginning(said)),
                }
            }
        };
    }
    if message.truncated {
        let rest = "(truncated: longer than the limit of a history page)";
        text.push_str(&print::styled(print::DIM, rest));
        text.push('\n');
    }
    text
}

/// First lines of a tool result, each cut to one line of the screen.
fn beginning(said: &str) -> String {
    let mut lines: Vec<String> = said
        .lines()
        .take(FIRST)
        .map(|said| cut(said, print::room(2)))
        .collect();
    let more = said.lines().count().saturating_sub(FIRST);
    if more > 0 {
        lines.push(print::styled(
            print::DIM,
            format!("… {more} more lines: --full"),
        ));
    }
    lines.join("\n  ")
}

/// Formats the arguments of a call: `path: README.md, limit: 60`.
fn plain(arguments: &Value) -> String {
    let Value::Object(fields) = arguments else {
        return json(arguments);
    };
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}: {text}"),
            other => format!("{name}: {}", json(other)),
        })
        .collect();
    fields.join(", ")
}
