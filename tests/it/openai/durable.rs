//! What outlives a request: repeats, disconnects, responses in the background, and stops.

use serde_json::{Value, json};

use super::client::{CHAT, RESPONSES, Sent, get, post};
use super::{at_work, chat, place, response};
use crate::harness::{Daemon, eventually, run};

/// The state of the only run, once it is this one.
async fn until_only_run(daemon: &Daemon, state: &str) {
    let client = daemon.client().await;
    eventually(&format!("the run {state}"), async || {
        let runs = client.call("runs.list", json!({})).await;
        (runs["runs"][0]["state"] == state).then_some(())
    })
    .await;
}

#[test]
fn an_idempotency_key_repeats_the_first_answer_also_after_a_kill() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let key = "idempotency-key: mine\r\n";
        let first = post(&daemon, CHAT, key, chat("[a]")).await.json();
        assert_eq!(post(&daemon, CHAT, key, chat("[a]")).await.json(), first);
        let other = post(&daemon, CHAT, key, chat("[more]")).await;
        assert_eq!(
            (other.status, &other.json()["error"]["type"]),
            (409, &json!("conflict_error"))
        );
        // An answer that was lost with the daemon: the repeat finds the same run.
        let held = "idempotency-key: held\r\n";
        let sent = Sent::to(
            &daemon,
            &format!("POST {RESPONSES}"),
            held,
            &response("[held]"),
        )
        .await;
        at_work(&place, "[held]").await;
        daemon.kill().await;
        assert!(sent.unwrap().reply().await.is_none());
        let daemon = place.start().await;
        place.let_go("go");
        let again = post(&daemon, RESPONSES, held, response("[held]"))
            .await
            .json();
        assert_eq!(
            again["output"][0]["content"][0]["text"], "it was held",
            "{again}"
        );
        assert_eq!(
            post(&daemon, RESPONSES, held, response("[held]"))
                .await
                .json(),
            again
        );
        assert_eq!(post(&daemon, CHAT, key, chat("[a]")).await.json(), first);
        let client = daemon.client().await;
        let runs = client.call("runs.list", json!({ "total": true })).await;
        assert_eq!(runs["total"], 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_disconnect_cancels_nothing_unless_the_setting_says_so() {
    for (setting, stream, ends) in [
        ("continue", false, "ok"),
        ("continue", true, "ok"),
        ("cancel", false, "cancelled"),
        ("cancel", true, "cancelled"),
    ] {
        run(async {
            let place = place().with("openai.on_disconnect", &format!("{setting:?}"));
            let daemon = place.start().await;
            let open = || crate::metrics::numbers(&daemon)["abide_connections"];
            let before = open();
            let mut request = chat("[pieces]");
            request["stream"] = stream.into();
            let mut sent = Sent::to(&daemon, &format!("POST {CHAT}"), "", &request)
                .await
                .unwrap();
            at_work(&place, "[pieces]").await;
            if stream {
                sent.until("one ").await;
            }
            drop(sent);
            if setting == "continue" {
                // The daemon has noticed the disconnect before the run can end.
                eventually("the disconnect", async || (open() == before).then_some(())).await;
                place.let_go("go");
            }
            until_only_run(&daemon, ends).await;
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_response_runs_in_the_background_and_is_read_streamed_and_cancelled_later() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut request = response("[held]");
        request["background"] = true.into();
        request["metadata"] = json!({ "for": "later" });
        let started = post(&daemon, RESPONSES, "", request.clone()).await.json();
        assert!(["queued", "in_progress"].contains(&started["status"].as_str().unwrap()));
        assert_eq!(started["output"], json!([]));
        let path = format!("{RESPONSES}/{}", started["id"].as_str().unwrap());
        at_work(&place, "[held]").await;
        assert_eq!(get(&daemon, &path).await.json()["status"], "in_progress");
        daemon.kill().await;
        let daemon = place.start().await;
        place.let_go("go");
        let stream = get(&daemon, &format!("{path}?stream=true")).await;
        let events = stream.events();
        assert_eq!(events[0]["type"], "response.created");
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        let numbers: Vec<u64> = events
            .iter()
            .map(|one| one["sequence_number"].as_u64().unwrap())
            .collect();
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "{numbers:?}"
        );
        let done = get(&daemon, &path).await.json();
        assert_eq!(done, last["response"]);
        assert_eq!(done["metadata"], json!({ "for": "later" }));
        assert_eq!(done["output"][0]["content"][0]["text"], "it was held");
        let cancel = post(&daemon, &format!("{path}/cancel"), "", Value::Null).await;
        assert_eq!(cancel.json()["status"], "completed");
        assert_eq!(get(&daemon, "/v1/responses/resp_none").await.status, 404);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_stop_answers_a_whole_request_and_its_run_continues_after_the_restart() {
    for path in [CHAT, RESPONSES] {
        run(async {
            let place = place().with("gateway.drain_timeout", "\"100ms\"");
            let daemon = place.start().await;
            let request = match path {
                CHAT => chat("[held]"),
                _ => response("[held]"),
            };
            let sent = Sent::to(&daemon, &format!("POST {path}"), "", &request).await;
            at_work(&place, "[held]").await;
            let (answer, code) = tokio::join!(sent.unwrap().reply(), daemon.stop());
            assert_eq!(code, 0);
            let answer = answer.expect("an answer before the end of the connection");
            assert_eq!(answer.status, 503, "{answer:?}");
            // A repeat without a key would be another run.
            assert_eq!(answer.header("x-should-retry"), "false");
            let message = answer.json()["error"]["message"].to_string();
            assert!(message.contains("continues after the restart"), "{message}");
            let daemon = place.start().await;
            place.let_go("go");
            until_only_run(&daemon, "ok").await;
            assert_eq!(daemon.stop().await, 0);
        });
    }
}
