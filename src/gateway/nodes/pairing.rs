//! `/pair`: a node proves its key, shows what it offers, and waits until it is admitted.

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::sync::CancellationToken;

use super::channel::{self, FrameReader, FrameWriter, LinkEnd, discard_rest};
use super::hub::NodeHub;
use super::keys;
use super::link::finish;
use super::proof::{FIRST_FRAME, ProofFailure, check_protocol};
use super::waiting::{Decision, LIFETIME, WaitingNode};
use crate::contract::nodes::{Admission, NodeChange, NodeNote, PairNode};
use crate::failpoint::reach;
use crate::kernel::event::NodeWaiting;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::NodeId;
use crate::kernel::node::{PairedNode, RefusalReason, name_from};
use crate::wire::node_link::{HEARTBEAT, PairReply, PairRequest, proof_bytes};

/// The path of pairing, which signatures name.
const PATH: &str = "/pair";
/// Maximum size of the request, in bytes.
const REQUEST_LIMIT: usize = 256 * 1024;

/// How a pairing ended, for the limit of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairingEnd {
    /// The peer has shown a wrong signature or setup code.
    Guessed,
    /// Anything else.
    Other,
}

/// Serves one connection of a node that wants to be paired, until it ends or `shutdown` is
/// cancelled.
pub(super) async fn serve<S>(
    io: S,
    hub: NodeHub,
    address: IpAddr,
    shutdown: CancellationToken,
) -> PairingEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let clock = hub.inner.clock.clone();
    let (mut reader, mut writer) = channel::open(io, REQUEST_LIMIT, clock).await;
    let paired = tokio::select! {
        paired = pair(&hub, address, &mut reader, &mut writer) => paired,
        () = shutdown.cancelled() => {
            let reason = "the gateway is stopping".to_owned();
            Err(LinkEnd::Close(CloseCode::Away, reason).into())
        }
    };
    match paired {
        Ok(()) => {
            writer.close(CloseCode::Normal, "paired").await;
            discard_rest(reader).await;
            PairingEnd::Other
        }
        Err(ProofFailure::End(end)) => {
            finish(reader, writer, end).await;
            PairingEnd::Other
        }
        Err(ProofFailure::Refused(reason, message)) => {
            tracing::info!(%address, %reason, message, "a node was not paired");
            let reply = PairReply::Refused { reason, message };
            if writer.send(&reply).await.is_ok() {
                writer.close(CloseCode::Policy, reason.as_str()).await;
                discard_rest(reader).await;
            }
            match reason {
                RefusalReason::Invalid | RefusalReason::InvalidCode => PairingEnd::Guessed,
                _ => PairingEnd::Other,
            }
        }
    }
}

async fn pair<S: AsyncRead + AsyncWrite + Unpin>(
    hub: &NodeHub,
    address: IpAddr,
    reader: &mut FrameReader<S>,
    writer: &mut FrameWriter<S>,
) -> Result<(), ProofFailure> {
    let challenge = hub.challenge()?;
    writer.send(&challenge).await?;
    let request: PairRequest = reader.within(FIRST_FRAME).await?;
    check_protocol(request.protocol)?;
    check(&request, &challenge.signed_bytes(PATH))?;
    let signature = hub.inner.key.sign(&proof_bytes(PATH, &request.nonce));
    writer.send(&PairReply::Proof { signature }).await?;
    let node = match (hub.by_key(&request.public_key), &request.invite) {
        // Its key proves that it was admitted: its token was lost, or never arrived.
        (Some(known), _) => known,
        (None, Some(code)) => hub.redeem(&request, code).await?,
        (None, None) => wait(hub, address, &request, reader, writer).await?,
    };
    reach("node.admitted");
    let (node, token) = hub.issue_token(&node).await?;
    reach("node.token_issued");
    writer
        .send(&PairReply::Paired {
            node: node.id.to_string(),
            approved: node.approved.beyond(&node.denied),
            name: node.name,
            token,
        })
        .await?;
    Ok(())
}

/// Refuses a request that is not the work of an honest node with its key.
fn check(request: &PairRequest, signed: &[u8]) -> Result<(), ProofFailure> {
    let invalid = |message: String| ProofFailure::Refused(RefusalReason::Invalid, message);
    if !keys::is_public_key(&request.public_key)
        || !keys::is_signed(&request.public_key, signed, &request.signature)
    {
        return Err(invalid("the signature is not that of the key".to_owned()));
    }
    let checked = request.machine.check();
    checked
        .and_then(|()| request.offer.check())
        .map_err(invalid)
}

/// Waits until an operator admits the node.
async fn wait<S: AsyncRead + AsyncWrite + Unpin>(
    hub: &NodeHub,
    address: IpAddr,
    request: &PairRequest,
    reader: &mut FrameReader<S>,
    writer: &mut FrameWriter<S>,
) -> Result<PairedNode, ProofFailure> {
    let (code, mut decision) = hub.begin_waiting(address, request)?;
    writer
        .send(&PairReply::Waiting {
            code: code.clone(),
            expires_in_ms: u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX),
        })
        .await?;
    let refused = |reason, message: &str| ProofFailure::Refused(reason, message.to_owned());
    let expired = || {
        hub.inner.waiting.expire(&code);
        let minutes = LIFETIME.as_secs() / 60;
        let message = format!("no operator has admitted this node within {minutes} minutes");
        ProofFailure::Refused(RefusalReason::Expired, message)
    };
    let decided = tokio::select! {
        decided = decided(&mut decision) => decided,
        end = reader.gone() => return Err(end.into()),
        end = keep_alive(writer) => return Err(end.into()),
        () = tokio::time::sleep(LIFETIME) => return Err(expired()),
    };
    match decided {
        Decision::Approved => hub.by_key(&request.public_key).ok_or_else(|| {
            // Removed in the same moment.
            refused(RefusalReason::Removed, "an operator has removed this node")
        }),
        Decision::Open | Decision::Refused => Err(refused(
            RefusalReason::Refused,
            "an operator has refused this node",
        )),
        Decision::Replaced => Err(refused(
            RefusalReason::Replaced,
            "this request was replaced by a newer one of this machine",
        )),
    }
}

async fn decided(decision: &mut watch::Receiver<Decision>) -> Decision {
    let decided = decision.wait_for(|decision| *decision != Decision::Open);
    // Without a sender the request is gone.
    decided
        .await
        .map_or(Decision::Replaced, |decision| *decision)
}

async fn keep_alive<S: AsyncRead + AsyncWrite + Unpin>(writer: &mut FrameWriter<S>) -> LinkEnd {
    let mut ping = tokio::time::interval(HEARTBEAT);
    loop {
        ping.tick().await;
        if let Err(end) = writer.ping().await {
            return end;
        }
    }
}

impl NodeHub {
    /// Adds the request to those that wait.
    fn begin_waiting(
        &self,
        address: IpAddr,
        request: &PairRequest,
    ) -> Result<(String, watch::Receiver<Decision>), ProofFailure> {
        let inner = &self.inner;
        let (at, now) = (inner.clock.now(), inner.clock.monotonic());
        let waiting = WaitingNode::new(
            (request.public_key.clone(), name_from(&request.name)),
            (request.machine.clone(), request.offer.clone()),
            address,
            (at, now),
        );
        let event = NodeWaiting {
            name: waiting.name.clone(),
            host: waiting.machine.host.clone(),
            code: String::new(),
            expires_at: waiting.expires_at,
        };
        let added = inner.waiting.add(waiting, now);
        let (code, decision) = added
            .map_err(|fault| ProofFailure::Refused(RefusalReason::Busy, fault.message.clone()))?;
        // An operator may have admitted its earlier request after the key was looked up.
        if self.by_key(&request.public_key).is_some() {
            inner
                .waiting
                .decide(&request.public_key, Decision::Approved);
        } else {
            let code = code.clone();
            inner.note(&inner.org, NodeNote::Waiting(NodeWaiting { code, ..event }));
        }
        Ok((code, decision))
    }

    /// Pairs the node by its setup code.
    async fn redeem(&self, request: &PairRequest, code: &str) -> Result<PairedNode, ProofFailure> {
        let code = keys::typed_code(code).unwrap_or_default();
        let by = Admission::Invite {
            code_hash: keys::hash(&code),
        };
        let stored = self.inner.rows.pair_node(self.new_node(request, by));
        self.commit(stored).await.map_err(|fault| {
            let reason = match fault.kind {
                Kind::Forbidden if fault.data.contains_key("expired") => RefusalReason::Expired,
                Kind::Forbidden => RefusalReason::InvalidCode,
                Kind::Busy | Kind::Unavailable => RefusalReason::Busy,
                _ => RefusalReason::Refused,
            };
            ProofFailure::Refused(reason, fault.to_string())
        })
    }

    fn new_node(&self, request: &PairRequest, by: Admission) -> PairNode {
        PairNode {
            id: NodeId(self.inner.clock.new_id()),
            public_key: request.public_key.clone(),
            name: request.name.clone(),
            machine: request.machine.clone(),
            offered: request.offer.clone(),
            by,
        }
    }

    /// The node has a new token once this resolves.
    async fn issue_token(&self, node: &PairedNode) -> Result<(PairedNode, String), ProofFailure> {
        let token = keys::token()?;
        let change = NodeChange::Token(keys::hash(&token));
        match self.change(&node.org, node.id, change).await {
            Ok(node) => Ok((node, token)),
            Err(fault) if fault.kind == Kind::NotFound => Err(ProofFailure::Refused(
                RefusalReason::Removed,
                "an operator has removed this node".to_owned(),
            )),
            // The node keeps its key and comes again.
            Err(fault) => Err(unavailable(&fault)),
        }
    }
}

fn unavailable(fault: &Fault) -> ProofFailure {
    tracing::warn!(%fault, "a node got no token");
    ProofFailure::End(LinkEnd::Close(
        CloseCode::Again,
        "the gateway could not store the token; try again".to_owned(),
    ))
}
