//! `abide webhooks`: shows the receivers of events, and the events that could not be delivered, which
//! it delivers again or drops.

use clap::{Args, Subcommand};

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, age, clean, line, wrap};
use crate::clock::Clock;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::webhooks::{
    DeadLetters, DropDeadLetters, IDS_LIMIT, ListDeadLetters, ListWebhooks, ReplayDeadLetters,
    Webhook,
};

/// Show the receivers of events, and deliver failed events again
///
/// Each is defined by a table [webhooks.NAME] in the configuration. An event whose last attempt failed
/// is a dead letter: it is kept for 30 days, and can be delivered again or dropped.
#[derive(Debug, Args)]
#[command(after_help = "abide webhooks
abide webhooks dead audit
abide webhooks replay audit --all
abide webhooks drop audit 4711")]
pub(crate) struct WebhooksArgs {
    #[command(subcommand)]
    what: Option<WebhooksCommand>,
}

#[derive(Debug, Subcommand)]
enum WebhooksCommand {
    /// List webhooks with their state
    List,
    /// List the dead letters of a webhook, newest event first
    Dead(DeadArgs),
    /// Deliver dead letters again
    Replay(ChosenArgs),
    /// Delete dead letters permanently
    Drop(ChosenArgs),
}

#[derive(Debug, Args)]
struct DeadArgs {
    /// Name of the webhook
    #[arg(value_name = "NAME")]
    name: String,

    /// Maximum number of dead letters
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_LIMIT)))]
    limit: u32,
}

#[derive(Debug, Args)]
struct ChosenArgs {
    /// Name of the webhook
    #[arg(value_name = "NAME")]
    name: String,

    /// Ids of dead letters, as the list shows them
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    ids: Vec<i64>,

    /// All dead letters of the webhook
    #[arg(long)]
    all: bool,
}

impl ChosenArgs {
    /// The ids; `None` for all.
    fn ids(&self) -> Result<Option<Vec<i64>>, Failure> {
        if self.ids.len() > IDS_LIMIT {
            let message = format!("{} ids; the limit is {IDS_LIMIT}", self.ids.len());
            return Err(Failure::new(exit::USAGE, "invalid_params", message));
        }
        Ok((!self.all).then(|| self.ids.clone()))
    }

    /// Fails if some of the ids were not found.
    fn check(&self, found: &[i64]) -> Result<u8, Failure> {
        let missing: Vec<String> = self
            .ids
            .iter()
            .filter(|id| !found.contains(id))
            .map(i64::to_string)
            .collect();
        if missing.is_empty() {
            return Ok(0);
        }
        let name = clean(&self.name);
        let message = format!("webhook {name} has no dead letter {}", missing.join(", "));
        Err(Failure::new(exit::NOT_FOUND, "not_found", message)
            .hint(format!("list them: abide webhooks dead {name}")))
    }
}

impl WebhooksArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        match self.what.unwrap_or(WebhooksCommand::List) {
            WebhooksCommand::List => list(&link, common).await,
            WebhooksCommand::Dead(dead) => dead.run(&link, common).await,
            WebhooksCommand::Replay(chosen) => replay(&link, common, &chosen).await,
            WebhooksCommand::Drop(chosen) => discard(&link, common, &chosen).await,
        }
    }
}

async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let Some(answer) = link.ask_or_print(&ListWebhooks {}, common).await? else {
        return Ok(0);
    };
    if answer.webhooks.is_empty() {
        print::note("no webhooks; define one by a table [webhooks.NAME] with a url");
        return Ok(0);
    }
    let now = Clock::system().now();
    let mut table = TextTable::new(&[
        "NAME", "STATE", "LAG", "WAITING", "SENT", "FAILED", "DEAD", "MISSED", "URL",
    ]);
    for hook in &answer.webhooks {
        table.row(vec![
            hook.name.clone(),
            hook.state.to_string(),
            hook.behind_since
                .filter(|_| hook.behind > 0)
                .map_or("none".to_owned(), |at| age(at, now)),
            hook.waiting.to_string(),
            hook.delivered.to_string(),
            hook.failed.to_string(),
            hook.dead_letters.to_string(),
            hook.missed.to_string(),
            hook.url.clone().unwrap_or_default(),
        ]);
    }
    print::answer(&table.lines().join("\n"))?;
    for hook in &answer.webhooks {
        if let Some(said) = failure(hook, now) {
            let lines = wrap(&said, print::columns());
            print::answer(&lines.join("\n"))?;
        }
    }
    Ok(0)
}

/// A sentence on why a webhook does not deliver, or on its last failure while something of it is left.
fn failure(hook: &Webhook, now: Timestamp) -> Option<String> {
    let why = clean(hook.failure.as_ref()?);
    let name = clean(&hook.name);
    match (&*hook.state, hook.failed_at) {
        ("blocked", _) => Some(format!("{name} cannot send: {why}")),
        ("failing" | "stopped", Some(at)) => {
            Some(format!("{name} failed {} ago: {why}", age(at, now)))
        }
        (_, Some(at)) if hook.dead_letters > 0 => {
            Some(format!("{name} failed last {} ago: {why}", age(at, now)))
        }
        _ => None,
    }
}

impl DeadArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = ListDeadLetters {
            webhook: self.name.clone(),
            limit: PageSize(self.limit),
            cursor: None,
        };
        let raw = link.raw(&request).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let page: DeadLetters = link::read(&raw)?;
        if page.letters.is_empty() {
            let name = clean(&self.name);
            print::note(&line(
                &format!("webhook {name} has no dead letters"),
                print::note_room(0),
            ));
            return Ok(0);
        }
        let now = Clock::system().now();
        let mut table = TextTable::new(&["ID", "AGE", "KIND", "TRIES", "STATE", "FAILURE"]);
        for letter in page.letters {
            table.row(vec![
                letter.id.to_string(),
                age(letter.at, now),
                letter.kind,
                letter.attempts.to_string(),
                if letter.replaying {
                    "replaying"
                } else {
                    "dead"
                }
                .to_owned(),
                letter.failure,
            ]);
        }
        print::answer(&table.lines().join("\n"))?;
        if page.next_cursor.is_some() {
            print::note("older ones exist: show more with --limit");
        }
        Ok(0)
    }
}

async fn replay(link: &DaemonLink, common: &Common, chosen: &ChosenArgs) -> Result<u8, Failure> {
    let request = ReplayDeadLetters {
        webhook: chosen.name.clone(),
        ids: chosen.ids()?,
    };
    let Some(answer) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    let name = clean(&chosen.name);
    print::note(&match answer.replaying.len() {
        1 => format!("1 dead letter is delivered again to {name}"),
        count => format!("{count} dead letters are delivered again to {name}"),
    });
    chosen.check(&answer.replaying)
}

async fn discard(link: &DaemonLink, common: &Common, chosen: &ChosenArgs) -> Result<u8, Failure> {
    let request = DropDeadLetters {
        webhook: chosen.name.clone(),
        ids: chosen.ids()?,
    };
    let Some(answer) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    let name = clean(&chosen.name);
    print::note(&match answer.dropped.len() {
        1 => format!("1 dead letter of {name} was deleted"),
        count => format!("{count} dead letters of {name} were deleted"),
    });
    chosen.check(&answer.dropped)
}
