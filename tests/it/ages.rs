//! Effects of elapsed time on open runs while no daemon runs, and of clock changes: work resumes
//! after days, runs older than `recovery.max_age` are closed with a notice, runs that wait for a
//! user keep waiting, and an implausible clock ends nothing.

use abide::clock::Clock;
use abide::kernel::time::Timestamp;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Daemon, Faults, Link, Place, Script, Spawned, calls, eventually, run, says};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A daemon with a running run, one that waits for an approval, one that waits for another run's
/// approval, and a turn queued behind that.
struct Open {
    place: Place,
    root: String,
    at_work: Spawned,
    asks: Spawned,
    boss: Spawned,
    behind: Spawned,
}

fn place() -> Place {
    let look = |text: &str| [calls("read", json!({ "path": "notes.txt" })), says(text)];
    let task = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "careful", "session_id": "",
    });
    let script = Script::new()
        .on("[a]", [says("a is done").held_by("go")])
        .on("[limited]", [says("in time").held_by("go")])
        .on("[look]", look("looked"))
        .on("[kid]", look("kid looked"))
        .on("[boss]", [calls("task", task), says("boss is done")])
        .on("[behind]", [says("behind is done")])
        .on_announce("*", [says("heard")]);
    Place::new(script)
        .with_agent("careful", "tools: [read]\ngate: {read: ask}")
        .with_agent("boss", "mode: primary\ntools: [task]")
}

impl Open {
    /// Creates the runs and kills the daemon while all of them are open.
    async fn new() -> Open {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("agent", "root").await;
        let at_work = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        let asks = json!({ "task": "[look]", "agent": "careful", "parent": root });
        let asks = client.spawn(asks).await;
        let params = json!({ "key": "agent:boss:a", "agent": "boss" });
        client.call("sessions.create", params).await;
        let boss = client.turn("agent:boss:a", "[boss]").await;
        let behind = client.turn("agent:boss:a", "[behind]").await;
        eventually("the call", || async {
            let asked = place.model_calls();
            asked.contains_key(&("[a]".to_owned(), 0)).then_some(())
        })
        .await;
        eventually("both approvals", || async {
            (approvals(&client).await.len() == 2).then_some(())
        })
        .await;
        client.in_state(&boss.id, "paused").await;
        daemon.kill().await;
        Open {
            place,
            root,
            at_work,
            asks,
            boss,
            behind,
        }
    }

    /// Shifts all stored times into the past by `ms`.
    fn ages_by(&self, ms: u64) {
        let db = Connection::open(self.place.database()).unwrap();
        let columns: Vec<(String, String)> = db
            .prepare(
                "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c \
                 WHERE t.type = 'table' AND c.type = 'INTEGER' AND (c.name = 'at' \
                 OR c.name LIKE '%\\_at' ESCAPE '\\' OR c.name LIKE '%\\_until' ESCAPE '\\' \
                 OR c.name = 'not_before')",
            )
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(columns.len() > 30, "{columns:?}");
        for (table, column) in columns {
            // Finished rows keep their times.
            let rows = if table == "steps" {
                "WHERE ended_at IS NULL"
            } else {
                ""
            };
            let sql = format!("UPDATE {table} SET {column} = {column} - {ms} {rows}");
            db.execute(&sql, []).unwrap();
        }
    }

    /// Runs that wait for a user still do, and resume after the approval.
    async fn people_are_waited_for(&self, client: &Link) {
        assert_eq!(client.run(&self.asks.id).await["pauseReason"], "approval");
        assert_eq!(client.run(&self.boss.id).await["state"], "paused");
        assert_eq!(client.run(&self.behind.id).await["state"], "queued");
        let open = approvals(client).await;
        assert_eq!(open.len(), 2, "{open:?}");
        for approval in open {
            let allow = json!({ "id": approval["id"], "decision": "allow" });
            client.call("approvals.resolve", allow).await;
        }
        assert_eq!(client.ended(&self.asks.id).await["result"], "looked");
        assert_eq!(client.ended(&self.boss.id).await["result"], "boss is done");
        let behind = client.ended(&self.behind.id).await;
        assert_eq!(behind["result"], "behind is done", "{behind}");
    }

    async fn work_goes_on(&self, client: &Link) {
        self.place.let_go("go");
        let ended = client.ended(&self.at_work.id).await;
        assert_eq!(ended["result"], "a is done", "{ended}");
    }

    async fn start_at(&self, orders: &str) -> Daemon {
        let started = self.place.start_with(&Faults::ordered(orders)).await;
        started.unwrap_or_else(|status| panic!("{orders}: {status}; {}", self.place.log()))
    }
}

async fn approvals(client: &Link) -> Vec<Value> {
    let listed = client
        .call("approvals.list", json!({ "state": "open" }))
        .await;
    listed["approvals"].as_array().unwrap().clone()
}

/// The clock alerts in the event log.
fn clock_alerts(place: &Place) -> Vec<Value> {
    let db = Connection::open(place.database()).unwrap();
    let sql = "SELECT data FROM events WHERE kind = 'alert.raised' ORDER BY cursor";
    let mut events = db.prepare(sql).unwrap();
    let rows = events.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|data| serde_json::from_str(&data.unwrap()).unwrap())
        .filter(|data: &Value| data["alert"] == "clock_ahead")
        .collect()
}

#[test]
fn after_days_without_a_daemon_work_goes_on_and_after_a_month_it_is_closed_with_a_notice() {
    run(async {
        for (days, closes) in [(1, false), (3, false), (30, true)] {
            let open = Open::new().await;
            open.ages_by(days * DAY_MS);
            let daemon = open.place.start().await;
            let client = daemon.client().await;
            assert_eq!(clock_alerts(&open.place), [] as [Value; 0], "{days}");
            open.people_are_waited_for(&client).await;
            if closes {
                let ended = client.ended(&open.at_work.id).await;
                assert_eq!(ended["state"], "interrupted", "{ended}");
                assert_eq!(ended["error"]["kind"], "too_old", "{ended}");
                let why = ended["error"]["message"].as_str().unwrap();
                assert!(why.contains("recovery.max_age 7days"), "{why}");
                // The requester receives the notice without a model call, and the session shows it.
                let history = async |session: &str| {
                    let params = json!({ "sessionKey": session });
                    client.call("sessions.history", params).await["messages"].clone()
                };
                let told = history(&open.root).await.to_string();
                assert!(told.contains("recovery.max_age"), "{told}");
                let own = history(&open.at_work.session).await;
                let notice = own.as_array().unwrap().last().unwrap().clone();
                assert_eq!(notice["kind"], "restart_notice", "{own}");
                assert!(notice.to_string().contains("recovery.max_age"), "{own}");
                assert_eq!(open.place.model_calls()[&("[a]".to_owned(), 0)], 1);
            } else {
                open.work_goes_on(&client).await;
            }
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn by_a_clock_that_was_set_nothing_ends_and_no_wait_is_over() {
    run(async {
        for (orders, alerts) in [
            (format!("clock.ahead=give:{DAY_MS}"), 1),
            (format!("clock.ahead=give:{}", 30 * DAY_MS), 1),
            (format!("clock.behind=give:{}", 30 * DAY_MS), 0),
        ] {
            let open = Open::new().await;
            let daemon = open.start_at(&orders).await;
            let client = daemon.client().await;
            let raised = clock_alerts(&open.place);
            assert_eq!(raised.len(), alerts, "{orders}: {raised:?}");
            assert!(
                raised.iter().all(|alert| alert["isCertain"] == true),
                "{raised:?}"
            );
            open.people_are_waited_for(&client).await;
            open.work_goes_on(&client).await;
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

/// Whether the daemon has stored this by a clock that is half an hour or more from this test's.
fn is_away(created: &Value) -> bool {
    let created: Timestamp = serde_json::from_value(created["createdAt"].clone()).unwrap();
    created.0.abs_diff(Clock::system().now().0) > 1_800_000
}

/// Calls until the daemon's wall clock has jumped away from this test's.
async fn has_jumped(client: &Link) {
    let mut number = 0;
    eventually("the jump", || {
        number += 1;
        let params = json!({ "key": format!("agent:build:{number}"), "agent": "build" });
        async move {
            let made = client.call("sessions.create", params).await;
            is_away(&made["session"]).then_some(())
        }
    })
    .await;
}

#[test]
fn a_clock_that_jumps_under_a_daemon_ends_no_run_no_wait_and_no_approval() {
    run(async {
        let year = 365 * DAY_MS;
        for jump in [
            "clock.ahead=give:3600000@400".to_owned(),
            format!("clock.ahead=give:{DAY_MS}@400"),
            format!("clock.behind=give:{year}@400"),
        ] {
            let mut open = Open::new().await;
            open.place.set("defaults.run_timeout", "\"10m\"");
            let daemon = open.start_at(&jump).await;
            let client = daemon.client().await;
            let limited = json!({ "task": "[limited]", "parent": open.root, "runTimeout": 120 });
            let limited = client.spawn(limited).await;
            client.in_state(&limited.id, "running").await;
            assert!(
                !is_away(&client.run(&limited.id).await),
                "{jump}: before the run began"
            );
            let waiting = daemon.client().await;
            let params = json!({ "runId": limited.id, "waitTimeout": 100 });
            let wait = tokio::spawn(async move { waiting.call("agent.wait", params).await });
            has_jumped(&client).await;
            assert_eq!(client.run(&limited.id).await["state"], "running");
            assert!(!wait.is_finished(), "{jump}: the wait has ended");
            open.people_are_waited_for(&client).await;
            open.work_goes_on(&client).await;
            let waited = wait.await.unwrap();
            assert_eq!(waited["cause"], "ended", "{jump}: {waited}");
            assert_eq!(waited["runs"][0]["result"], "in time", "{jump}: {waited}");
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn after_a_start_of_the_machine_a_clock_far_ahead_ends_nothing_before_it_has_settled() {
    run(async {
        let open = Open::new().await;
        let month = format!("clock.machine_boot=give:7;clock.ahead=give:{}", 30 * DAY_MS);
        // Neither the first start ends anything, nor the next, whose clock matches the times that
        // the first has stored.
        for _ in 0..2 {
            let daemon = open.start_at(&month).await;
            let client = daemon.client().await;
            let run = client.run(&open.at_work.id).await;
            assert_eq!(run["state"], "running", "{run}");
            let raised = clock_alerts(&open.place);
            assert_eq!(raised.last().unwrap()["isCertain"], false, "{raised:?}");
            daemon.kill().await;
        }
        let settled = open
            .start_at(&format!("{month};clock.settles=give:1"))
            .await;
        let client = settled.client().await;
        let ended = client.ended(&open.at_work.id).await;
        assert_eq!(ended["error"]["kind"], "too_old", "{ended}");
        assert_eq!(open.place.model_calls()[&("[a]".to_owned(), 0)], 1);
        open.people_are_waited_for(&client).await;
        client.quiet().await;
        assert_eq!(settled.stop().await, 0);
    });
}
