//! Every paged list: pages of one item give exactly what one large page gives, even while rows are
//! added.

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, calls, run, says};

/// All items of a list in pages of `limit`; `meanwhile` is called once after the first page.
async fn walk(
    client: &Link,
    method: &str,
    params: &Value,
    field: &str,
    limit: u32,
    meanwhile: impl AsyncFnOnce(),
) -> Vec<Value> {
    let mut items = Vec::new();
    let mut meanwhile = Some(meanwhile);
    let mut params = params.clone();
    params["limit"] = json!(limit);
    loop {
        let page = client.call(method, params.clone()).await;
        let found = page[field].as_array().unwrap();
        assert!(found.len() <= limit as usize, "{method}: {}", found.len());
        items.extend(found.iter().cloned());
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile().await;
        }
        match page.get("nextCursor") {
            Some(cursor) => params["cursor"] = cursor.clone(),
            None => return items,
        }
    }
}

/// The identifying field of each item.
fn ids(items: &[Value], id: &str) -> Vec<Value> {
    items.iter().map(|item| item[id].clone()).collect()
}

#[test]
fn pages_of_one_give_what_one_page_gives() {
    run(async {
        let place = Place::new(Script::new().on(
            "[look]",
            [
                calls("grep", json!({"pattern": "alpha"})).and("list", json!({})),
                says("found"),
            ],
        ));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let add = async || {
            let params = json!({"task": "[look]", "parent": root, "announce": "inbox"});
            let spawned = client.spawn(params).await;
            client.ended(&spawned.id).await;
            client.session("client", "more").await;
            client.quiet().await;
            spawned
        };
        let mut last = add().await;
        for _ in 0..4 {
            last = add().await;
        }
        let newest_first = [
            ("sessions.list", json!({"kind": "all"}), "sessions", "key"),
            ("runs.list", json!({}), "runs", "runId"),
            ("gateway.audit", json!({}), "entries", "seq"),
        ];
        let oldest_first = [
            ("runs.steps", json!({"runId": last.id}), "steps", "stepId"),
            (
                "sessions.inbox",
                json!({"sessionKey": root}),
                "announces",
                "announceId",
            ),
            ("agents.list", json!({}), "agents", "name"),
        ];
        for (method, params, field, id) in newest_first {
            let whole = walk(&client, method, &params, field, 500, async || {}).await;
            assert!(whole.len() >= 5, "{method}: {}", whole.len());
            for limit in [1, 2, 3] {
                let paged = walk(&client, method, &params, field, limit, async || {}).await;
                assert_eq!(paged, whole, "{method} by {limit}");
            }
            let paged = walk(&client, method, &params, field, 1, async || {
                drop(add().await)
            })
            .await;
            // Rows added meanwhile come before the start of the walk.
            assert_eq!(
                ids(&paged, id),
                ids(&whole, id),
                "{method} while rows are added"
            );
        }
        for (method, params, field, id) in oldest_first {
            let whole = walk(&client, method, &params, field, 500, async || {}).await;
            assert!(whole.len() >= 2, "{method}: {}", whole.len());
            for limit in [1, 2] {
                let paged = walk(&client, method, &params, field, limit, async || {}).await;
                assert_eq!(paged, whole, "{method} by {limit}");
            }
            let paged = walk(&client, method, &params, field, 1, async || {
                drop(add().await)
            })
            .await;
            let paged = ids(&paged, id);
            let (before, after) = paged.split_at(whole.len());
            assert_eq!(before, ids(&whole, id), "{method} while rows are added");
            // Rows added meanwhile follow, each once.
            assert!(after.len() <= 1, "{method}: {after:?}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_transcript_by_pages_is_the_transcript() {
    run(async {
        let place = Place::new(Script::new().on("[say]", [says("said")]));
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..3 {
            let turn = client.turn("agent:build:main", "[say]").await;
            client.ended(&turn.id).await;
        }
        let key = json!("agent:build:main");
        let whole = client
            .call("sessions.history", json!({"sessionKey": key}))
            .await;
        let whole = whole["messages"].as_array().unwrap().clone();
        assert_eq!(whole.len(), 6);
        let mut forward = Vec::new();
        loop {
            let after = forward
                .last()
                .map_or(json!(0), |last: &Value| last["seq"].clone());
            let params = json!({"sessionKey": key, "after": after, "limit": 1});
            let page = client.call("sessions.history", params).await;
            forward.extend(page["messages"].as_array().unwrap().iter().cloned());
            if page["truncated"] == false {
                break;
            }
        }
        assert_eq!(forward, whole);
        let mut backward: Vec<Value> = Vec::new();
        loop {
            let mut params = json!({"sessionKey": key, "limit": 1});
            if let Some(last) = backward.last() {
                params["before"] = last["seq"].clone();
            }
            let page = client.call("sessions.history", params).await;
            backward.extend(page["messages"].as_array().unwrap().iter().cloned());
            if page["truncated"] == false {
                break;
            }
        }
        backward.reverse();
        assert_eq!(backward, whole);
        assert_eq!(daemon.stop().await, 0);
    });
}
