//! Tests of sessions that are forked, reset and deleted, and of announces that are held, offered
//! again, dismissed and delivered by a tool.

use super::sweeps::{old_runs, sweep};
use super::{Bench, new_run, policy, reply, spawn, turn};
use crate::command::Clearance;
use crate::command::{
    Ack, Begins, DeleteSession, Deliver, DismissAnnounce, PatchSession, Purge, ResetSession,
    RetryAnnounce,
};
use crate::contract::commit::CommitEffect;
use crate::contract::journal::RunView;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::{AnnouncePolicy, RunState};
use crate::kernel::session::{Cleanup, Session};
use crate::kernel::time::Timestamp;
use crate::store::tables::pins::PinCache;
use crate::store::tables::transcripts::Transcripts;
use crate::store::tables::{expired, messages, outbox, read, sessions};

pub(super) fn session(bench: &mut Bench, key: &SessionKey) -> Option<Session> {
    sessions::by_key(bench.db.as_mut(), "default", key).unwrap()
}

fn delete(
    bench: &mut Bench,
    key: &SessionKey,
    force: bool,
) -> Result<(Clearance<()>, Vec<CommitEffect>), Fault> {
    bench.run(DeleteSession {
        org: "default".to_owned(),
        key: key.clone(),
        force,
        by: "admin".to_owned(),
        by_person: true,
    })
}

pub(super) fn deliver(bench: &mut Bench, session: SessionId, unable: Option<&str>) {
    let wake = unable.is_none().then(|| Box::new(new_run("build")));
    let command = Deliver {
        session,
        wake,
        unable: unable.map(str::to_owned),
    };
    bench.run(command).unwrap();
}

/// An ended run of this parent.
pub(super) fn done(bench: &mut Bench, parent: &SessionKey) -> RunId {
    let run = bench.spawned(Some(parent)).run;
    bench.started(run);
    bench.ended(run, "found");
    run
}

fn state(bench: &mut Bench, run: RunId) -> String {
    outbox::of_run(bench.db.as_mut(), run)
        .unwrap()
        .unwrap()
        .state
}

/// Removes the remains of deletions, as the registry does; returns the number of commands.
fn purge(bench: &mut Bench, session: SessionId) -> usize {
    let mut left = vec![session];
    let mut commands = 0;
    while let Some(session) = left.pop() {
        commands += 1;
        let (_, effects) = bench.run(Purge { session }).unwrap();
        left.extend(effects.into_iter().filter_map(|effect| match effect {
            CommitEffect::Purge(session) => Some(session),
            _ => None,
        }));
    }
    commands
}

/// The run as its runner sees it.
fn view(bench: &mut Bench, run: RunId) -> RunView {
    let (pins, transcripts) = (PinCache::default(), Transcripts::default());
    let found = read::view(bench.db.as_mut(), run, &pins, &transcripts);
    found.unwrap().unwrap().0
}

pub fn a_fork_begins_with_its_parents_transcript_and_costs_no_copy(mut bench: Bench) {
    let parent = reply(bench.run(turn("agent:build:a", "remember this")));
    bench.started(parent.run);
    bench.ended(parent.run, "I do");
    let before = bench.count("SELECT count(*) FROM messages");
    let mut new = spawn(Some(&parent.session));
    new.begins = Begins::Fork;
    let child = reply(bench.run(new));
    assert_eq!(bench.count("SELECT count(*) FROM messages"), before + 1);
    // Later messages to the parent do not reach the child.
    let later = reply(bench.run(turn("agent:build:a", "and that")));
    bench.started(later.run);
    let view = view(&mut bench, child.run);
    let said: Vec<String> = view.messages.iter().map(|one| one.text()).collect();
    assert_eq!(said, ["remember this", "I do", "look"]);
    let seqs: Vec<i64> = view.messages.iter().map(|one| one.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    // Pages cross the fork point in both directions.
    let own = session(&mut bench, &child.session).unwrap().id;
    let db = bench.db.as_mut();
    let page = |found: Vec<crate::kernel::session::message::Message>| -> Vec<i64> {
        found.iter().map(|one| one.seq).collect()
    };
    assert_eq!(page(messages::before(db, own, 4, 2, true).unwrap()), [2, 3]);
    assert_eq!(page(messages::after(db, own, 0, 2, true).unwrap()), [1, 2]);
    assert_eq!(page(messages::after(db, own, 1, 9, true).unwrap()), [2, 3]);
    let mut orphan = spawn(None);
    orphan.begins = Begins::Fork;
    let refused = bench.run(orphan).unwrap_err();
    assert_eq!(refused.kind, Kind::InvalidParams);
}

pub fn a_reset_hides_what_was_said_and_wakes_nobody_for_old_news(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    bench.ended(talk.run, "said one");
    let child = bench.spawned(Some(&talk.session)).run;
    let reset = ResetSession {
        org: "default".to_owned(),
        key: talk.session.clone(),
        if_generation: None,
        force: false,
        by: "admin".to_owned(),
        by_person: true,
    };
    // An active child is no turn of the session.
    bench.run(reset).unwrap();
    bench.started(child);
    bench.ended(child, "found");
    let own = session(&mut bench, &talk.session).unwrap();
    assert_eq!(own.generation, 2);
    deliver(&mut bench, own.id, None);
    let told = outbox::of_run(bench.db.as_mut(), child).unwrap().unwrap();
    assert_eq!(
        (told.state.as_str(), told.policy),
        ("delivered", AnnouncePolicy::Inbox)
    );
    assert_eq!(
        bench.count("SELECT count(*) FROM runs WHERE origin = 'wake'"),
        0
    );
    let next = reply(bench.run(turn("agent:build:a", "two")));
    let after = bench.started(next.run);
    // The announce, and the new request.
    let seen: Vec<i64> = after.messages.iter().map(|one| one.generation).collect();
    assert_eq!(seen, [2, 2], "what was said before the reset is not shown");
    let view = view(&mut bench, next.run);
    assert!(view.messages.iter().all(|one| one.text() != "said one"));
    assert_eq!(
        bench.transcript(&talk.session).first().unwrap().text(),
        "one"
    );
}

pub fn a_patch_of_another_revision_changes_nothing(mut bench: Bench) {
    let key = bench.client_session("client:a");
    let patch = |title: Option<&str>, if_revision| PatchSession {
        org: "default".to_owned(),
        key: SessionKey::parse("client:a").unwrap(),
        label: None,
        title: Some(title.map(str::to_owned)),
        agent: None,
        model: None,
        thinking: None,
        cwd: None,
        if_revision,
    };
    bench.run(patch(Some("talk"), Some(1))).unwrap();
    let refused = bench.run(patch(Some("other"), Some(1))).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict);
    assert_eq!(refused.data["revision"], 2);
    assert_eq!(
        session(&mut bench, &key).unwrap().title.as_deref(),
        Some("talk")
    );
    bench.run(patch(None, None)).unwrap();
    assert_eq!(session(&mut bench, &key).unwrap().title, None);
}

pub fn g2_14_what_was_for_a_deleted_session_is_kept_until_it_is_dismissed(mut bench: Bench) {
    let key = bench.client_session("client:a");
    let told = done(&mut bench, &key);
    let own = session(&mut bench, &key).unwrap().id;
    deliver(&mut bench, own, None);
    let waiting = done(&mut bench, &key);
    let open = bench.spawned(Some(&key)).run;
    let refused = delete(&mut bench, &key, false).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict);
    assert_eq!(refused.data["openRuns"], 1);
    delete(&mut bench, &key, true).unwrap();
    assert!(session(&mut bench, &key).is_none());
    assert!(bench.row(open).state.is_terminal());
    for run in [told, waiting] {
        let entry = outbox::of_run(bench.db.as_mut(), run).unwrap().unwrap();
        assert_eq!(
            (entry.state.as_str(), entry.held.as_deref()),
            ("undelivered", Some("gone"))
        );
        assert_eq!(bench.row(run).result.as_deref(), Some("found"));
    }
    // The key may be used again; the old announce does not belong to the new session.
    let again = bench.client_session("client:a");
    let other = session(&mut bench, &again).unwrap().id;
    assert_ne!(other, own);
    let retry = RetryAnnounce {
        org: "default".to_owned(),
        run: told,
        wake: None,
    };
    assert_eq!(bench.run(retry).unwrap_err().kind, Kind::Conflict);
    // Retention does not remove it, a dismissal does.
    sweep(&mut bench, old_runs());
    assert_eq!(state(&mut bench, told), "undelivered");
    let dismiss = DismissAnnounce {
        org: "default".to_owned(),
        run: told,
    };
    bench.run(dismiss.clone()).unwrap();
    bench.run(dismiss).unwrap();
    sweep(&mut bench, old_runs());
    let gone = expired::removed_at(bench.db.as_mut(), "default", told).unwrap();
    assert!(gone.is_some());
    assert_eq!(state(&mut bench, waiting), "undelivered");
}

pub fn a_large_session_goes_bit_by_bit(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    bench.ended(talk.run, "said");
    let own = session(&mut bench, &talk.session).unwrap().id;
    bench
        .db
        .execute(
            "WITH RECURSIVE n (i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 1600) \
             INSERT INTO messages (session_id, seq, generation, id, at, role, kind, origin, \
             content, silent) SELECT ?1, i, 1, x'00', 0, 'user', 'text', 'user', '[]', 0 FROM n",
            &[(&own.0).into()],
        )
        .unwrap();
    delete(&mut bench, &talk.session, false).unwrap();
    assert!(bench.count("SELECT count(*) FROM messages") > 1000);
    assert!(purge(&mut bench, own) > 3, "in parts");
    for table in ["messages", "steps", "purges"] {
        assert_eq!(bench.count(&format!("SELECT count(*) FROM {table}")), 0);
    }
    assert_eq!(bench.row(talk.run).result.as_deref(), Some("said"));
}

pub fn a_tree_too_large_for_one_command_goes_too(mut bench: Bench) {
    bench.settings.limits.max_children = 1000;
    bench.settings.limits.max_unacked = 1000;
    let key = bench.client_session("client:a");
    for _ in 0..230 {
        let new = policy(spawn(Some(&key)), AnnouncePolicy::None);
        let run = reply(bench.run(new)).run;
        bench.started(run);
        bench.ended(run, "found");
    }
    let own = session(&mut bench, &key).unwrap().id;
    delete(&mut bench, &key, false).unwrap();
    assert!(bench.count("SELECT count(*) FROM sessions") > 0);
    let left = |bench: &mut Bench| bench.count("SELECT count(*) FROM sessions");
    purge(&mut bench, own);
    assert_eq!(left(&mut bench), 0);
}

pub fn a_target_whose_agent_cannot_run_is_offered_its_news_when_it_is_used(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    bench.ended(talk.run, "said");
    let child = done(&mut bench, &talk.session);
    let own = session(&mut bench, &talk.session).unwrap().id;
    deliver(&mut bench, own, Some("no agent build"));
    let entry = outbox::of_run(bench.db.as_mut(), child).unwrap().unwrap();
    assert_eq!(
        (entry.state.as_str(), entry.held.as_deref()),
        ("undelivered", Some("no agent build"))
    );
    let (_, effects) = bench.run(turn("agent:build:a", "two")).unwrap();
    assert!(effects.contains(&CommitEffect::Deliverable(own)));
    assert_eq!(state(&mut bench, child), "pending");
}

pub fn a_result_that_a_tool_brought_is_not_announced(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    let child = done(&mut bench, &talk.session);
    let now = Timestamp(1);
    let db = bench.db.as_mut();
    assert!(outbox::mark_delivered_by_tool(db, child, 1, now).unwrap());
    assert!(!outbox::mark_delivered_by_tool(db, child, 2, now).unwrap());
    let entry = outbox::of_run(db, child).unwrap().unwrap();
    assert_eq!(
        (entry.via.as_deref(), entry.message_seq),
        (Some("tool"), Some(1))
    );
    bench.ended(talk.run, "said");
    let own = session(&mut bench, &talk.session).unwrap().id;
    deliver(&mut bench, own, None);
    let told = "SELECT count(*) FROM messages WHERE kind = 'announce'";
    assert_eq!(bench.count(told), 0);
}

pub fn a_dismissed_announce_lets_a_settling_run_end(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let child = bench.spawned(Some(&top));
    bench.started(child.run);
    let below = bench.spawned(Some(&child.session)).run;
    bench.started(below);
    bench.ended(below, "found");
    bench.ended(child.run, "waits");
    assert_eq!(bench.row(child.run).state, RunState::Settling);
    let dismiss = DismissAnnounce {
        org: "default".to_owned(),
        run: below,
    };
    bench.run(dismiss).unwrap();
    assert!(bench.row(child.run).state.is_terminal());
}

pub fn announces_of_one_wake_turn_share_100_kilobytes(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    let mut children = Vec::new();
    for _ in 0..4 {
        let run = bench.spawned(Some(&talk.session)).run;
        bench.started(run);
        bench.ended(run, &"ä".repeat(20_000));
        children.push(run);
    }
    bench.ended(talk.run, "said");
    let own = session(&mut bench, &talk.session).unwrap().id;
    deliver(&mut bench, own, None);
    let told: Vec<_> = bench
        .transcript(&talk.session)
        .into_iter()
        .filter(|one| one.announce.is_some())
        .collect();
    let order: Vec<RunId> = told.iter().filter_map(|one| one.run).collect();
    assert_eq!(order, children);
    let bytes: usize = told.iter().map(|one| one.text().len()).sum();
    assert!((80_000..=100 * 1024).contains(&bytes), "{bytes}");
    let last = told.last().unwrap().text();
    assert!(
        last.contains(&format!("runs.get {}", children[3])),
        "{last}"
    );
    assert_eq!(
        bench.count("SELECT count(*) FROM runs WHERE origin = 'wake'"),
        1
    );
}

pub fn cleanup_waits_for_the_acknowledgement_and_for_what_is_below(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let mut new = spawn(Some(&top));
    new.cleanup = Cleanup::Delete;
    let child = reply(bench.run(new));
    bench.started(child.run);
    bench.ended(child.run, "found");
    let left = reply(bench.run(policy(spawn(Some(&child.session)), AnnouncePolicy::None)));
    let own = session(&mut bench, &top).unwrap().id;
    deliver(&mut bench, own, None);
    let ids = vec![crate::kernel::ids::AnnounceId::of(child.run)];
    let ack = Ack {
        org: "default".to_owned(),
        session: top,
        ids,
    };
    bench.run(ack.clone()).unwrap();
    assert!(
        session(&mut bench, &child.session).is_some(),
        "one is open below"
    );
    bench.started(left.run);
    bench.ended(left.run, "left");
    assert!(session(&mut bench, &child.session).is_none());
    assert!(session(&mut bench, &left.session).is_none());
    // A repeat of the call still finds the row of the announce.
    bench.run(ack).unwrap();
    assert_eq!(bench.row(child.run).result.as_deref(), Some("found"));
}
