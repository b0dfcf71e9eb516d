//! Approvals of tool calls: lists them with their origin, records decisions, and manages remembered
//! decisions. Called by the RPC layer.

use super::answer::{ApprovalView, Page};
use super::previews;
use super::questions::origin;
use super::view::{cut, place};
use crate::command::{ForgetApproval, ResolveApproval};
use crate::contract::preview::Preview;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::ApprovalId;
use crate::kernel::policy::approval::{Approval, ApprovalState, Choice, Remembered};
use crate::registry::{Principal, Registry};
use crate::store::tables::{approvals, remembered, steps};
use crate::store::tx::{DbError, Tx};
use crate::wire::approvals as wire;

impl Registry {
    /// A page of approvals, oldest first, each with its origin. With `tree`, all approvals of the
    /// tree that contains the session, so that a user at the root sees every one.
    pub async fn approvals(
        &self,
        who: &Principal,
        filter: wire::ListApprovals,
    ) -> Result<Page<ApprovalView>, Fault> {
        let (state, limit) = (filter.state.map(ApprovalState::as_str), filter.limit.0);
        let (key, tree) = (filter.session_key.as_ref(), filter.tree);
        let query = self.asked(who, key, tree, state, limit, filter.cursor)?;
        let listed = self.inner.store.read(move |tx| {
            approvals::list(tx, &query)?
                .into_iter()
                .map(|(seq, approval)| Ok((seq, with_origin(tx, approval)?)))
                .collect::<Result<Vec<_>, DbError>>()
        });
        let mut found = listed.await?;
        let next = cut(&mut found, limit, |(seq, _)| *seq);
        let mut items: Vec<ApprovalView> = found.into_iter().filter_map(|(_, view)| view).collect();
        if filter.previews.unwrap_or(true) {
            previews::add(&self.inner, &mut items).await;
        }
        Ok(Page { items, next })
    }

    /// Once this returns, the approval is decided: its call is made, or refused with the given
    /// text. Repeating the same decision returns the same answer. With a `digest` of the reviewed
    /// change, `Allow` fails with `conflict` if the call would now change its file differently.
    pub async fn resolve_approval(
        &self,
        who: &Principal,
        request: wire::ResolveApproval,
    ) -> Result<ApprovalView, Fault> {
        let id = request.id;
        if let Some(digest) = &request.digest
            && request.decision == Choice::Allow
        {
            self.still_holds(who, id, digest).await?;
        }
        let command = ResolveApproval {
            org: who.org.clone(),
            id,
            choice: request.decision,
            remember: request.remember,
            by: who.by(),
        };
        let approval = self.inner.store.submit(command).await?;
        let found = self.inner.store.read_now(|tx| with_origin(tx, approval))?;
        let mut views = Vec::from_iter(found);
        previews::add(&self.inner, &mut views).await;
        views.pop().ok_or_else(|| Fault::not_found("approval", id))
    }

    /// Fails with `conflict` if this open call would no longer make the change in the digest.
    async fn still_holds(
        &self,
        who: &Principal,
        id: ApprovalId,
        digest: &str,
    ) -> Result<(), Fault> {
        let org = who.org.clone();
        let found = self.inner.store.read_now(move |tx| {
            match approvals::get(tx, id)?.filter(|one| one.org == org) {
                Some(approval) => with_origin(tx, approval),
                None => Ok(None),
            }
        })?;
        // A missing or already decided approval is reported by the command that follows.
        let open = found.filter(|view| view.approval.state == ApprovalState::Open);
        let Some(mut view) = open else {
            return Ok(());
        };
        if previews::holds(&self.inner, &mut view, digest).await {
            return Ok(());
        }
        let why = "nothing was decided: the file has changed, and the call would now make another change \
                   to it than the one shown";
        Err(Fault::new(Kind::Conflict, why)
            .hint("read the approval again (approvals.list) and decide on its present change"))
    }

    /// A page of the remembered decisions that apply to later calls, oldest first.
    pub async fn remembered(
        &self,
        who: &Principal,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<Remembered>, Fault> {
        let (org, after) = (who.org.clone(), place(cursor)?.unwrap_or(0));
        let listed = self
            .inner
            .store
            .read(move |tx| remembered::list(tx, &org, after, limit + 1));
        let mut found = listed.await?;
        let next = cut(&mut found, limit, |(seq, _)| *seq);
        Ok(Page {
            items: found.into_iter().map(|(_, one)| one).collect(),
            next,
        })
    }

    /// Once this returns, the remembered decision no longer applies; returns whether it existed.
    pub async fn forget_approval(&self, who: &Principal, id: ApprovalId) -> Result<bool, Fault> {
        let command = ForgetApproval {
            org: who.org.clone(),
            id,
        };
        self.inner.store.submit(command).await
    }
}

/// The approval with the run and session that it comes from; `None` if they are gone.
fn with_origin(tx: &mut dyn Tx, approval: Approval) -> Result<Option<ApprovalView>, DbError> {
    let origin = origin(tx, approval.run, approval.root_session)?;
    let step = steps::get(tx, approval.run, approval.step)?;
    Ok(origin.map(|(origin, root)| ApprovalView {
        root,
        tool_call: step.and_then(|step| step.tool_call),
        origin,
        approval,
        env: Vec::new(),
        preview: Preview::default(),
    }))
}
