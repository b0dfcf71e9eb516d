//! Builds what the provider `script` answers, and knows it again when it is read back.

use serde_json::{Map, Value, json};

/// The name of the file in which the provider notes each call that begins.
pub(crate) const LOG: &str = "calls.jsonl";

/// What a model answers to what.
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

/// One answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    fields: Map<String, Value>,
}

impl Script {
    /// Answers nothing yet.
    pub(crate) fn new() -> Script {
        Script::default()
    }

    /// Answers to a user's or requester's input in which `text` stands, one after another.
    pub(crate) fn on(self, text: &str, answers: impl IntoIterator<Item = Answer>) -> Script {
        self.rule(text, false, answers)
    }

    /// Answers to announces in which `text` stands.
    pub(crate) fn on_announce(
        self,
        text: &str,
        answers: impl IntoIterator<Item = Answer>,
    ) -> Script {
        self.rule(text, true, answers)
    }

    /// Has it no answers at all?
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

    /// The file's text.
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

    /// The first rule for such an input: its text, and its answer of that number.
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

/// Answers with a text.
pub(crate) fn says(text: &str) -> Answer {
    Answer::default().with("text", json!(text))
}

/// Answers with a call of a tool; [`Answer::and`] adds more, called at the same time.
pub(crate) fn calls(tool: &str, arguments: Value) -> Answer {
    Answer::default().and(tool, arguments)
}

/// Fails.
pub(crate) fn fails(message: &str) -> Answer {
    Answer::default().with("fail", json!(message))
}

/// Panics.
pub(crate) fn panics() -> Answer {
    Answer::default().with("panic", json!(true))
}

impl Answer {
    fn with(mut self, name: &str, value: Value) -> Answer {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Calls this tool too.
    pub(crate) fn and(mut self, tool: &str, arguments: Value) -> Answer {
        let calls = self.fields.entry("calls").or_insert_with(|| json!([]));
        let call = json!({ "tool": tool, "arguments": arguments });
        calls.as_array_mut().unwrap().push(call);
        self
    }

    /// Comes only once the test lets `name` go ([`super::Place::let_go`]).
    pub(crate) fn held_by(self, name: &str) -> Answer {
        self.with("hold", json!(name))
    }

    /// Is said in pieces of so many characters; after so many pieces it waits until the test
    /// lets `hold` go.
    pub(crate) fn in_pieces(self, chars: usize, hold_after: usize, hold: &str) -> Answer {
        let stream = json!({ "chars": chars, "hold_after": hold_after, "hold": hold });
        self.with("stream", stream)
    }

    /// Each of its pieces comes so long after the one before it.
    pub(crate) fn each_after_ms(mut self, ms: u64) -> Answer {
        self.fields["stream"]["pause_ms"] = json!(ms);
        self
    }

    /// Takes this long.
    pub(crate) fn after_ms(self, ms: u64) -> Answer {
        self.with("delay_ms", json!(ms))
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        self.fields
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// The message with which it fails.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.fields.get("fail").and_then(Value::as_str)
    }

    /// Tool and arguments of its calls.
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
