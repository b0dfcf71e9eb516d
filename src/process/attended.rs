//! Programs of a step that are children of this process, and end with it: the commands that outside
//! agents run in terminals. They have no keeper, because the agent that reads them ends, too.

use super::marks::ProcessOwner;
use super::program::{Finished, Program};
use super::running::{Processes, StartedProgram};
use crate::kernel::ids::{RunId, StepId};

/// A started program. Dropping it ends the program with its descendants.
pub struct AttendedProgram {
    processes: Processes,
    started: StartedProgram,
    program: Program,
}

impl Processes {
    /// Starts a program of a step, once its working folder has answered. The error says why it could
    /// not be started.
    pub async fn start_for_step(
        &self,
        (run, step): (RunId, StepId),
        program: Program,
    ) -> Result<AttendedProgram, String> {
        let started = self.enter(ProcessOwner::Step(run, step), &program).await?;
        Ok(AttendedProgram {
            processes: self.clone(),
            started,
            program,
        })
    }
}

impl AttendedProgram {
    /// Waits for the end of the program; no descendant outlives it. When `stop` is ready it is ended,
    /// and counts as [`super::ExitReason::TimedOut`]. Each piece of both of its output streams is
    /// passed to `heard` as it arrives. The error says why its end is unknown.
    pub async fn attend(
        self,
        mut heard: impl FnMut(&[u8]) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Finished, String> {
        let AttendedProgram {
            processes,
            started,
            program,
        } = self;
        let heard = |_, bytes: &[u8]| heard(bytes);
        processes.attend(started, program, heard, stop).await
    }
}
