//! `abide history`: what was said in a session.

use std::fmt::Write;

use clap::Args;

use super::args::Common;
use super::failure::Failure;
use super::link::{self, Link};
use super::text::{COLUMNS, age, clean, line};
use super::{ids, print};
use crate::clock::Clock;
use crate::kernel::message::Block;
use crate::kernel::time::Timestamp;
use crate::wire::input::PageSize;
use crate::wire::sessions::{GetHistory, History as Page};
use crate::wire::shapes::Message;

/// Show what was said in a session
#[derive(Debug, Args)]
pub(crate) struct History {
    /// A session key or label, or a run: then its session
    #[arg(value_name = "SESSION")]
    session: String,

    /// How many messages, the last ones
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,

    /// Only messages before this number
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,

    /// Without tool calls and their results
    #[arg(long)]
    no_tools: bool,
}

impl History {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let request = GetHistory {
            session_key: ids::session(&link, &self.session).await?,
            before: self.before,
            after: None,
            tools: Some(!self.no_tools),
            limit: PageSize(self.limit),
        };
        let raw = link.raw("sessions.history", &request).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let page: Page = link::read(&raw)?;
        let now = Clock::system().now();
        let texts: Vec<String> = page.messages.iter().map(|entry| show(entry, now)).collect();
        if texts.is_empty() {
            print::note("nothing was said yet");
        } else {
            print::answer(&texts.join("\n"))?;
        }
        if let Some(first) = page.messages.first().filter(|_| page.truncated) {
            print::note(&format!("what was said earlier: --before {}", first.seq));
        }
        Ok(0)
    }
}

/// A message with its head, for people.
pub(crate) fn show(message: &Message, now: Timestamp) -> String {
    let head = format!(
        "#{} {} {} · {} ago",
        message.seq,
        message.role,
        message.kind,
        age(message.at, now)
    );
    let mut text = print::styled(print::HEAD, line(&head, COLUMNS));
    text.push('\n');
    for block in &message.content {
        // Writing to a string cannot fail.
        let _ = match block {
            Block::Text { text: said } => writeln!(text, "{}", clean(said).trim_end()),
            Block::ToolCall {
                name, arguments, ..
            } => {
                let call = format!("{name} {arguments}");
                writeln!(text, "→ {}", line(&call, COLUMNS - 2))
            }
            Block::ToolResult {
                text: said,
                is_error,
                ..
            } => {
                let mark = if *is_error { "✗" } else { "←" };
                writeln!(text, "{mark} {}", clean(said).trim_end())
            }
        };
    }
    if message.truncated {
        text.push_str("(cut here; --json does not have more either, runs.get does)\n");
    }
    text
}
