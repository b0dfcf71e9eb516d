//! Handlers of `nodes.*`.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;

use super::method::MethodsBuilder;
use crate::contract::nodes::{NodeEnd, NodeOutput, Nodes};
use crate::gateway::CallContext;
use crate::gateway::nodes::{NodeSummary, WaitingSummary};
use crate::gateway::rpc::Connection;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, OfferLimit, OutputStream};
use crate::wire::gateway::Empty;
use crate::wire::node_link::{from_hex, to_hex};
use crate::wire::nodes as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(get);
    table.method(approve);
    table.method(refuse);
    table.method(invite);
    table.method(rename);
    table.method(remove);
    table.method(answer);
    table.connected(call);
}

async fn list(context: Arc<CallContext>, _: wire::ListNodes) -> Result<wire::NodeList, Fault> {
    let summaries = context.nodes.nodes(&context.principal);
    let questions = summaries.iter().flat_map(|node| {
        let asked = node.questions.iter();
        asked.map(|(id, question)| wire::NodeQuestion {
            id: *id,
            node: node.row.name.clone(),
            question: question.clone(),
        })
    });
    let questions = questions.collect();
    let waiting = context.nodes.waiting(&context.principal);
    Ok(wire::NodeList {
        questions,
        nodes: summaries.into_iter().map(node).collect(),
        waiting: waiting.into_iter().map(request).collect(),
    })
}

async fn get(context: Arc<CallContext>, params: wire::GetNode) -> Result<wire::Node, Fault> {
    context
        .nodes
        .node(&context.principal, &params.node)
        .map(node)
}

async fn approve(
    context: Arc<CallContext>,
    params: wire::ApproveNode,
) -> Result<wire::Node, Fault> {
    let (nodes, who) = (&context.nodes, &context.principal);
    let limit = OfferLimit {
        commands: params.commands,
        roots: params.roots,
    };
    let approved = match (params.code, params.node) {
        (Some(code), None) => nodes.admit(who, &code, params.name, limit).await?,
        (None, Some(_)) if params.name.is_some() => {
            return Err(Fault::params("name", "a paired node has a name")
                .hint("change it with nodes.rename"));
        }
        (None, Some(node)) => nodes.decide(who, &node, Some(limit)).await?,
        _ => return Err(one_of_them()),
    };
    Ok(node(approved))
}

async fn refuse(
    context: Arc<CallContext>,
    params: wire::RefuseNode,
) -> Result<wire::RefusedNode, Fault> {
    let (nodes, who) = (&context.nodes, &context.principal);
    let name = match (params.code, params.node) {
        (Some(code), None) => nodes.turn_away(who, &code)?,
        (None, Some(node)) => nodes.decide(who, &node, None).await?.row.name,
        _ => return Err(one_of_them()),
    };
    Ok(wire::RefusedNode { name })
}

fn one_of_them() -> Fault {
    Fault::params(
        "code",
        "either the code of a waiting node or a paired node is needed",
    )
}

async fn invite(
    context: Arc<CallContext>,
    params: wire::InviteNode,
) -> Result<wire::NodeInvitation, Fault> {
    let limit = OfferLimit {
        commands: params.commands,
        roots: params.roots,
    };
    let made = context.nodes.invite(&context.principal, params.name, limit);
    let (code, expires_at) = made.await?;
    Ok(wire::NodeInvitation {
        code,
        expires_at,
        url: context.url.clone(),
    })
}

async fn rename(context: Arc<CallContext>, params: wire::RenameNode) -> Result<wire::Node, Fault> {
    let (nodes, who) = (&context.nodes, &context.principal);
    nodes.rename(who, &params.node, params.name).await.map(node)
}

async fn remove(
    context: Arc<CallContext>,
    params: wire::RemoveNode,
) -> Result<wire::RemovedNode, Fault> {
    let removed = context.nodes.remove(&context.principal, &params.node);
    let row = removed.await?;
    Ok(wire::RemovedNode {
        id: row.id,
        name: row.name,
    })
}

async fn answer(context: Arc<CallContext>, params: wire::AnswerNode) -> Result<Empty, Fault> {
    let allow = params.decision == wire::NodeDecision::Allow;
    let (nodes, who) = (&context.nodes, &context.principal);
    nodes.answer_question(who, params.id, &params.digest, allow)?;
    Ok(Empty {})
}

/// Sends the output of a call to the client that follows it. What does not fit is left out: the
/// result has the output.
struct Followed {
    id: CallId,
    notes: Option<mpsc::Sender<String>>,
}

impl NodeOutput for Followed {
    fn piece(&self, stream: OutputStream, text: &str) {
        let Some(notes) = &self.notes else {
            return;
        };
        let params = wire::NodeOutputPart {
            id: self.id,
            stream,
            text: text.to_owned(),
        };
        let note = json!({ "jsonrpc": "2.0", "method": wire::OUTPUT, "params": params });
        // A client that has gone or reads slowly does not delay the node.
        let _ = notes.try_send(note.to_string());
    }
}

async fn call(
    context: Arc<CallContext>,
    connection: Arc<Connection>,
    params: wire::CallNode,
) -> Result<wire::NodeCallEnded, Fault> {
    let id = params.id.unwrap_or_else(|| CallId(context.clock.new_id()));
    let notes = match params.follow {
        true => Some(connection.notes()?.clone()),
        false => None,
    };
    let output = Arc::new(Followed { id, notes });
    let org = &context.principal.org;
    let calling = context
        .nodes
        .call(org, &params.node, id, params.call, output);
    let ended = tokio::select! {
        ended = calling => ended,
        // The call continues on the node, which is not told that this client goes.
        () = context.registry.ending() => return Err(Fault::new(
            Kind::Unavailable,
            format!("the daemon is stopping; the call continues on node {}", params.node),
        )
        .hint("repeat the call with its id once the daemon is back")
        .with("id", id.to_string())),
    };
    let end = match ended {
        NodeEnd::Answered(end) => end,
        NodeEnd::NotSent(why) => {
            return Err(Fault::new(Kind::Unavailable, why)
                .hint("abide nodes shows which nodes are connected and what may be called there")
                .with("id", id.to_string()));
        }
        NodeEnd::Away(message) => CallEnd::Uncertain { message },
    };
    // A client that knows the id may have to ask again for an answer that is lost on its way.
    match params.id {
        Some(_) => context.nodes.release_later(org, &params.node, id),
        None => context.nodes.release(org, &params.node, id),
    }
    Ok(wire::NodeCallEnded {
        id,
        node: params.node,
        end,
    })
}

fn node(summary: NodeSummary) -> wire::Node {
    let NodeSummary {
        row,
        is_connected,
        callable,
        calls,
        questions: _,
    } = summary;
    wire::Node {
        pending: row.pending(),
        id: row.id,
        name: row.name,
        state: if is_connected { "connected" } else { "away" }.into(),
        machine: row.machine,
        offered: row.offered,
        approved: row.approved,
        denied: row.denied,
        callable,
        programs: {
            let mut found = row.programs;
            // What it was asked for and does not have is stored without a path.
            found.retain(|_, path| !path.is_empty());
            found
        },
        fingerprint: fingerprint(&row.public_key),
        generation: row.generation,
        calls: calls as u64,
        paired_at: row.created_at,
        approved_by: row.approved_by,
        seen_at: row.seen_at,
    }
}

fn request(waiting: WaitingSummary) -> wire::NodeRequest {
    wire::NodeRequest {
        code: waiting.code,
        name: waiting.name,
        machine: waiting.machine,
        offered: waiting.offered,
        fingerprint: fingerprint(&waiting.public_key),
        address: waiting.address.to_string(),
        since: waiting.since,
        expires_at: waiting.expires_at,
    }
}

fn fingerprint(public_key: &str) -> String {
    let key = from_hex(public_key).unwrap_or_default();
    to_hex(ring::digest::digest(&ring::digest::SHA256, &key).as_ref())
}
