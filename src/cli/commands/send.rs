//! `abide send`: sends a message to a session and prints the reply.

use std::pin::pin;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::spawn;
use crate::cli::asking::needs::Needs;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, duration, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::wire::input::WaitTimeout;
use crate::wire::sessions::{Send as Request, Sent};

/// Interval of checking whether the session needs a user.
const LOOK: Duration = Duration::from_secs(1);

/// Send a message to a session and print the reply
///
/// The session's agent answers in a turn of its own. If the wait ends without a reply, the message
/// is kept and still answered: do not send it again.
#[derive(Debug, Args)]
#[command(after_help = r#"abide send agent:build:chat "What did you find?"
abide send --wait 0 reviewer "Look at it once more""#)]
pub(crate) struct CliSendArgs {
    /// The session
    session: String,

    /// The message; - reads it from standard input
    message: String,

    /// Your own session as the sender, which gets a late reply into its inbox
    #[arg(long, value_name = "SESSION")]
    from: Option<String>,

    /// How long to wait for the reply; 0 = do not wait
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    wait: Duration,
}

impl CliSendArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let from = match &self.from {
            Some(from) => Some(ids::session(&link, from).await?),
            None => None,
        };
        let to = ids::session(&link, &self.session).await;
        let to = to.map_err(|failure| match failure.code {
            exit::NOT_FOUND => failure.hint(
                "a message needs a session that exists: abide spawn and abide chat create one",
            ),
            _ => failure,
        })?;
        let request = Request {
            session_key: Some(to),
            message: spawn::task(self.message)?,
            from,
            wait_timeout: WaitTimeout(self.wait),
            // With the key, a retry after a lost answer is never a second message.
            idempotency_key: Some(Clock::system().new_id().to_string()),
            ..Request::default()
        };
        let Some(raw) = reply(&link, common, &request).await? else {
            return Ok(exit::NEEDS_USER);
        };
        if common.json {
            print::object(&raw)?;
        }
        let sent: Sent = link::read(&raw)?;
        if !common.json {
            show(&sent)?;
        }
        Ok(code(&sent))
    }
}

/// The daemon's reply; `None` if the session needs a user, which was announced, and none is at the
/// terminal.
async fn reply(
    link: &DaemonLink,
    common: &Common,
    request: &Request,
) -> Result<Option<Value>, Failure> {
    let mut needs = Needs::new(common.json, false);
    let keys: Vec<SessionKey> = request.session_key.clone().into_iter().collect();
    let mut saying = pin!(link.raw_retried(request, &common.place));
    let mut looks = interval(LOOK);
    looks.reset();
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            raw = &mut saying => return raw.map(Some),
            _ = looks.tick() => {
                if needs.announce(link, &keys, print::note).await? {
                    print::note("the message is kept, and is answered once the request is resolved");
                    return Ok(None);
                }
            }
        }
    }
}

fn show(sent: &Sent) -> Result<(), Failure> {
    if let Some(reply) = &sent.reply {
        return print::prose(reply);
    }
    let key: &SessionKey = &sent.session_key;
    let again = sent.run_id.map_or_else(String::new, |run| {
        format!("; its reply: abide wait {}", text::short(run))
    });
    print::note(&match (&*sent.status, sent.delivered, &sent.error) {
        ("delivered", ..) => format!("delivered to {key}; a client's session does not reply"),
        ("ok", ..) => format!("{key} chose not to reply"),
        ("accepted", ..) => format!("accepted by {key}{again}"),
        ("pending", true, _) => format!("{key} is working on it, no reply yet{again}"),
        ("pending", false, _) => format!("{key} is busy, the message is queued{again}"),
        (status, _, Some(error)) => {
            format!(
                "{key}: the turn ended {status}: {}",
                text::clean(&error.message)
            )
        }
        (status, ..) => format!("{key}: the turn ended {status}"),
    });
    Ok(())
}

/// Exit code for the status of a sent message.
fn code(sent: &Sent) -> u8 {
    match &*sent.status {
        "ok" | "delivered" | "accepted" => 0,
        state => exit::of_run(state, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_a_reply_in_time_is_no_failure_of_the_message() {
        let sent = |status: &str| Sent {
            run_id: None,
            session_key: SessionKey::parse("agent:build:x").unwrap(),
            delivered: true,
            replied: false,
            reply: None,
            status: status.to_owned(),
            error: None,
        };
        assert_eq!(code(&sent("accepted")), 0);
        assert_eq!(code(&sent("pending")), exit::NOT_ENDED);
        assert_eq!(code(&sent("error")), exit::FAILED);
    }
}
