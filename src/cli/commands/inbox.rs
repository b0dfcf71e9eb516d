//! `abide inbox`: shows, acknowledges, retries and dismisses announcements of ended runs.

pub(crate) mod undelivered;

use clap::Args;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, clean, line, short, span};
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::kernel::time::Timestamp;
use crate::wire::input::PageSize;
use crate::wire::sessions::{Ack, GetInbox, Inbox as Page};
use crate::wire::shapes::Announce;

/// Show the announcements of ended runs that a session has asked for
///
/// Each end is announced once and stays here until it is acknowledged.
#[derive(Debug, Args)]
#[command(after_help = "abide inbox client:bot --ack
abide inbox --undelivered")]
pub(crate) struct InboxArgs {
    /// The session
    #[arg(value_name = "SESSION", required_unless_present_any = ["undelivered", "retry", "dismiss"])]
    session: Option<String>,

    /// Acknowledge the announcements that are shown, so that they are not shown again
    #[arg(long, conflicts_with = "acked")]
    ack: bool,

    /// Show acknowledged announcements instead of open ones
    #[arg(long)]
    acked: bool,

    /// List the runs of all sessions whose end is not delivered or not acknowledged yet
    #[arg(long, conflicts_with = "session")]
    undelivered: bool,

    /// Deliver the announcement of this run again
    #[arg(long, value_name = "RUN", conflicts_with_all = ["session", "undelivered", "dismiss"])]
    retry: Vec<String>,

    /// Stop delivering the announcement of this run; its result is kept
    #[arg(long, value_name = "RUN", conflicts_with_all = ["session", "undelivered"])]
    dismiss: Vec<String>,
}

impl InboxArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let Some(session) = &self.session else {
            return match (self.retry.as_slice(), self.dismiss.as_slice()) {
                ([], []) => undelivered::list(&link, common).await,
                ([], dismiss) => {
                    undelivered::decide(
                        &link,
                        common,
                        undelivered::UndeliveredAction::Dismiss,
                        dismiss,
                    )
                    .await
                }
                (retry, _) => {
                    undelivered::decide(&link, common, undelivered::UndeliveredAction::Retry, retry)
                        .await
                }
            };
        };
        let key = ids::session(&link, session).await?;
        let mut request = GetInbox {
            session_key: key.clone(),
            acked: self.acked,
            limit: PageSize::default(),
            cursor: None,
        };
        let mut shown = 0;
        loop {
            let raw = link.raw(&request).await?;
            let page: Page = link::read(&raw)?;
            if common.json {
                print::object(&raw)?;
            } else {
                let now = Clock::system().now();
                for announce in &page.announces {
                    print::answer(&show(announce, now))?;
                }
            }
            shown += page.announces.len();
            // Acknowledged only after it was printed: what was not printed stays open.
            if self.ack && !page.announces.is_empty() {
                acknowledge(&link, common, &key, &page).await?;
            }
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                break;
            }
        }
        if !common.json {
            match (shown, self.ack) {
                (0, _) => print::note("this inbox is empty"),
                (_, true) => print::note(&format!("acknowledged: {shown}")),
                (_, false) => {}
            }
        }
        Ok(0)
    }
}

async fn acknowledge(
    link: &DaemonLink,
    common: &Common,
    key: &SessionKey,
    page: &Page,
) -> Result<(), Failure> {
    let request = Ack {
        session_key: key.clone(),
        announce_ids: page
            .announces
            .iter()
            .map(|announce| announce.announce_id)
            .collect(),
    };
    let raw = link.raw(&request).await?;
    if common.json {
        print::object(&raw)?;
    }
    Ok(())
}

fn show(announce: &Announce, now: Timestamp) -> String {
    let name = announce.label.as_deref().unwrap_or(announce.agent.as_str());
    let head = format!(
        "{name} {}: ended {} after {}, {} ago",
        short(announce.run_id),
        announce.outcome,
        span(announce.duration_ms),
        age(announce.at, now)
    );
    let mut text = print::styled(print::HEAD, line(&head, print::room(0)));
    if let Some(error) = &announce.error {
        text.push_str(&format!("\n{}", clean(error)));
    }
    if !announce.result.is_empty() {
        text.push_str(&format!("\n{}", print::for_screen(&announce.result, 0)));
    }
    if announce.truncated {
        text.push_str(&format!(
            "\n(cut here; all of it: abide wait {})",
            short(announce.run_id)
        ));
    }
    text.push('\n');
    text
}
