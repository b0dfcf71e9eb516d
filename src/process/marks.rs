//! The environment variables that mark every started program. With them the program finds the
//! daemon, and the daemon recognizes the program's descendants.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use uuid::Uuid;

use crate::kernel::ids::{CallId, RunId, StepId};
use crate::kernel::policy::env::Environment;

/// The run that a process belongs to.
pub const RUN_ID: &str = "ABIDE_RUN_ID";
/// The step that started the process.
pub const STEP_ID: &str = "ABIDE_STEP_ID";
/// The id of the one start of a service that a process belongs to.
pub const SERVICE_ID: &str = "ABIDE_SERVICE_ID";
/// The call of a gateway for which a node started a process.
pub const CALL_ID: &str = "ABIDE_CALL_ID";
/// The folder of the node that started the process for a call; two gateways may use the same id.
pub const NODE_DIR: &str = "ABIDE_NODE_DIR";
/// The address of the daemon's Unix socket.
pub const SOCKET: &str = "ABIDE_SOCKET";
/// The state folder of the daemon that started the process; one daemon at a time owns it.
pub const STATE_DIR: &str = "ABIDE_STATE_DIR";

/// The marks that all programs of one daemon share.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// The state folder.
    pub state: PathBuf,
    /// The socket; `None` if the daemon has none.
    pub socket: Option<String>,
}

impl Marks {
    /// Adds the marks for a program of `owner` to `environment`.
    pub(super) fn put(&self, environment: Environment, owner: ProcessOwner) -> Environment {
        let marked = |environment: Environment| environment.with(STATE_DIR, self.state.as_os_str());
        let (run, step) = match owner {
            ProcessOwner::Step(run, step) => (run, step),
            // A service works for its callers and does not call the daemon itself, so it gets no
            // socket.
            ProcessOwner::Service(id) => {
                return marked(environment).with(SERVICE_ID, id.to_string());
            }
            // A node has no state folder that commands of its programs could use.
            ProcessOwner::Call(id) => {
                return environment
                    .with(NODE_DIR, self.state.as_os_str())
                    .with(CALL_ID, id.to_string());
            }
        };
        let marked = marked(environment)
            .with(RUN_ID, run.to_string())
            .with(STEP_ID, step.to_string());
        match &self.socket {
            Some(socket) => marked.with(SOCKET, socket),
            None => marked,
        }
    }
}

/// The owner of a started program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessOwner {
    /// A step of a run; the program ends with the run.
    Step(RunId, StepId),
    /// The daemon, which talks to the program; the id names this start of a service.
    Service(Uuid),
    /// A call of a gateway to this node; the program's descendants end with it.
    Call(CallId),
}

impl ProcessOwner {
    /// Selects the processes of this owner.
    pub(super) fn whose(self, marks: &Marks) -> MarkFilter {
        match self {
            ProcessOwner::Step(_, step) => MarkFilter::Step(step, marks.state.clone()),
            ProcessOwner::Service(id) => MarkFilter::Service(id),
            ProcessOwner::Call(id) => MarkFilter::Call(id, marks.state.clone()),
        }
    }
}

/// Selects processes by their marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MarkFilter {
    /// The processes of one step of the daemon with this state folder. A copy of the folder has the
    /// same steps and runs.
    Step(StepId, PathBuf),
    /// The processes of one run of the daemon with this state folder.
    Run(RunId, PathBuf),
    /// The processes of one start of a service.
    Service(Uuid),
    /// The processes of one call to the node with this folder.
    Call(CallId, PathBuf),
    /// The processes of every run and service of a daemon with this state folder.
    All(PathBuf),
}

impl MarkFilter {
    /// True if an environment with these variables belongs to a selected process.
    pub(super) fn names(&self, of: impl Fn(&str) -> Option<OsString>) -> bool {
        let is = |name: &str, value: &OsStr| of(name).is_some_and(|found| found == value);
        match self {
            MarkFilter::Step(step, state) => {
                is(STEP_ID, OsStr::new(&step.to_string())) && is(STATE_DIR, state.as_os_str())
            }
            MarkFilter::Run(run, state) => {
                is(RUN_ID, OsStr::new(&run.to_string())) && is(STATE_DIR, state.as_os_str())
            }
            MarkFilter::Service(id) => is(SERVICE_ID, OsStr::new(&id.to_string())),
            MarkFilter::Call(id, folder) => {
                is(CALL_ID, OsStr::new(&id.to_string())) && is(NODE_DIR, folder.as_os_str())
            }
            MarkFilter::All(state) => {
                let is_ours = of(RUN_ID).is_some() || of(SERVICE_ID).is_some();
                is_ours && is(STATE_DIR, state.as_os_str())
            }
        }
    }
}
