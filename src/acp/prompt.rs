//! The content of a prompt as the text of a message.

use percent_encoding::percent_decode_str;

use super::titles::fenced;
use crate::acp_protocol::request::ContentBlock;
use crate::acp_protocol::{Answered, RpcError};

/// Joins the parts. Files that the editor includes are quoted between fences, so that their content
/// does not read as the user's words.
pub(super) fn text(blocks: &[ContentBlock]) -> Answered<String> {
    let mut text = String::new();
    for block in blocks {
        match block {
            ContentBlock::Text { text: part } => text.push_str(part),
            ContentBlock::ResourceLink { name, uri } => {
                text.push_str(&format!("[{}]({})", place(name), place(uri)));
            }
            ContentBlock::Resource { resource } => {
                let uri = place(&resource.uri);
                begin_paragraph(&mut text);
                match &resource.text {
                    Some(content) => text.push_str(&format!("{uri}:\n{}\n\n", fenced(content))),
                    None => text.push_str(&format!("{uri} (its content is not text)\n\n")),
                }
            }
            ContentBlock::Image {} | ContentBlock::Audio {} => {
                return Err(RpcError::params(
                    "images and audio are not supported; nothing was sent. Send text, or a link \
                     to the file",
                ));
            }
        }
    }
    let text = text.trim_end();
    match text.trim().is_empty() {
        true => Err(RpcError::params("the prompt has no text; nothing was sent")),
        false => Ok(text.to_owned()),
    }
}

fn begin_paragraph(text: &mut String) {
    let kept = text.trim_end().len();
    text.truncate(kept);
    if !text.is_empty() {
        text.push_str("\n\n");
    }
}

/// A name or address on one line; the path alone for a file.
fn place(uri: &str) -> String {
    let path = uri.strip_prefix("file://").map(percent_decode_str);
    let path = path.and_then(|path| path.decode_utf8().ok());
    let plain = path.unwrap_or(uri.into());
    plain.chars().filter(|ch| !ch.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(blocks: Value) -> Answered<String> {
        let blocks: Vec<ContentBlock> = serde_json::from_value(blocks).unwrap();
        text(&blocks)
    }

    #[test]
    fn links_and_files_keep_their_places() {
        let told = read(json!([
            { "type": "text", "text": "Compare " },
            { "type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs" },
            { "type": "text", "text": " with this:" },
            { "type": "resource", "resource": { "uri": "file:///w/my%20b.rs", "text": "```\nx" } },
            { "type": "resource", "resource": { "uri": "x://b", "blob": "AA==" } },
        ]));
        assert_eq!(
            told.unwrap(),
            "Compare [a.rs](/w/a.rs) with this:\n\n/w/my b.rs:\n````\n```\nx\n````\n\n\
             x://b (its content is not text)"
        );
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let image = json!([{ "type": "image", "data": "", "mimeType": "image/png" }]);
        for blocks in [json!([]), json!([{ "type": "text", "text": " \n" }]), image] {
            assert!(read(blocks).is_err());
        }
    }
}
