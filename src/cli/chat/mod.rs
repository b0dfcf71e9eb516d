//! `abide chat`: an interactive conversation with a session's agent. `command.rs` parses lines,
//! `act.rs` executes commands, `talk.rs` runs turns, `input.rs` and `editor.rs` read input, and
//! `idle.rs` watches the session between turns.

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

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::session::{ChatOptions, NamedSession};
use self::talk::Talk;
use super::link::DaemonLink;
use crate::cli::asking::person::Person;
use crate::cli::commands::change::absolute;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::start;
use crate::cli::output::print;
use crate::kernel::run::thinking::Thinking;
use crate::wire::shapes::Session;

/// Talk with a session's agent
///
/// Shows the last exchange, then reads messages and streams the answers. Alt-Enter or a backslash
/// at the end of a line begins a new line; pasted text is one message; Tab completes /commands,
/// their arguments and @files; the arrow keys recall messages that were sent in this folder before.
/// Requests of runs can be answered here.
///
/// Ctrl-C stops the running turn and keeps the conversation; pressed again while the turn is
/// stopping, it detaches and the turn continues. Ctrl-D, exit or /quit quits. /help lists the
/// commands, none of which is sent to the model. A lost connection to the daemon is retried for 60
/// s.
///
/// Without a terminal each line of standard input is a message, and the answers are printed to
/// standard output. If a run needs a user, the exit code is 8.
#[derive(Debug, Args)]
#[command(after_help = "abide chat
abide chat --agent review --cwd ../site
abide chat agent:build:tour --model openai/gpt-5 --thinking high
abide chat --new")]
pub(crate) struct ChatArgs {
    /// A session key or label; an unknown key creates a session [default: the agent's session
    /// "chat"]
    #[arg(value_name = "SESSION")]
    named: Option<String>,

    /// Same as SESSION
    #[arg(long, value_name = "SESSION", conflicts_with = "named")]
    session: Option<String>,

    /// Start a new session
    #[arg(long)]
    new: bool,

    /// The agent that answers [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// The session's model from now on, as provider/name
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Thinking level of the session from now on
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    thinking: Option<String>,

    /// The session's folder from now on [default of a new session: the current folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
}

/// Opens a session by name; an unknown key creates one in the current folder.
pub(super) async fn open(
    link: &DaemonLink,
    name: &str,
    agent: Option<String>,
) -> Result<Session, Failure> {
    let wanted = ChatOptions {
        name: Some(name.to_owned()),
        agent,
        ..ChatOptions::default()
    };
    session::open(link, &wanted).await
}

/// Thinking levels as clap values.
pub(super) fn levels() -> PossibleValuesParser {
    let levels = Thinking::ALL.iter().map(|level| level.as_str());
    levels.collect::<Vec<_>>().into()
}

impl ChatArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let wanted = ChatOptions {
            name: self.named.or(self.session),
            agent: self.agent,
            is_new: self.new,
            model: self.model,
            thinking: self.thinking.as_deref().and_then(Thinking::parse),
            cwd: self.cwd.map(absolute).transpose()?,
        };
        let link = start::link(&common.place, self.no_start).await?;
        let mut person = Person::new();
        let named = session::find(&link, &wanted).await?;
        // From a pipe, a session is only created for a message.
        let mut first = None;
        if !person.is_there && matches!(named, NamedSession::New(_)) {
            first = person.line().await;
            if first.is_none() {
                print::note("standard input has no message; nothing was done");
                return Ok(0);
            }
        }
        let session = session::enter(&link, &wanted, named).await?;
        let mut talk = Talk::new(link, common, session, person)?;
        talk.queued.extend(first);
        Box::pin(talk.run()).await
    }
}
