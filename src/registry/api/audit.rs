//! The audit log: the RPC layer carries out its mutating calls through here and reads the rows.

use super::answer::Page;
use super::view::{cut, place};
use crate::command::Audit;
use crate::kernel::fault::Fault;
use crate::registry::{Principal, Registry};
use crate::store::tables::audit;
use crate::store::tables::audit::{AuditRow, AuditedCall};

impl Registry {
    /// Carries out the call `method` on `object` for `who`. Its audit row is written in the
    /// transaction of the change; a call that changes nothing gets a separate row afterwards.
    pub async fn audited<T>(
        &self,
        who: &Principal,
        method: &'static str,
        object: Option<String>,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let entry = AuditedCall {
            org: who.org.clone(),
            principal: who.recorded(),
            method,
            object,
            client: who.address,
        };
        let (done, left) = audit::on_behalf(entry, call).await;
        if let (Some(entry), Some(outcome)) = (left, audit::outcome(&done)) {
            let entry = Box::new(entry);
            self.inner.store.submit_detached(Audit { entry, outcome });
        }
        done
    }

    /// Records a request of `who` that was refused before it became a call of the API, under the
    /// name `what`. The row is written later.
    pub fn audit_refusal(&self, who: &Principal, what: &'static str, why: &Fault) {
        let Some(outcome) = audit::outcome::<()>(&Err(why.clone())) else {
            return;
        };
        let entry = AuditedCall {
            org: who.org.clone(),
            principal: who.recorded(),
            method: what,
            object: None,
            client: who.address,
        };
        let entry = Box::new(entry);
        self.inner.store.submit_detached(Audit { entry, outcome });
    }

    /// A page of audit rows, newest first; `method` limits it to one method.
    pub async fn audit(
        &self,
        who: &Principal,
        method: Option<String>,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<AuditRow>, Fault> {
        let before = place(cursor)?.unwrap_or(i64::MAX);
        let org = who.org.clone();
        let mut rows = self
            .inner
            .store
            .read(move |tx| audit::page(tx, &org, method.as_deref(), before, limit + 1))
            .await?;
        let next = cut(&mut rows, limit, |row| row.seq);
        Ok(Page { items: rows, next })
    }
}
