//! Builds the answers of the provider `script`, and finds the answer that matches an input.

use serde_json::{Map, Value, json};

/// Name of the file in which the provider records the start of each call.
pub(crate) const LOG: &str = "calls.jsonl";

/// The rules from inputs to answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    text: String,
    announce: bool,
    answers: Vec<Answer>,
}

/// One answer of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    fields: Map<String, Value>,
}

impl Script {
    /// A script without rules.
    pub(crate) fn new() -> Script {
        Script::default()
    }

    /// Adds a rule with consecutive answers to inputs of a user or requester that contain `text`.
    pub(crate) fn on(self, text: &str, answers: impl IntoIterator<Item = Answer>) -> Script {
        self.rule(text, false, answers)
    }

    /// Adds a rule with answers to announces that contain `text`.
    pub(crate) fn on_announce(
        self,
        text: &str,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Script {
        self.rule(text, true, answers)
    }

    /// Has it no rules?
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn rule(
        mut self,
        text: &str,
        announce: bool,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Script {
        self.rules.push(Rule {
            text: text.to_owned(),
            announce,
            answers: answers.into_iter().collect(),
        });
        self
    }

    /// The contents of the script file.
    pub(crate) fn json(&self) -> Value {
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|rule| {
                let answers: Vec<&Map<String, Value>> =
                    rule.answers.iter().map(|answer| &answer.fields).collect();
                json!({ "match": rule.text, "match_announce": rule.announce, "answers": answers })
            })
            .collect();
        json!({ "log": LOG, "rules": rules })
    }

    /// The first rule that matches the input: its text, and its answer with this index.
    pub(crate) fn answer(
        &self,
        input: &str,
        announce: bool,
        index: usize,
    ) -> Option<(&str, Option<&Answer>)> {
        let fits = |rule: &&Rule| {
            rule.announce == announce && (rule.text == "*" || input.contains(&rule.text))
        };
        let rule = self.rules.iter().find(fits)?;
        Some((&rule.text, rule.answers.get(index)))
    }
}

/// An answer with this text.
pub(crate) fn says(text: &str) -> Answer {
    Answer::default().with("text", json!(text))
}

/// An answer with a tool call; [`Answer::and`] adds parallel ones.
pub(crate) fn calls(tool: &str, arguments: Value) -> Answer {
    Answer::default().and(tool, arguments)
}

/// A model call that fails with this message.
pub(crate) fn fails(message: &str) -> Answer {
    Answer::default().with("fail", json!(message))
}

/// A model call that panics.
pub(crate) fn panics() -> Answer {
    Answer::default().with("panic", json!(true))
}

impl Answer {
    fn with(mut self, name: &str, value: Value) -> Answer {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Adds a parallel tool call.
    pub(crate) fn and(mut self, tool: &str, arguments: Value) -> Answer {
        let calls = self.fields.entry("calls").or_insert_with(|| json!([]));
        let call = json!({ "tool": tool, "arguments": arguments });
        calls.as_array_mut().unwrap().push(call);
        self
    }

    /// Holds the answer until the test releases `name` ([`super::Place::let_go`]).
    pub(crate) fn held_by(self, name: &str) -> Answer {
        self.with("hold", json!(name))
    }

    /// Streams the answer in chunks of `chars` characters and pauses after `hold_after` chunks
    /// until the test releases `hold`.
    pub(crate) fn in_pieces(self, chars: usize, hold_after: usize, hold: &str) -> Answer {
        let stream = json!({ "chars": chars, "hold_after": hold_after, "hold": hold });
        self.with("stream", stream)
    }

    /// Sends each chunk this long after the previous one.
    pub(crate) fn each_after_ms(mut self, ms: u64) -> Answer {
        self.fields["stream"]["pause_ms"] = json!(ms);
        self
    }

    /// Delays the answer by this time.
    pub(crate) fn after_ms(self, ms: u64) -> Answer {
        self.with("delay_ms", json!(ms))
    }

    /// The text of the answer; empty if it has none.
    pub(crate) fn text(&self) -> &str {
        self.fields
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// The message of its failure, if it fails.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.fields.get("fail").and_then(Value::as_str)
    }

    /// Tool and arguments of its tool calls.
    pub(crate) fn tool_calls(&self) -> Vec<(String, Value)> {
        let calls = self.fields.get("calls").and_then(Value::as_array);
        calls
            .into_iter()
            .flatten()
            .map(|call| {
                let tool = call["tool"].as_str().unwrap().to_owned();
                (tool, call["arguments"].clone())
            })
            .collect()
    }
}
