//! Turns of an OpenAI client: the same key is one run with one answer, whatever is killed.

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};

/// The scenarios of the OpenAI-compatible API.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "openai",
    place: || Place::new(Script::new().on("[a]", [says("a is done")])),
    play: |caller| Box::pin(chat(caller)),
}];

async fn chat(caller: &mut Caller) {
    let (run, answer) = caller.chat_by_openai("[a]").await;
    assert_eq!(
        answer["choices"][0]["message"]["content"], "a is done",
        "{answer}"
    );
    assert_eq!(answer["id"], format!("chatcmpl-{}", run.id));
    assert_eq!(caller.ended(&run.id).await["result"], "a is done");
    caller.quiet().await;
}
