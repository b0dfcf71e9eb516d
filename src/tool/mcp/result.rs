//! Converts a server's answer for the model: texts unchanged, other content as its type and size.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tool::ToolOutput;

/// Converts the answer of a tool. A failure reported by the tool is an answer, too.
pub(super) fn to_output(result: CallToolResult) -> ToolOutput {
    let mut parts: Vec<String> = result.content.iter().map(part).collect();
    let has_text = result
        .content
        .iter()
        .any(|block| matches!(block, ContentBlock::Text(text) if !text.text.trim().is_empty()));
    // A server that gives both repeats the same content.
    if let (Some(structured), false) = (&result.structured_content, has_text) {
        parts.push(structured.to_string());
    }
    let text = match parts.is_empty() {
        true => "done; the tool returned no content".to_owned(),
        false => parts.join("\n"),
    };
    ToolOutput {
        text,
        is_error: result.is_error == Some(true),
    }
}

fn part(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            let size = bytes(&image.data);
            format!("[image, {}, {size} bytes: not shown]", image.mime_type)
        }
        ContentBlock::Audio(audio) => {
            let size = bytes(&audio.data);
            format!("[audio, {}, {size} bytes: not shown]", audio.mime_type)
        }
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[resource {uri}]\n{text}")
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let kind = mime_type.as_deref().unwrap_or("binary");
                format!("[resource {uri}, {kind}, {} bytes: not shown]", bytes(blob))
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().unwrap_or_default();
            format!("[link to resource {} ({}) {about}]", link.uri, link.name)
        }
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// The number of bytes that this base64 encodes.
fn bytes(base64: &str) -> usize {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(result: Value) -> (String, bool) {
        let output = to_output(serde_json::from_value(result).unwrap());
        (output.text, output.is_error)
    }

    #[test]
    fn texts_are_quoted_and_what_is_no_text_is_named_with_its_size() {
        let content = json!([
            { "type": "text", "text": "hello" },
            { "type": "image", "data": "QUJD", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "a://c", "blob": "QUI=" } },
            { "type": "resource_link", "uri": "a://d", "name": "d" },
        ]);
        let (text, is_error) = text(json!({ "content": content, "isError": true }));
        assert!(is_error);
        for part in [
            "hello\n",
            "[image, image/png, 3 bytes: not shown]",
            "[resource a://b]\ninside",
            "[resource a://c, binary, 2 bytes: not shown]",
            "[link to resource a://d (d) ]",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("QUJD"), "{text}");
    }

    #[test]
    fn structured_content_is_shown_where_no_text_says_the_same() {
        let structured = json!({ "structuredContent": { "a": 1 } });
        assert_eq!(text(structured).0, r#"{"a":1}"#);
        let both = json!({
            "content": [{ "type": "text", "text": "a is 1" }],
            "structuredContent": { "a": 1 },
        });
        assert_eq!(text(both).0, "a is 1");
        assert!(!text(json!({ "content": [] })).0.is_empty());
    }
}
