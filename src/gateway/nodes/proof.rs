//! The proof of keys at the beginning of a link: the node signs the gateway's challenge, and the
//! gateway the node's nonce.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::channel::{FrameReader, FrameWriter, LinkEnd};
use super::hub::{KnownCalls, NodeHub};
use super::keys;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::NodeId;
use crate::kernel::node::{Machine, Offer, PairedNode, RefusalReason};
use crate::wire::node_link::{Challenge, FromNode, PROTOCOL, ToNode, proof_bytes};

/// The path of links, which signatures name.
const PATH: &str = "/node";
/// Time for the first frame of a node.
pub(super) const FIRST_FRAME: Duration = Duration::from_secs(10);
/// Maximum number of connections with a node's token that have not proved its key yet.
pub(super) const PROVING: usize = 4;

/// A node that has proved its key.
pub(super) struct ProvenNode {
    pub(super) row: PairedNode,
    pub(super) machine: Machine,
    pub(super) offered: Offer,
    pub(super) known: KnownCalls,
}

/// How the proof of a key ends.
pub(super) enum ProofFailure {
    /// The link ends.
    End(LinkEnd),
    /// The node is refused, and must not come again by itself.
    Refused(RefusalReason, String),
}

impl From<LinkEnd> for ProofFailure {
    fn from(end: LinkEnd) -> Self {
        ProofFailure::End(end)
    }
}

impl From<Fault> for ProofFailure {
    fn from(fault: Fault) -> Self {
        tracing::error!(%fault, "a node could not be served");
        ProofFailure::End(LinkEnd::Close(CloseCode::Error, "a defect".to_owned()))
    }
}

/// Proves the gateway's key to the node, and the node's to the gateway.
pub(super) async fn prove<S: AsyncRead + AsyncWrite + Unpin>(
    hub: &NodeHub,
    node: NodeId,
    reader: &mut FrameReader<S>,
    writer: &mut FrameWriter<S>,
) -> Result<ProvenNode, ProofFailure> {
    let challenge = hub.challenge()?;
    writer.send(&challenge).await?;
    let FromNode::Hello {
        protocol,
        signature,
        nonce,
        machine,
        offer,
        calls,
    } = reader.within(FIRST_FRAME).await?
    else {
        let reason = "the first frame must be hello".to_owned();
        return Err(LinkEnd::Close(CloseCode::Policy, reason).into());
    };
    check_protocol(protocol)?;
    let removed = || {
        let message = "an operator has removed this node".to_owned();
        ProofFailure::Refused(RefusalReason::Removed, message)
    };
    let row = hub.row(node).ok_or_else(removed)?;
    let signed = challenge.signed_bytes(PATH);
    if !keys::is_signed(&row.public_key, &signed, &signature) {
        let message = "the signature is not that of the node's key".to_owned();
        return Err(ProofFailure::Refused(RefusalReason::Invalid, message));
    }
    let proof = hub.inner.key.sign(&proof_bytes(PATH, &nonce));
    writer.send(&ToNode::Proof { signature: proof }).await?;
    if row.removed_at.is_some() {
        return Err(removed());
    }
    if let Err(why) = machine.check().and_then(|()| offer.check()) {
        return Err(LinkEnd::Close(CloseCode::Invalid, why).into());
    }
    Ok(ProvenNode {
        row,
        machine,
        offered: offer,
        known: calls.into_iter().collect(),
    })
}

/// Refuses another version of the link.
pub(super) fn check_protocol(protocol: u32) -> Result<(), ProofFailure> {
    if protocol == PROTOCOL {
        return Ok(());
    }
    let message = format!(
        "this gateway speaks version {PROTOCOL} of the link, the node version {protocol}: install \
         the same version of abide on both machines"
    );
    Err(ProofFailure::Refused(RefusalReason::Protocol, message))
}

impl NodeHub {
    /// A place among the connections that have shown the node's token and not yet proved its key.
    pub(super) fn begin_proof(&self, id: NodeId) -> Result<OwnedSemaphorePermit, Fault> {
        let state = self.inner.lock();
        let proving = state.nodes.get(&id).map(|node| Arc::clone(&node.proving));
        let held = proving.and_then(|proving| proving.try_acquire_owned().ok());
        held.ok_or_else(|| {
            Fault::new(
                Kind::Busy,
                format!("{PROVING} connections of this node have not proved its key yet"),
            )
            .with("retryAfterMs", 5000)
        })
    }

    /// The first frame on either path.
    pub(super) fn challenge(&self) -> Result<Challenge, Fault> {
        Ok(Challenge {
            protocol: PROTOCOL,
            gateway: self.inner.gateway.clone(),
            public_key: self.inner.key.public().to_owned(),
            nonce: keys::nonce()?,
        })
    }
}
