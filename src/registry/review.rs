//! Calls of which nobody is certain whether they have happened: what a person says of them.

use super::answer::RunDetail;
use super::request::Verdict;
use super::spawn::unexpected;
use super::{Principal, Registry};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, StepId};
use crate::store::command::Resolve;
use crate::store::{Command, Reply};

impl Registry {
    /// Settles a call that waits for a review: its run goes on, or has ended. A repeat is
    /// `conflict` and names how the call stands.
    pub async fn resolve(
        &self,
        who: &Principal,
        run: RunId,
        step: StepId,
        verdict: Verdict,
    ) -> Result<RunDetail, Fault> {
        let command = Command::Resolve(Box::new(Resolve {
            org: who.org.clone(),
            run,
            step,
            verdict,
            by: who.by(),
        }));
        match self.inner.store.submit(command).await? {
            Reply::Run(after) => self.run(who, after.run.id).await,
            other => Err(unexpected(&other)),
        }
    }
}
