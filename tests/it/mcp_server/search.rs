//! `search_history` reads transcripts and needs no index of words: the store has one for memories
//! alone, and a search finds the same without it.

use super::*;

#[test]
fn a_search_needs_no_full_text_index() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern);
        let spawned = host.does("spawn", json!({ "task": "[a] needle" })).await;
        let wait = json!({ "runIds": [spawned["runId"]], "timeout": 240 });
        host.does("wait", wait).await;
        let question = json!({ "query": "needle", "sessionKey": spawned["sessionKey"] });
        let before = host.does("search_history", question.clone()).await;
        assert_eq!(before["matches"].as_array().unwrap().len(), 1, "{before}");
        assert_eq!(daemon.stop().await, 0);

        let db = rusqlite::Connection::open(place.database()).unwrap();
        db.execute_batch("DELETE FROM memory_words_data; DELETE FROM memory_words_idx;")
            .unwrap();
        drop(db);
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern);
        assert_eq!(host.does("search_history", question).await, before);
        assert_eq!(daemon.stop().await, 0);
    });
}
