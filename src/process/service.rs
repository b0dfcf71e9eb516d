//! A program that the daemon talks with: started once, held as long as it is wanted, and ended
//! with everything that it has started. Tool servers are held so.

use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::Captured;
use super::linger::Stream;
use super::marks::Owner;
use super::program::{Ending, Input, Program};
use super::running::{Processes, Started, ending};

/// How a service was ended.
#[derive(Debug)]
pub struct ServiceEnd {
    /// What could not be ended, of it and of what it has started.
    pub left: Vec<u32>,
    /// How its own process ended, unless it is among those.
    pub ending: Option<Ending>,
    /// What it wrote beside its messages.
    pub said: Option<Captured>,
}

/// A service that runs. Dropping it ends it, with all that it has started.
pub struct Service {
    started: Started,
    /// What it writes beside its messages, until it ends.
    said: Option<JoinHandle<Captured>>,
    /// By what it is talked to; taken once.
    pub input: Option<ChildStdin>,
    /// By what it answers; taken once.
    pub output: Option<ChildStdout>,
}

impl Processes {
    /// Starts a service under `id`, which no other start has. Of what it writes beside its
    /// messages each piece is given to `heard`, and `program.keep` bytes are kept. The error
    /// says why it could not be started.
    pub fn open(
        &self,
        id: Uuid,
        mut program: Program,
        mut heard: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Service, String> {
        program.input = Input::Talk;
        let mut started = self.start(Owner::Service(id), &program)?;
        let mut err = Stream::new(started.child.stderr().take(), program.keep);
        let said = tokio::spawn(async move {
            while err.is_open() {
                heard(err.next().await);
            }
            err.kept
        });
        Ok(Service {
            input: started.child.stdin().take(),
            output: started.child.stdout().take(),
            said: Some(said),
            started,
        })
    }
}

impl Service {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.started.root.pid
    }

    /// Waits until it ends by itself. May be dropped and called again.
    pub async fn ended(&mut self) -> Ending {
        match self.started.child.wait().await {
            Ok(status) => ending(status),
            // Nobody else waits for it; if the system does not tell, it is gone.
            Err(_) => Ending::Exited(-1),
        }
    }

    /// Ends it, and what it has started, whether it runs or has ended by itself: first its
    /// input, then as every program.
    pub async fn end(mut self) -> ServiceEnd {
        drop(self.input.take());
        let left = self.started.end().await;
        let ending = match left.contains(&self.pid()) {
            true => None,
            false => Some(self.ended().await),
        };
        let said = match self.said.take() {
            // Something that is left may hold the pipe.
            Some(said) if left.is_empty() => said.await.ok(),
            _ => None,
        };
        ServiceEnd { left, ending, said }
    }
}
