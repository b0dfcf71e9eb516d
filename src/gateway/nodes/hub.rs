//! The hub: every paired node with its open link and its calls. It is a view of the rows, which are
//! written first; links, methods and tools go through it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::calls::Calls;
use super::keys::{self, GatewayKey};
use super::outbox::Outbox;
use super::proof::PROVING;
use super::waiting::WaitingNodes;
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::control::{Control, Phase};
use crate::contract::nodes::{
    ChangeNode, NodeChange, NodeEnd, NodeOutput, NodeRows, NodeView, Nodes, Stored,
};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::{NodeCall, NodeSkill, Offer, PairedNode, RefusalReason};
use crate::wire::node_link::{LOST, ToNode};

/// The paired nodes. Cheap to clone.
#[derive(Clone)]
pub struct NodeHub {
    pub(super) inner: Arc<HubInner>,
}

/// What a [`NodeHub`] is made of.
pub struct NodeHubParts {
    /// The rows of the nodes.
    pub rows: Arc<dyn NodeRows>,
    /// Source of time and ids.
    pub clock: Clock,
    /// The gateway's key.
    pub key: GatewayKey,
    /// The id of the gateway's store.
    pub gateway: String,
    /// The tenant of nodes that come without an invitation.
    pub org: String,
}

pub(super) struct HubInner {
    pub(super) rows: Arc<dyn NodeRows>,
    pub(super) clock: Clock,
    pub(super) key: GatewayKey,
    pub(super) gateway: String,
    pub(super) org: String,
    pub(super) waiting: WaitingNodes,
    control: OnceLock<Arc<dyn Control>>,
    changes: watch::Sender<u64>,
    state: Mutex<HubState>,
}

#[derive(Default)]
pub(super) struct HubState {
    pub(super) nodes: HashMap<NodeId, NodeState>,
    /// By the hash of the token.
    tokens: HashMap<String, NodeId>,
    links: u64,
}

/// One node.
pub(super) struct NodeState {
    pub(super) row: PairedNode,
    pub(super) link: Option<OpenLink>,
    /// When something was last heard on a link that is closed now.
    pub(super) heard_at: Duration,
    /// Number of calls in progress when its last link ended.
    pub(super) calls_at_end: usize,
    /// The number of its last link; 0 if there was none in this process.
    pub(super) last_link: u64,
    /// The event log has it as away.
    pub(super) is_lost: bool,
    pub(super) calls: Calls,
    /// Limits its connections that have not proved their key.
    pub(super) proving: Arc<Semaphore>,
    /// The skills that it publishes.
    pub(super) skills: Vec<NodeSkill>,
}

/// The open link of a node.
pub(super) struct OpenLink {
    pub(super) number: u64,
    pub(super) offered: Offer,
    pub(super) outbox: Outbox,
    /// Number of changes and events that frames on this link have caused.
    pub(super) writes: u32,
}

impl NodeHub {
    /// A hub with the nodes of the rows, none of them connected.
    pub fn new(parts: NodeHubParts) -> Result<Self, Fault> {
        let hub = NodeHub {
            inner: Arc::new(HubInner {
                rows: parts.rows,
                clock: parts.clock,
                key: parts.key,
                gateway: parts.gateway,
                org: parts.org,
                waiting: WaitingNodes::default(),
                control: OnceLock::new(),
                changes: watch::channel(0).0,
                state: Mutex::default(),
            }),
        };
        for row in hub.inner.rows.paired_nodes()? {
            hub.inner.apply(row);
        }
        Ok(hub)
    }

    /// From now on the hub knows when the daemon stops: calls are then left to the nodes.
    pub(crate) fn follow(&self, control: Arc<dyn Control>) {
        let _ = self.inner.control.set(control);
    }

    /// Once this resolves, the change is stored and in force. It is carried out even if the future
    /// is dropped.
    pub(super) async fn commit(&self, stored: Stored<PairedNode>) -> Result<PairedNode, Fault> {
        let inner = Arc::clone(&self.inner);
        let committing = tokio::spawn(async move {
            let row = stored.await?;
            inner.apply(row.clone());
            Ok(row)
        });
        committing
            .await
            .unwrap_or_else(|fault| Err(Fault::internal(format!("a change panicked: {fault}"))))
    }

    /// Once this resolves, the node has changed.
    pub(super) async fn change(
        &self,
        org: &str,
        id: NodeId,
        change: NodeChange,
    ) -> Result<PairedNode, Fault> {
        let stored = self.inner.rows.change_node(ChangeNode {
            org: org.to_owned(),
            id,
            change,
        });
        self.commit(stored).await
    }

    /// The node with this token; a removed one, too.
    pub(super) fn by_token(&self, token: &str) -> Option<NodeId> {
        let hash = keys::hash(token);
        self.inner.lock().tokens.get(&hash).copied()
    }

    /// The row of a node.
    pub(super) fn row(&self, id: NodeId) -> Option<PairedNode> {
        let state = self.inner.lock();
        state.nodes.get(&id).map(|node| node.row.clone())
    }

    /// The node with this public key that is not removed.
    pub(super) fn by_key(&self, key: &str) -> Option<PairedNode> {
        let state = self.inner.lock();
        let rows = state.nodes.values().map(|node| &node.row);
        rows.filter(|row| row.removed_at.is_none())
            .find(|row| row.public_key == key)
            .cloned()
    }
}

impl HubInner {
    pub(super) fn lock(&self) -> MutexGuard<'_, HubState> {
        // Each change leaves the state consistent, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tools and skills look at the nodes again.
    pub(super) fn note_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Whether the daemon stops.
    pub(super) fn is_stopping(&self) -> bool {
        let control = self.control.get();
        control.is_some_and(|control| control.phase() == Phase::Draining)
    }

    /// The row is in force. Rows may come in another order than they were written.
    pub(super) fn apply(&self, row: PairedNode) {
        self.take(row);
        self.note_change();
    }

    fn take(&self, row: PairedNode) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let state = &mut *state;
        let known = state.nodes.get(&row.id).map(|node| &node.row);
        if known.is_some_and(|known| known.ver > row.ver) {
            return;
        }
        let old_hash = known.and_then(|known| known.token_hash.clone());
        if let Some(hash) = old_hash.filter(|hash| Some(hash) != row.token_hash.as_ref()) {
            state.tokens.remove(&hash);
        }
        if let Some(hash) = &row.token_hash {
            state.tokens.insert(hash.clone(), row.id);
        }
        let node = state.nodes.entry(row.id).or_insert_with(|| NodeState {
            row: row.clone(),
            link: None,
            heard_at: now,
            calls_at_end: 0,
            last_link: 0,
            is_lost: true,
            calls: Calls::default(),
            proving: Arc::new(Semaphore::new(PROVING)),
            skills: Vec::new(),
        });
        let before = std::mem::replace(&mut node.row, row);
        if node.row.removed_at.is_some() {
            node.calls.removed(&node.row.name);
            node.skills.clear();
            if let Some(link) = node.link.take() {
                let message = "an operator has removed this node";
                link.outbox.refuse(RefusalReason::Removed, message);
            }
        } else if let Some(link) = &node.link
            && (&before.approved, &before.denied) != (&node.row.approved, &node.row.denied)
        {
            let approved = node.row.approved.beyond(&node.row.denied);
            link.outbox.push(&ToNode::Approved { approved });
        }
    }
}

impl HubState {
    /// Takes the number of a new link.
    pub(super) fn next_link(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// The tenant's node with this name that is not removed.
    pub(super) fn named(&self, org: &str, name: &str) -> Option<&NodeState> {
        self.nodes.values().find(|node| node.is(org, name))
    }

    pub(super) fn named_mut(&mut self, org: &str, name: &str) -> Option<&mut NodeState> {
        self.nodes.values_mut().find(|node| node.is(org, name))
    }
}

impl NodeState {
    fn is(&self, org: &str, name: &str) -> bool {
        self.row.removed_at.is_none() && self.row.org == org && self.row.name == name
    }

    /// What may be called now.
    pub(super) fn callable(&self) -> Offer {
        match &self.link {
            Some(link) => self.row.callable(&link.offered),
            None => Offer::default(),
        }
    }

    /// What may be called now or when it is back, unless it is away.
    fn callable_soon(&self, now: Duration) -> Offer {
        match &self.link {
            None if self.is_away(now) => Offer::default(),
            None => self.row.callable(&self.row.offered),
            Some(_) => self.callable(),
        }
    }

    /// The node as tools and skills see it. What it was asked for and does not have is stored
    /// without a path.
    fn view(&self, now: Duration) -> NodeView {
        let programs = self
            .row
            .programs
            .iter()
            .filter(|(_, path)| !path.is_empty());
        NodeView {
            name: self.row.name.clone(),
            platform: self.row.machine.platform.clone(),
            connected: self.link.is_some(),
            callable: self.callable_soon(now),
            programs: programs
                .map(|(name, path)| (name.clone(), path.clone()))
                .collect(),
            asked: self.row.programs.keys().cloned().collect(),
            pairing: self.row.generation,
        }
    }

    /// Whether it was not heard of for so long that calls fail.
    pub(super) fn is_away(&self, now: Duration) -> bool {
        self.link.is_none() && now.saturating_sub(self.heard_at) >= LOST
    }

    pub(super) fn outbox(&self) -> Option<Outbox> {
        self.link.as_ref().map(|link| link.outbox.clone())
    }
}

impl Nodes for NodeHub {
    fn list(&self, org: &str) -> Vec<NodeView> {
        let nodes = self.everywhere().into_iter();
        let own = nodes.filter(|(owner, _)| owner == org);
        own.map(|(_, view)| view).collect()
    }

    fn everywhere(&self) -> Vec<(String, NodeView)> {
        let now = self.inner.clock.monotonic();
        let state = self.inner.lock();
        let nodes = state.nodes.values();
        let mut views: Vec<(String, NodeView)> = nodes
            .filter(|node| node.row.removed_at.is_none())
            .map(|node| (node.row.org.clone(), node.view(now)))
            .collect();
        views.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        views
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn keep_programs(
        &self,
        org: &str,
        node: &str,
        pairing: i64,
        asked: BTreeSet<String>,
        found: BTreeMap<String, String>,
    ) -> BoxFuture<'static, Result<(), Fault>> {
        let id = self.inner.lock().named(org, node).map(|node| node.row.id);
        let (hub, org, name) = (self.clone(), org.to_owned(), node.to_owned());
        Box::pin(async move {
            let id = id.ok_or_else(|| Fault::not_found("node", &name))?;
            let mut programs: BTreeMap<String, String> = asked
                .into_iter()
                .map(|program| (program, String::new()))
                .collect();
            programs.extend(found);
            let change = NodeChange::Programs(pairing, programs);
            hub.change(&org, id, change).await.map(drop)
        })
    }

    fn skills(&self, org: &str) -> Vec<(String, Vec<NodeSkill>)> {
        let now = self.inner.clock.monotonic();
        let state = self.inner.lock();
        let publishes = |node: &&NodeState| {
            let is_there = node.row.removed_at.is_none() && node.row.org == org;
            is_there && !node.skills.is_empty() && node.callable_soon(now).skills
        };
        let nodes = state.nodes.values().filter(publishes);
        let mut skills: Vec<(String, Vec<NodeSkill>)> = nodes
            .map(|node| (node.row.name.clone(), node.skills.clone()))
            .collect();
        skills.sort_by(|(one, _), (other, _)| one.cmp(other));
        skills
    }

    fn call(
        &self,
        org: &str,
        node: &str,
        id: CallId,
        call: NodeCall,
        output: Arc<dyn NodeOutput>,
    ) -> BoxFuture<'static, NodeEnd> {
        let place = (org.to_owned(), node.to_owned());
        Box::pin(Arc::clone(&self.inner).call(place, id, call, output))
    }

    fn release(&self, org: &str, node: &str, id: CallId) {
        let mut state = self.inner.lock();
        if let Some(node) = state.named_mut(org, node) {
            let outbox = node.outbox();
            node.calls.release(id, outbox.as_ref());
        }
    }
}

impl NodeHub {
    /// As [`Nodes::release`], after a few minutes.
    pub(crate) fn release_later(&self, org: &str, node: &str, id: CallId) {
        let now = self.inner.clock.monotonic();
        let mut state = self.inner.lock();
        if let Some(node) = state.named_mut(org, node) {
            let outbox = node.outbox();
            node.calls.release_later(id, outbox.as_ref(), now);
        }
    }
}

/// The calls that a node knows.
pub(super) type KnownCalls = HashSet<CallId>;
