//! Webhooks: whatever is killed, each selected event arrives, in the order of its run, under one id.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};
use crate::webhooks::receiver::{Attempt, Receiver, Verdict};
use crate::webhooks::with_webhook;

/// The scenario of webhooks.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "webhooks",
    place,
    play: |caller| Box::pin(webhooks(caller)),
}];

/// The receiver refuses the ends of runs, and accepts half of the other events only the second time.
fn place() -> Place {
    let receiver = Receiver::start();
    receiver.decide(|attempt, nth| match nth {
        _ if attempt.kind() == "run.ended" => Verdict::Status(400),
        0 if attempt.cursor() % 2 == 0 => Verdict::Close,
        _ => Verdict::Status(200),
    });
    let place = Place::new(Script::new().on("[job]", [says("done")]));
    with_webhook(place, &receiver, "[\"run.*\"]").with("webhooks.audit.attempts", "3")
}

/// The webhook, once `is_so`.
async fn until(caller: &mut Caller, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    caller
        .until(what, async |caller: &mut Caller| {
            let listed = caller.call("webhooks.list", json!({})).await;
            let webhook = listed["webhooks"][0].clone();
            is_so(&webhook).then_some(webhook)
        })
        .await
}

/// The cursors of the events of these runs, by run; `None` while only a start can read the store.
fn stored(place: &Place, runs: &[String]) -> Option<BTreeMap<String, Vec<i64>>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(place.database(), flags).ok()?;
    let sql = "SELECT run_id, cursor FROM events WHERE kind LIKE 'run.%' ORDER BY cursor";
    let mut rows = db.prepare(sql).ok()?;
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let all = rows.query_map([], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?)));
    for row in all.ok()? {
        let (run, cursor) = row.ok()?;
        let run = uuid::Uuid::from_slice(&run).ok()?.to_string();
        found.entry(run).or_default().push(cursor);
    }
    found.retain(|run, _| runs.contains(run));
    Some(found)
}

/// Two runs, whose ends become dead letters. One is dropped; the receiver then accepts everything, and
/// the other one is delivered again.
async fn webhooks(caller: &mut Caller) {
    let receiver = Receiver::of(caller.place());
    let mut runs = Vec::new();
    for count in 1..=2 {
        let run = caller.spawn(json!({ "task": "[job]" })).await;
        assert_eq!(caller.ended(&run.id).await["result"], "done");
        runs.push(run.id);
        until(caller, "a dead letter", |one| one["deadLetters"] == count).await;
    }
    let dead = caller
        .call("webhooks.dead", json!({ "webhook": "audit" }))
        .await;
    let letters = dead["letters"].as_array().unwrap();
    assert_eq!(letters[0]["runId"], runs[1].as_str(), "{dead}");
    let dropped = letters[0]["id"].as_i64().unwrap();
    let drop = json!({ "webhook": "audit", "ids": [dropped] });
    caller.call("webhooks.drop", drop).await;
    receiver.decide(|_, _| Verdict::Status(200));
    caller
        .call("webhooks.replay", json!({ "webhook": "audit" }))
        .await;
    let webhook = until(caller, "all deliveries", |one| {
        one["deadLetters"] == 0 && one["waiting"] == 0
    })
    .await;
    assert_eq!(webhook["missed"], 0, "{webhook}");
    let stored = caller
        .until("the log", async |caller: &mut Caller| {
            caller.call("gateway.ping", json!({})).await;
            stored(caller.place(), &runs)
        })
        .await;
    let delivered = receiver.delivered();
    for (run, mut cursors) in stored {
        let of_run = delivered.iter().filter(|one| one.run() == Some(&run));
        let arrived: Vec<i64> = of_run.map(Attempt::cursor).collect();
        cursors.retain(|cursor| *cursor != dropped);
        assert_eq!(arrived, cursors, "{run}");
    }
    let mut ids: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for one in receiver.attempts() {
        ids.entry(one.cursor()).or_default().insert(one.id);
    }
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
}
