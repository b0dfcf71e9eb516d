//! `abide chat`: a conversation with a session's agent. `command.rs` says what a line is, `act.rs`
//! does what commands ask, `talk.rs` runs turns, `input.rs` and `editor.rs` read what is typed, and
//! `idle.rs` hears what happens meanwhile.

mod act;
mod agents;
mod answer;
mod command;
mod complete;
mod editor;
mod idle;
mod input;
mod session;
pub(in crate::cli) mod slash;
mod talk;

pub(super) use self::session::level;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::session::Wanted;
use self::talk::Talk;
use super::args::Common;
use super::change::absolute;
use super::failure::Failure;
use super::link::Link;
use super::start;
use crate::kernel::thinking::Thinking;
use crate::wire::shapes::Session;

/// Talk with a session's agent
///
/// Shows the last exchange, then reads a message, shows the answer as it is written, and reads
/// the next one. Alt-Enter or a backslash at the end of a line begins a new line; pasted text is
/// one message; Tab completes /commands, their arguments and @files; the arrow keys recall what
/// was sent in this folder before. What a run asks meanwhile is asked here.
///
/// Ctrl-C stops the turn under way and keeps the conversation; pressed again while the turn is
/// stopping, it leaves the turn at work. Ctrl-D, exit or /quit leaves. /help lists the commands,
/// none of which is sent to the model. A daemon that goes away is looked for for 60 s.
///
/// Without a terminal each line of standard input is a message, and the answers are printed on
/// standard output; where a run needs a person, it ends with exit code 8.
#[derive(Debug, Args)]
#[command(after_help = "abide chat
abide chat --agent review --cwd ../site
abide chat agent:build:tour --model openai/gpt-5 --thinking high
abide chat --new")]
pub(crate) struct Chat {
    /// A session key or label; a key that is not there yet makes a new session [default: the
    /// agent's session "chat"]
    #[arg(value_name = "SESSION")]
    named: Option<String>,

    /// The same as SESSION
    #[arg(long, value_name = "SESSION", conflicts_with = "named")]
    session: Option<String>,

    /// Begin a new session
    #[arg(long)]
    new: bool,

    /// Who answers [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// The session's model from now on, as provider/name
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// How much its model thinks from now on
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    thinking: Option<String>,

    /// The session's folder from now on [default of a new session: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Fail if no daemon is there, in place of starting one
    #[arg(long)]
    no_start: bool,
}

/// The session that is named; a key that no session has yet makes one that sees the current folder.
pub(super) async fn open(
    link: &Link,
    name: &str,
    agent: Option<String>,
) -> Result<Session, Failure> {
    let wanted = Wanted {
        name: Some(name.to_owned()),
        agent,
        ..Wanted::default()
    };
    session::open(link, &wanted).await
}

/// The words for how much a model thinks.
pub(super) fn levels() -> PossibleValuesParser {
    let levels = Thinking::ALL.iter().map(|level| level.as_str());
    levels.collect::<Vec<_>>().into()
}

impl Chat {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let wanted = Wanted {
            name: self.named.or(self.session),
            agent: self.agent,
            is_new: self.new,
            model: self.model,
            thinking: self.thinking.as_deref().and_then(session::level),
            cwd: self.cwd.map(absolute).transpose()?,
        };
        let link = start::link(&common.place, self.no_start).await?;
        let session = session::open(&link, &wanted).await?;
        Box::pin(Talk::new(link, common, session)?.run()).await
    }
}
