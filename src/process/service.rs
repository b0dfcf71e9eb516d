//! A service: a program that the daemon starts once, talks to over pipes, and ends with its
//! descendants when it is no longer needed. Tool servers run as services, and so do outside agents,
//! which end with their run at the latest.

use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::Captured;
use super::marks::ProcessOwner;
use super::program::{ExitReason, Program, ProgramInput};
use super::running::{Processes, StartedProgram, ending};
use super::stream::PipeReader;
use crate::kernel::ids::{RunId, StepId};

/// How a service ended.
#[derive(Debug)]
pub struct ServiceEnd {
    /// The pids that could not be ended, of the service and its descendants.
    pub remaining: Vec<u32>,
    /// How the service itself ended; `None` if it is among `left`.
    pub ending: Option<ExitReason>,
    /// The captured standard error; `None` if processes that are left may hold the pipe.
    pub stderr: Option<Captured>,
}

/// A running service. Dropping it ends it with its descendants.
pub struct Service {
    started: StartedProgram,
    /// The task that captures standard error until the service ends.
    stderr: Option<JoinHandle<Captured>>,
    /// The pipe to the standard input of the service; taken once.
    pub input: Option<ChildStdin>,
    /// The pipe from the standard output of the service; taken once.
    pub output: Option<ChildStdout>,
}

impl Processes {
    /// Starts a service under `id`, which must be unique to this start. Each piece of its standard
    /// error is passed to `heard`, and at most `program.keep` bytes of it are kept. The error says
    /// why the service could not be started.
    pub fn open(
        &self,
        id: Uuid,
        mut program: Program,
        heard: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Service, String> {
        program.input = ProgramInput::Pipe;
        let started = self.start(ProcessOwner::Service(id), &program)?;
        Ok(attended(started, &program, heard))
    }

    /// As [`Processes::open`], once the working folder has answered, for a program that belongs to
    /// a step of a run.
    pub async fn open_for_step(
        &self,
        (run, step): (RunId, StepId),
        mut program: Program,
        heard: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Service, String> {
        program.input = ProgramInput::Pipe;
        let started = self.enter(ProcessOwner::Step(run, step), &program).await?;
        Ok(attended(started, &program, heard))
    }
}

/// The service, with a task that captures its standard error.
fn attended(
    mut started: StartedProgram,
    program: &Program,
    mut heard: impl FnMut(&[u8]) + Send + 'static,
) -> Service {
    let mut err = PipeReader::new(started.child.stderr().take(), program.keep);
    let said = tokio::spawn(async move {
        while err.is_open() {
            heard(err.next().await);
        }
        err.kept
    });
    Service {
        input: started.child.stdin().take(),
        output: started.child.stdout().take(),
        stderr: Some(said),
        started,
    }
}

impl Service {
    /// The pid of the service itself.
    pub fn pid(&self) -> u32 {
        self.started.root.pid
    }

    /// Waits until the service ends by itself. Cancel-safe: may be dropped and called again.
    pub async fn ended(&mut self) -> ExitReason {
        match self.started.child.wait().await {
            Ok(status) => ending(status),
            // No other task waits for it; if the system reports no status, it is gone.
            Err(_) => ExitReason::Exited(-1),
        }
    }

    /// Ends the service and its descendants, also if it has ended by itself: closes its input
    /// first, then ends it like every program.
    pub async fn end(mut self) -> ServiceEnd {
        drop(self.input.take());
        let left = self.started.end().await;
        let ending = match left.contains(&self.pid()) {
            true => None,
            false => Some(self.ended().await),
        };
        let said = match self.stderr.take() {
            // A process that is left may hold the pipe open.
            Some(said) if left.is_empty() => said.await.ok(),
            _ => None,
        };
        ServiceEnd {
            remaining: left,
            ending,
            stderr: said,
        }
    }
}
