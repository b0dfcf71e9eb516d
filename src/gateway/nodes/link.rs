//! `/node`: the open link of a paired node: frames in both directions, until it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::sync::CancellationToken;

use super::channel::{self, FrameReader, FrameWriter, LinkEnd, discard_rest};
use super::hub::{HubInner, NodeHub, NodeState, OpenLink};
use super::outbox::{LastFrame, NextFrame, Outbox};
use super::proof::{ProofFailure, ProvenNode, prove};
use crate::contract::nodes::{ChangeNode, NodeChange, NodeNote};
use crate::kernel::event::NodeAsked;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::{NodeSkill, RefusalReason, RunQuestion, SKILLS_LIMIT};
use crate::wire::node_link::{FRAME_LIMIT, FromNode, HEARTBEAT, LOST, ToNode};

/// Time for a peer to read why its link is closed.
const LAST_FRAME: Duration = Duration::from_secs(2);
/// Maximum number of changes and events that frames on one link may cause.
const WRITES_LIMIT: u32 = 1000;
/// Maximum size of a question, in bytes.
const QUESTION_LIMIT: usize = 64 * 1024;

/// Serves the link of the node whose token was shown, until it ends or `shutdown` is cancelled.
/// Returns false if the peer had the token and not the key.
pub(super) async fn serve<S>(
    io: S,
    hub: NodeHub,
    (node, proving): (NodeId, OwnedSemaphorePermit),
    shutdown: CancellationToken,
) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let clock = hub.inner.clock.clone();
    let (mut reader, mut writer) = channel::open(io, FRAME_LIMIT, clock).await;
    let proven = tokio::select! {
        proven = prove(&hub, node, &mut reader, &mut writer) => proven,
        () = shutdown.cancelled() => return true,
    };
    drop(proving);
    let proven = match proven {
        Ok(proven) => proven,
        Err(ProofFailure::End(end)) => {
            finish(reader, writer, end).await;
            return true;
        }
        Err(ProofFailure::Refused(reason, message)) => {
            let is_known = reason != RefusalReason::Invalid;
            tracing::warn!(%node, %reason, message, "a node was refused");
            refuse(&mut writer, reason, message).await;
            discard_rest(reader).await;
            return is_known;
        }
    };
    let Some((number, outbox)) = hub.attach(node, &proven) else {
        let message = "an operator has removed this node".to_owned();
        refuse(&mut writer, RefusalReason::Removed, message).await;
        return true;
    };
    tracing::info!(%node, name = proven.row.name, "a node is connected");
    let end = tokio::select! {
        end = read_all(&hub, (node, number), &outbox, &mut reader) => end,
        end = write_all(&hub, node, &outbox, &mut writer) => end,
        () = shutdown.cancelled() => {
            LinkEnd::Close(CloseCode::Away, "the gateway is stopping".to_owned())
        }
    };
    let heard_at = reader.heard_at;
    hub.detach(node, number, heard_at);
    tracing::info!(%node, name = proven.row.name, ?end, "the link of a node has ended");
    finish(reader, writer, end).await;
    let silent_for = hub.inner.clock.monotonic().saturating_sub(heard_at);
    tokio::select! {
        () = tokio::time::sleep(LOST.saturating_sub(silent_for)) => {
            hub.note_lost(node, number, heard_at);
        }
        () = shutdown.cancelled() => {}
    }
    true
}

/// Sends the reason as the last frame, then closes.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    writer: &mut FrameWriter<S>,
    reason: RefusalReason,
    message: String,
) {
    let said = async {
        if writer
            .send(&ToNode::Refused { reason, message })
            .await
            .is_ok()
        {
            writer.close(CloseCode::Policy, reason.as_str()).await;
        }
    };
    let _ = tokio::time::timeout(LAST_FRAME, said).await;
}

/// Closes the link, if the peer is still there.
pub(super) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    reader: FrameReader<S>,
    mut writer: FrameWriter<S>,
    end: LinkEnd,
) {
    if let LinkEnd::Close(code, reason) = end {
        let closing = writer.close(code, &reason);
        if tokio::time::timeout(LAST_FRAME, closing).await.is_ok() && code != CloseCode::Away {
            discard_rest(reader).await;
        }
    }
}

async fn read_all<S: AsyncRead + AsyncWrite + Unpin>(
    hub: &NodeHub,
    (node, number): (NodeId, u64),
    outbox: &Outbox,
    reader: &mut FrameReader<S>,
) -> LinkEnd {
    loop {
        match reader.next::<FromNode>().await {
            Ok(frame) => {
                if let Err(end) = hub.received((node, number), frame, outbox) {
                    return end;
                }
            }
            Err(end) => return end,
        }
    }
}

async fn write_all<S: AsyncRead + AsyncWrite + Unpin>(
    hub: &NodeHub,
    node: NodeId,
    outbox: &Outbox,
    writer: &mut FrameWriter<S>,
) -> LinkEnd {
    let mut ping = tokio::time::interval(HEARTBEAT);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let written = async {
            tokio::select! {
                () = outbox.filled() => {}
                _ = ping.tick() => {
                    hub.inner.sweep(node, outbox);
                    writer.ping().await?;
                }
            }
            while let Some(next) = outbox.pop() {
                match next {
                    NextFrame::Text(text) => writer.feed(text).await?,
                    NextFrame::Last(last) => return Ok(Some(last)),
                }
            }
            writer.flush().await.map(|()| None)
        };
        match written.await {
            Ok(None) => {}
            Ok(Some(LastFrame::Refused(reason, message))) => {
                refuse(writer, reason, message).await;
                return LinkEnd::Gone;
            }
            Ok(Some(LastFrame::TooSlow)) => {
                let reason = "the node reads too slowly".to_owned();
                return LinkEnd::Close(CloseCode::Policy, reason);
            }
            Err(end) => return end,
        }
    }
}

impl NodeHub {
    /// The link is that of its node from now on, in place of an earlier one. Wanted calls are sent
    /// again. `None` if the node was removed.
    fn attach(&self, id: NodeId, proven: &ProvenNode) -> Option<(u64, Outbox)> {
        let now = self.inner.clock.monotonic();
        let outbox = Outbox::default();
        let mut state = self.inner.lock();
        let number = state.next_link();
        let node = state.nodes.get_mut(&id)?;
        if node.row.removed_at.is_some() {
            return None;
        }
        if let Some(old) = node.link.take() {
            let message = "another connection of this node has taken its place";
            old.outbox.refuse(RefusalReason::Replaced, message);
        }
        outbox.push(&ToNode::Welcome {
            name: node.row.name.clone(),
            approved: node.row.approved.beyond(&node.row.denied),
        });
        let offered = proven.offered.clone();
        let callable = node.row.callable(&offered);
        node.calls.resume(&proven.known, &callable, &outbox, now);
        node.last_link = number;
        node.link = Some(OpenLink {
            number,
            offered: offered.clone(),
            outbox: outbox.clone(),
            writes: 0,
        });
        let is_new = std::mem::take(&mut node.is_lost);
        // A link that breaks again and again does not write each time.
        let is_known = (&node.row.machine, &node.row.offered) == (&proven.machine, &offered);
        if is_known && !is_new {
            return Some((number, outbox));
        }
        let connected = NodeChange::Connected {
            machine: proven.machine.clone(),
            offered,
            is_new,
        };
        let org = node.row.org.clone();
        drop(state);
        self.inner.write(org, id, connected);
        Some((number, outbox))
    }

    /// The link has ended, and is still that of its node unless there is a newer one.
    fn detach(&self, id: NodeId, number: u64, heard_at: Duration) {
        let mut state = self.inner.lock();
        let Some(node) = state.nodes.get_mut(&id) else {
            return;
        };
        if node.link.as_ref().is_some_and(|link| link.number == number) {
            node.link = None;
            node.heard_at = heard_at;
            node.calls_at_end = node.calls.count();
        }
        drop(state);
        self.inner.note_change();
    }

    /// The node is away, unless it has a newer link.
    fn note_lost(&self, id: NodeId, number: u64, heard_at: Duration) {
        let mut state = self.inner.lock();
        let Some(node) = state.nodes.get_mut(&id) else {
            return;
        };
        if node.last_link != number || node.row.removed_at.is_some() || node.is_lost {
            return;
        }
        node.is_lost = true;
        let (org, calls) = (node.row.org.clone(), node.calls_at_end);
        drop(state);
        let ago = self.inner.clock.monotonic().saturating_sub(heard_at);
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        let at = self.inner.clock.now().minus_ms(ago);
        self.inner.write(org, id, NodeChange::Lost { at, calls });
    }

    /// Handles a frame of the node on this link. Frames on a link that was replaced do nothing: the
    /// node repeats what matters on the newer one.
    fn received(
        &self,
        (id, number): (NodeId, u64),
        frame: FromNode,
        outbox: &Outbox,
    ) -> Result<(), LinkEnd> {
        let now = self.inner.clock.monotonic();
        let refused = |why: &str| LinkEnd::Close(CloseCode::Policy, why.to_owned());
        let mut state = self.inner.lock();
        let node = state.nodes.get_mut(&id);
        let link = node.and_then(|node| {
            let is_current = node.link.as_ref().is_some_and(|link| link.number == number);
            is_current.then_some(node)
        });
        let Some(node) = link else {
            return Ok(());
        };
        match frame {
            FromNode::Hello { .. } => return Err(refused("hello is the first frame alone")),
            // Only a statement of the node about itself: what was sent is repeated anyway.
            FromNode::Accepted { .. } => {}
            FromNode::Output { id, stream, text } => node.calls.output(id, stream, &text),
            FromNode::Result { id, end } => node.calls.answered(id, end, outbox, now),
            FromNode::Ask { id: call, question } => {
                if question_size(&question) > QUESTION_LIMIT {
                    return Err(refused("a question is too long"));
                }
                let asked = NodeAsked {
                    node_id: id,
                    name: node.row.name.clone(),
                    call_id: call,
                    program: question.program.clone(),
                };
                if node.calls.asks(call, question) {
                    count_write(node)?;
                    let org = node.row.org.clone();
                    drop(state);
                    self.inner.note(&org, NodeNote::Asked(asked));
                }
            }
            FromNode::Offer { offer } => {
                offer.check().map_err(|why| refused(&why))?;
                count_write(node)?;
                if let Some(link) = &mut node.link {
                    link.offered.clone_from(&offer);
                }
                let org = node.row.org.clone();
                drop(state);
                self.inner.write(org, id, NodeChange::Offers(offer));
            }
            FromNode::Skills { skills } => {
                if skills_size(&skills) > SKILLS_LIMIT {
                    return Err(refused("the skills are too large"));
                }
                node.skills = skills;
                drop(state);
                self.inner.note_change();
            }
        }
        Ok(())
    }

    /// Answers a node's question; returns false if there is no such question of the tenant.
    pub(super) fn answer(&self, org: &str, id: CallId, digest: &str, allow: bool) -> bool {
        let now = self.inner.clock.monotonic();
        let mut state = self.inner.lock();
        let mut nodes = state.nodes.values_mut();
        let asking = nodes.find(|node| {
            let asked = node.calls.questions().get(&id);
            node.row.org == org && asked.is_some_and(|question| question.digest == digest)
        });
        let Some(node) = asking else {
            return false;
        };
        let Some(link) = &node.link else {
            return false;
        };
        link.outbox.push(&ToNode::Answer {
            id,
            digest: digest.to_owned(),
            allow,
        });
        node.calls.decided(id, now);
        true
    }
}

impl HubInner {
    /// Writes a change that no caller waits for.
    fn write(self: &Arc<Self>, org: String, id: NodeId, change: NodeChange) {
        let stored = self.rows.change_node(ChangeNode { org, id, change });
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            match stored.await {
                Ok(row) => inner.apply(row),
                Err(fault) => tracing::warn!(%id, %fault, "a change of a node was not stored"),
            }
        });
    }

    /// Writes an event that no caller waits for.
    pub(super) fn note(&self, org: &str, note: NodeNote) {
        let stored = self.rows.note_node(org, note);
        tokio::spawn(async move {
            if let Err(fault) = stored.await {
                tracing::warn!(%fault, "an event about a node was not stored");
            }
        });
    }

    /// Ends calls of the node that have no caller any more.
    fn sweep(self: &Arc<Self>, id: NodeId, outbox: &Outbox) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let Some(node) = state.nodes.get_mut(&id) else {
            return;
        };
        node.calls.sweep(outbox, now);
        let asked = node.calls.maybe_of_steps();
        if asked.is_empty() {
            return;
        }
        let finding = self.rows.steps_of_calls(&node.row.org, asked.clone());
        drop(state);
        let (inner, outbox) = (Arc::clone(self), outbox.clone());
        tokio::spawn(async move {
            let steps = match finding.await {
                Ok(steps) => steps,
                // The next sweep tries again.
                Err(fault) => {
                    return tracing::warn!(%id, %fault, "the steps of a node's calls were not read");
                }
            };
            if let Some(node) = inner.lock().nodes.get_mut(&id) {
                node.calls.end_unwanted(&asked, &steps, &outbox);
            }
        });
    }
}

/// Ends the link of a node that causes too many writes.
fn count_write(node: &mut NodeState) -> Result<(), LinkEnd> {
    let Some(link) = &mut node.link else {
        return Ok(());
    };
    link.writes += 1;
    match link.writes > WRITES_LIMIT {
        true => Err(LinkEnd::Close(
            CloseCode::Policy,
            "too many changes and questions on one link".to_owned(),
        )),
        false => Ok(()),
    }
}

fn question_size(question: &RunQuestion) -> usize {
    serde_json::to_string(question).map_or(usize::MAX, |text| text.len())
}

fn skills_size(skills: &[NodeSkill]) -> usize {
    let sizes = skills.iter().map(|one| one.folder.len() + one.text.len());
    sizes.sum()
}
