//! What an entry of a transcript says, for whoever passes it on: in the form in which it is
//! stored, which is the one in which it is sent. The store reads it, the doors send it.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{Block, Message};

/// An entry for whoever passes it on and looks into no more of it than must be.
pub type Passed = Message<Said, Box<RawValue>>;

/// What an entry says, in one of two forms of the same JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Said {
    /// As it was written, short, and all of it for everybody.
    Text(Box<RawValue>),
    /// Read, because it is long or holds what only a provider is given.
    Blocks(Vec<Block>),
}

/// Longer texts of an entry are read before they are passed on: they may have to be cut.
pub const SHORT: usize = 64 * 1024;

impl Said {
    /// Out of the text that is stored.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        // A list of pieces, each with its type first: so they are written. A quote inside of a
        // text has a backslash before it, so this finds pieces alone, or a tool's argument.
        let as_written = text.starts_with(r#"[{"type":""#) || text == "[]";
        let kept_back = [r#""type":"native""#, r#""type":"note""#];
        let for_everybody = kept_back.iter().all(|kind| !text.contains(kind));
        if as_written && text.len() <= SHORT && for_everybody {
            serde_json::from_str(text).map(Said::Text)
        } else {
            serde_json::from_str(text).map(Said::Blocks)
        }
    }

    /// Does it call a tool of such a name?
    pub fn calls(&self, named: impl Fn(&str) -> bool) -> bool {
        match self {
            Said::Blocks(blocks) => blocks
                .iter()
                .any(|block| matches!(block, Block::ToolCall { name, .. } if named(name))),
            // Names of tools need no escapes; what is no name calls nothing.
            Said::Text(text) => {
                let mut names = text.get().split(r#""name":""#).skip(1);
                names.any(|rest| rest.split('"').next().is_some_and(&named))
            }
        }
    }

    /// Does it make the call with this id?
    pub fn makes(&self, call: &str) -> bool {
        match self {
            Said::Blocks(blocks) => blocks
                .iter()
                .any(|block| matches!(block, Block::ToolCall { id, .. } if id == call)),
            Said::Text(text) => {
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
        let read = |blocks: &[Block]| Said::read(&serde_json::to_string(blocks).unwrap()).unwrap();
        let text = |text: &str| Block::Text {
            text: text.to_owned(),
        };
        for unread in [vec![], vec![text(r#"{"type":"native"}"#), text("\\\"")]] {
            let said = read(&unread);
            assert!(matches!(said, Said::Text(_)), "{unread:?}");
            // And it comes out as it went in.
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
            note: crate::kernel::message::Note::Paused,
        };
        for looked_into in [
            vec![text("a"), native],
            vec![text("a"), note],
            vec![text(&"x".repeat(SHORT))],
        ] {
            assert!(matches!(read(&looked_into), Said::Blocks(read) if read == looked_into));
        }
        for broken in ["", "[{\"type\":\"text\"", "{}", "[1]"] {
            assert!(Said::read(broken).is_err(), "{broken}");
        }
    }
}
