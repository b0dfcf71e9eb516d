//! The content of a transcript entry for callers that pass it on: in its stored form, which is also
//! the form in which it is sent. The store reads it; the gateway sends it.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{Block, Message};

/// A transcript entry that is passed on with as little parsing as possible.
pub type StoredMessage = Message<StoredContent, Box<RawValue>>;

/// The content of an entry, in one of two forms of the same JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum StoredContent {
    /// Unparsed JSON: short, and visible to every client.
    Text(Box<RawValue>),
    /// Parsed blocks, because the content is long or contains blocks that only a provider may get.
    Blocks(Vec<Block>),
}

/// Maximum bytes of content that is passed on unparsed; longer content may have to be cut.
pub const SHORT: usize = 64 * 1024;

impl StoredContent {
    /// Reads the stored text. Fails if it is not a list of blocks.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        // Stored lists have the type of each block first. Quotes within a text are escaped, so this
        // matches only blocks, or an argument of a tool.
        let as_written = text.starts_with(r#"[{"type":""#) || text == "[]";
        let kept_back = [r#""type":"native""#, r#""type":"note""#];
        let for_everybody = kept_back.iter().all(|kind| !text.contains(kind));
        if as_written && text.len() <= SHORT && for_everybody {
            serde_json::from_str(text).map(StoredContent::Text)
        } else {
            serde_json::from_str(text).map(StoredContent::Blocks)
        }
    }

    /// True if it requests a tool whose name satisfies `named`.
    pub fn calls(&self, named: impl Fn(&str) -> bool) -> bool {
        match self {
            StoredContent::Blocks(blocks) => blocks
                .iter()
                .any(|block| matches!(block, Block::ToolCall { name, .. } if named(name))),
            // Tool names need no escapes; a string that is no tool name matches nothing.
            StoredContent::Text(text) => {
                let mut names = text.get().split(r#""name":""#).skip(1);
                names.any(|rest| rest.split('"').next().is_some_and(&named))
            }
        }
    }

    /// True if it contains the tool call with this id.
    pub fn makes(&self, call: &str) -> bool {
        match self {
            StoredContent::Blocks(blocks) => blocks
                .iter()
                .any(|block| matches!(block, Block::ToolCall { id, .. } if id == call)),
            StoredContent::Text(text) => {
                let id = Value::from(call).to_string();
                text.get().contains(&format!(r#""id":{id}"#))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_unread_is_short_and_for_everybody() {
        let read = |blocks: &[Block]| {
            StoredContent::read(&serde_json::to_string(blocks).unwrap()).unwrap()
        };
        let text = |text: &str| Block::Text {
            text: text.to_owned(),
        };
        for unread in [vec![], vec![text(r#"{"type":"native"}"#), text("\\\"")]] {
            let said = read(&unread);
            assert!(matches!(said, StoredContent::Text(_)), "{unread:?}");
            // It is written again unchanged.
            let again = serde_json::to_string(&said).unwrap();
            assert_eq!(serde_json::from_str::<Vec<Block>>(&again).unwrap(), unread);
        }
        let native = Block::Native {
            provider: "p".to_owned(),
            api: "openai".to_owned(),
            model: "p/m".to_owned(),
            json: "{}".to_owned(),
        };
        let note = Block::Note {
            note: crate::kernel::session::message::AnswerFinding::Paused,
        };
        for looked_into in [
            vec![text("a"), native],
            vec![text("a"), note],
            vec![text(&"x".repeat(SHORT))],
        ] {
            assert!(
                matches!(read(&looked_into), StoredContent::Blocks(read) if read == looked_into)
            );
        }
        for broken in ["", "[{\"type\":\"text\"", "{}", "[1]"] {
            assert!(StoredContent::read(broken).is_err(), "{broken}");
        }
    }
}
