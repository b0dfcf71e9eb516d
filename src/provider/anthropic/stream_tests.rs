//! Tests of reading Messages answers.

use super::*;

fn read(events: &[Value]) -> (Result<ModelAnswer, AttemptFailure>, Vec<AnswerPiece>) {
    let origin = AnswerOrigin {
        provider: "claude".to_owned(),
        api: "anthropic",
        model: "claude/x".to_owned(),
    };
    let mut reader = AnthropicReader::new(origin);
    let mut heard = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap();
        if let Err(failure) = reader.event(name, &event.to_string(), &mut heard) {
            return (Err(failure), heard);
        }
    }
    (Box::new(reader).answer(AnswerContext::default()), heard)
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
        AnswerPiece::Thinking("let ".to_owned()),
        AnswerPiece::Thinking("me".to_owned()),
        AnswerPiece::Text("Looking.".to_owned()),
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
        assert!(
            failure.message.contains("is incomplete"),
            "{length}: {failure:?}"
        );
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

fn refusals(answer: &ModelAnswer) -> Vec<(&str, &str)> {
    let refusals = answer.blocks.iter().filter_map(|block| match block {
        Block::Note {
            note:
                AnswerFinding::Refused {
                    tool_call_id,
                    reason,
                },
        } => Some((tool_call_id.as_str(), reason.as_str())),
        _ => None,
    });
    refusals.collect()
}

fn run(answer: &ModelAnswer) -> Vec<(&str, &Value)> {
    let refused: Vec<&str> = refusals(answer).into_iter().map(|(id, _)| id).collect();
    let calls = answer.blocks.iter().filter_map(|block| match block {
        Block::ToolCall { id, arguments, .. } if !refused.contains(&&**id) => {
            Some((id.as_str(), arguments))
        }
        _ => None,
    });
    calls.collect()
}

fn tool(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": input})
}

fn input(index: u64, text: &str) -> Value {
    delta(
        index,
        json!({"type": "input_json_delta", "partial_json": text}),
    )
}

#[test]
fn one_id_is_one_call_however_often_its_block_comes() {
    let path = json!({"path": "x"});
    let text = path.to_string();
    for again in [
        vec![
            start(0, tool("t", path.clone())),
            start(1, tool("t", path.clone())),
        ],
        vec![
            start(0, tool("t", path.clone())),
            start(0, tool("t", path.clone())),
        ],
        vec![
            start(0, tool("t", json!({}))),
            input(0, &text),
            start(1, tool("t", json!({}))),
            input(1, &text),
        ],
        // The whole input at the start, and again in deltas.
        vec![start(0, tool("t", path.clone())), input(0, &text)],
    ] {
        let (answer, _) = read(&[again.clone(), vec![stop("tool_use")]].concat());
        let answer = answer.unwrap();
        assert_eq!(run(&answer), [("t", &path)], "{again:?}");
        let native: Value = serde_json::from_str(native(&answer)).unwrap();
        assert_eq!(native, json!([tool("t", path.clone())]), "{again:?}");
    }
    let other = start(1, tool("t", json!({"path": "y"})));
    let (answer, _) = read(&[start(0, tool("t", path.clone())), other, stop("tool_use")]);
    let answer = answer.unwrap();
    assert!(run(&answer).is_empty());
    assert!(
        refusals(&answer)[0]
            .1
            .contains("not with the same arguments")
    );
}

#[test]
fn calls_at_one_index_never_mix_their_arguments() {
    let (one, two) = (json!({"path": "1"}), json!({"path": "2"}));
    let in_turn = [
        start(0, tool("a", json!({}))),
        input(0, &one.to_string()),
        start(0, tool("b", json!({}))),
        input(0, &two.to_string()),
        stop("tool_use"),
    ];
    let (answer, _) = read(&in_turn);
    assert_eq!(run(&answer.unwrap()), [("a", &one), ("b", &two)]);
    let mixed = [
        start(0, tool("a", json!({}))),
        start(0, tool("b", json!({}))),
        input(0, &one.to_string()),
        stop("tool_use"),
    ];
    let (answer, _) = read(&mixed);
    let answer = answer.unwrap();
    // The two cannot be told apart, so neither is executed.
    assert!(run(&answer).is_empty());
    assert_eq!(refusals(&answer).len(), 1);
    // The same block again under another id, at its index and after the end.
    let again = [
        vec![
            start(0, tool("a", one.clone())),
            start(0, tool("b", one.clone())),
            stop("tool_use"),
        ],
        vec![
            start(0, tool("a", one.clone())),
            stop("tool_use"),
            start(1, tool("b", one.clone())),
        ],
    ];
    for events in again {
        let (answer, _) = read(&events);
        let answer = answer.unwrap();
        assert_eq!(run(&answer), [("a", &one)], "{events:?}");
        let native: Value = serde_json::from_str(native(&answer)).unwrap();
        assert_eq!(native.as_array().unwrap().len(), 1);
    }
    // Arguments at an index where no block was begun.
    let stray = [
        start(0, tool("a", json!({}))),
        input(7, "{}"),
        stop("tool_use"),
    ];
    let (answer, _) = read(&stray);
    assert!(run(&answer.unwrap()).is_empty());
    let nameless = json!({"type": "tool_use", "id": "n", "name": "", "input": {"path": "x"}});
    let (answer, _) = read(&[start(0, nameless), stop("tool_use")]);
    assert!(answer.unwrap_err().message.contains("which tool"));
    // An answer whose stop reason is tool use must have a call.
    let none = [
        start(0, json!({"type": "text", "text": "I will look"})),
        stop("tool_use"),
    ];
    let failure = read(&none).0.unwrap_err();
    assert!(failure.message.contains("I will look"), "{failure:?}");
}

#[test]
fn a_key_given_twice_refuses_the_call() {
    let twice = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{"path":"a","path":"b"}}}"#;
    let origin = AnswerOrigin {
        provider: "claude".to_owned(),
        api: "anthropic",
        model: "claude/x".to_owned(),
    };
    let mut reader = AnthropicReader::new(origin);
    for event in [twice, &stop("tool_use").to_string()] {
        reader.event("", event, &mut Vec::new()).unwrap();
    }
    let answer = Box::new(reader).answer(AnswerContext::default()).unwrap();
    assert!(refusals(&answer)[0].1.contains("twice"));
    let (answer, _) = read(&[
        start(0, tool("t", json!({}))),
        input(0, r#"{"path":"a","#),
        input(0, r#""path":"b"}"#),
        stop("tool_use"),
    ]);
    assert!(refusals(&answer.unwrap())[0].1.contains("twice"));
}

#[test]
fn a_text_of_blanks_and_a_block_that_comes_again_do_not_go_back() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "S"});
    let (answer, _) = read(&[
        start(0, thinking.clone()),
        start(0, thinking.clone()),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "\n\n"})),
        start(2, tool("t", json!({"path": "x"}))),
        stop("tool_use"),
    ]);
    let native: Value = serde_json::from_str(native(&answer.unwrap())).unwrap();
    assert_eq!(native, json!([thinking, tool("t", json!({"path": "x"}))]));
}

#[test]
fn a_paused_answer_is_kept_to_go_on_and_a_second_answer_is_none() {
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let (answer, _) = read(&[
        start(0, search),
        input(0, r#"{"query":"#),
        input(0, r#""x"}"#),
        stop("pause_turn"),
    ]);
    let answer = answer.unwrap();
    assert_eq!(
        answer.blocks.last(),
        Some(&Block::Note {
            note: AnswerFinding::Paused
        })
    );
    let native: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!(native[0]["input"], json!({"query": "x"}));
    let begins = |id: &str| json!({"type": "message_start", "message": {"id": id}});
    assert!(
        read(&[begins("a"), begins("a"), stop("end_turn")])
            .0
            .is_ok()
    );
    let (second, _) = read(&[begins("a"), begins("b"), stop("end_turn")]);
    assert!(second.unwrap_err().message.contains("second answer"));
}

#[test]
fn only_known_reasons_end_an_answer_well() {
    let said = [
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "half"})),
    ];
    for reason in ["error", "something_new", "refusal"] {
        let (answer, _) = read(&[&said[..], &[stop(reason)]].concat());
        let failure = answer.unwrap_err();
        assert!(failure.message.contains(reason) && failure.message.contains("half"));
        let body = json!({"content": [{"type": "text", "text": "half"}], "stop_reason": reason});
        let origin = AnswerOrigin {
            provider: "claude".to_owned(),
            api: "anthropic",
            model: "claude/x".to_owned(),
        };
        let mut reader = AnthropicReader::new(origin);
        reader.whole(&body.to_string(), &mut Vec::new()).unwrap();
        let failure = Box::new(reader)
            .answer(AnswerContext::default())
            .unwrap_err();
        assert!(failure.message.contains(reason), "{failure:?}");
    }
}

#[test]
fn halves_of_a_character_are_joined_over_pieces() {
    let event = |field: &str, text: &str, kind: &str, index: u64| {
        format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{field}":"{text}"}}}}"#
        )
    };
    let events = [
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        )
        .to_string(),
        event("thinking", r"\ud83d", "thinking_delta", 0),
        start(1, json!({"type": "text", "text": ""})).to_string(),
        event("text", r"\ud83d", "text_delta", 1),
        event("thinking", r"\ude00", "thinking_delta", 0),
        event("text", r"\ude00\ud83d", "text_delta", 1),
        stop("end_turn").to_string(),
    ];
    let origin = AnswerOrigin {
        provider: "claude".to_owned(),
        api: "anthropic",
        model: "claude/x".to_owned(),
    };
    let mut reader = AnthropicReader::new(origin);
    let mut heard = Vec::new();
    for event in &events {
        reader.event("", event, &mut heard).unwrap();
    }
    let answer = Box::new(reader).answer(AnswerContext::default()).unwrap();
    let native: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!(native[0]["thinking"], "😀");
    assert_eq!(native[1]["text"], "😀\u{FFFD}");
    assert!(
        heard.contains(&AnswerPiece::Text("😀".to_owned())),
        "{heard:?}"
    );
}

#[test]
fn an_id_that_the_api_would_refuse_becomes_another_on_both_sides() {
    let path = json!({"path": "x"});
    let (answer, _) = read(&[start(0, tool("functions.read:0", path)), stop("tool_use")]);
    let answer = answer.unwrap();
    let native: Value = serde_json::from_str(native(&answer)).unwrap();
    assert_eq!(run(&answer)[0].0, native[0]["id"]);
    assert!(run(&answer)[0].0.starts_with("call_"), "{native}");
}
