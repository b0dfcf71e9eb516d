//! Processes the follow-up of an answer to another session: the next turn of their exchange, or its
//! end. The rows decide which; this module prepares the run that a next turn needs.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::command::{Exchange, NewRun};
use crate::contract::catalog::Overrides;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::session::{Owner, Session};
use crate::kernel::text::preview;
use crate::registry::RegistryInner;
use crate::store::tables::{runs, sends, sessions};
use crate::store::tx::{DbError, Tx};

/// Delay before a failed follow-up is retried; the row stays due until then.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Processes the follow-up of the end of `run`, with retries, until it is done or a drain begins.
pub(crate) fn follow(inner: &Arc<RegistryInner>, tasks: &TaskTracker, run: RunId) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        while let Err(fault) = go_on(&inner, run).await {
            tracing::warn!(%run, %fault, "could not process the follow-up of an answer; it is kept and will be retried");
            tokio::select! {
                () = tokio::time::sleep(AGAIN_AFTER) => {}
                () = inner.drained() => return,
            }
        }
    });
}

async fn go_on(inner: &Arc<RegistryInner>, run: RunId) -> Result<(), Fault> {
    let next = inner.store.read_now(|tx| other_side(tx, run))?;
    let next = match next {
        Some((session, said)) => next_run(inner, &session, &said).await?,
        None => None,
    };
    let command = Exchange { run, next };
    inner.store.submit_waiting(command).await.map(|_| ())
}

/// The run of the next turn; `None` if its agent cannot be used any more, which ends the exchange.
async fn next_run(
    inner: &Arc<RegistryInner>,
    session: &Session,
    said: &str,
) -> Result<Option<Box<NewRun>>, Fault> {
    let overrides = Overrides {
        model: session.model.as_deref(),
        thinking: session.thinking,
        given: &[],
        served: &[],
    };
    let (folder, named) = (session.cwd.as_deref(), session.agent.as_str());
    let resolved = inner.resolve_in(session.id, &session.org, folder, Some(named), overrides);
    let Some(agent) = usable(resolved.await)? else {
        return Ok(None);
    };
    let id = RunId(inner.clock.new_id());
    let Some(environment) = usable(inner.sealed(id, &agent.overlay))? else {
        return Ok(None);
    };
    let title = preview(said, crate::registry::spawn::TITLE);
    // Its user and trace are those of the previous turn.
    Ok(Some(Box::new(NewRun {
        limit_ms: agent.run_timeout_ms.or(inner.options().run_timeout_ms),
        ..NewRun::of(id, agent, environment, title)
    })))
}

/// Only a fault that passes by itself is returned, and retried: a removed agent or a model that is
/// not offered any more would be retried without end.
fn usable<T>(resolved: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match resolved {
        Ok(found) => Ok(Some(found)),
        Err(fault) if matches!(fault.kind, Kind::Busy | Kind::Unavailable) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// The session of the next turn, and the text that is sent to it.
fn other_side(tx: &mut dyn Tx, run: RunId) -> Result<Option<(Session, String)>, DbError> {
    let (Some(send), Some(ended)) = (sends::get(tx, run)?, runs::get(tx, run)?) else {
        return Ok(None);
    };
    let session = if send.turn % 2 == 0 {
        send.asker.map(|(session, _)| session)
    } else {
        runs::get(tx, send.first)?.map(|first| first.session)
    };
    let session = match session {
        Some(id) => sessions::by_id(tx, id)?,
        None => None,
    };
    let said = ended.result.unwrap_or_default();
    Ok(session
        .filter(|session| session.owner == Owner::Agent)
        .map(|session| (session, said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_that_pass_by_themselves_are_retried() {
        let retried: Vec<&str> = Kind::ALL
            .iter()
            .filter(|kind| usable::<()>(Err(Fault::new(**kind, "refused"))).is_err())
            .map(|kind| kind.as_str())
            .collect();
        assert_eq!(retried, ["unavailable", "busy"]);
        assert_eq!(usable(Ok(1)).unwrap(), Some(1));
    }
}
