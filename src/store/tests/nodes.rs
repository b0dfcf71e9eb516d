//! Nodes and invitations: paired once, changed as operators decide, and seen by their tenant alone.

use super::{Bench, id};
use crate::command::AddInvite;
use crate::contract::nodes::{Admission, ChangeNode, NodeChange, PairNode};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::NodeId;
use crate::kernel::node::{Machine, NodeCommand, NodeInvite, Offer, OfferLimit, PairedNode};
use crate::kernel::time::Timestamp;
use crate::store::tables::nodes;

fn offer(commands: &[NodeCommand]) -> Offer {
    Offer {
        commands: commands.iter().copied().collect(),
        roots: ["/srv".to_owned()].into(),
        skills: true,
    }
}

fn request(key: &str, by: Admission) -> PairNode {
    PairNode {
        id: NodeId(id()),
        public_key: key.to_owned(),
        name: "mac".to_owned(),
        machine: Machine {
            host: "mac.lan".to_owned(),
            platform: "macos".to_owned(),
            arch: "aarch64".to_owned(),
            version: "0.1.0".to_owned(),
        },
        offered: offer(&[NodeCommand::Which]),
        by,
    }
}

fn by(org: &str, name: Option<&str>) -> Admission {
    Admission::Operator {
        org: org.to_owned(),
        user: "admin".to_owned(),
        name: name.map(str::to_owned),
        limit: OfferLimit::default(),
    }
}

fn by_code(code: &str) -> Admission {
    Admission::Invite {
        code_hash: code.to_owned(),
    }
}

fn invite(org: &str, code: &str, expires_at: Timestamp) -> AddInvite {
    AddInvite {
        invite: NodeInvite {
            code_hash: code.to_owned(),
            org: org.to_owned(),
            name: Some(format!("of-{code}")),
            limits: OfferLimit::default(),
            created_by: "admin".to_owned(),
            created_at: Timestamp(0),
            expires_at,
            used_at: None,
            node: None,
        },
    }
}

/// A node and an invitation, for tests of all tables.
pub(super) fn samples() -> (PairNode, AddInvite) {
    let later = Timestamp(i64::MAX / 2);
    (
        request("key", by("default", None)),
        invite("default", "code", later),
    )
}

fn change(bench: &mut Bench, node: &PairedNode, change: NodeChange) -> Result<PairedNode, Fault> {
    let (org, id) = (node.org.clone(), node.id);
    bench
        .run(ChangeNode { org, id, change })
        .map(|(node, _)| node)
}

fn paired(bench: &mut Bench, new: PairNode) -> Result<PairedNode, Fault> {
    bench.run(new).map(|(node, _)| node)
}

pub fn a_key_is_paired_once_and_names_are_unique_in_their_tenant(mut bench: Bench) {
    let first = paired(&mut bench, request("a", by("default", None))).unwrap();
    let again = paired(&mut bench, request("a", by("default", None))).unwrap();
    assert_eq!(again, first, "a repeat pairs once");
    let second = paired(&mut bench, request("b", by("default", None))).unwrap();
    assert_eq!((&*first.name, &*second.name), ("mac", "mac-2"));
    let taken = paired(&mut bench, request("c", by("default", Some("mac"))));
    assert_eq!(taken.unwrap_err().kind, Kind::Conflict);
    // Another tenant has names of its own; a key belongs to one.
    let other = paired(&mut bench, request("c", by("other", None))).unwrap();
    assert_eq!(other.name, "mac");
    let stolen = paired(&mut bench, request("a", by("other", None)));
    assert_eq!(stolen.unwrap_err().kind, Kind::Conflict);
    let foreign = ChangeNode {
        org: "other".to_owned(),
        id: first.id,
        change: NodeChange::Renamed("mine".to_owned()),
    };
    assert_eq!(bench.run(foreign).unwrap_err().kind, Kind::NotFound);
    let taken = change(&mut bench, &second, NodeChange::Renamed("mac".to_owned()));
    assert_eq!(taken.unwrap_err().kind, Kind::Conflict);
    // A removed node gives its name and its key free, and stays removed.
    let removed = NodeChange::Removed {
        by: "admin".to_owned(),
    };
    let gone = change(&mut bench, &first, removed.clone()).unwrap();
    assert_eq!(change(&mut bench, &first, removed).unwrap(), gone);
    let renamed = change(&mut bench, &gone, NodeChange::Renamed("x".to_owned()));
    assert_eq!(renamed.unwrap_err().kind, Kind::NotFound);
    let anew = paired(&mut bench, request("a", by("default", Some("mac")))).unwrap();
    assert_ne!(anew.id, first.id);
}

pub fn an_invitation_is_used_once_and_not_after_its_end(mut bench: Bench) {
    let later = bench.clock.now().plus_ms(1000);
    bench.run(invite("other", "one", later)).unwrap();
    bench.run(invite("other", "late", Timestamp(1))).unwrap();
    let node = paired(&mut bench, request("a", by_code("one"))).unwrap();
    assert_eq!((&*node.org, &*node.name), ("other", "of-one"));
    let again = paired(&mut bench, request("a", by_code("one"))).unwrap();
    assert_eq!(again, node, "the same node has used it");
    for code in ["one", "late", "none"] {
        let refused = paired(&mut bench, request("b", by_code(code))).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden, "{refused}");
        let expired = refused.data.contains_key("expired");
        assert_eq!(expired, code == "late", "{refused}");
    }
    assert_eq!(nodes::every(bench.db.as_mut()).unwrap().len(), 1);
}

pub fn a_decision_covers_the_offer_that_it_was_made_for(mut bench: Bench) {
    let node = paired(&mut bench, request("a", by("default", None))).unwrap();
    assert_eq!(node.approved, node.offered);
    let wider = offer(&[NodeCommand::Which, NodeCommand::Run]);
    let node = change(&mut bench, &node, NodeChange::Offers(wider)).unwrap();
    let run = [NodeCommand::Run];
    assert_eq!(node.pending().parts(), ["system.run"]);
    let decided = |approve| NodeChange::Decided {
        approve,
        by: "other".to_owned(),
    };
    let node = change(&mut bench, &node, decided(None)).unwrap();
    assert!(node.pending().is_empty() && node.denied.commands == run.into());
    let all = Some(OfferLimit::default());
    let node = change(&mut bench, &node, decided(all)).unwrap();
    assert!(node.denied.is_empty() && node.approved.commands.contains(&NodeCommand::Run));
    // A narrower decision takes away.
    let only = OfferLimit {
        commands: Some(run.into()),
        roots: Some([].into()),
    };
    let node = change(&mut bench, &node, decided(Some(only))).unwrap();
    assert_eq!(
        node.callable(&node.offered).parts(),
        ["system.run", "skills"]
    );
    assert_eq!(node.approved_by, "other");
    let absent = OfferLimit {
        commands: Some([NodeCommand::Describe].into()),
        roots: None,
    };
    let refused = change(&mut bench, &node, decided(Some(absent))).unwrap_err();
    assert!(refused.message.contains("node.describe"), "{refused}");
    // What was found out holds for one pairing.
    let programs = [("git".to_owned(), "/bin/git".to_owned())];
    let node = change(&mut bench, &node, NodeChange::Token("t1".to_owned())).unwrap();
    let found = NodeChange::Programs(node.generation, programs.clone().into());
    let node = change(&mut bench, &node, found).unwrap();
    assert_eq!(node.programs, programs.clone().into());
    let node = change(&mut bench, &node, NodeChange::Token("t2".to_owned())).unwrap();
    assert_eq!(node.generation, 2);
    let late = NodeChange::Programs(1, [].into());
    assert_eq!(
        change(&mut bench, &node, late).unwrap().programs,
        programs.into()
    );
}
