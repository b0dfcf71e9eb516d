//! Pairing, change and removal of nodes, and the invitations of nodes.

use std::collections::HashMap;

use super::context::Context;
use super::{AddInvite, NoteNode};
use crate::contract::nodes::{
    Admission, ChangeNode, NodeChange, NodeNote, NodeRows, PairNode, StepOfCall, Stored,
};
use crate::kernel::event::{
    EventData, NodeChanged, NodeLost, NodeNamed, NodeOfferChanged, NodePaired, NodeRemoved,
};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{CallId, NodeId, StepId, is_name};
use crate::kernel::node::{NodeInvite, Offer, OfferLimit, PairedNode, free_name, name_from};
use crate::store::Store;
use crate::store::tables::{invites, nodes, steps};
use crate::store::tx::Tx;
use crate::store::write::Reply;

/// Maximum number of nodes per tenant.
const NODES_LIMIT: i64 = 1000;
/// Maximum number of removed nodes per tenant that are remembered.
const REMOVED_LIMIT: u32 = 100;
/// Maximum number of open invitations per tenant.
const INVITES_LIMIT: i64 = 100;
/// Expired invitations are remembered for this long, milliseconds: their codes are answered as
/// expired, not as unknown.
const INVITE_MEMORY_MS: u64 = 24 * 3600 * 1000;

impl Reply for PairedNode {
    fn object(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}

/// Once this returns, the node is paired with what was approved, and an invitation that it used is
/// used up; a repeat by the same key returns the same node.
pub fn pair(context: &mut Context<'_>, new: PairNode) -> Result<PairedNode, Fault> {
    let known = nodes::by_key(context.tx, &new.public_key)?;
    let (org, by, name, limit) = match &new.by {
        Admission::Operator {
            org,
            user,
            name,
            limit,
        } => {
            if let Some(known) = known.filter(|known| known.org == *org) {
                return Ok(known);
            }
            (org.clone(), user.clone(), name.clone(), limit.clone())
        }
        Admission::Invite { code_hash } => {
            let invite = usable(context, code_hash, known.as_ref())?;
            if let Some(known) = known.filter(|known| invite.node == Some(known.id)) {
                return Ok(known);
            }
            (invite.org, invite.created_by, invite.name, invite.limits)
        }
    };
    if nodes::by_key(context.tx, &new.public_key)?.is_some() {
        return Err(Fault::new(
            Kind::Conflict,
            "this key is paired with this gateway already. Nothing was changed",
        )
        .hint("remove the node first, or let the machine make a new key"));
    }
    let count = nodes::count(context.tx, &org)?;
    if count >= NODES_LIMIT {
        return Err(limit_reached("nodes", NODES_LIMIT, "paired nodes")
            .hint("remove nodes that are gone (nodes.remove)"));
    }
    let node = PairedNode {
        id: new.id,
        name: name_of(context, &org, name, &new.name)?,
        org,
        public_key: new.public_key,
        token_hash: None,
        generation: 1,
        machine: new.machine,
        approved: limit.of(&new.offered),
        denied: new.offered.beyond(&limit.of(&new.offered)),
        offered: new.offered,
        programs: Default::default(),
        created_at: context.now.wall,
        approved_by: by.clone(),
        seen_at: None,
        removed_at: None,
        ver: 1,
    };
    nodes::insert(context.tx, &node)?;
    if let Admission::Invite { code_hash } = &new.by
        && let Some(mut invite) = invites::get(context.tx, code_hash)?
    {
        invite.used_at = Some(context.now.wall);
        invite.node = Some(node.id);
        invites::update(context.tx, &invite)?;
    }
    let paired = NodePaired {
        node_id: node.id,
        name: node.name.clone(),
        by,
        approved: node.approved.parts(),
    };
    context.emit_org(&node.org, paired);
    Ok(node)
}

/// The invitation, if `by` has used it or it can still be used.
fn usable(
    context: &mut Context<'_>,
    code_hash: &str,
    by: Option<&PairedNode>,
) -> Result<NodeInvite, Fault> {
    let refused = |why: &str| {
        Fault::new(
            Kind::Forbidden,
            format!("the setup code {why}. Nothing was paired"),
        )
        .hint("make another one: abide nodes invite")
    };
    let Some(invite) = invites::get(context.tx, code_hash)? else {
        return Err(refused("is unknown"));
    };
    if invite.used_at.is_some() {
        return match invite.node.is_some() && invite.node == by.map(|node| node.id) {
            true => Ok(invite),
            false => Err(refused("was used before")),
        };
    }
    if invite.expires_at <= context.now.wall {
        return Err(refused("has expired").with("expired", true));
    }
    Ok(invite)
}

/// The name of a new node: the given one, which must be free, or one made from `wanted`.
fn name_of(
    context: &mut Context<'_>,
    org: &str,
    given: Option<String>,
    wanted: &str,
) -> Result<String, Fault> {
    if let Some(given) = given {
        check_name(context, org, &given, None)?;
        return Ok(given);
    }
    let mut taken = Vec::new();
    for node in nodes::every(context.tx)? {
        if node.org == org && node.removed_at.is_none() {
            taken.push(node.name);
        }
    }
    let is_taken = |name: &str| taken.iter().any(|one| one == name);
    Ok(free_name(&name_from(wanted), is_taken))
}

fn check_name(
    context: &mut Context<'_>,
    org: &str,
    name: &str,
    own: Option<NodeId>,
) -> Result<(), Fault> {
    if !is_name(name) {
        return Err(Fault::params(
            "name",
            "a node's name is 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or \
             digit",
        ));
    }
    match nodes::by_name(context.tx, org, name)? {
        Some(other) if own != Some(other.id) => Err(Fault::new(
            Kind::Conflict,
            format!("another node is called {name}. Nothing was changed"),
        )
        .hint("choose another name")),
        _ => Ok(()),
    }
}

/// Once this returns, the node has changed; a repeat changes nothing more.
pub fn change(context: &mut Context<'_>, wanted: ChangeNode) -> Result<PairedNode, Fault> {
    let missing = || Fault::not_found("node", wanted.id);
    let before = nodes::get(context.tx, &wanted.org, wanted.id)?.ok_or_else(missing)?;
    let is_removal = matches!(wanted.change, NodeChange::Removed { .. });
    if before.removed_at.is_some() {
        return match is_removal {
            true => Ok(before),
            false => Err(missing()),
        };
    }
    let mut node = before.clone();
    let event = apply(context, &mut node, wanted.change)?;
    if node == before {
        return Ok(node);
    }
    nodes::update(context.tx, &node)?;
    node.ver += 1;
    if is_removal {
        nodes::forget_removed(context.tx, &node.org, REMOVED_LIMIT)?;
    }
    if let Some(event) = event {
        context.emit_org(&node.org, event);
    }
    let pending = node.pending();
    if !pending.is_empty() && pending != before.pending() {
        let changed = NodeOfferChanged {
            node_id: node.id,
            name: node.name.clone(),
            pending: pending.parts(),
        };
        context.emit_org(&node.org, changed);
    }
    Ok(node)
}

/// Changes `node`; the reply is the event about it.
fn apply(
    context: &mut Context<'_>,
    node: &mut PairedNode,
    change: NodeChange,
) -> Result<Option<EventData>, Fault> {
    let named = NodeNamed {
        node_id: node.id,
        name: node.name.clone(),
    };
    Ok(match change {
        NodeChange::Token(hash) if node.token_hash.as_ref() == Some(&hash) => None,
        NodeChange::Token(hash) => {
            node.generation += i64::from(node.token_hash.is_some());
            node.token_hash = Some(hash);
            None
        }
        NodeChange::Connected {
            machine,
            offered,
            is_new,
        } => {
            (node.machine, node.offered) = (machine, offered);
            node.seen_at = Some(context.now.wall);
            is_new.then_some(EventData::NodeConnected(named))
        }
        NodeChange::Offers(offered) => {
            node.offered = offered;
            None
        }
        NodeChange::Lost { at, calls } => {
            node.seen_at = Some(at);
            Some(EventData::NodeLost(NodeLost {
                node_id: named.node_id,
                name: named.name,
                calls,
            }))
        }
        NodeChange::Decided { approve, by } => {
            let change = decide(node, approve)?;
            node.approved_by = by;
            Some(changed(node, change))
        }
        NodeChange::Renamed(name) => {
            check_name(context, &node.org.clone(), &name, Some(node.id))?;
            node.name = name;
            Some(changed(node, "renamed"))
        }
        NodeChange::Removed { by } => {
            node.removed_at = Some(context.now.wall);
            let removed = NodeRemoved {
                node_id: node.id,
                name: node.name.clone(),
                by,
            };
            Some(removed.into())
        }
        NodeChange::Programs(generation, programs) => {
            // What was found out in an earlier pairing may be another machine's.
            if generation == node.generation {
                node.programs = programs;
            }
            None
        }
    })
}

/// Approves the offer within the limit, or denies what is pending of it.
fn decide(node: &mut PairedNode, approve: Option<OfferLimit>) -> Result<&'static str, Fault> {
    let Some(limit) = approve else {
        node.denied = union(&node.denied, &node.pending());
        return Ok("refused");
    };
    if let Some(missing) = limit.missing_from(&node.offered) {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "node {} does not offer {missing}; it offers {}. Nothing was changed",
                node.name,
                node.offered.parts().join(", ")
            ),
        ));
    }
    let within = limit.of(&node.offered);
    node.approved = match limit == OfferLimit::default() {
        // What it does not offer at the moment stays approved.
        true => union(&node.approved, &within),
        false => within.clone(),
    };
    node.denied = node.offered.beyond(&within);
    Ok("approved")
}

fn union(one: &Offer, other: &Offer) -> Offer {
    Offer {
        commands: &one.commands | &other.commands,
        roots: &one.roots | &other.roots,
        skills: one.skills || other.skills,
    }
}

fn changed(node: &PairedNode, change: &'static str) -> EventData {
    EventData::from(NodeChanged {
        node_id: node.id,
        name: node.name.clone(),
        change: change.into(),
        approved: node.approved.beyond(&node.denied).parts(),
    })
}

/// Once this returns, the invitation can be used.
pub fn invite(context: &mut Context<'_>, invite: NodeInvite) -> Result<(), Fault> {
    let now = context.now.wall;
    if invites::get(context.tx, &invite.code_hash)?.is_some() {
        return Ok(());
    }
    if let Some(name) = &invite.name {
        check_name(context, &invite.org, name, None)?;
    }
    invites::forget(context.tx, now.minus_ms(INVITE_MEMORY_MS))?;
    let open = invites::count_open(context.tx, &invite.org, now)?;
    if open >= INVITES_LIMIT {
        return Err(limit_reached(
            "invites",
            INVITES_LIMIT,
            "setup codes that can still be used",
        )
        .hint("use one of them, or wait until one has expired (ten minutes)"));
    }
    invites::insert(context.tx, &invite)?;
    Ok(())
}

/// Once this returns, the event log has this event.
pub fn note(context: &mut Context<'_>, org: &str, note: NodeNote) -> Result<(), Fault> {
    match note {
        NodeNote::Waiting(waiting) => context.emit_org(org, waiting),
        NodeNote::Asked(asked) => context.emit_org(org, asked),
    }
    Ok(())
}

fn limit_reached(limit: &str, value: i64, counts: &str) -> Fault {
    Fault::new(
        Kind::Limit,
        format!("limit {limit} = {value} reached; it counts {counts}. Nothing was stored"),
    )
    .with("limit", limit)
    .with("value", value)
    .with("counts", counts)
}

impl NodeRows for Store {
    fn paired_nodes(&self) -> Result<Vec<PairedNode>, Fault> {
        self.read_now(nodes::every)
    }

    fn pair_node(&self, new: PairNode) -> Stored<PairedNode> {
        Box::pin(self.begin(new))
    }

    fn change_node(&self, change: ChangeNode) -> Stored<PairedNode> {
        Box::pin(self.begin(change))
    }

    fn add_invite(&self, invite: NodeInvite) -> Stored<()> {
        Box::pin(self.begin(AddInvite { invite }))
    }

    fn note_node(&self, org: &str, note: NodeNote) -> Stored<()> {
        let org = org.to_owned();
        Box::pin(self.begin(NoteNode { org, note }))
    }

    fn steps_of_calls(&self, org: &str, calls: Vec<CallId>) -> Stored<HashMap<CallId, StepOfCall>> {
        let (store, org) = (self.clone(), org.to_owned());
        Box::pin(async move {
            let ids: Vec<StepId> = calls.into_iter().map(|call| StepId(call.0)).collect();
            let query = move |tx: &mut dyn Tx| steps::kept(tx, &org, &ids);
            let found = store.read_for_registry(query).await?;
            let of_calls = found.into_iter().map(|(id, step)| (CallId(id.0), step));
            Ok(of_calls.collect())
        })
    }
}
