//! Nodes and invitations as the gateway stores them, and what an operator approves of an offer.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Machine, NodeCommand, Offer};
use crate::kernel::ids::NodeId;
use crate::kernel::time::Timestamp;

/// Maximum length of a node's name, in characters.
pub const NAME_LIMIT: usize = 64;

/// A paired node, or one that was removed.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedNode {
    /// Its id.
    pub id: NodeId,
    /// The tenant.
    pub org: String,
    /// Its name, unique among the tenant's nodes that are not removed.
    pub name: String,
    /// Its Ed25519 public key, hexadecimal.
    pub public_key: String,
    /// BLAKE3 hash of its token, hexadecimal; `None` until it has received one.
    pub token_hash: Option<String>,
    /// Number of its pairings. What was found out about the machine holds for one of them.
    pub generation: i64,
    /// The machine, as it last described itself.
    pub machine: Machine,
    /// What it last offered.
    pub offered: Offer,
    /// What an operator has approved.
    pub approved: Offer,
    /// What an operator has denied; it wins over `approved`.
    pub denied: Offer,
    /// Programs that it was asked for, each with its path; empty: it does not have it.
    pub programs: BTreeMap<String, String>,
    /// When it was paired.
    pub created_at: Timestamp,
    /// The user who has approved it, or whose invitation it used.
    pub approved_by: String,
    /// When it was last connected.
    pub seen_at: Option<Timestamp>,
    /// When it was removed.
    pub removed_at: Option<Timestamp>,
    /// Raised by each change of the row.
    pub ver: i64,
}

impl PairedNode {
    /// What it offers and no operator has decided on.
    pub fn pending(&self) -> Offer {
        self.offered.beyond(&self.approved).beyond(&self.denied)
    }

    /// What may be called while it offers this.
    pub fn callable(&self, offered: &Offer) -> Offer {
        offered.intersection(&self.approved).beyond(&self.denied)
    }
}

/// A restriction of what is approved of an offer; everything is approved where it is unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferLimit {
    /// The commands that may be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<BTreeSet<NodeCommand>>,
    /// The folders that may be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<BTreeSet<String>>,
}

impl OfferLimit {
    /// The part of the offer within this limit.
    pub fn of(&self, offer: &Offer) -> Offer {
        let mut within = offer.clone();
        if let Some(commands) = &self.commands {
            within.commands = &within.commands & commands;
        }
        if let Some(roots) = &self.roots {
            within.roots = &within.roots & roots;
        }
        within
    }

    /// The first command or folder of this limit that the offer does not have.
    pub fn missing_from(&self, offer: &Offer) -> Option<String> {
        let commands = self.commands.iter().flatten();
        let command = commands.copied().find(|one| !offer.commands.contains(one));
        let mut roots = self.roots.iter().flatten();
        command
            .map(|command| command.to_string())
            .or_else(|| roots.find(|root| !offer.roots.contains(*root)).cloned())
    }
}

/// An invitation: its code pairs one node without a further approval.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInvite {
    /// BLAKE3 hash of the code, hexadecimal.
    pub code_hash: String,
    /// The tenant.
    pub org: String,
    /// The name that the node gets; `None` for the name that it asks for.
    pub name: Option<String>,
    /// What is approved of its offer.
    pub limits: OfferLimit,
    /// The user who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// It is invalid from then on.
    pub expires_at: Timestamp,
    /// When it was used.
    pub used_at: Option<Timestamp>,
    /// The node that used it.
    pub node: Option<NodeId>,
}

/// A node's name made from what the node asks for: characters that a name cannot have become `-`.
pub fn name_from(wanted: &str) -> String {
    let letters = wanted.trim().chars().map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
        _ => '-',
    });
    let name: String = letters.collect();
    let name = name.trim_start_matches(['.', '_', '-']);
    let name: String = name.chars().take(NAME_LIMIT).collect();
    match name.is_empty() {
        true => "node".to_owned(),
        false => name,
    }
}

/// `name`, or the first of `name-2`, `name-3`, … that is free.
pub fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut free = name.to_owned();
    let mut number = 1;
    while is_taken(&free) {
        number += 1;
        let suffix = format!("-{number}");
        let begin: String = name.chars().take(NAME_LIMIT - suffix.len()).collect();
        free = begin + &suffix;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::is_name;

    fn offer(commands: &[NodeCommand], roots: &[&str]) -> Offer {
        Offer {
            commands: commands.iter().copied().collect(),
            roots: roots.iter().map(|root| (*root).to_owned()).collect(),
            skills: false,
        }
    }

    #[test]
    fn what_was_approved_stays_callable_while_more_is_pending_and_deny_wins() {
        let mut node = sample();
        node.offered = offer(&[NodeCommand::Which, NodeCommand::Run], &["/srv"]);
        node.approved = offer(&[NodeCommand::Which], &[]);
        let callable = node.callable(&node.offered);
        assert_eq!(callable, offer(&[NodeCommand::Which], &[]));
        assert_eq!(node.pending(), offer(&[NodeCommand::Run], &["/srv"]));
        node.denied = offer(&[NodeCommand::Which, NodeCommand::Run], &[]);
        assert_eq!(node.callable(&node.offered), Offer::default());
        assert_eq!(node.pending(), offer(&[], &["/srv"]));
        // What is approved and not offered cannot be called.
        node.denied = Offer::default();
        assert!(node.callable(&offer(&[NodeCommand::Run], &[])).is_empty());
    }

    #[test]
    fn a_limit_takes_from_an_offer_and_adds_nothing() {
        let offered = offer(&[NodeCommand::Run, NodeCommand::Read], &["/a", "/b"]);
        assert_eq!(OfferLimit::default().of(&offered), offered);
        let limit = OfferLimit {
            commands: Some([NodeCommand::Read, NodeCommand::List].into()),
            roots: Some(["/b".to_owned()].into()),
        };
        assert_eq!(limit.of(&offered), offer(&[NodeCommand::Read], &["/b"]));
        assert_eq!(limit.missing_from(&offered).as_deref(), Some("fs.list"));
    }

    #[test]
    fn names_are_names_whatever_a_node_asks_for() {
        for (wanted, name) in [
            ("mac", "mac"),
            (" Ann's Mac ", "Ann-s-Mac"),
            ("../x", "x"),
            ("", "node"),
            ("ä", "node"),
        ] {
            assert_eq!(name_from(wanted), name);
            assert!(is_name(name), "{name}");
        }
        let long = name_from(&"x".repeat(100));
        assert!(is_name(&long));
        let free = free_name(&long, |name| name == long);
        assert!(is_name(&free) && free.ends_with("x-2"), "{free}");
        assert_eq!(free_name("a", |name| ["a", "a-2"].contains(&name)), "a-3");
    }

    fn sample() -> PairedNode {
        PairedNode {
            id: NodeId(uuid::Uuid::nil()),
            org: "default".to_owned(),
            name: "mac".to_owned(),
            public_key: String::new(),
            token_hash: None,
            generation: 0,
            machine: Machine {
                host: String::new(),
                platform: String::new(),
                arch: String::new(),
                version: String::new(),
            },
            offered: Offer::default(),
            approved: Offer::default(),
            denied: Offer::default(),
            programs: BTreeMap::new(),
            created_at: Timestamp(0),
            approved_by: String::new(),
            seen_at: None,
            removed_at: None,
            ver: 1,
        }
    }
}
