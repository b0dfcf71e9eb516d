//! Programs that a node runs for a gateway's calls: they can be stopped, and what a call that was
//! interrupted has left can be ended.

use super::marks::{MarkFilter, ProcessOwner};
use super::program::{Finished, Program};
use super::running::{Processes, numbers};
use super::table::{self, ProcessIdentity};
use super::tree::{self, ProcessQuery};
use crate::kernel::ids::CallId;
use crate::kernel::node::OutputStream;

impl Processes {
    /// Starts a program for a call and waits for its end; no descendant outlives it. `started` gets
    /// the identity of the program, `heard` each piece of its output. When `stop` is ready, the
    /// program is ended. The error says why the program could not be started.
    pub async fn run_call(
        &self,
        call: CallId,
        program: Program,
        started: impl FnOnce(ProcessIdentity) + Send,
        heard: impl FnMut(OutputStream, &[u8]) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Finished, String> {
        let child = self.enter(ProcessOwner::Call(call), &program).await?;
        started(child.root);
        self.attend(child, program, heard, stop).await
    }

    /// Ends what a previous process of this node has left of a call. `root` is the program, if its
    /// start was recorded. Returns the pids that could not be ended.
    pub async fn end_call(&self, call: CallId, root: Option<ProcessIdentity>) -> Vec<u32> {
        let whose = MarkFilter::Call(call, self.0.marks.state.clone());
        let mut wanted = ProcessQuery::marked(whose);
        if let Some(root) = root {
            let now = table::one(root.pid).map(|row| row.id);
            // A pid that another process has now says nothing about that process's session.
            if now.is_none_or(|now| now == root) {
                wanted.session = Some(root.pid);
            }
            wanted.known.insert(root);
        }
        numbers(&tree::end(wanted, self.0.grace, &self.0.clock).await)
    }
}
