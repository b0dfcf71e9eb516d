//! Work as a turn of a session: `--session` of `run` and `spawn`.

use serde_json::Value;

use super::failure::Failure;
use crate::cli::chat;
use crate::cli::common::Common;
use crate::cli::link::DaemonLink;
use crate::wire::runs::Turn;
use crate::wire::sessions::Spawn;

/// The request for a turn of this session, with the options of `asked`. An unknown key creates a
/// session in the current folder.
pub(crate) async fn of(link: &DaemonLink, session: &str, asked: Spawn) -> Result<Turn, Failure> {
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

/// The daemon has accepted the turn once this returns; its key keeps a retry from being a second
/// turn.
pub(crate) async fn send(
    link: &DaemonLink,
    common: &Common,
    turn: &Turn,
) -> Result<Value, Failure> {
    link.raw_retried(turn, &common.place).await
}
