//! Actions of `abide top`, executed over a connection of their own while the screen keeps updating;
//! the result is one line.

use crate::cli::asking::open_requests;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::common::failure::Failure;
use crate::cli::link::discover::Where;
use crate::cli::link::{self, DaemonLink};
use crate::cli::output::text::{clean, short};
use crate::clock::Clock;
use crate::kernel::ids::{MessageId, RunId};
use crate::wire::lifecycle::{CancelRun, Cancelled, Steer, Steered};

/// A request to the daemon.
pub(super) enum TopAction {
    /// Answer this request with this text.
    Answer(Box<OpenRequest>, String),
    /// Cancel this run.
    Cancel(RunId),
    /// Steer this run with this text.
    Steer(RunId, String),
}

/// Result of an action.
pub(super) struct ActionOutcome {
    /// Summary on one line.
    pub(super) message: String,
    /// The approval as it is now, if the decision was refused because the file has changed.
    pub(super) again: Option<OpenRequest>,
}

impl TopAction {
    /// Executes the action; a failure becomes the message.
    pub(super) async fn carry_out(self, place: &Where) -> ActionOutcome {
        let mut again = None;
        let message = match self.done(place, &mut again).await {
            Ok(message) => message,
            Err(failure) if link::is_broken(&failure) => {
                "the connection was lost, and the outcome is unknown; check again".to_owned()
            }
            Err(failure) => failure.message,
        };
        let message = clean(&message);
        ActionOutcome { message, again }
    }

    async fn done(self, place: &Where, again: &mut Option<OpenRequest>) -> Result<String, Failure> {
        let link = DaemonLink::open(place).await?;
        Ok(match self {
            TopAction::Answer(asked, said) => {
                let answered = asked.answer(&link, &said).await;
                if answered
                    .as_ref()
                    .is_err_and(|refused| refused.kind == "conflict")
                {
                    *again = open_requests::again(&link, asked.id()).await?;
                }
                answered?;
                asked.decided(&said)
            }
            TopAction::Cancel(run_id) => {
                let reason = Some("abide top".to_owned());
                let request = CancelRun { run_id, reason };
                let done: Cancelled = link.ask(&request).await?;
                match (done.cancelled.len(), done.not_ended.len()) {
                    (0, 0) => format!("{} had already ended", short(run_id)),
                    (1, 0) => format!("cancelled: {}", short(run_id)),
                    (ended, 0) => format!("cancelled: {ended} runs"),
                    (ended, open) => format!("cancelled: {ended} runs; {open} are still ending"),
                }
            }
            TopAction::Steer(run_id, message) => {
                let request = Steer {
                    run_id,
                    message,
                    message_id: Some(MessageId(Clock::system().new_id())),
                };
                let said: Steered = link.ask(&request).await?;
                format!(
                    "sent; the next model call of {} sees it",
                    short(said.run_id)
                )
            }
        })
    }
}
