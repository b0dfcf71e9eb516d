//! Tests of the scripted provider.

use super::super::testing::{announce, assistant, request, user};
use super::*;
use crate::contract::runner::DiscardSink;

fn script(folder: &Path, text: Value) -> ScriptProvider {
    let path = folder.join("script.json");
    std::fs::write(&path, text.to_string()).unwrap();
    ScriptProvider::load(&path).unwrap()
}

fn said(answer: &ModelAnswer) -> String {
    crate::kernel::session::message::plain_text(&answer.blocks)
}

#[tokio::test]
async fn the_transcript_alone_decides_which_answer_comes() {
    let folder = tempfile::tempdir().unwrap();
    let rules = json!({"rules": [
        {"match": "alpha", "answers": [{"text": "a0"}, {"text": "a1"}]},
        {"match": "child ended", "match_announce": true, "answers": [{"text": "told"}]},
        {"match": "*", "answers": [{"text": "any"}]},
    ]});
    let script = script(folder.path(), rules);
    let ask = async |messages: Vec<Message>| {
        script
            .complete(request(messages), Arc::new(DiscardSink))
            .await
    };

    let first = vec![user(1, "do alpha")];
    for _ in 0..2 {
        assert_eq!(said(&ask(first.clone()).await.unwrap()), "a0");
    }
    let second = vec![user(1, "do alpha"), assistant(2, "a0")];
    assert_eq!(said(&ask(second).await.unwrap()), "a1");
    let new_turn = vec![user(1, "do alpha"), assistant(2, "a0"), user(3, "else")];
    assert_eq!(said(&ask(new_turn).await.unwrap()), "any");
    let told = vec![
        user(1, "alpha"),
        announce(2, "child ended"),
        announce(3, "b"),
    ];
    assert_eq!(said(&ask(told).await.unwrap()), "told");
    let exhausted = vec![user(1, "alpha"), assistant(2, "a0"), assistant(3, "a1")];
    let fault = ask(exhausted).await.unwrap_err();
    assert!(fault.message.contains("2 answers"), "{fault}");
    let fault = ask(vec![announce(1, "x")]).await.unwrap_err();
    assert!(fault.message.contains("no rule"), "{fault}");
}

#[tokio::test]
async fn an_empty_answer_leads_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let rules = json!({"rules": [{"match": "*", "answers": [{}, {"text": "late"}]}]});
    let script = script(folder.path(), rules);
    let mut asked = request(vec![user(1, "x")]);
    assert!(
        script
            .complete(asked.clone(), Arc::new(DiscardSink))
            .await
            .unwrap()
            .blocks
            .is_empty()
    );
    asked.empty_answers = 1;
    assert_eq!(
        said(&script.complete(asked, Arc::new(DiscardSink)).await.unwrap()),
        "late"
    );
}

#[tokio::test]
async fn a_held_answer_is_logged_first_and_comes_when_its_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let rules = json!({"log": "log", "rules": [
        {"match": "*", "answers": [{"text": "go", "hold": "gate", "calls": [{"tool": "grep"}]}]},
    ]});
    let script = script(folder.path(), rules);
    let mut call = script.complete(request(vec![user(7, "x")]), Arc::new(DiscardSink));
    assert!(futures_util::poll!(&mut call).is_pending());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log, "{\"match\":\"*\",\"index\":0,\"seq\":7}\n");
    std::fs::write(folder.path().join("gate"), "").unwrap();
    let answer = call.await.unwrap();
    assert_eq!(answer.blocks.len(), 2);
    assert!(matches!(&answer.blocks[1], Block::ToolCall { id, .. } if id == "script-7-0-0"));
}

#[tokio::test]
async fn faults_and_panics_come_as_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let rules = json!({"rules": [
        {"match": "fail", "answers": [{"fail": "out of service"}]},
        {"match": "panic", "answers": [{"panic": true}]},
    ]});
    let script = script(folder.path(), rules);
    let fault = script
        .complete(request(vec![user(1, "fail")]), Arc::new(DiscardSink))
        .await
        .unwrap_err();
    assert_eq!(fault.message, "out of service");
    let call =
        tokio::spawn(script.complete(request(vec![user(1, "panic")]), Arc::new(DiscardSink)));
    assert!(call.await.unwrap_err().is_panic());
}

#[test]
fn a_mistyped_field_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.json");
    std::fs::write(&path, r#"{"rules": [{"match": "*", "anwsers": []}]}"#).unwrap();
    let fault = ScriptProvider::load(&path).err().unwrap();
    assert!(fault.message.contains("anwsers"), "{fault}");
}
