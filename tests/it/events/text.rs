//! Streaming of answers.

use abide::wire::events::Event;
use serde_json::{Value, json};

use super::{is_mark, mark, next, snapshot, until};
use crate::harness::{Faults, Link, Place, Script, run, says};

const TEXT: &str = "Ein grünes Blatt – 子代理 – and a long, long tail of words after it.";

fn place() -> Place {
    let script = Script::new()
        .on("[stream]", [says(TEXT).in_pieces(3, 4, "go")])
        .on("[quick]", [says(TEXT).in_pieces(1, 0, "go")]);
    Place::new(script)
}

/// The state of a client that applies each item as the protocol requires.
#[derive(Default)]
pub(crate) struct ReceivedText {
    message: Option<Value>,
    pub(crate) text: String,
    resets: usize,
    partials: usize,
    deltas: usize,
}

impl ReceivedText {
    pub(crate) fn take(&mut self, event: &Event) {
        let data = &event.data;
        match event.kind.as_str() {
            "message.partial" => {
                self.partials += 1;
                self.text = data["text"].as_str().unwrap().to_owned();
            }
            "message.delta" => {
                self.deltas += 1;
                assert_eq!(data["channel"], "text");
                assert_eq!(data["offset"], self.text.len());
                self.text.push_str(data["text"].as_str().unwrap());
            }
            "message.reset" => {
                self.resets += 1;
                self.text.clear();
            }
            _ => return,
        }
        assert_eq!(event.cursor, None, "what is not stored has no cursor");
        let message = data["messageId"].clone();
        assert_eq!(*self.message.get_or_insert(message.clone()), message);
    }
}

async fn is_the_stored_message(client: &Link, session: &str, heard: &ReceivedText) {
    let params = json!({ "sessionKey": session });
    let history = client.call("sessions.history", params).await;
    let last = history["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(Some(&last["id"]), heard.message.as_ref());
    assert_eq!(last["content"][0]["text"], heard.text.as_str());
    assert_eq!(heard.text, TEXT);
}

#[test]
fn all_deltas_together_are_the_stored_message_and_carry_its_id() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut plain = client.subscribe(json!({ "since": 0 })).await;
        let mut events = client.subscribe(json!({ "deltas": true })).await;
        snapshot(&next(&mut events).await);
        let run = client.spawn(json!({ "task": "[stream]" })).await;
        let mut heard = ReceivedText::default();
        while heard.text.chars().count() < 12 {
            heard.take(&next(&mut events).await);
        }
        // A client that subscribes midway gets the text so far exactly once.
        let midway = json!({ "deltas": true, "runId": run.id });
        let mut midway = client.subscribe(midway).await;
        snapshot(&next(&mut midway).await);
        let first = next(&mut midway).await;
        assert_eq!(first.kind, "message.partial");
        assert_eq!(first.data["text"], heard.text.as_str());
        let mut late = ReceivedText::default();
        late.take(&first);

        place.let_go("go");
        for (heard, events) in [(&mut heard, &mut events), (&mut late, &mut midway)] {
            for event in until(events, |event| event.kind == "run.ended").await {
                if event.kind == "message.added"
                    && heard.message == Some(event.data["messageId"].clone())
                {
                    assert_eq!(heard.text, TEXT, "all of it is heard before it is stored");
                }
                heard.take(&event);
            }
            is_the_stored_message(&client, &run.session, heard).await;
        }
        assert_eq!((heard.partials, heard.resets), (0, 0));
        assert_eq!((late.partials, late.resets), (1, 0));
        // Subscriptions that did not request deltas get none.
        let end = mark(&client, "client:end").await;
        let seen = until(&mut plain, |event| is_mark(event, &end)).await;
        assert!(seen.iter().all(|event| event.cursor.is_some()));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn answers_that_come_at_once_are_heard_whole_too() {
    run(async {
        let place = place();
        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..10 {
            let mut events = client.subscribe(json!({ "deltas": true })).await;
            let run = client.spawn(json!({ "task": "[quick]" })).await;
            let mut heard = ReceivedText::default();
            let of_run = |event: &Event| {
                event.kind == "run.ended" && event.run_id.unwrap().to_string() == run.id
            };
            for event in until(&mut events, of_run).await {
                heard.take(&event);
            }
            is_the_stored_message(&client, &run.session, &heard).await;
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_was_heard_before_a_kill_is_replaced_by_the_answer_that_counts() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client
            .subscribe(json!({ "deltas": true, "since": 0 }))
            .await;
        let run = client.spawn(json!({ "task": "[stream]" })).await;
        let mut heard = ReceivedText::default();
        let mut cursor = 0;
        while heard.text.is_empty() {
            let event = next(&mut events).await;
            cursor = event.cursor.unwrap_or(cursor);
            heard.take(&event);
        }
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        let again = json!({ "deltas": true, "since": cursor });
        let mut events = client.subscribe(again).await;
        place.let_go("go");
        for event in until(&mut events, |event| event.kind == "run.ended").await {
            heard.take(&event);
        }
        assert_eq!(heard.resets + heard.partials, 1);
        is_the_stored_message(&client, &run.session, &heard).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_try_that_is_lost_in_the_same_daemon_is_reset_for_whoever_heard_it() {
    run(async {
        let place = place();
        let orders = Faults::ordered("drive.recording=panic@1");
        let daemon = place.start_with(&orders).await.unwrap();
        let client = daemon.client().await;
        let mut events = client
            .subscribe(json!({ "deltas": true, "since": 0 }))
            .await;
        place.let_go("go");
        let run = client.spawn(json!({ "task": "[stream]" })).await;
        let mut heard = ReceivedText::default();
        for event in until(&mut events, |event| event.kind == "run.ended").await {
            heard.take(&event);
        }
        assert_eq!(heard.resets, 1);
        is_the_stored_message(&client, &run.session, &heard).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
