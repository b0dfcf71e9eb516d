//! Messages between sessions: the chain of sessions that a message passed, its text for the
//! receiving agent, and when an exchange of replies ends.

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::{Outcome, Run, RunState};
use crate::kernel::text;

/// Maximum number of sessions in the chain of a message.
pub const MAX_CHAIN: usize = 5;

/// The complete answer of a turn that ends the exchange.
pub const REPLY_SKIP: &str = "REPLY_SKIP";

/// The chain of a message that is forwarded to `target`. Refuses a message that returns to a
/// session in its chain, and a chain longer than [`MAX_CHAIN`].
pub fn extend_chain(
    chain: &[SessionId],
    target: SessionId,
    key: &SessionKey,
) -> Result<Vec<SessionId>, Fault> {
    if chain.contains(&target) {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {key} is already in the chain of sessions of this message: sending it on \
                 would create a loop. Nothing was sent"
            ),
        )
        .hint("end your turn: your final text is the reply to the session that wrote to you")
        .with("sessionKey", key.as_str()));
    }
    if chain.len() >= MAX_CHAIN {
        return Err(Fault::new(
            Kind::Limit,
            format!(
                "limit message_chain = {MAX_CHAIN} reached; what counts: the sessions that this \
                 message has passed through. Nothing was sent"
            ),
        )
        .hint("answer with what you know: your final text goes back along the chain")
        .with("limit", "message_chain")
        .with("value", MAX_CHAIN)
        .with(
            "counts",
            "the sessions that this message has passed through",
        )
        .with(
            "free",
            "end your turn: your final text goes back along the chain",
        ));
    }
    let mut longer = chain.to_vec();
    longer.push(target);
    Ok(longer)
}

/// The run's reply: the final text of a turn that ended `ok`, unless it is [`REPLY_SKIP`].
pub fn reply(run: &Run) -> Option<&str> {
    let text = run.result.as_deref()?;
    let said = run.state == RunState::Ended(Outcome::Ok) && text.trim() != REPLY_SKIP;
    said.then_some(text)
}

/// A message as the receiver's model reads it: quoted, so that it cannot pass for content from the
/// user or the daemon. `turn` is its position in an exchange of replies, 0 for the first message.
pub fn frame(from: &str, turn: u32, said: &str) -> String {
    let quoted = said.replace("<<<", "‹‹‹").replace(">>>", "›››");
    let from = text::preview(from, 300);
    let rule = if turn == 0 {
        "Your final text is sent to it as the reply.".to_owned()
    } else {
        format!(
            "It is reply {turn} of an exchange. Your final text is sent back to it. Answer only \
             {REPLY_SKIP} to end the exchange."
        )
    };
    format!(
        "[message from session {from}] This is from another session, not from your user. {rule}\n\
         <<<message\n{quoted}\nmessage>>>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    #[test]
    fn g4_11_a_chain_never_returns_and_has_an_end() {
        let key = SessionKey::parse("agent:build:x").unwrap();
        let mut chain = vec![session(1)];
        for number in 2..=5 {
            chain = extend_chain(&chain, session(number), &key).unwrap();
        }
        assert_eq!(chain.len(), MAX_CHAIN);
        for member in 1..=5 {
            let fault = extend_chain(&chain, session(member), &key).unwrap_err();
            assert_eq!(fault.kind, Kind::Conflict);
        }
        let fault = extend_chain(&chain, session(6), &key).unwrap_err();
        assert_eq!(fault.kind, Kind::Limit);
        for field in ["limit", "value", "counts", "free"] {
            assert!(fault.data.contains_key(field), "{field}");
        }
    }

    proptest! {
        #[test]
        fn g10_8_a_message_cannot_leave_its_quotation(
            said in "(a|<|>|message|\n|<<<message|message>>>){1,30}",
            turn in 0u32..6,
        ) {
            let frame = frame("agent:build:x", turn, &said);
            prop_assert_eq!(frame.matches("<<<message").count(), 1);
            prop_assert_eq!(frame.matches("message>>>").count(), 1);
            prop_assert!(frame.ends_with("message>>>"));
        }
    }
}
