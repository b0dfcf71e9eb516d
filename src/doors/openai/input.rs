//! The messages of a request, and the text of the turn that they become.

use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::OpenAiError;

/// Decodes the body of a request, which may be large and is released; the error names the field.
pub(super) fn decoded<T: DeserializeOwned>(body: Bytes) -> Result<T, OpenAiError> {
    let mut source = serde_json::Deserializer::from_slice(&body);
    serde_path_to_error::deserialize(&mut source).map_err(|at| {
        let path = at.path().to_string();
        let message = format!("{path}: {}", at.inner());
        OpenAiError::field(&path, "invalid_value", message)
    })
}

/// A message: of chat completions, or an input item of responses.
#[derive(Deserialize)]
pub(super) struct InputMessage {
    /// Type of an item of responses; only messages are accepted.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `system`, `developer`, `user` or `assistant`.
    role: Option<String>,
    content: Option<InputContent>,
}

/// Content of a message.
#[derive(Deserialize)]
#[serde(untagged)]
enum InputContent {
    Text(String),
    Parts(Vec<InputPart>),
}

/// A part of a message; only text is accepted.
#[derive(Deserialize)]
struct InputPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// A conversation as the client sent it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Conversation {
    /// Texts of the system and developer messages.
    instructions: Vec<String>,
    /// The messages of both sides, in order: true for the agent's.
    messages: Vec<(bool, String)>,
}

impl Conversation {
    /// Reads messages; `field` names them in errors.
    pub(super) fn read(field: &str, messages: Vec<InputMessage>) -> Result<Self, OpenAiError> {
        let mut conversation = Conversation::default();
        for (place, message) in messages.into_iter().enumerate() {
            let at = format!("{field}[{place}]");
            let unsupported = |what: &str| {
                let message = format!("{what} is not supported: agents use their own tools");
                OpenAiError::field(&at, "unsupported_value", message)
            };
            if let Some(kind) = message.kind.as_deref().filter(|kind| *kind != "message") {
                return Err(unsupported(&format!("an item of type {kind}")));
            }
            let text = match message.content {
                None => String::new(),
                Some(InputContent::Text(text)) => text,
                Some(InputContent::Parts(parts)) => joined(&at, parts)?,
            };
            match message.role.as_deref() {
                Some("system" | "developer") => conversation.instructions.push(text),
                Some("user") => conversation.messages.push((false, text)),
                Some("assistant") if !text.is_empty() => conversation.messages.push((true, text)),
                Some("assistant") => {}
                Some(role) => return Err(unsupported(&format!("a message of role {role}"))),
                None => {
                    let message = "a message needs a role";
                    return Err(OpenAiError::field(
                        &at,
                        "missing_required_parameter",
                        message,
                    ));
                }
            }
        }
        Ok(conversation)
    }

    /// A conversation of one text of the user.
    pub(super) fn of(text: String) -> Self {
        Conversation {
            instructions: Vec::new(),
            messages: vec![(false, text)],
        }
    }

    /// Adds instructions before the others.
    pub(super) fn instruct(&mut self, instructions: Option<String>) {
        if let Some(instructions) = instructions {
            self.instructions.insert(0, instructions);
        }
    }

    /// The text of a turn in a session that has seen nothing of the conversation.
    pub(super) fn whole(&self, field: &str) -> Result<String, OpenAiError> {
        let (before, latest) = self.messages.split_at(self.latest_from());
        let latest = request(latest, field)?;
        let mut text = String::new();
        if !self.instructions.is_empty() {
            let instructions = self.instructions.join("\n\n");
            text.push_str(&format!("Instructions:\n{instructions}\n\n"));
        }
        if !before.is_empty() {
            text.push_str("The conversation so far:\n\n");
            for (is_agent, message) in before {
                let role = if *is_agent { "assistant" } else { "user" };
                text.push_str(&format!("{role}: {message}\n\n"));
            }
        }
        if !text.is_empty() {
            text.push_str("The request:\n");
        }
        Ok(text + &latest)
    }

    /// The text of a turn in a session that has seen the conversation up to the agent's last
    /// message. A first message comes with its instructions.
    pub(super) fn latest(&self, field: &str) -> Result<String, OpenAiError> {
        match self.latest_from() {
            0 => self.whole(field),
            from => request(&self.messages[from..], field),
        }
    }

    /// Where the messages after the agent's last one begin.
    fn latest_from(&self) -> usize {
        let last = self.messages.iter().rposition(|(is_agent, _)| *is_agent);
        last.map_or(0, |last| last + 1)
    }
}

fn request(messages: &[(bool, String)], field: &str) -> Result<String, OpenAiError> {
    let texts: Vec<&str> = messages.iter().map(|(_, text)| text.as_str()).collect();
    let text = texts.join("\n\n");
    match text.trim().is_empty() {
        true => Err(OpenAiError::field(
            field,
            "invalid_value",
            "the last message must be the user's and must have a text",
        )),
        false => Ok(text),
    }
}

fn joined(at: &str, parts: Vec<InputPart>) -> Result<String, OpenAiError> {
    let mut texts = Vec::new();
    for part in parts {
        match (part.kind.as_str(), part.text) {
            ("text" | "input_text" | "output_text", Some(text)) => texts.push(text),
            (kind, _) => {
                let message = format!("content of type {kind} is not supported: only text is");
                let at = format!("{at}.content");
                return Err(OpenAiError::field(&at, "unsupported_value", message));
            }
        }
    }
    Ok(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(messages: Value) -> Result<Conversation, OpenAiError> {
        Conversation::read("messages", serde_json::from_value(messages).unwrap())
    }

    #[test]
    fn a_single_message_is_the_turn_as_it_is() {
        let one = read(json!([{ "role": "user", "content": "Where is it?" }])).unwrap();
        assert_eq!(one.whole("messages").unwrap(), "Where is it?");
        assert_eq!(one.latest("messages").unwrap(), "Where is it?");
    }

    #[test]
    fn a_session_that_knows_the_conversation_gets_only_what_is_new() {
        let long = read(json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": [{ "type": "text", "text": "two" }] },
            { "role": "user", "content": [{ "type": "text", "text": "three" }] },
        ]))
        .unwrap();
        assert_eq!(long.latest("messages").unwrap(), "three");
        let whole = long.whole("messages").unwrap();
        assert_eq!(
            whole,
            "Instructions:\nBe brief.\n\nThe conversation so far:\n\nuser: one\n\nassistant: two\
             \n\nThe request:\nthree"
        );
    }

    #[test]
    fn what_an_agent_cannot_read_is_refused_with_its_place() {
        let image = json!([{ "role": "user", "content": [{ "type": "image_url" }] }]);
        let refused = read(image).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("messages[0].content"));
        let tool = json!([{ "role": "tool", "content": "x" }]);
        assert_eq!(
            read(tool).unwrap_err().param.as_deref(),
            Some("messages[0]")
        );
        let item = json!([{ "type": "function_call_output", "output": "x" }]);
        assert!(read(item).is_err());
        let own = read(json!([{ "role": "assistant", "content": "x" }])).unwrap();
        assert!(own.whole("messages").is_err());
        assert!(read(json!([])).unwrap().whole("messages").is_err());
    }
}
