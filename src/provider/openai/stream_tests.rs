//! Tests of reading Chat Completions answers, in the shapes that servers are known to send.

use super::*;

fn origin() -> AnswerOrigin {
    AnswerOrigin {
        provider: "mine".to_owned(),
        api: "openai",
        model: "mine/m".to_owned(),
    }
}

struct Read {
    answer: Result<ModelAnswer, AttemptFailure>,
    heard: Vec<AnswerPiece>,
}

fn read(events: &[Value]) -> Read {
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    read_text(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read_text(events: &[&str]) -> Read {
    let mut reader = OpenAiReader::new(origin());
    let mut heard = Vec::new();
    for event in events {
        if let Err(failure) = reader.event("", event, &mut heard) {
            return Read {
                answer: Err(failure),
                heard,
            };
        }
    }
    Read {
        answer: Box::new(reader).answer(AnswerContext::default()),
        heard,
    }
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn piece(fields: Value) -> Value {
    delta(json!({ "tool_calls": [fields] }))
}

impl Read {
    fn native(&self) -> Value {
        let blocks = &self.answer.as_ref().unwrap().blocks;
        let found = blocks.iter().find_map(|block| match block {
            Block::Native { json, .. } => Some(json),
            _ => None,
        });
        serde_json::from_str(found.unwrap()).unwrap()
    }

    fn calls(&self) -> Vec<(String, String, Value)> {
        let blocks = &self.answer.as_ref().unwrap().blocks;
        let calls = blocks.iter().filter_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } => Some((id.clone(), name.clone(), arguments.clone())),
            _ => None,
        });
        calls.collect()
    }

    /// Why this call is not executed.
    fn refused(&self, id: &str) -> String {
        let blocks = &self.answer.as_ref().unwrap().blocks;
        let reason = blocks.iter().find_map(|block| match block {
            Block::Note {
                note:
                    AnswerFinding::Refused {
                        tool_call_id,
                        reason,
                    },
            } if tool_call_id == id => Some(reason.clone()),
            _ => None,
        });
        reason.expect("the call is refused")
    }

    fn text(&self) -> String {
        crate::kernel::session::message::plain_text(&self.answer.as_ref().unwrap().blocks)
    }
}

fn called(id: &str, name: &str, arguments: Value) -> (String, String, Value) {
    (id.to_owned(), name.to_owned(), arguments)
}

#[test]
fn text_and_usage_come_together() {
    let read = read(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "Hel"})),
        delta(json!({"content": "lo", "refusal": null})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
    ]);
    assert_eq!(read.text(), "Hello");
    let heard = ["Hel", "lo"].map(|text| AnswerPiece::Text(text.to_owned()));
    assert_eq!(read.heard, heard);
    let usage = read.answer.as_ref().unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (7, 2));
    assert_eq!(
        read.native(),
        json!({"role": "assistant", "content": "Hello"})
    );
}

#[test]
fn parallel_calls_come_in_pieces_by_their_index() {
    let read = read(&[
        piece(
            json!({"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": ""}}),
        ),
        piece(
            json!({"index": 1, "id": "b", "type": "function", "function": {"name": "grep", "arguments": "{\"pat"}}),
        ),
        piece(json!({"index": 0, "function": {"arguments": "{\"path\":"}})),
        piece(json!({"index": 1, "function": {"arguments": "tern\":\"x\"}"}})),
        piece(json!({"index": 0, "function": {"arguments": " \"y\"}"}})),
        finish("tool_calls"),
    ]);
    let expected = [
        called("a", "read", json!({"path": "y"})),
        called("b", "grep", json!({"pattern": "x"})),
    ];
    assert_eq!(read.calls(), expected);
    // As the model wrote it, including the space.
    let native = read.native();
    assert_eq!(
        native["tool_calls"][0]["function"]["arguments"],
        "{\"path\": \"y\"}"
    );
}

#[test]
fn calls_of_odd_servers_are_told_apart() {
    let whole = |index: Option<u64>, id: Option<&str>, arguments: Value| {
        let mut fields = json!({"function": {"name": "read", "arguments": arguments}});
        if let Some(index) = index {
            fields["index"] = index.into();
        }
        if let Some(id) = id {
            fields["id"] = id.into();
        }
        fields
    };
    let (one, two) = (json!({"path": "1"}), json!({"path": "2"}));
    let text = |value: &Value| Value::from(value.to_string());
    for (first, second, ids) in [
        // Ids but no index.
        (
            whole(None, Some("a"), text(&one)),
            whole(None, Some("b"), text(&two)),
            ["a", "b"],
        ),
        // Neither index nor id.
        (
            whole(None, None, text(&one)),
            whole(None, None, text(&two)),
            ["call_0_0", "call_0_1"],
        ),
        // The same index for all, and arguments as objects.
        (
            whole(Some(0), Some("a"), one.clone()),
            whole(Some(0), Some("b"), two.clone()),
            ["a", "b"],
        ),
        // Empty ids.
        (
            whole(Some(0), Some(""), text(&one)),
            whole(Some(1), Some(""), text(&two)),
            ["call_0_0", "call_0_1"],
        ),
    ] {
        let expected = vec![
            called(ids[0], "read", one.clone()),
            called(ids[1], "read", two.clone()),
        ];
        let apart = read(&[piece(first.clone()), piece(second.clone()), finish("stop")]);
        assert_eq!(apart.calls(), expected);
        let at_once = delta(json!({ "tool_calls": [first, second] }));
        let at_once = read(&[at_once, finish("tool_calls")]);
        assert_eq!(at_once.calls(), expected);
        let native = at_once.native();
        assert_eq!(
            [
                &native["tool_calls"][0]["id"],
                &native["tool_calls"][1]["id"]
            ],
            ids
        );
    }
}

#[test]
fn g11_4_arguments_that_do_not_parse_are_kept_as_text() {
    let cut =
        json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\": \"x"}});
    let read = read(&[piece(cut), finish("length")]);
    let expected = called("a", "read", Value::from("{\"path\": \"x"));
    assert_eq!(read.calls(), [expected]);
    let written = read.native()["tool_calls"][0]["function"]["arguments"].clone();
    let written: Value = serde_json::from_str(written.as_str().unwrap()).unwrap();
    assert_eq!(written["INVALID_JSON"], "{\"path\": \"x");
    let warnings = &read.answer.as_ref().unwrap().warnings;
    assert!(warnings[0].contains("max_tokens"), "{warnings:?}");
}

#[test]
fn what_nobody_knows_is_kept_and_goes_back() {
    let detail = |text: &str| json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": text}]});
    let read = read(&[
        delta(json!({"reasoning_content": "let "})),
        delta(json!({"reasoning_content": "me see", "reasoning": "me see"})),
        delta(detail("a")),
        delta(detail("b")),
        delta(
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "data": "zz"}]}),
        ),
        piece(
            json!({"index": 0, "id": "a", "function": {"name": "list", "arguments": ""},
                     "extra_content": {"google": {"thought_signature": "sig"}}}),
        ),
        finish("tool_calls"),
    ]);
    let heard = ["let ", "me see"].map(|text| AnswerPiece::Thinking(text.to_owned()));
    assert_eq!(read.heard, heard);
    let native = read.native();
    assert_eq!(native["reasoning_content"], "let me see");
    let details = &native["reasoning_details"];
    assert_eq!(details[0]["text"], "ab");
    assert_eq!(details[1]["data"], "zz");
    let signature = &native["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    assert_eq!(signature, "sig");
    assert_eq!(read.calls(), [called("a", "list", json!({}))]);
}

#[test]
fn g11_1_a_stream_without_a_reason_for_its_end_is_a_failure() {
    let cut = read(&[delta(json!({"content": "half"}))]);
    assert!(cut.answer.unwrap_err().message.contains("is incomplete"));
    let done = read_text(&[r#"{"choices":[{"delta":{"content":"half"}}]}"#, "[DONE]"]);
    assert!(done.answer.is_err());
    let garbage = read_text(&["{\"choices\": [{\"del"]);
    assert!(
        garbage
            .answer
            .unwrap_err()
            .message
            .contains("not valid JSON")
    );
}

#[test]
fn errors_in_the_middle_are_seen_in_every_form() {
    for error in [
        json!({"error": {"message": "too many", "code": 429}}),
        json!({"error": "too many"}),
        json!({"object": "error", "message": "too many", "code": 503}),
    ] {
        let read = read(&[delta(json!({"content": "x"})), error.clone()]);
        let failure = read.answer.unwrap_err();
        assert!(failure.message.contains("too many"), "{error}: {failure:?}");
    }
    let mut reader = OpenAiReader::new(origin());
    let failure = reader.event("error", r#"{"message": "too many"}"#, &mut Vec::new());
    assert!(failure.unwrap_err().message.contains("too many"));
}

#[test]
fn whole_answers_and_other_oddities_are_read() {
    let mut reader = OpenAiReader::new(origin());
    let mut heard = Vec::new();
    let body = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": [{"type": "text", "text": "all"}],
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "list", "arguments": {}}}]},
            "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    });
    reader.whole(&body.to_string(), &mut heard).unwrap();
    assert_eq!(heard, [AnswerPiece::Text("all".to_owned())]);
    let answer = Box::new(reader).answer(AnswerContext::default()).unwrap();
    assert_eq!(answer.blocks.len(), 3);

    let refused = read(&[delta(json!({"refusal": "I will not"})), finish("stop")]);
    assert_eq!(refused.text(), "I will not");
    for filtered in [
        read(&[finish("content_filter")]),
        read(&[delta(json!({"content": "half"})), finish("content_filter")]),
    ] {
        assert_eq!(filtered.answer.unwrap_err().kind, "refused");
    }
    let empty = read(&[finish("stop")]);
    assert_eq!(empty.text(), "");
    // A second choice, which was not requested.
    let other = json!({"choices": [{"index": 1, "delta": {"content": "no"}}]});
    let read = read(&[other, delta(json!({"content": "yes"})), finish("stop")]);
    assert_eq!(read.text(), "yes");
}

#[test]
fn a_whole_message_after_its_pieces_says_nothing_twice() {
    let call = |arguments: &str| {
        json!({"id": "a", "type": "function",
        "function": {"name": "read", "arguments": arguments}})
    };
    let (one, other) = (r#"{"path":"x"}"#, r#"{"path":"y"}"#);
    let after = |message: Value| {
        let mut first = call(one);
        first["index"] = 0.into();
        read(&[
            delta(json!({"content": "Look"})),
            delta(json!({"content": "ing", "reasoning": "hm"})),
            piece(first),
            json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}),
            finish("tool_calls"),
        ])
    };
    let again = after(json!({"content": "Looking", "reasoning": "hm", "tool_calls": [call(one)]}));
    assert_eq!(again.text(), "Looking");
    assert_eq!(again.calls(), [called("a", "read", json!({"path": "x"}))]);
    assert_eq!(again.native()["reasoning"], "hm");
    let heard = ["Look", "ing"].map(|text| AnswerPiece::Text(text.to_owned()));
    let heard = heard.iter().all(|text| again.heard.contains(text));
    assert!(heard && again.heard.len() == 3, "{:?}", again.heard);
    let rest = after(json!({"content": "Looking at it", "tool_calls": null}));
    assert_eq!(rest.text(), "Looking at it");
    // With another id, no id, an index, or in the old function form: it is the same call.
    let told = |id: Value, arguments: &str| {
        json!({"id": id, "index": 0, "function": {"name": "read", "arguments": arguments},
               "signature": "s"})
    };
    for id in [json!("zz9"), json!(null), json!("")] {
        let again = after(json!({"tool_calls": [told(id, one)]}));
        assert_eq!(again.calls(), [called("a", "read", json!({"path": "x"}))]);
        assert_eq!(again.native()["tool_calls"][0]["signature"], "s");
    }
    let old = after(json!({"function_call": {"name": "read", "arguments": one}}));
    assert_eq!(old.calls(), [called("a", "read", json!({"path": "x"}))]);
    let none = after(json!({"content": "Looking", "tool_calls": []}));
    assert_eq!(none.calls(), [called("a", "read", json!({"path": "x"}))]);
    // Another call, fewer, more, or another tool: none is executed.
    let write = json!({"id": "a", "function": {"name": "write", "arguments": one}});
    for differs in [
        json!([call(other)]),
        json!([told(json!(null), other)]),
        json!([told(json!("zz9"), other)]),
        json!([call(one), told(json!("b"), other)]),
        json!([write]),
        json!([told(json!("zz9"), "")]),
    ] {
        let differs = after(json!({ "tool_calls": differs }));
        assert!(differs.refused("a").contains("more than once"));
        assert_eq!(differs.calls().len(), 1);
        let native = differs.native();
        assert_eq!(native["tool_calls"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_whole_message_is_compared_with_its_pieces_whichever_comes_first() {
    let at = |index: u64, id: &str, path: &str| {
        let arguments = json!({ "path": path }).to_string();
        json!({"index": index, "id": id, "function": {"name": "read", "arguments": arguments}})
    };
    let message = |calls: Value| json!({"choices": [{"message": {"tool_calls": calls}}]});
    let pieces = || vec![piece(at(0, "a", "x")), piece(at(1, "b", "y"))];
    let both = [
        called("a", "read", json!({"path": "x"})),
        called("b", "read", json!({"path": "y"})),
    ];
    let in_order = message(json!([at(0, "m", "x"), at(1, "n", "y")]));
    let turned = message(json!([at(0, "m", "y"), at(1, "n", "x")]));
    for told in [in_order.clone(), turned] {
        let behind = [pieces(), vec![told, finish("tool_calls")]].concat();
        assert_eq!(read(&behind).calls(), both);
    }
    let before = [vec![in_order], pieces(), vec![finish("tool_calls")]].concat();
    assert_eq!(read(&before).calls(), both);
    // The same call twice is not the two different calls.
    let twice = message(json!([at(0, "m", "x"), at(1, "n", "x")]));
    let twice = read(&[pieces(), vec![twice, finish("tool_calls")]].concat());
    assert!(twice.refused("a").contains("more than once"));
    assert!(twice.refused("b").contains("more than once"));
    // A list that grows from message to message, and one that changes.
    let first = message(json!([at(0, "a", "x")]));
    let grown = message(json!([at(0, "a", "x"), at(1, "b", "y")]));
    let grows = read(&[first.clone(), grown, finish("tool_calls")]);
    assert_eq!(grows.calls(), both);
    let other = message(json!([at(0, "c", "y")]));
    let changes = read(&[first, other, finish("tool_calls")]);
    assert!(changes.refused("a").contains("more than once"));
}

#[test]
fn a_call_that_comes_again_with_or_after_the_end_counts_once() {
    let at = |index: Option<u64>, id: &str, path: &str| {
        let arguments = json!({ "path": path }).to_string();
        let mut call = json!({"id": id, "function": {"name": "read", "arguments": arguments}});
        if let Some(index) = index {
            call["index"] = index.into();
        }
        call
    };
    let with_end = |calls: Vec<Value>| {
        json!({"choices": [{"index": 0, "delta": {"tool_calls": calls},
                            "finish_reason": "tool_calls"}]})
    };
    let once = [called("c1", "read", json!({"path": "x"}))];
    for index in [Some(0), Some(1), None] {
        let again = at(index, "c2", "x");
        for end in [
            vec![with_end(vec![again.clone()])],
            vec![finish("tool_calls"), piece(again.clone())],
            vec![finish("tool_calls"), with_end(vec![again.clone()])],
        ] {
            let begun = vec![piece(at(Some(0), "c1", "x"))];
            assert_eq!(read(&[begun, end].concat()).calls(), once, "{index:?}");
        }
    }
    // Before the end, at the same index or without one.
    for index in [Some(0), None] {
        let twice = ["c1", "c2"].map(|id| piece(at(index, id, "x")));
        let read = read(&[&twice[..], &[finish("tool_calls")]].concat());
        assert_eq!(read.calls(), once, "{index:?}");
    }
    // Two in one list are two calls.
    let two = vec![at(Some(0), "c1", "x"), at(Some(0), "c2", "x")];
    assert_eq!(read(&[with_end(two)]).calls().len(), 2);
    // Another version after the end: none is executed.
    let begun = piece(at(Some(0), "c1", "x"));
    let late = piece(at(Some(0), "c2", "y"));
    let differs = read(&[begun, finish("tool_calls"), late]);
    for id in ["c1", "c2"] {
        assert!(differs.refused(id).contains("more than once"));
    }
}

#[test]
fn an_answer_that_ends_for_its_calls_has_some() {
    for reason in ["tool_calls", "function_call", "tool_use", "TOOL_CALLS"] {
        let none = read(&[delta(json!({"content": "I will read it:"})), finish(reason)]);
        let failure = none.answer.unwrap_err();
        assert!(failure.message.contains(reason), "{failure:?}");
        assert!(failure.message.contains("I will read it"), "{failure:?}");
        let body = json!({"choices": [{"message": {"content": "half", "tool_calls": []},
                                       "finish_reason": reason}]});
        let mut reader = OpenAiReader::new(origin());
        reader.whole(&body.to_string(), &mut Vec::new()).unwrap();
        assert!(Box::new(reader).answer(AnswerContext::default()).is_err());
    }
    let both = read(&[
        delta(json!({"content": "x"})),
        finish("stop"),
        finish("tool_calls"),
    ]);
    assert!(both.answer.is_err());
}

#[test]
fn text_and_calls_in_two_choices_are_one_answer() {
    let call = json!({"index": 0, "id": "c1", "function": {"name": "list", "arguments": "{}"}});
    let calls = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"});
    let text = json!({"index": 0, "delta": {"content": "Look"}, "finish_reason": "stop"});
    for choices in [json!([text, calls]), json!([calls, text])] {
        let read = read(&[json!({ "choices": choices })]);
        assert_eq!(read.text(), "Look");
        assert_eq!(read.calls(), [called("c1", "list", json!({}))]);
    }
    let whole = |index: Value| {
        let text = json!({"index": index, "message": {"content": "Look"}, "finish_reason": "stop"});
        let calls = json!({"index": index, "message": {"content": "ing", "tool_calls": [call]},
                           "finish_reason": "tool_calls"});
        let mut reader = OpenAiReader::new(origin());
        let body = json!({ "choices": [text, calls] }).to_string();
        reader.whole(&body, &mut Vec::new()).unwrap();
        Read {
            answer: Box::new(reader).answer(AnswerContext::default()),
            heard: Vec::new(),
        }
    };
    for index in [json!(0), json!(null)] {
        let read = whole(index);
        assert_eq!(read.text(), "Looking");
        assert_eq!(read.calls(), [called("c1", "list", json!({}))]);
    }
}

#[test]
fn only_known_reasons_end_an_answer_well() {
    for reason in ["error", "insufficient_system_resource", "something_new"] {
        let answer = read(&[delta(json!({"content": "half"})), finish(reason)]).answer;
        let failure = answer.unwrap_err();
        assert!(failure.message.contains(reason), "{failure:?}");
        assert!(failure.message.contains("half"), "{failure:?}");
        let body = json!({"choices": [{"message": {"content": "half"}, "finish_reason": reason}]});
        let mut reader = OpenAiReader::new(origin());
        reader.whole(&body.to_string(), &mut Vec::new()).unwrap();
        let failure = Box::new(reader)
            .answer(AnswerContext::default())
            .unwrap_err();
        assert!(failure.message.contains(reason), "{failure:?}");
    }
    let cut = read(&[delta(json!({"content": "half"})), finish("length")]);
    assert!(cut.answer.unwrap().warnings[0].contains("max_tokens"));
}

#[test]
fn halves_of_a_character_are_joined_over_pieces_of_each_field() {
    let chunk = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
    let events = [
        chunk(r#"{"content":"a\ud83d","reasoning":"\ud83d"}"#),
        chunk(r#"{"reasoning":"\ude00"}"#),
        chunk(r#"{"content":"\ude00 \ud83d!"}"#),
        chunk(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"write","arguments":"{\"t\":\"\ud83d"}}]}"#,
        ),
        chunk(
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\ude00 \\ud83d\\ude00 \\ud83d\"}"}}]}"#,
        ),
        finish("tool_calls").to_string(),
    ];
    let read = read_text(&events.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(read.text(), "a😀 \u{FFFD}!");
    let text: String = read
        .heard
        .iter()
        .map(|piece| match piece {
            AnswerPiece::Text(text) => text.as_str(),
            AnswerPiece::Thinking(_) => "",
        })
        .collect();
    assert_eq!(text, "a😀 \u{FFFD}!");
    assert_eq!(
        read.calls(),
        [called("a", "write", json!({"t": "😀 😀 \u{FFFD}"}))]
    );
    let native = read.native();
    assert_eq!(native["reasoning"], "😀");
    let written = native["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(written).unwrap(),
        json!({"t": "😀 😀 \u{FFFD}"})
    );
}

#[test]
fn a_key_given_twice_refuses_the_call_in_every_form() {
    for arguments in [
        r#""{\"path\":\"a\",\"path\":\"b\"}""#,
        r#"{"path":"a","path":"b"}"#,
    ] {
        let chunk = format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"read","arguments":{arguments}}}}}]}}}}]}}"#
        );
        let read = read_text(&[&chunk, &finish("stop").to_string()]);
        assert!(read.refused("a").contains("\"path\" twice"), "{arguments}");
    }
}

#[test]
fn a_function_call_of_the_old_form_is_a_call() {
    let function = |fields: Value| delta(json!({ "function_call": fields }));
    let read = read(&[
        function(json!({"name": "read", "arguments": ""})),
        function(json!({"arguments": "{\"path\":"})),
        function(json!({"arguments": "\"x\"}"})),
        finish("function_call"),
    ]);
    assert_eq!(
        read.calls(),
        [called("call_0_0", "read", json!({"path": "x"}))]
    );
}

#[test]
fn texts_of_blanks_and_names_that_apis_refuse_do_not_go_back() {
    let read = read(&[
        delta(json!({"content": "\n\n"})),
        piece(
            json!({"index": 0, "id": "a", "function": {"name": "functions.read", "arguments": "{}"}}),
        ),
        finish("tool_calls"),
    ]);
    assert_eq!(read.text(), "");
    assert_eq!(read.calls()[0].1, "functions.read");
    let native = read.native();
    assert_eq!(native["content"], "");
    assert_eq!(
        native["tool_calls"][0]["function"]["name"],
        "functions_read"
    );
}
