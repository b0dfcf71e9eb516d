//! Tests of spawns: atomicity, limits, idempotency keys.

use super::{Bench, policy, reply, spawn};
use crate::command::Key;
use crate::command::Spawn;
use crate::kernel::fault::Kind;
use crate::kernel::ids::SessionKey;
use crate::kernel::run::AnnouncePolicy;

pub fn g5_9_a_spawn_is_whole_or_absent(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let before = bench.rows();
    let child = bench.spawned(Some(&parent));
    let after = bench.rows();
    // Session, first message, run, and one event for each of them.
    let made: Vec<i64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(made, [1, 1, 1, 0, 0, 3, 0]);
    let messages = bench.transcript(&child.session);
    assert_eq!(
        (messages.len(), messages[0].seq, messages[0].run),
        (1, 1, Some(child.run))
    );
    let row = bench.row(child.run);
    assert_eq!(row.requester.unwrap().key, parent);
    assert_eq!((row.depth, child.depth), (1, 1));
    // A child is never a root session.
    assert_eq!(
        bench.count("SELECT count(*) FROM sessions WHERE parent_id IS NULL"),
        1
    );
}

pub fn a_refused_spawn_leaves_nothing(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let nobody = SessionKey::parse("client:nobody").unwrap();
    let refusals = |bench: &mut Bench, command: Spawn, kind: Kind| {
        let before = bench.rows();
        let fault = bench.run(command).unwrap_err();
        assert_eq!(fault.kind, kind, "{fault}");
        assert_eq!(bench.rows(), before);
        fault
    };
    refusals(&mut bench, spawn(Some(&nobody)), Kind::NotFound);
    refusals(
        &mut bench,
        policy(spawn(None), AnnouncePolicy::Inbox),
        Kind::InvalidParams,
    );
    let mut deepest = parent.clone();
    for _ in 0..3 {
        deepest = bench.spawned(Some(&deepest)).session;
    }
    let fault = refusals(&mut bench, spawn(Some(&deepest)), Kind::Limit);
    assert_eq!(fault.data["limit"], "max_spawn_depth");
    assert_eq!(fault.data["value"], 3);
    let first = spawn(Some(&parent));
    let taken = first.run.id;
    bench.run(first).unwrap();
    let mut again = spawn(Some(&parent));
    again.run.id = taken;
    refusals(&mut bench, again, Kind::Conflict);
    for _ in 0..3 {
        bench.spawned(Some(&parent));
    }
    let fault = refusals(&mut bench, spawn(Some(&parent)), Kind::Limit);
    assert_eq!(fault.data["limit"], "max_client_children");
}

fn keyed(parent: &SessionKey, key: &str, digest: u8) -> Spawn {
    let mut spawn = spawn(Some(parent));
    spawn.run.key = Some(Key {
        scope: format!("default/sessions.spawn/{parent}"),
        key: key.to_owned(),
        digest: vec![digest],
    });
    spawn
}

pub fn g9_13_a_key_gives_the_first_answer_for_ever(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let first = reply(bench.run(keyed(&parent, "k", 1)));
    for _ in 0..4 {
        bench.spawned(Some(&parent));
    }
    // A repeat works at the limit, while the run is open, and after it has ended.
    assert!(bench.run(spawn(Some(&parent))).is_err());
    assert_eq!(reply(bench.run(keyed(&parent, "k", 1))), first);
    bench.started(first.run);
    assert_eq!(reply(bench.run(keyed(&parent, "k", 1))), first);
    bench.ended(first.run, "found");
    assert_eq!(reply(bench.run(keyed(&parent, "k", 1))), first);
    // The same key under another parent is another key.
    let other = bench.client_session("client:b");
    assert_ne!(reply(bench.run(keyed(&other, "k", 1))).run, first.run);
}

pub fn a_key_for_another_request_is_a_conflict(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let first = reply(bench.run(keyed(&parent, "k", 1)));
    let before = bench.rows();
    let fault = bench.run(keyed(&parent, "k", 2)).unwrap_err();
    assert_eq!(fault.kind, Kind::Conflict);
    assert_eq!(fault.data["runId"], first.run.to_string());
    assert_eq!(bench.rows(), before);
}

pub fn a_client_owned_parent_takes_no_wake(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let asked = reply(bench.run(policy(spawn(Some(&parent)), AnnouncePolicy::Wake)));
    assert_eq!(bench.row(asked.run).announce, AnnouncePolicy::Inbox);
    assert!(
        asked.warnings[0].contains("became inbox"),
        "{:?}",
        asked.warnings
    );
    let unasked = bench.spawned(Some(&parent));
    assert_eq!(bench.row(unasked.run).announce, AnnouncePolicy::Inbox);
    assert_eq!(unasked.warnings, [] as [String; 0]);
    let under_agent = bench.spawned(Some(&unasked.session));
    assert_eq!(bench.row(under_agent.run).announce, AnnouncePolicy::Wake);
    let alone = bench.spawned(None);
    assert_eq!(bench.row(alone.run).announce, AnnouncePolicy::None);
}
