//! `abide sessions delete|reset|compact|patch`: changes an existing session.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};

use super::wait::CliWaitArgs;
use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::run::thinking::Thinking;
use crate::wire::lifecycle::{
    CompactSession, Compacting, DeleteSession, Deleted, PatchSession, ResetSession,
};
use crate::wire::shapes::Session;

/// A change of one session.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionChange {
    /// Delete a session with its transcript and all sessions below it
    ///
    /// The results of its runs stay (abide ps --all); its key is free at once.
    Delete(Clear),
    /// Reset a session: its transcript is kept, but the model no longer sees it
    Reset(Reset),
    /// Compact what the model sees of a session; the transcript is kept
    ///
    /// A run does this after the turns that are queued there. Waits for it and prints its result.
    Compact(Compact),
    /// Change a session's title, label, model, thinking level or folder; "" clears a value
    Patch(Patch),
}

/// The session to delete or reset.
#[derive(Debug, Args)]
pub(crate) struct Clear {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,

    /// Cancel the open runs in it first
    #[arg(long)]
    force: bool,
}

/// The session to reset, with an optional precondition.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Reset {
    #[command(flatten)]
    clear: Clear,

    /// Reset it only if its generation is still NUMBER, so that a retry does not reset twice
    #[arg(long, value_name = "NUMBER")]
    if_generation: Option<i64>,
}

/// The session to compact.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Compact {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
}

/// The values to change.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Patch {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,

    /// Title for display
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Label for look-ups
    #[arg(long, value_name = "NAME")]
    label: Option<String>,

    /// The agent that answers from the next turn on
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// The model of its turns, as provider/name
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Thinking level of that model
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    thinking: Option<String>,

    /// Working folder of its tools
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Change it only if its revision is still NUMBER
    #[arg(long, value_name = "NUMBER")]
    if_revision: Option<i64>,
}

impl SessionChange {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        match self {
            SessionChange::Delete(clear) => {
                let request = DeleteSession {
                    session_key: ids::session(&link, &clear.session).await?,
                    force: clear.force,
                };
                let raw = link.raw(&request).await?;
                if common.json {
                    print::object(&raw)?;
                } else {
                    let done: Deleted = link::read(&raw)?;
                    print::note(&format!("deleted: {}", done.session_key));
                }
            }
            SessionChange::Compact(compact) => return compact.run(&link, common).await,
            SessionChange::Reset(reset) => {
                let request = ResetSession {
                    session_key: ids::session(&link, &reset.clear.session).await?,
                    force: reset.clear.force,
                    if_generation: reset.if_generation,
                };
                let raw = link.raw(&request).await?;
                if common.json {
                    print::object(&raw)?;
                } else {
                    let session: Session = link::read(&raw)?;
                    print::note(&format!(
                        "{} is reset (generation {})",
                        session.key, session.generation
                    ));
                }
            }
            SessionChange::Patch(patch) => {
                let request = patch.request(&link).await?;
                let raw = link.raw(&request).await?;
                if common.json {
                    print::object(&raw)?;
                } else {
                    let session: Session = link::read(&raw)?;
                    let thinking = session.thinking.map(|level| level.to_string());
                    let agent = Some(session.agent.to_string());
                    let named = [
                        &session.title,
                        &session.label,
                        &agent,
                        &session.model,
                        &thinking,
                        &session.cwd,
                    ];
                    let names = ["title", "label", "agent", "model", "thinking", "cwd"];
                    let mut shown = vec![session.key.to_string()];
                    for (name, value) in names.iter().zip(named) {
                        if let Some(value) = value {
                            shown.push(format!("{name}: {}", text::line(value, 60)));
                        }
                    }
                    print::note(&shown.join("\n  "));
                }
            }
        }
        Ok(0)
    }
}

impl Compact {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = CompactSession {
            session_key: ids::session(link, &self.session).await?,
            idempotency_key: Some(Clock::system().new_id().to_string()),
        };
        let raw = link.raw(&request).await?;
        let new: Compacting = link::read(&raw)?;
        let wait = CliWaitArgs::of(new.run_id);
        wait.run(common).await
    }
}

impl Patch {
    async fn request(self, link: &DaemonLink) -> Result<PatchSession, Failure> {
        let value = |given: Option<String>| given.map(|text| (!text.is_empty()).then_some(text));
        let request = PatchSession {
            session_key: ids::session(link, &self.session).await?,
            label: value(self.label),
            title: value(self.title),
            agent: self.agent,
            model: value(self.model),
            thinking: self.thinking.as_deref().map(Thinking::parse),
            cwd: value(self.cwd.map(absolute).transpose()?),
            if_revision: self.if_revision,
        };
        let changes = [
            request.label.is_some(),
            request.title.is_some(),
            request.agent.is_some(),
            request.model.is_some(),
            request.thinking.is_some(),
            request.cwd.is_some(),
        ];
        if !changes.contains(&true) {
            return Err(Failure::usage("no change was given")
                .hint("give at least one: --title, --label, --agent, --model, --thinking, --cwd"));
        }
        Ok(request)
    }
}

/// Thinking levels as clap values; a hidden empty value clears the level.
fn levels() -> PossibleValuesParser {
    let levels = Thinking::ALL.iter().map(|level| level.as_str().into());
    levels
        .chain([PossibleValue::new("").hide(true)])
        .collect::<Vec<_>>()
        .into()
}

pub(crate) fn absolute(folder: String) -> Result<String, Failure> {
    if folder.is_empty() {
        return Ok(folder);
    }
    let path = std::path::absolute(&folder).map_err(|error| Failure::local(&folder, error))?;
    path.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!(
            "the folder's name is not UTF-8: {}",
            path.display()
        ))
    })
}
