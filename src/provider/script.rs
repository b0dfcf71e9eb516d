//! The provider `script`: answers from a file, for tests of everything around a model.
//!
//! ```json
//! {"log": "calls.jsonl",
//!  "rules": [{"match": "fix the build", "match_announce": false,
//!             "answers": [{"text": "Looking.", "calls": [{"tool": "grep", "arguments": {}}]},
//!                         {"text": "Done.", "delay_ms": 5, "hold": "go"},
//!                         {"text": "Slowly.", "stream": {"chars": 2, "pause_ms": 1}},
//!                         {"fail": "out of service"}, {"panic": true}]}]}
//! ```
//!
//! The first rule whose `match` occurs in the latest input (`*` matches all) answers. The number of
//! answers since that input selects the rule's answer. It depends on the transcript alone, so that
//! a call repeated after a restart gets the same answer. Relative paths are relative to the
//! script's folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ModelAnswer, ModelRequest, Provider, ProviderFault, latest_input};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::run::Usage;
use crate::kernel::session::message::{Block, Message, MessageKind, Role};

/// Poll interval for the file that a held answer waits for.
const HOLD_POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    log: Option<PathBuf>,
    rules: Vec<ScriptRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptRule {
    #[serde(rename = "match")]
    text: String,
    /// The rule answers announces; otherwise it answers user messages.
    #[serde(default)]
    match_announce: bool,
    answers: Vec<ScriptedAnswer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptedAnswer {
    text: String,
    calls: Vec<ScriptedCall>,
    /// Delay before the answer, milliseconds.
    delay_ms: u64,
    /// The answer waits until this file exists.
    hold: Option<PathBuf>,
    /// Streams the text in pieces.
    stream: Option<ScriptedStream>,
    /// The call fails with this message.
    fail: Option<String>,
    /// The call panics.
    panic: bool,
}

/// How a text is streamed in pieces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedStream {
    /// Characters per piece.
    chars: usize,
    /// Pause after each piece, milliseconds.
    #[serde(default)]
    pause_ms: u64,
    /// Number of pieces after which the stream waits until the file of `hold` exists.
    #[serde(default)]
    hold_after: usize,
    #[serde(default)]
    hold: Option<PathBuf>,
}

impl ScriptedStream {
    async fn say(&self, text: &str, folder: &Path, sink: &dyn TextSink) {
        let letters: Vec<char> = text.chars().collect();
        for (number, piece) in letters.chunks(self.chars.max(1)).enumerate() {
            if number == self.hold_after {
                hold(folder, self.hold.as_deref()).await;
            }
            sink.text(&String::from_iter(piece));
            if self.pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
            }
        }
    }
}

/// Waits until `file` exists; returns at once if it is `None`.
async fn hold(folder: &Path, file: Option<&Path>) {
    let Some(file) = file.map(|file| folder.join(file)) else {
        return;
    };
    while !file.exists() {
        tokio::time::sleep(HOLD_POLL).await;
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    tool: String,
    #[serde(default)]
    arguments: Value,
}

/// The provider, with its rules loaded.
pub(super) struct ScriptProvider {
    rules: Vec<ScriptRule>,
    log: Option<PathBuf>,
    folder: PathBuf,
}

impl ScriptProvider {
    /// Loads the script at `path`; the error names the file.
    pub(super) fn load(path: &Path) -> Result<Self, ProviderFault> {
        let fault = |error: &dyn std::fmt::Display| {
            ProviderFault::new(format!("the script {}: {error}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
        let file: ScriptFile = serde_json::from_str(&text).map_err(|error| fault(&error))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(ScriptProvider {
            log: file.log.map(|log| folder.join(log)),
            rules: file.rules,
            folder,
        })
    }

    fn answer(&self, request: &ModelRequest) -> Result<Chosen, ProviderFault> {
        let messages = &request.messages;
        let latest = latest_input(messages)
            .ok_or_else(|| ProviderFault::new("the script has no input to answer".to_owned()))?;
        let input = input_text(messages, latest);
        let announce = messages[latest].kind == MessageKind::Announce;
        let rule = self
            .rules
            .iter()
            .find(|rule| {
                rule.match_announce == announce && (rule.text == "*" || input.contains(&rule.text))
            })
            .ok_or_else(|| {
                let shown = crate::kernel::text::in_quotes(&input, 120);
                ProviderFault::new(format!("the script has no rule for {shown}"))
            })?;
        let given = messages[latest..]
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let index = given + request.empty_answers as usize;
        let answer = rule.answers.get(index).cloned().ok_or_else(|| {
            ProviderFault::new(format!(
                "the script's rule {:?} has {} answers, but answer number {} was requested",
                rule.text,
                rule.answers.len(),
                index + 1
            ))
        })?;
        let seq = messages.last().map_or(0, |message| message.seq);
        self.write_log(&rule.text, index, seq)?;
        Ok(Chosen { answer, index, seq })
    }

    /// Logs that a call has begun: evidence outside the database.
    fn write_log(&self, rule: &str, index: usize, seq: i64) -> Result<(), ProviderFault> {
        let Some(path) = &self.log else {
            return Ok(());
        };
        let line = format!("{}\n", json!({"match": rule, "index": index, "seq": seq}));
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            // A single write, so that lines of several processes do not interleave.
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| ProviderFault::new(format!("the log {}: {error}", path.display())))
    }
}

/// The text of the latest input; consecutive announces are one input.
fn input_text(messages: &[Arc<Message>], latest: usize) -> String {
    if messages[latest].kind != MessageKind::Announce {
        return messages[latest].text();
    }
    let mut texts: Vec<String> = messages[..=latest]
        .iter()
        .rev()
        .take_while(|message| message.kind == MessageKind::Announce)
        .map(|message| message.text())
        .collect();
    texts.reverse();
    texts.join("\n")
}

struct Chosen {
    answer: ScriptedAnswer,
    index: usize,
    seq: i64,
}

impl Chosen {
    async fn give(self, folder: &Path, sink: &dyn TextSink) -> Result<ModelAnswer, ProviderFault> {
        if self.answer.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.answer.delay_ms)).await;
        }
        hold(folder, self.answer.hold.as_deref()).await;
        if self.answer.panic {
            panic!("panic requested by the script");
        }
        match &self.answer.stream {
            Some(stream) => stream.say(&self.answer.text, folder, sink).await,
            None => sink.text(&self.answer.text),
        }
        if let Some(message) = self.answer.fail {
            return Err(ProviderFault::new(message));
        }
        let mut blocks = Vec::new();
        if !self.answer.text.is_empty() {
            blocks.push(Block::Text {
                text: self.answer.text,
            });
        }
        for (number, call) in self.answer.calls.into_iter().enumerate() {
            blocks.push(Block::ToolCall {
                id: format!("script-{}-{}-{number}", self.seq, self.index),
                name: call.tool,
                arguments: call.arguments,
            });
        }
        Ok(ModelAnswer {
            blocks,
            usage: Usage {
                model_calls: 1,
                // A script does not count input tokens; the caller estimates them.
                output_tokens: 5,
                ..Usage::default()
            },
            warnings: Vec::new(),
        })
    }
}

impl Provider for ScriptProvider {
    fn name(&self) -> &str {
        "script"
    }

    fn offered(&self) -> Vec<String> {
        vec!["script/*".to_owned()]
    }

    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>> {
        let chosen = self.answer(&request);
        let folder = self.folder.clone();
        Box::pin(async move { chosen?.give(&folder, sink.as_ref()).await })
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
