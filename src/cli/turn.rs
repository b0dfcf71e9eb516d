//! Work that goes into a session: `--session` of `run` and `spawn`.

use serde_json::Value;

use super::args::Common;
use super::chat;
use super::failure::Failure;
use super::link::{self, Link};
use super::print;
use crate::wire::runs::Turn;
use crate::wire::sessions::Spawn;

/// The turn of this session that does what `asked` says. A key that no session has yet makes one
/// that sees the current folder.
pub(super) async fn of(link: &Link, session: &str, asked: Spawn) -> Result<Turn, Failure> {
    let session = chat::open(link, session, asked.agent).await?;
    Ok(Turn {
        session_key: session.key,
        message: asked.task,
        agent: None,
        run_id: asked.run_id,
        model: asked.model,
        thinking: asked.thinking,
        run_timeout: asked.run_timeout,
        budget: asked.budget,
        env: asked.env,
        idempotency_key: asked.idempotency_key,
        meta: asked.meta,
    })
}

/// Sends it until it is answered; its key keeps a repeat from being a second turn.
pub(super) async fn send(link: &Link, common: &Common, turn: &Turn) -> Result<Value, Failure> {
    match link.raw("agent.run", turn).await {
        Err(lost) if link::is_broken(&lost) && turn.idempotency_key.is_some() => {
            let again = link::find_again(&common.place, lost, print::note).await?;
            again.raw("agent.run", turn).await
        }
        answer => answer,
    }
}
