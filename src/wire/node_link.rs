//! The link between a gateway and a paired node: messages, signatures, and limits.
//!
//! A node connects outbound by WebSocket. `/pair` needs no token: the node proves that it holds its
//! key, shows what it offers, and waits until an operator admits it. `/node` needs the token that
//! the node got there, and the same proof. Every frame is one JSON text message. Either side closes
//! the link when it has received nothing for [`SILENCE`]; both send a WebSocket ping every
//! [`HEARTBEAT`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kernel::ids::CallId;
use crate::kernel::node::{
    CallEnd, Machine, NodeCall, NodeSkill, Offer, OutputStream, RefusalReason, RunQuestion,
};

/// The version of the link that this build speaks.
pub const PROTOCOL: u32 = 1;
/// Interval of WebSocket pings, in both directions.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A link on which nothing was received for this long is lost.
pub const SILENCE: Duration = Duration::from_secs(15);
/// After this time without a link the gateway gives up the calls of a node, and the node begins none
/// of them any more.
pub const LOST: Duration = Duration::from_secs(20);
/// Maximum size of a frame in bytes.
pub const FRAME_LIMIT: usize = 1024 * 1024;
/// How long a setup code is valid.
pub const INVITE_LIFETIME: Duration = Duration::from_secs(600);

/// The first frame of a gateway on either path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// The gateway's version of the link.
    pub protocol: u32,
    /// The id of the gateway's store. A node keeps its calls apart by it.
    pub gateway: String,
    /// The gateway's Ed25519 public key, hexadecimal; a node pins it when it pairs.
    pub public_key: String,
    /// Random bytes, hexadecimal.
    pub nonce: String,
}

impl Challenge {
    /// The bytes that a node signs with its key to answer this on `path`, `/pair` or `/node`.
    pub fn signed_bytes(&self, path: &str) -> Vec<u8> {
        format!("abide node 1\n{path}\n{}\n{}", self.gateway, self.nonce).into_bytes()
    }
}

/// The bytes that a gateway signs with its key to prove it on `path`, `/pair` or `/node`.
pub fn proof_bytes(path: &str, nonce: &str) -> Vec<u8> {
    format!("abide gateway 1\n{path}\n{nonce}").into_bytes()
}

/// Bytes as hexadecimal text.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

/// The bytes of hexadecimal text; `None` if it is none.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|letter| {
            letter
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// The one frame that a node sends on `/pair`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairRequest {
    /// The node's version of the link.
    pub protocol: u32,
    /// Its Ed25519 public key, hexadecimal.
    pub public_key: String,
    /// Its signature of the challenge, hexadecimal.
    pub signature: String,
    /// Random bytes for the gateway to sign, hexadecimal.
    pub nonce: String,
    /// The name that it wants; the host name by default.
    pub name: String,
    /// The machine.
    pub machine: Machine,
    /// What it offers.
    pub offer: Offer,
    /// The setup code that it was invited with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invite: Option<String>,
}

/// Frames of a gateway on `/pair`, after the challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum PairReply {
    /// The first: the gateway proves its key.
    Proof {
        /// Its signature of the node's nonce ([`proof_bytes`]), hexadecimal.
        signature: String,
    },
    /// An operator has to admit it by this code.
    Waiting {
        /// The code, as shown on both machines.
        code: String,
        /// Milliseconds until the request expires.
        expires_in_ms: u64,
    },
    /// It is paired.
    Paired {
        /// Its id at this gateway.
        node: String,
        /// Its name at this gateway.
        name: String,
        /// Its token, which is not shown again.
        token: String,
        /// What was approved of its offer.
        approved: Offer,
    },
    /// It is not paired and must not try again by itself.
    Refused {
        /// Why.
        reason: RefusalReason,
        /// A message for people.
        message: String,
    },
}

/// Frames of a node on `/node`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum FromNode {
    /// The first frame.
    Hello {
        /// The node's version of the link.
        protocol: u32,
        /// Its signature of the challenge, hexadecimal.
        signature: String,
        /// Random bytes for the gateway to sign, hexadecimal.
        nonce: String,
        /// The machine.
        machine: Machine,
        /// What it offers.
        offer: Offer,
        /// The programs that it has begun to run and that the gateway has not released. Any other
        /// call has had no effect here and is forgotten if the node was started anew: the gateway
        /// sends it again if it is still wanted.
        calls: Vec<CallId>,
    },
    /// The node has the call. It is on the node's disk from the moment on at which its effect
    /// begins.
    Accepted {
        /// The call.
        id: CallId,
    },
    /// The node's allow-list asks the gateway's operator about the call.
    Ask {
        /// The call.
        id: CallId,
        /// What it would run.
        question: RunQuestion,
    },
    /// A part of a program's output. Nothing of it is stored: the result has the output.
    Output {
        /// The call.
        id: CallId,
        /// `stdout` or `stderr`.
        stream: OutputStream,
        /// The text.
        text: String,
    },
    /// The result of a call. Sent again after every reconnect until the gateway releases the call.
    Result {
        /// The call.
        id: CallId,
        /// The result.
        end: CallEnd,
    },
    /// What it offers has changed.
    Offer {
        /// What it offers now.
        offer: Offer,
    },
    /// The skills that it publishes.
    Skills {
        /// Each skill's files, of at most [`SKILLS_LIMIT`](crate::kernel::node::SKILLS_LIMIT) bytes together.
        skills: Vec<NodeSkill>,
    },
}

/// Frames of a gateway on `/node`, after the challenge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum ToNode {
    /// The first: the gateway proves its key.
    Proof {
        /// Its signature of the node's nonce ([`proof_bytes`]), hexadecimal.
        signature: String,
    },
    /// The node is connected.
    Welcome {
        /// Its name at this gateway.
        name: String,
        /// What the gateway may call.
        approved: Offer,
    },
    /// An operator has changed what the gateway may call.
    Approved {
        /// What the gateway may call.
        approved: Offer,
    },
    /// Carry this out, unless the call is known: then its state is sent again.
    Call {
        /// The call's id; for a step of a run the step's id.
        id: CallId,
        /// Milliseconds until the call is to be refused if it has not begun. While a person is asked
        /// about it, the time does not count; a question is given up after ten minutes.
        begin_within_ms: u64,
        /// The command.
        call: NodeCall,
    },
    /// Stop the call. Its result says what became of it.
    Cancel {
        /// The call.
        id: CallId,
    },
    /// The operator's answer to a question.
    Answer {
        /// The call.
        id: CallId,
        /// The digest of the question that was answered.
        digest: String,
        /// Whether it may run.
        allow: bool,
    },
    /// The result is stored; the node may forget the call.
    Release {
        /// The call.
        id: CallId,
    },
    /// The link ends, and the node must not connect again by itself, except for `busy`.
    Refused {
        /// Why.
        reason: RefusalReason,
        /// A message for people.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_is_read_as_it_was_written() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        for bad in ["0", "0g", "é0", " 00", "0x"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
