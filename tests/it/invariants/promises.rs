//! Everything that the client was promised exists, and nothing that it was told changes later.

use crate::harness::{History, StoreRows};

/// Every accepted call has its run. An unanswered call has created everything or nothing; its
/// idempotency key tells which.
pub(super) fn accepted_is_kept(book: &StoreRows, history: &History) {
    for promise in &history.run_calls {
        let key = promise.params["idempotencyKey"].as_str().unwrap();
        let made: Vec<_> = book
            .keys
            .iter()
            .filter(|(known, ..)| known == key)
            .collect();
        assert!(made.len() <= 1, "{key} made {made:?}");
        let Some(answer) = &promise.answer else {
            continue;
        };
        let [(_, run, _)] = made[..] else {
            panic!("accepted, but its run is missing: {}", promise.params);
        };
        assert_eq!(answer["runId"], run.as_str(), "{}", promise.params);
        let session = answer
            .get("childSessionKey")
            .unwrap_or(&answer["sessionKey"]);
        if let Some(row) = book.sessions.get(&book.runs[run].session) {
            assert_eq!(*session, row.key.as_str(), "{}", promise.params);
        }
    }
    // The audit row of a run is written in the transaction that creates the run.
    for (_, run, _) in &book.keys {
        let told = book
            .audit
            .iter()
            .any(|(_, object, outcome)| object.as_deref() == Some(run.as_str()) && outcome == "ok");
        assert!(told, "no audit row for the creation of run {run}");
    }
    // Every run has a cause: a call, a step, a wake, or an exchange of which it is a later turn.
    let called = book
        .runs
        .values()
        .filter(|run| run.origin != "wake" && !history.chosen.contains(&run.id))
        .filter(|run| book.sends.get(&run.id).is_none_or(|sent| sent.turn == 0))
        .count();
    let made = book.keys.len() + book.step_keys.len();
    assert_eq!(
        called, made,
        "runs without a call or step that created them"
    );
    assert!(
        book.keys.len() <= history.run_calls.len() + history.prompts,
        "a call made two runs"
    );
    for announce in &history.acked {
        let notice = book
            .outbox
            .values()
            .find(|notice| notice.announce == *announce)
            .unwrap();
        assert!(notice.acked, "a lost acknowledgement: {notice:?}");
    }
    for (id, told) in &history.ends {
        let Some(run) = book.runs.get(id) else {
            assert!(book.expired.contains(id), "gone: {told}");
            continue;
        };
        assert_eq!(
            told["state"],
            run.state.as_str(),
            "the client got another state: {run:?}"
        );
        assert_eq!(
            told["result"].as_str(),
            run.result.as_deref(),
            "told otherwise: {run:?}"
        );
    }
}

/// Every accepted call has a run that has ended.
pub(super) fn ends_are_as_told(book: &StoreRows, history: &History) {
    for promise in &history.run_calls {
        let answer = promise.answer.as_ref().unwrap();
        let run = &book.runs[answer["runId"].as_str().unwrap()];
        assert!(run.ended, "{run:?}");
    }
}
