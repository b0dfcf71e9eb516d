//! A caller of a call: begins the call, or joins one with the same id, and waits for its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::calls::may_call;
use super::hub::HubInner;
use crate::contract::nodes::{NodeEnd, NodeOutput};
use crate::failpoint::reach;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::NodeCall;
use crate::wire::node_link::{FRAME_LIMIT, ToNode};

/// How often a call that waits looks whether its node is away.
const LOOK: Duration = Duration::from_millis(500);

/// A caller of a call. The call is cancelled if this is dropped before its end.
struct Caller {
    hub: Arc<HubInner>,
    node: NodeId,
    id: CallId,
    number: u64,
}

impl Drop for Caller {
    fn drop(&mut self) {
        // Before the lock is taken: the phase is another part's state.
        let is_stopping = self.hub.is_stopping();
        let mut state = self.hub.lock();
        if let Some(node) = state.nodes.get_mut(&self.node) {
            let outbox = node.outbox();
            node.calls
                .leave(self.id, self.number, outbox.as_ref(), is_stopping);
        }
    }
}

impl HubInner {
    /// Begins a call; `Err` says why nothing was sent.
    fn begin(
        self: &Arc<Self>,
        (org, name): (&str, &str),
        id: CallId,
        call: NodeCall,
        output: Arc<dyn NodeOutput>,
    ) -> Result<(Caller, oneshot::Receiver<NodeEnd>), String> {
        let frame = ToNode::Call {
            id,
            begin_within_ms: u64::MAX,
            call: call.clone(),
        };
        let size = serde_json::to_string(&frame).map_or(usize::MAX, |text| text.len());
        if size > FRAME_LIMIT {
            return Err(format!(
                "the call has {size} bytes, the limit is {FRAME_LIMIT}; nothing was sent"
            ));
        }
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let Some(node) = state.named_mut(org, name) else {
            return Err(format!("there is no node {name}; nothing was sent"));
        };
        if node.is_away(now) {
            return Err(format!("node {name} is away; nothing was sent"));
        }
        let may = match &node.link {
            Some(_) => may_call(&call, &node.callable()),
            // What it offers is known when it is back.
            None => may_call(&call, &node.row.approved.beyond(&node.row.denied)),
        };
        may.map_err(|why| format!("node {name}: {why}"))?;
        let outbox = node.outbox();
        if outbox.as_ref().is_some_and(|outbox| !outbox.has_room(size)) {
            return Err(format!(
                "node {name} reads too slowly; nothing was sent, try again later"
            ));
        }
        let ticket = node.calls.join(id, call, output, now);
        let ticket = ticket.map_err(|why| format!("node {name}: {why}; nothing was sent"))?;
        if let Some(outbox) = &outbox {
            node.calls.send(id, outbox, now);
        }
        let caller = Caller {
            hub: Arc::clone(self),
            node: node.row.id,
            id,
            number: ticket.number,
        };
        Ok((caller, ticket.end))
    }

    /// Ends the call if it can wait no longer.
    fn look(&self, node: NodeId, id: CallId) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if let Some(node) = state.nodes.get_mut(&node) {
            let (is_away, outbox) = (node.is_away(now), node.outbox());
            let name = &node.row.name;
            node.calls.overdue(id, name, is_away, outbox.as_ref(), now);
        }
    }

    /// Carries out a call for one caller.
    pub(super) async fn call(
        self: Arc<Self>,
        (org, name): (String, String),
        id: CallId,
        call: NodeCall,
        output: Arc<dyn NodeOutput>,
    ) -> NodeEnd {
        let (caller, mut end) = match self.begin((&org, &name), id, call, output) {
            Ok(begun) => begun,
            Err(why) => return NodeEnd::NotSent(why),
        };
        reach("node.call_sent");
        loop {
            match tokio::time::timeout(LOOK, &mut end).await {
                Ok(Ok(end)) => {
                    reach("node.call_ended");
                    return end;
                }
                // The call was forgotten without an end; callers do not wait for ever.
                Ok(Err(_)) => {
                    return NodeEnd::Away(format!("the call to node {name} was given up"));
                }
                Err(_) => self.look(caller.node, id),
            }
        }
    }
}
