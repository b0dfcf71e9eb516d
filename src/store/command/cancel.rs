//! Marks a run or a session to end, with everything open below it, in one transaction. From
//! then on the kernel refuses new steps, slots and timers of these runs, also after a restart.

use super::Reply;
use super::context::Context;
use super::moves::{load, move_in_fall};
use super::subtree::{open_from_run, open_from_session};
use crate::kernel::event::RunEvent;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::{CancelRequest, Run};
use crate::kernel::session::Session;
use crate::store::{db_fault, sessions};

/// What is to be cancelled, and what below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A run.
    Run(RunId),
    /// Every run of a session.
    Session(SessionKey),
}

/// A cancel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The tenant.
    pub org: String,
    /// What is to end.
    pub target: CancelTarget,
    /// Who asks.
    pub by: String,
    /// Why, for people.
    pub reason: Option<String>,
}

/// What a cancel has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// These have ended by it.
    pub cancelled: Vec<RunId>,
    /// The run that was named had ended before.
    pub already_ended: Vec<RunId>,
    /// These end when their executors are gone.
    pub stopping: Vec<RunId>,
}

/// Every open run of the target and below it is marked. Those without an executor have ended;
/// the others end when theirs is gone.
pub fn cancel(context: &mut Context<'_>, cancel: Cancel) -> Result<Reply, Fault> {
    let Cancel {
        org,
        target,
        by,
        reason,
    } = cancel;
    let request = CancelRequest {
        by,
        at: context.now.wall,
        reason,
        inherited: false,
    };
    let done = match target {
        CancelTarget::Run(id) => {
            let run = load(context, id)?;
            if run.org != org {
                return Err(Fault::not_found("run", id));
            }
            let mut done = fell(context, &run, &request)?;
            if run.state.is_terminal() {
                done.already_ended.push(id);
            }
            done
        }
        CancelTarget::Session(key) => {
            let session = sessions::by_key(context.tx, &org, &key)
                .map_err(db_fault)?
                .ok_or_else(|| Fault::not_found("session", &key))?;
            clear(context, &session, &request)?
        }
    };
    Ok(Reply::Cancelled(done))
}

/// What a cancel names when a parent's end took its children along.
const PARENT_ENDED: &str = "parent_ended";

/// The cancel of what falls with the end of the run that asked for it.
pub fn parent_ended(context: &Context<'_>) -> CancelRequest {
    CancelRequest {
        by: PARENT_ENDED.to_owned(),
        at: context.now.wall,
        reason: None,
        inherited: true,
    }
}

/// Ends what is open of `run` and below it.
pub fn fell(
    context: &mut Context<'_>,
    run: &Run,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let open = open_from_run(context, run)?;
    mark(context, open, request, |one| one.id != run.id)
}

/// Ends what is open in `session` and below it.
pub fn clear(
    context: &mut Context<'_>,
    session: &Session,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let open = open_from_session(context, session)?;
    mark(context, open, request, |one| one.session != session.id)
}

/// Marks these runs, nearest first, so that no settling run in between takes the end of its
/// child for its own.
pub fn mark(
    context: &mut Context<'_>,
    open: Vec<Run>,
    request: &CancelRequest,
    inherits: impl Fn(&Run) -> bool,
) -> Result<Cancelled, Fault> {
    let mut done = Cancelled::default();
    for run in open {
        let request = CancelRequest {
            inherited: request.inherited || inherits(&run),
            ..request.clone()
        };
        // What ended before in this very command may have taken it along.
        let run = load(context, run.id)?;
        if run.state.is_terminal() {
            continue;
        }
        let run = move_in_fall(context, &run, RunEvent::CancelRequested(request))?;
        let list: &mut Vec<RunId> = if run.state.is_terminal() {
            &mut done.cancelled
        } else {
            &mut done.stopping
        };
        list.push(run.id);
    }
    Ok(done)
}
