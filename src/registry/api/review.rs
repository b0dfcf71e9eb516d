//! Reviews of calls whose effect is uncertain: records an operator's verdict.

use super::answer::RunDetail;
use super::request::Verdict;
use crate::command::Resolve;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, StepId};
use crate::registry::{Principal, Registry};

impl Registry {
    /// Once this returns, the call under review is settled, and its run continues or has ended. A
    /// repeat fails with `conflict` and names the call's state.
    pub async fn resolve(
        &self,
        who: &Principal,
        run: RunId,
        step: StepId,
        verdict: Verdict,
    ) -> Result<RunDetail, Fault> {
        let command = Resolve {
            org: who.org.clone(),
            run,
            step,
            verdict,
            by: who.by(),
        };
        let after = self.inner.store.submit(command).await?;
        self.run(who, after.run.id).await
    }
}
