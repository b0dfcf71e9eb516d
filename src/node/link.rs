//! The link of a paired node to its gateway: from the proof of the key to the loss of the link.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::calls::NodeCalls;
use super::error::NodeError;
use super::folder::GatewayFolder;
use super::identity::nonce;
use super::offer::{machine, skills};
use super::socket::{LinkReader, LinkWriter, check_challenge, check_proof, heartbeat, open, sign};
use crate::client::tls::Trust;
use crate::kernel::node::Offer;
use crate::wire::node_link::{Challenge, FromNode, HEARTBEAT, PROTOCOL, ToNode};

/// The path of links, which signatures name.
const PATH: &str = "/node";
/// Maximum number of frames that wait to be sent.
const FRAMES: usize = 64;

/// The end of a link.
pub(super) struct LinkEnding {
    /// Why it ended; `None` if the node stops.
    pub why: Option<NodeError>,
    /// Whether the gateway had accepted the node.
    pub was_open: bool,
}

/// Opens a link and carries out the gateway's calls until the link ends or the node stops.
/// `opened` gets the node's name once the gateway has accepted it.
pub(super) async fn serve(
    folder: &GatewayFolder,
    calls: &NodeCalls,
    stopping: &CancellationToken,
    opened: impl FnOnce(&str),
) -> LinkEnding {
    let mut was_open = false;
    let accepted = |name: &str| {
        was_open = true;
        opened(name);
    };
    let ended = connected(folder, calls, stopping, accepted).await;
    let why = ended.err();
    LinkEnding { why, was_open }
}

async fn connected(
    folder: &GatewayFolder,
    calls: &NodeCalls,
    stopping: &CancellationToken,
    accepted: impl FnOnce(&str),
) -> Result<(), NodeError> {
    let settings = folder.settings()?;
    let offered = settings.offer();
    let (reader, writer, name, approved) = tokio::select! {
        biased;
        // There is nothing to end in order yet.
        () = stopping.cancelled() => return Ok(()),
        entered = enter(folder, calls, offered.clone()) => entered?,
    };
    accepted(&name);
    let (frames, waiting) = mpsc::channel(FRAMES);
    let mut writing = AbortOnDropHandle::new(tokio::spawn(write(writer, waiting)));
    calls.attach(frames.clone()).await;
    let mut link = Link {
        folder,
        calls,
        frames,
        offered,
        publishes: false,
    };
    link.publish(&approved).await;
    let ended = tokio::select! {
        ended = link.read(reader) => Err(ended),
        ended = &mut writing => Err(ended.unwrap_or_else(|_| lost())),
        () = stopping.cancelled() => Ok(()),
    };
    if ended.is_ok() {
        // The results are stored and sent.
        calls.stop().await;
    }
    calls.detach();
    drop(link);
    if ended.is_ok() {
        let _ = tokio::time::timeout(HEARTBEAT, writing).await;
    }
    ended
}

fn lost() -> NodeError {
    NodeError::Lost("the link was lost".to_owned())
}

/// Proves the key of the node and has the gateway prove its own.
async fn enter(
    folder: &GatewayFolder,
    calls: &NodeCalls,
    offer: Offer,
) -> Result<(LinkReader, LinkWriter, String, Offer), NodeError> {
    let pinned = folder.pinned()?;
    let (Some(key), Some(token)) = (folder.key()?, folder.token()?) else {
        return Err(NodeError::Settings(format!(
            "this machine is not paired with the gateway {} yet",
            folder.name()
        )));
    };
    let trust = pinned.certificate.map_or(Trust::System, Trust::Pinned);
    let (mut reader, mut writer, _) = open(&pinned.url, PATH, trust, Some(&token)).await?;
    let challenge: Challenge = reader.next().await?;
    check_challenge(&challenge, &pinned.url, Some(&pinned))?;
    let nonce = nonce()?;
    let hello = FromNode::Hello {
        protocol: PROTOCOL,
        signature: sign(&key, &challenge, PATH),
        nonce: nonce.clone(),
        machine: machine(),
        offer,
        calls: calls.begun(),
    };
    writer.send(&hello).await?;
    let mut is_proved = false;
    loop {
        match reader.next::<ToNode>().await? {
            ToNode::Proof { signature } => {
                check_proof(&challenge, PATH, &nonce, &signature)?;
                is_proved = true;
            }
            ToNode::Refused { reason, message } => {
                return Err(NodeError::Refused { reason, message });
            }
            ToNode::Welcome { name, approved } if is_proved => {
                return Ok((reader, writer, name, approved));
            }
            _ => {
                return Err(NodeError::Untrusted(
                    "the gateway has not shown that it has its key".to_owned(),
                ));
            }
        }
    }
}

/// Sends frames and pings until there is no sender any more.
async fn write(mut writer: LinkWriter, mut frames: mpsc::Receiver<FromNode>) -> NodeError {
    let mut ticks = heartbeat();
    loop {
        let sent = tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => writer.send(&frame).await,
                None => {
                    writer.close().await;
                    return lost();
                }
            },
            _ = ticks.tick() => writer.ping().await,
        };
        if let Err(why) = sent {
            return why;
        }
    }
}

/// An open link.
struct Link<'a> {
    folder: &'a GatewayFolder,
    calls: &'a NodeCalls,
    frames: mpsc::Sender<FromNode>,
    /// What was last offered.
    offered: Offer,
    /// Whether skills were sent.
    publishes: bool,
}

impl Link<'_> {
    /// Handles frames until the link ends; returns why.
    async fn read(&mut self, mut reader: LinkReader) -> NodeError {
        let mut looks = heartbeat();
        loop {
            let frame = tokio::select! {
                frame = reader.next::<ToNode>() => frame,
                _ = looks.tick() => {
                    self.offer_again().await;
                    continue;
                }
            };
            match frame {
                Ok(ToNode::Refused { reason, message }) => {
                    return NodeError::Refused { reason, message };
                }
                Ok(frame) => self.handle(frame).await,
                Err(why) => return why,
            }
        }
    }

    async fn handle(&mut self, frame: ToNode) {
        match frame {
            ToNode::Call {
                id,
                begin_within_ms,
                call,
            } => {
                let begin_within = Duration::from_millis(begin_within_ms);
                self.calls.accept(id, begin_within, call).await;
            }
            ToNode::Cancel { id } => self.calls.cancel(id).await,
            ToNode::Answer { id, digest, allow } => self.calls.answer(id, &digest, allow),
            ToNode::Release { id } => self.calls.release(id).await,
            ToNode::Approved { approved } => {
                tracing::info!(approved = ?approved.commands, "the gateway's operator has changed what it may call");
                self.publish(&approved).await;
            }
            ToNode::Proof { .. } | ToNode::Welcome { .. } | ToNode::Refused { .. } => {
                tracing::warn!(
                    "a frame of the gateway is ignored: it belongs to the beginning of a link"
                );
            }
        }
    }

    /// Offers what the settings offer now, if they have changed.
    async fn offer_again(&mut self) {
        let settings = match self.folder.settings() {
            Ok(settings) => settings,
            // Calls are denied meanwhile; what was offered stays offered.
            Err(why) => {
                tracing::error!(%why, "the settings of the node are not valid");
                return;
            }
        };
        let now = settings.offer();
        if now != self.offered {
            tracing::info!(commands = ?now.commands, roots = ?now.roots, "the node offers something else");
            self.offered = now.clone();
            // The reader meets the end of the link by itself.
            let _ = self.frames.send(FromNode::Offer { offer: now }).await;
        }
    }

    /// Sends the skills of the node, if they are approved.
    async fn publish(&mut self, approved: &Offer) {
        let folder = match self.folder.settings() {
            Ok(settings) => settings.skills.filter(|_| approved.skills),
            Err(_) => None,
        };
        if folder.is_none() && !self.publishes {
            return;
        }
        let found = folder.map(|folder| tokio::task::spawn_blocking(move || skills(&folder)));
        let skills = match found {
            Some(found) => found.await.unwrap_or_default(),
            None => Vec::new(),
        };
        self.publishes = !skills.is_empty();
        let _ = self.frames.send(FromNode::Skills { skills }).await;
    }
}
