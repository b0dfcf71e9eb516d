//! Tests of reading Messages answers.

use super::*;

fn read(events: &[Value]) -> (Result<ModelAnswer, Failure>, Vec<Piece>) {
    let origin = Origin {
        provider: "claude".to_owned(),
        api: "anthropic",
        model: "claude/x".to_owned(),
    };
    let mut reader = Answer::new(origin);
    let mut heard = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap();
        if let Err(failure) = reader.event(name, &event.to_string(), &mut heard) {
            return (Err(failure), heard);
        }
    }
    (Box::new(reader).answer(Known::default()), heard)
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
}

fn native(answer: &ModelAnswer) -> &str {
    let found = answer.blocks.iter().find_map(|block| match block {
        Block::Native { json, .. } => Some(json.as_str()),
        _ => None,
    });
    found.unwrap()
}

fn thinking_and_calls() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"role": "assistant",
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "let "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "me"})),
        delta(0, json!({"type": "signature_delta", "signature": "SiG"})),
        json!({"type": "content_block_stop", "index": 0}),
        start(
            1,
            json!({"type": "redacted_thinking", "data": "xx", "new_field": [1.5]}),
        ),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Looking."})),
        start(
            3,
            json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
        ),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(
            3,
            json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a\", "}),
        ),
        delta(
            3,
            json!({"type": "input_json_delta", "partial_json": "\"n\": 1.0}"}),
        ),
        start(
            4,
            json!({"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}}),
        ),
        json!({"type": "something_new", "index": 4}),
        delta(4, json!({"type": "something_new_delta", "x": 1})),
        stop("tool_use"),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn blocks_are_read_and_kept_as_they_came() {
    let (answer, heard) = read(&thinking_and_calls());
    let answer = answer.unwrap();
    let expected = [
        Piece::Thinking("let ".to_owned()),
        Piece::Thinking("me".to_owned()),
        Piece::Text("Looking.".to_owned()),
    ];
    assert_eq!(heard, expected);
    assert_eq!(
        (answer.usage.input_tokens, answer.usage.output_tokens),
        (15, 9)
    );
    assert_eq!(
        native(&answer),
        concat!(
            r#"[{"type":"thinking","thinking":"let me","signature":"SiG"},"#,
            r#"{"type":"redacted_thinking","data":"xx","new_field":[1.5]},"#,
            r#"{"type":"text","text":"Looking."},"#,
            r#"{"type":"tool_use","id":"toolu_1","name":"read","input":{"path": "a", "n": 1.0}},"#,
            r#"{"type":"tool_use","id":"toolu_2","name":"list","input":{}}]"#
        )
    );
    let calls: Vec<&Block> = answer
        .blocks
        .iter()
        .filter(|block| matches!(block, Block::ToolCall { .. }))
        .collect();
    let called = Block::ToolCall {
        id: "toolu_1".to_owned(),
        name: "read".to_owned(),
        arguments: json!({"path": "a", "n": 1.0}),
    };
    assert_eq!((calls.len(), calls[0]), (2, &called));
}

#[test]
fn g11_4_arguments_that_were_cut_go_back_under_a_name_that_says_so() {
    let (answer, _) = read(&[
        start(
            0,
            json!({"type": "tool_use", "id": "t", "name": "read", "input": {}}),
        ),
        delta(
            0,
            json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a"}),
        ),
        stop("max_tokens"),
    ]);
    let answer = answer.unwrap();
    let Block::ToolCall { arguments, .. } = &answer.blocks[0] else {
        panic!("{answer:?}");
    };
    assert_eq!(arguments, "{\"path\": \"a");
    let native: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!(
        native[0]["input"],
        json!({"INVALID_JSON": "{\"path\": \"a"})
    );
    assert!(answer.warnings[0].contains("max_tokens"));
}

#[test]
fn a_cut_an_error_and_a_refusal_are_no_answers() {
    let whole = thinking_and_calls();
    for length in 1..whole.len() - 2 {
        let (answer, _) = read(&whole[..length]);
        let failure = answer.unwrap_err();
        assert!(failure.message.contains("was cut"), "{length}: {failure:?}");
    }
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let (answer, _) = read(&[whole[0].clone(), error]);
    assert!(answer.unwrap_err().message.contains("Overloaded"));
    let (answer, _) = read(&[stop("refusal")]);
    assert_eq!(answer.unwrap_err().kind, "refused");
    let (answer, _) = read(&[delta(0, json!({"type": "text_delta", "text": "x"}))]);
    assert!(answer.unwrap_err().message.contains("before the block"));
}

#[test]
fn ids_that_are_no_use_become_others_on_both_sides() {
    let twin = json!({"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}});
    let (answer, _) = read(&[start(0, twin.clone()), start(1, twin), stop("tool_use")]);
    let answer = answer.unwrap();
    let native: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!([&native[0]["id"], &native[1]["id"]], ["t", "t_2"]);
    // All of it was given at the beginning.
    assert_eq!(native[1]["input"], json!({"path": "x"}));
}
