//! Converts transcript entries to their wire form, for `sessions.history`.

use serde_json::value::RawValue;

use crate::kernel::delegation::ChildCall;
use crate::kernel::run::Run;
use crate::kernel::session::message::Block;
use crate::kernel::session::stored_content;
use crate::kernel::session::stored_content::{StoredContent, StoredMessage};
use crate::kernel::text;
use crate::wire::shapes;

/// Maximum number of text bytes of one message in a page.
const MESSAGE_TEXT: usize = 512 * 1024;
const _: () = assert!(
    stored_content::SHORT <= MESSAGE_TEXT,
    "no short text has to be cut"
);

/// Wire form of a transcript entry. Long texts are truncated so that the page can be sent. The
/// status of its delegated calls is taken from `delegated`.
pub(crate) fn message(
    message: StoredMessage,
    delegated: &[(Run, Vec<ChildCall>)],
) -> shapes::Message<StoredContent, Box<RawValue>> {
    let mut content = message.content;
    let sub_agent_summary = delegated
        .iter()
        .filter(|(child, _)| child.parent_run == message.run)
        .filter_map(|(child, calls)| sub_agent(child, calls))
        .filter(|summary| content.makes(&summary.tool_call_id))
        .collect();
    let truncated = match &mut content {
        StoredContent::Text(_) => false,
        StoredContent::Blocks(blocks) => {
            // These blocks are only exchanged between the store and the provider.
            blocks.retain(|block| !matches!(block, Block::Native { .. } | Block::Note { .. }));
            shorten(blocks)
        }
    };
    shapes::Message {
        id: message.id,
        seq: message.seq,
        generation: message.generation,
        at: message.at,
        role: message.role.as_str().into(),
        kind: message.kind.as_str().into(),
        origin: message.origin.as_str().into(),
        run_id: message.run,
        content,
        truncated,
        tool_call_id: message.tool_call,
        child_run_id: message.child_run,
        announce_id: message.announce,
        silent: message.silent,
        metadata: message.metadata,
        sub_agent_summary,
    }
}

fn sub_agent(child: &Run, calls: &[ChildCall]) -> Option<shapes::SubAgentSummary> {
    let delegated = child.delegated.as_ref()?;
    Some(shapes::SubAgentSummary {
        tool_call_id: delegated.call.clone(),
        child_run_id: child.id,
        session_key: child.session_key.clone(),
        agent: child.agent.clone(),
        agent_name: delegated.agent_name.clone(),
        state: child.state.as_str().into(),
        calls: calls
            .iter()
            .map(|call| shapes::SubAgentCall {
                id: call.id.clone(),
                tool: call.tool.clone(),
                status: call.status.as_str().into(),
                title: call.title.clone(),
            })
            .collect(),
    })
}

fn shorten(content: &mut [Block]) -> bool {
    let mut left = MESSAGE_TEXT;
    let mut cut = false;
    for block in content {
        match block {
            Block::Text { text } | Block::ToolResult { text, .. } => {
                let keep = text::prefix(text, left).len();
                cut |= keep < text.len();
                text.truncate(keep);
                left -= keep;
            }
            Block::ToolCall { arguments, .. } => {
                let size = arguments.to_string().len();
                if size > left {
                    *arguments = serde_json::Value::Null;
                    cut = true;
                } else {
                    left -= size;
                }
            }
            Block::Native { .. } | Block::Note { .. } => {}
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_11_long_messages_are_cut_between_characters_and_say_so() {
        let long = "ä".repeat(MESSAGE_TEXT);
        let mut content = [
            Block::Text {
                text: "x".to_owned(),
            },
            Block::Text { text: long },
            Block::ToolCall {
                id: "1".to_owned(),
                name: "read".to_owned(),
                arguments: serde_json::json!({"path": "a"}),
            },
        ];
        assert!(shorten(&mut content));
        let Block::Text { text } = &content[1] else {
            panic!("a text stays a text");
        };
        assert_eq!(text.len(), MESSAGE_TEXT - 2);
        assert!(text.chars().all(|character| character == 'ä'));
        let mut short = [Block::Text {
            text: "x".to_owned(),
        }];
        assert!(!shorten(&mut short));
    }
}
