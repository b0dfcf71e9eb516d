//! What operators do with nodes: admit, refuse, invite, rename, remove, answer. The methods
//! `nodes.*` call it.

use std::collections::BTreeMap;

use super::hub::{HubState, NodeHub, NodeState};
use super::keys;
use super::waiting::{Decision, WaitingNode};
use crate::contract::nodes::{Admission, NodeChange, PairNode};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::{NodeInvite, Offer, OfferLimit, PairedNode, RunQuestion};
use crate::kernel::time::Timestamp;
use crate::registry::Principal;
use crate::wire::node_link::INVITE_LIFETIME;

/// A paired node for operators.
pub(crate) struct NodeSummary {
    /// Its row.
    pub(crate) row: PairedNode,
    /// Whether its link is open.
    pub(crate) is_connected: bool,
    /// What can be called now.
    pub(crate) callable: Offer,
    /// Number of calls in progress.
    pub(crate) calls: usize,
    /// Its open questions.
    pub(crate) questions: BTreeMap<CallId, RunQuestion>,
}

/// A node that waits to be admitted.
pub(crate) struct WaitingSummary {
    /// The request.
    pub(crate) code: String,
    pub(crate) public_key: String,
    pub(crate) name: String,
    pub(crate) machine: crate::kernel::node::Machine,
    pub(crate) offered: Offer,
    pub(crate) address: std::net::IpAddr,
    pub(crate) since: Timestamp,
    pub(crate) expires_at: Timestamp,
}

impl NodeHub {
    /// The tenant's nodes, by name.
    pub(crate) fn nodes(&self, who: &Principal) -> Vec<NodeSummary> {
        let state = self.inner.lock();
        let own = state
            .nodes
            .values()
            .filter(|node| node.row.org == who.org && node.row.removed_at.is_none());
        let mut nodes: Vec<NodeSummary> = own.map(summary).collect();
        nodes.sort_by(|one, other| one.row.name.cmp(&other.row.name));
        nodes
    }

    /// The tenant's node with this name or id.
    pub(crate) fn node(&self, who: &Principal, node: &str) -> Result<NodeSummary, Fault> {
        let state = self.inner.lock();
        find(&state, who, node).map(summary)
    }

    /// The nodes that wait to be admitted. They wait for the owner of the daemon; those of other
    /// tenants come by invitation.
    pub(crate) fn waiting(&self, who: &Principal) -> Vec<WaitingSummary> {
        if who.org != self.inner.org {
            return Vec::new();
        }
        let waiting = self.inner.waiting.list(self.inner.clock.monotonic());
        let shown = waiting.into_iter().map(|one| WaitingSummary {
            code: one.code,
            public_key: one.public_key,
            name: one.name,
            machine: one.machine,
            offered: one.offered,
            address: one.address,
            since: one.since,
            expires_at: one.expires_at,
        });
        shown.collect()
    }

    /// Once this resolves, the waiting node is paired.
    pub(crate) async fn admit(
        &self,
        who: &Principal,
        code: &str,
        name: Option<String>,
        limit: OfferLimit,
    ) -> Result<NodeSummary, Fault> {
        let waiting = self.waiting_by(who, code)?;
        check_limit(&waiting.name, &limit, &waiting.offered)?;
        let stored = self.inner.rows.pair_node(PairNode {
            id: NodeId(self.inner.clock.new_id()),
            public_key: waiting.public_key.clone(),
            name: waiting.name,
            machine: waiting.machine,
            offered: waiting.offered,
            by: Admission::Operator {
                org: who.org.clone(),
                user: who.user.clone(),
                name,
                limit,
            },
        });
        let hub = self.clone();
        // The node is told even if this operator has gone.
        let admitting = tokio::spawn(async move {
            let row = hub.commit(stored).await?;
            let waiting = &hub.inner.waiting;
            waiting.decide(&row.public_key, Decision::Approved);
            Ok(row)
        });
        let admitted = admitting.await;
        let row: PairedNode = admitted.unwrap_or_else(|fault| Err(Fault::internal(fault)))?;
        self.node(who, &row.id.to_string())
    }

    /// Refuses the waiting node, which is told so; returns its name.
    pub(crate) fn turn_away(&self, who: &Principal, code: &str) -> Result<String, Fault> {
        let waiting = self.waiting_by(who, code)?;
        let decided = self
            .inner
            .waiting
            .decide(&waiting.public_key, Decision::Refused);
        match decided {
            true => Ok(waiting.name),
            false => Err(no_request(code)),
        }
    }

    /// Once this resolves, it is decided what of the node's offer may be called: what is within the
    /// limit, or with `None` not what is pending.
    pub(crate) async fn decide(
        &self,
        who: &Principal,
        node: &str,
        approve: Option<OfferLimit>,
    ) -> Result<NodeSummary, Fault> {
        let by = who.user.clone();
        let decided = NodeChange::Decided { approve, by };
        self.change_named(who, node, decided).await
    }

    /// Once this resolves, the node has this name.
    pub(crate) async fn rename(
        &self,
        who: &Principal,
        node: &str,
        name: String,
    ) -> Result<NodeSummary, Fault> {
        self.change_named(who, node, NodeChange::Renamed(name))
            .await
    }

    /// Once this resolves, the node is cut off.
    pub(crate) async fn remove(&self, who: &Principal, node: &str) -> Result<PairedNode, Fault> {
        let id = self.id_of(who, node)?;
        let by = who.user.clone();
        self.change(&who.org, id, NodeChange::Removed { by }).await
    }

    /// Once this resolves, the returned setup code can be used, until the returned time.
    pub(crate) async fn invite(
        &self,
        who: &Principal,
        name: Option<String>,
        limits: OfferLimit,
    ) -> Result<(String, Timestamp), Fault> {
        let code = keys::setup_code()?;
        let now = self.inner.clock.now();
        let lifetime = u64::try_from(INVITE_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let expires_at = now.plus_ms(lifetime);
        let invite = NodeInvite {
            code_hash: keys::hash(&code),
            org: who.org.clone(),
            name,
            limits,
            created_by: who.user.clone(),
            created_at: now,
            expires_at,
            used_at: None,
            node: None,
        };
        self.inner.rows.add_invite(invite).await?;
        Ok((code, expires_at))
    }

    /// Answers a question of a node.
    pub(crate) fn answer_question(
        &self,
        who: &Principal,
        id: CallId,
        digest: &str,
        allow: bool,
    ) -> Result<(), Fault> {
        match self.answer(&who.org, id, digest, allow) {
            true => Ok(()),
            false => Err(Fault::not_found("question of a connected node", id)
                .hint("list the open ones (nodes.list); an answer holds for one digest")),
        }
    }

    async fn change_named(
        &self,
        who: &Principal,
        node: &str,
        change: NodeChange,
    ) -> Result<NodeSummary, Fault> {
        let id = self.id_of(who, node)?;
        let row = self.change(&who.org, id, change).await?;
        self.node(who, &row.id.to_string())
    }

    fn id_of(&self, who: &Principal, node: &str) -> Result<NodeId, Fault> {
        let state = self.inner.lock();
        find(&state, who, node).map(|node| node.row.id)
    }

    fn waiting_by(&self, who: &Principal, code: &str) -> Result<WaitingNode, Fault> {
        let now = self.inner.clock.monotonic();
        let found = match who.org == self.inner.org {
            true => self.inner.waiting.find(code, now),
            false => None,
        };
        found.ok_or_else(|| no_request(code))
    }
}

fn no_request(code: &str) -> Fault {
    let code = crate::kernel::text::prefix(code, 80);
    Fault::not_found("waiting node with the code", code)
        .hint("list those that wait (nodes.list): a node that comes again has a new code")
}

fn check_limit(name: &str, limit: &OfferLimit, offered: &Offer) -> Result<(), Fault> {
    match limit.missing_from(offered) {
        None => Ok(()),
        Some(missing) => Err(Fault::new(
            Kind::Conflict,
            format!(
                "node {name} does not offer {missing}; it offers {}. Nothing was changed",
                offered.parts().join(", ")
            ),
        )),
    }
}

fn find<'a>(state: &'a HubState, who: &Principal, node: &str) -> Result<&'a NodeState, Fault> {
    let by_id = node
        .parse::<NodeId>()
        .ok()
        .and_then(|id| state.nodes.get(&id));
    let by_id = by_id.filter(|found| found.row.org == who.org && found.row.removed_at.is_none());
    by_id
        .or_else(|| state.named(&who.org, node))
        .ok_or_else(|| {
            let node = crate::kernel::text::prefix(node, 80);
            Fault::not_found("node", node).hint("list the paired nodes (nodes.list)")
        })
}

fn summary(node: &NodeState) -> NodeSummary {
    NodeSummary {
        row: node.row.clone(),
        is_connected: node.link.is_some(),
        callable: node.callable(),
        calls: node.calls.count(),
        questions: node.calls.questions().clone(),
    }
}
