//! Pairs this machine with a gateway: shows a key and an offer, waits until an operator of the
//! gateway admits it, and stores the token that it gets over the same connection.

use std::path::PathBuf;
use std::time::Duration;

use backon::BackoffBuilder;

use super::error::NodeError;
use super::folder::{GatewayFolder, NodeFolders};
pub use super::identity::fingerprint;
use super::identity::nonce;
use super::offer::{host, machine};
use super::service::reconnect_delays;
use super::settings::{NodeSettings, PinnedGateway};
use super::socket::{LinkReader, LinkWriter, check_challenge, check_proof, heartbeat, open, sign};
use crate::client::tls::Trust;
use crate::client::{ClientError, GatewayUrl};
use crate::failpoint::reach;
use crate::kernel::node::Offer;
use crate::tls::Fingerprint;
use crate::wire::node_link::{Challenge, PROTOCOL, PairReply, PairRequest};

/// The path of pairing, which signatures name.
const PATH: &str = "/pair";

/// What to pair.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// The address of the gateway: `ws://`, `wss://`, `http://` or `https://`.
    pub url: String,
    /// The name that the node wants; the host name by default.
    pub name: Option<String>,
    /// The setup code that it was invited with.
    pub code: Option<String>,
    /// The folders to offer.
    pub roots: Vec<PathBuf>,
    /// Whether to offer to run programs; `None`: as before, and the first time yes.
    pub run: Option<bool>,
    /// Pair again with a gateway that is known.
    pub again: bool,
}

/// What happens while a node is being paired.
#[derive(Clone, Debug, PartialEq)]
pub enum PairingProgress {
    /// The gateway was met, for the first time or again.
    Met {
        /// The fingerprint of its key.
        key: String,
        /// The fingerprint of its certificate, if no authority of this system has signed it.
        certificate: Option<String>,
        /// Whether it was met for the first time.
        is_new: bool,
        /// What is offered to it.
        offer: Offer,
    },
    /// An operator has to admit the node by this code.
    Waiting {
        /// The code.
        code: String,
        /// How long it is valid.
        valid_for: Duration,
    },
    /// The connection was lost and is made again.
    Lost {
        /// Why.
        why: String,
        /// When.
        again_in: Duration,
    },
}

/// A machine that was paired.
#[derive(Clone, Debug)]
pub struct Paired {
    /// The folder of the gateway.
    pub folder: GatewayFolder,
    /// The gateway, with the node's name there.
    pub gateway: PinnedGateway,
    /// What was approved.
    pub approved: Offer,
}

/// Once this returns, the machine is paired and its token is stored. A lost connection is made
/// again with the same key; a refusal ends it.
pub async fn pair(
    folders: &NodeFolders,
    pairing: &Pairing,
    progress: impl Fn(PairingProgress),
) -> Result<Paired, NodeError> {
    let mut delays = reconnect_delays().build();
    let mut is_new = false;
    loop {
        let why = match attempt(folders, pairing, &progress, &mut is_new).await {
            Err(why) if why.is_temporary() => why,
            done => return done,
        };
        let again_in = delays.next().unwrap_or_default();
        progress(PairingProgress::Lost {
            why: why.to_string(),
            again_in,
        });
        tokio::time::sleep(again_in).await;
    }
}

/// The connection on which a node is paired.
struct PairLink {
    reader: LinkReader,
    writer: LinkWriter,
    challenge: Challenge,
    /// The certificate, if it has to be pinned.
    certificate: Option<Fingerprint>,
}

/// One connection, up to its end. `is_new` is set if it is the first that has met the gateway.
async fn attempt(
    folders: &NodeFolders,
    pairing: &Pairing,
    progress: &impl Fn(PairingProgress),
    is_new: &mut bool,
) -> Result<Paired, NodeError> {
    let mut link = connect(folders, &pairing.url).await?;
    let (folder, is_first) = prepare(folders, pairing, &link)?;
    *is_new |= is_first;
    let settings = folder.settings()?;
    let offer = settings.offer();
    progress(PairingProgress::Met {
        key: fingerprint(&link.challenge.public_key),
        certificate: link.certificate.map(|one| one.to_string()),
        is_new: is_first,
        offer: offer.clone(),
    });
    let key = folder.key_or_new()?;
    reach("node.pair.key_stored");
    let nonce = nonce()?;
    let request = PairRequest {
        protocol: PROTOCOL,
        public_key: key.public(),
        signature: sign(&key, &link.challenge, PATH),
        nonce: nonce.clone(),
        name: pairing.name.clone().unwrap_or_else(host),
        machine: machine(),
        offer,
        invite: pairing.code.clone(),
    };
    link.writer.send(&request).await?;
    reach("node.pair.requested");
    let mut is_proved = false;
    let mut ticks = heartbeat();
    loop {
        let reply = tokio::select! {
            reply = link.reader.next::<PairReply>() => reply?,
            _ = ticks.tick() => {
                link.writer.ping().await?;
                continue;
            }
        };
        match reply {
            PairReply::Proof { signature } => {
                check_proof(&link.challenge, PATH, &nonce, &signature)?;
                is_proved = true;
            }
            PairReply::Refused { reason, message } => {
                let refused = NodeError::Refused { reason, message };
                if *is_new && !refused.is_temporary() {
                    forget_unpaired(&folder);
                }
                return Err(refused);
            }
            // Only the gateway itself gives tokens.
            PairReply::Waiting { .. } | PairReply::Paired { .. } if !is_proved => {
                return Err(NodeError::Untrusted(
                    "the gateway has not shown that it has its key".to_owned(),
                ));
            }
            PairReply::Waiting {
                code,
                expires_in_ms,
            } => progress(PairingProgress::Waiting {
                code,
                valid_for: Duration::from_millis(expires_in_ms),
            }),
            PairReply::Paired {
                node,
                name,
                token,
                approved,
            } => {
                reach("node.pair.admitted");
                let pinned = folder.pinned()?;
                let gateway = PinnedGateway {
                    name,
                    node,
                    ..pinned
                };
                folder.pin(&gateway)?;
                reach("node.pair.pinned");
                folder.store_token(&token)?;
                reach("node.pair.token_stored");
                link.writer.close().await;
                return Ok(Paired {
                    folder,
                    gateway,
                    approved,
                });
            }
        }
    }
}

/// Connects and receives the challenge. A certificate that no authority of this system has signed
/// is accepted at first use and as long as it stays the same.
async fn connect(folders: &NodeFolders, url: &str) -> Result<PairLink, NodeError> {
    let is_tls = GatewayUrl::parse(url)?.tls;
    let known = folders.list()?.into_iter().find_map(|folder| {
        let pinned = folder.pinned().ok()?;
        (pinned.url == url).then_some(pinned)
    });
    let pinned = known.as_ref().and_then(|known| known.certificate);
    let trust = pinned.map_or(Trust::System, Trust::Pinned);
    let opened = match open(url, PATH, trust, None).await {
        Err(NodeError::Untrusted(_)) if known.is_none() => {
            open(url, PATH, Trust::FirstUse, None).await
        }
        Ok((reader, writer, shown)) => {
            let to_pin = shown.filter(|_| pinned.is_some());
            Ok((reader, writer, to_pin))
        }
        Err(why) => Err(why),
    };
    let (mut reader, writer, certificate) = opened?;
    debug_assert!(is_tls || certificate.is_none());
    let challenge: Challenge = reader.next().await?;
    check_challenge(&challenge, url, known.as_ref())?;
    Ok(PairLink {
        reader,
        writer,
        challenge,
        certificate,
    })
}

/// The folder of the gateway with everything but the token; `true` if it was not known.
fn prepare(
    folders: &NodeFolders,
    pairing: &Pairing,
    link: &PairLink,
) -> Result<(GatewayFolder, bool), NodeError> {
    let challenge = &link.challenge;
    let found = folders.of(&challenge.gateway, &pairing.url)?;
    let is_paired = match &found {
        Some(folder) => folder.token()?.is_some(),
        None => false,
    };
    if let Some(folder) = &found {
        let pinned = folder.pinned()?;
        check_challenge(challenge, &pairing.url, Some(&pinned))?;
        if is_paired && !pairing.again {
            return Err(NodeError::Paired {
                gateway: folder.name(),
                name: pinned.name,
            });
        }
    }
    let is_new = found.is_none();
    let folder = match found {
        Some(folder) => folder,
        None => folders.create(&GatewayUrl::parse(&pairing.url)?.authority())?,
    };
    let before = if is_new {
        PinnedGateway::default()
    } else {
        folder.pinned()?
    };
    folder.pin(&PinnedGateway {
        url: pairing.url.clone(),
        id: challenge.gateway.clone(),
        public_key: challenge.public_key.clone(),
        certificate: link.certificate,
        ..before
    })?;
    let before = match folder.settings_file().exists() {
        true => folder.settings()?,
        false => NodeSettings::default(),
    };
    // What was offered before stays offered, and more is added; a first request says everything.
    let mut roots = if is_paired {
        before.roots.clone()
    } else {
        Vec::new()
    };
    roots.extend(pairing.roots.iter().cloned());
    roots.sort();
    roots.dedup();
    folder.store_settings(&NodeSettings {
        run: pairing.run.unwrap_or(before.run || !is_paired),
        roots,
        ..before
    })?;
    folder.start_allow_list()?;
    Ok((folder, is_new))
}

/// Leaves nothing of a gateway that has refused this machine at its first request.
fn forget_unpaired(folder: &GatewayFolder) {
    if matches!(folder.token(), Ok(None))
        && let Err(why) = folder.remove()
    {
        tracing::warn!(%why, "the folder of the gateway could not be removed");
    }
}

/// True if a URL leads to another machine without encryption.
pub fn is_open_to_others(url: &str) -> Result<bool, ClientError> {
    let url = GatewayUrl::parse(url)?;
    let address = url.host.parse::<std::net::IpAddr>();
    let is_here = url.host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    Ok(!url.tls && !is_here)
}
