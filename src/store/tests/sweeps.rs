//! Tests of retention: runs with their blobs and keys, events, and archived sessions.

use std::sync::Arc;
use std::time::Duration;

use super::damaged_rows::texts;
use super::lifecycle::{deliver, done, session};
use super::{Bench, id, policy, reply, spawn, turn};
use crate::command::{Ack, Key, Sweep, Swept, is_due};
use crate::contract::catalog::Pinned;
use crate::contract::skills::{PickedSkills, SkillPin, SkillSet, SkillsNow};
use crate::kernel::ids::AnnounceId;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::time::Timestamp;
use crate::store::tables::{expired, sessions};

pub(super) fn sweep(bench: &mut Bench, what: Sweep) -> Swept {
    reply(bench.run(what))
}

const FAR: Timestamp = Timestamp(i64::MAX);

pub(super) fn old_runs() -> Sweep {
    Sweep::Runs {
        before: FAR,
        keys_before: FAR,
        after: 0,
    }
}

fn archive() -> Sweep {
    Sweep::Archive {
        before: FAR,
        org: "default".to_owned(),
        after: 0,
    }
}

pub fn g2_10_age_takes_what_was_told_and_its_blobs_and_keys(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let mut keyed = spawn(Some(&top));
    keyed.run.key = Some(Key {
        scope: "default".to_owned(),
        key: "once".to_owned(),
        digest: vec![1],
    });
    let run = reply(bench.run(keyed)).run;
    bench.started(run);
    bench.ended(run, "found");
    let archives = |bench: &mut Bench| {
        sweep(bench, archive());
        bench.count("SELECT count(*) FROM sessions WHERE archived_at IS NOT NULL")
    };
    assert_eq!(archives(&mut bench), 0, "it waits to be told");
    let own = session(&mut bench, &top).unwrap().id;
    deliver(&mut bench, own, None);
    assert_eq!(archives(&mut bench), 1);
    sweep(&mut bench, old_runs());
    assert_eq!(
        bench.count("SELECT count(*) FROM runs"),
        1,
        "nobody took note"
    );
    let ids = vec![AnnounceId::of(run)];
    let ack = Ack {
        org: "default".to_owned(),
        session: top,
        ids,
    };
    bench.run(ack).unwrap();
    let young_key = Sweep::Runs {
        before: FAR,
        keys_before: Timestamp(0),
        after: 0,
    };
    sweep(&mut bench, young_key);
    assert_eq!(
        bench.count("SELECT count(*) FROM runs"),
        1,
        "its key must live"
    );
    sweep(&mut bench, old_runs());
    for table in ["runs", "steps", "outbox", "idempotency"] {
        assert_eq!(
            bench.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
    assert_eq!(
        bench.count("SELECT count(*) FROM sessions"),
        1,
        "the client's stays"
    );
    let leftovers = |ids_before| Sweep::Leftovers {
        before: FAR,
        ids_before,
    };
    assert!(bench.count("SELECT count(*) FROM blobs") > 0);
    sweep(&mut bench, leftovers(Timestamp(0)));
    assert_eq!(bench.count("SELECT count(*) FROM blobs"), 0);
    let is_known = |bench: &mut Bench| {
        expired::removed_at(bench.db.as_mut(), "default", run)
            .unwrap()
            .is_some()
    };
    assert!(is_known(&mut bench));
    sweep(&mut bench, leftovers(FAR));
    assert!(!is_known(&mut bench));
}

pub fn a_session_whose_runs_went_before_it_was_put_aside_goes_too(mut bench: Bench) {
    let top = reply(bench.run(spawn(None)));
    bench.started(top.run);
    let below = reply(bench.run(policy(spawn(Some(&top.session)), AnnouncePolicy::None)));
    bench.started(below.run);
    bench.ended(below.run, "found");
    bench.ended(top.run, "found");
    sweep(&mut bench, old_runs());
    assert_eq!(bench.count("SELECT count(*) FROM runs"), 0);
    assert_eq!(bench.count("SELECT count(*) FROM sessions"), 2);
    sweep(&mut bench, archive());
    assert_eq!(bench.count("SELECT count(*) FROM sessions"), 0);
}

pub fn a_body_that_an_old_run_names_stays(mut bench: Bench) {
    let top = bench.client_session("client:a");
    done(&mut bench, &top);
    // Its announce is not delivered, so the run stays, and with it the bodies that it pins.
    let leftovers = Sweep::Leftovers {
        before: Timestamp(2),
        ids_before: FAR,
    };
    let before = bench.count("SELECT count(*) FROM blobs");
    bench
        .db
        .execute("UPDATE blobs SET used_at = 1", &[])
        .unwrap();
    sweep(&mut bench, old_runs());
    sweep(&mut bench, leftovers);
    assert_eq!(bench.count("SELECT count(*) FROM blobs"), before);
    // It does not hide others, and no later sweep finds work in it.
    assert_eq!(
        bench.count("SELECT count(*) FROM blobs WHERE used_at = 1"),
        0
    );
}

/// Skills of a folder, one for each of these texts.
fn skills(texts: &[&str]) -> SkillPin {
    let pinned = |body: &str| Pinned {
        hash: blake3::hash(body.as_bytes()).to_hex().to_string(),
        body: body.into(),
    };
    let set = SkillSet {
        prompt: texts.join(","),
        ..SkillSet::default()
    };
    SkillPin::Now(SkillsNow {
        workspace: "/w".to_owned(),
        hash: pinned(&set.prompt).hash,
        count: texts.len(),
        picked: Arc::new(PickedSkills {
            pinned: pinned(&serde_json::to_string(&set).unwrap()),
            bodies: texts.iter().map(|text| pinned(text)).collect(),
            unknown: Vec::new(),
            set,
        }),
    })
}

pub fn skills_go_with_the_last_run_that_names_them(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let mut runs = Vec::new();
    for texts in [["one", "two"], ["two", "three"], ["two", "three"]] {
        let mut spawn = policy(spawn(Some(&top)), AnnouncePolicy::None);
        spawn.run.agent.skills = Some(skills(&texts));
        runs.push(reply(bench.run(spawn)).run);
    }
    let versions = "SELECT group_concat(skills_version, ',') FROM runs ORDER BY seq";
    assert_eq!(texts(bench.db.as_mut(), versions), ["1,2,2"]);
    let is_there = |bench: &mut Bench, body: &str| {
        let hash = blake3::hash(body.as_bytes()).to_hex();
        bench.count(&format!("SELECT count(*) FROM blobs WHERE hash = '{hash}'")) > 0
    };
    let sweep_all = |bench: &mut Bench| {
        sweep(bench, old_runs());
        // A body is removed once no set names it, so that takes a second sweep.
        for _ in 0..2 {
            let leftovers = Sweep::Leftovers {
                before: FAR,
                ids_before: FAR,
            };
            sweep(bench, leftovers);
        }
        ["one", "two", "three"].map(|body| is_there(bench, body))
    };
    assert_eq!(sweep_all(&mut bench), [true, true, true]);
    bench.started(runs[0]);
    bench.ended(runs[0], "found");
    assert_eq!(sweep_all(&mut bench), [false, true, true]);
    bench.started(runs[1]);
    bench.ended(runs[1], "found");
    assert_eq!(sweep_all(&mut bench), [false, true, true]);
    bench.started(runs[2]);
    bench.ended(runs[2], "found");
    assert_eq!(sweep_all(&mut bench), [false, false, false]);
    assert_eq!(bench.count("SELECT count(*) FROM skill_bodies"), 0);
    // The version stays, so that it never goes back.
    assert_eq!(bench.count("SELECT version FROM skill_sets"), 2);
}

pub fn events_go_by_age_and_young_ones_stay(mut bench: Bench) {
    bench.client_session("client:a");
    bench.clock.advance(Duration::from_secs(100));
    bench.client_session("client:b");
    let point = Timestamp(1_000_000 + 50_000);
    let what = Sweep::Events { before: point };
    assert!(is_due(bench.db.as_mut(), &what).unwrap());
    sweep(&mut bench, what.clone());
    assert_eq!(bench.count("SELECT count(*) FROM events"), 1);
    assert!(!is_due(bench.db.as_mut(), &what).unwrap());
}

pub fn an_archived_session_is_left_out_of_lists_and_comes_back_when_used(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(root.run);
    bench.ended(root.run, "said");
    let child = bench.spawned(Some(&root.session));
    bench.started(child.run);
    bench.ended(child.run, "found");
    let own = session(&mut bench, &root.session).unwrap().id;
    deliver(&mut bench, own, None);
    sweep(&mut bench, archive());
    let listed = |bench: &mut Bench, archived| {
        let query = sessions::ListQuery {
            org: "default".to_owned(),
            archived,
            limit: 10,
            ..sessions::ListQuery::default()
        };
        sessions::list(bench.db.as_mut(), &query).unwrap().len()
    };
    assert_eq!(
        (listed(&mut bench, false), listed(&mut bench, true)),
        (1, 2)
    );
    let mut again = turn(child.session.as_str(), "more");
    again.run.agent = super::agent("explore");
    reply(bench.run(again));
    assert_eq!(listed(&mut bench, false), 2);
}

pub fn lists_and_sweeps_walk_their_indexes(mut bench: Bench) {
    let mut plan = |sql: &str| {
        let mut lines = String::new();
        let sql = format!("EXPLAIN QUERY PLAN {sql}");
        let own = id();
        let params = [(&own).into()];
        let count = usize::from(sql.contains('?'));
        bench
            .db
            .query(&sql, &params[..count], &mut |row| {
                lines.push_str(row.text(3)?);
                lines.push('\n');
                Ok(())
            })
            .unwrap();
        lines
    };
    for (sql, index) in [
        (
            "SELECT id FROM sessions WHERE org = 'a' AND archived_at IS NULL \
             AND parent_id IS NOT NULL AND seq > 0 ORDER BY seq LIMIT 1",
            "sessions_children",
        ),
        (
            "SELECT id FROM sessions WHERE org = 'a' AND archived_at IS NULL \
             AND parent_id IS NULL ORDER BY seq DESC LIMIT 1",
            "sessions_main",
        ),
        (
            "UPDATE outbox SET state = 'pending' WHERE target_session = ?1 \
             AND state = 'undelivered'",
            "outbox_held",
        ),
    ] {
        let lines = plan(sql);
        assert!(lines.contains(index), "{sql}: {lines}");
        assert!(!lines.contains("TEMP B-TREE"), "{sql}: {lines}");
    }
}
