//! The marks that every started program carries in its environment: by them it finds the
//! daemon, and by them what it has started is known again.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use uuid::Uuid;

use crate::kernel::env::Environment;
use crate::kernel::ids::{RunId, StepId};

/// Names the run that a process belongs to.
pub const RUN_ID: &str = "ABIDE_RUN_ID";
/// Names the step that has started it.
pub const STEP_ID: &str = "ABIDE_STEP_ID";
/// Names the one start of a service that a process belongs to.
pub const SERVICE_ID: &str = "ABIDE_SERVICE_ID";
/// Where the daemon's Unix socket is.
pub const SOCKET: &str = "ABIDE_SOCKET";
/// The state folder of the daemon that has started it: one daemon at a time owns it.
pub const STATE_DIR: &str = "ABIDE_STATE_DIR";

/// What is the same in the marks of every program of one daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// The state folder.
    pub state: PathBuf,
    /// The socket, where there is one.
    pub socket: Option<String>,
}

impl Marks {
    /// `environment` with the marks of a program of this owner's.
    pub(super) fn put(&self, environment: Environment, owner: Owner) -> Environment {
        let marked = environment.with(STATE_DIR, self.state.as_os_str());
        let (run, step) = match owner {
            Owner::Step(run, step) => (run, step),
            // It works for whoever calls it, and has no business of its own with the daemon.
            Owner::Service(id) => return marked.with(SERVICE_ID, id.to_string()),
        };
        let marked = marked
            .with(RUN_ID, run.to_string())
            .with(STEP_ID, step.to_string());
        match &self.socket {
            Some(socket) => marked.with(SOCKET, socket),
            None => marked,
        }
    }
}

/// For whom a program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// For a step of a run, with which it ends.
    Step(RunId, StepId),
    /// For the daemon, which talks with it: this start of a service.
    Service(Uuid),
}

impl Owner {
    /// Its own processes.
    pub(super) fn whose(self) -> Whose {
        match self {
            Owner::Step(_, step) => Whose::Step(step),
            Owner::Service(id) => Whose::Service(id),
        }
    }
}

/// Whose processes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of one step.
    Step(StepId),
    /// Those of one run.
    Run(RunId),
    /// Those of one start of a service.
    Service(Uuid),
    /// Those of every run and service of a daemon with this state folder.
    All(PathBuf),
}

impl Whose {
    /// Does an environment with these variables say that its process is meant?
    pub(super) fn names(&self, of: impl Fn(&str) -> Option<OsString>) -> bool {
        let is = |name: &str, value: &OsStr| of(name).is_some_and(|found| found == value);
        match self {
            Whose::Step(step) => is(STEP_ID, OsStr::new(&step.to_string())),
            Whose::Run(run) => is(RUN_ID, OsStr::new(&run.to_string())),
            Whose::Service(id) => is(SERVICE_ID, OsStr::new(&id.to_string())),
            Whose::All(state) => {
                let is_ours = of(RUN_ID).is_some() || of(SERVICE_ID).is_some();
                is_ours && is(STATE_DIR, state.as_os_str())
            }
        }
    }
}
