//! Reads the tools of a server: every page of `tools/list` within limits. Each tool is parsed
//! separately, so that an invalid one does not affect others. Called by `connection`.

use std::collections::HashSet;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::Value;

use crate::contract::servers::SkippedTool;
use crate::kernel::run::step::EffectClass;
use crate::kernel::text::preview;

/// The maximum number of pages.
const PAGES: usize = 64;
/// The maximum number of tools.
const TOOLS: usize = 1024;
/// The maximum size of all tools, in bytes.
const BYTES: usize = 8 << 20;
/// The maximum size of a page cursor, in bytes.
const CURSOR: usize = 8 * 1024;
/// The maximum size of a tool name, in bytes.
const NAME: usize = 1024;

/// A tool as its server lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedTool {
    pub name: String,
    pub description: String,
    /// The schema of its arguments, unchecked.
    pub schema: Value,
    pub effect: EffectClass,
}

/// A list of tools, possibly incomplete.
#[derive(Debug, Default)]
pub(super) struct ToolListing {
    pub tools: Vec<ListedTool>,
    /// Entries that are no valid tools, and the reason if the list was not read completely.
    pub skipped: Vec<SkippedTool>,
    seen: HashSet<String>,
    count: usize,
    bytes: usize,
}

/// The name of the entry in `skipped` for the unread rest of a list.
const REST: &str = "(the rest of the list)";

/// Reads the list of tools page by page.
pub(super) async fn list(peer: &Peer<RoleClient>) -> Result<ToolListing, ServiceError> {
    let mut list = ToolListing::default();
    let mut cursor = None;
    for page in 0..PAGES {
        match ask(peer, cursor).await {
            Ok(result) => match list.take(result) {
                Some(next) => cursor = Some(next),
                None => return Ok(list),
            },
            Err(fault) if page == 0 => return Err(fault),
            Err(fault) => {
                list.stop(format!("page {} could not be read: {fault}", page + 1));
                return Ok(list);
            }
        }
    }
    list.stop(format!("it has more than {PAGES} pages"));
    Ok(list)
}

/// Requests one page, bypassing the library's cache, which would keep all pages.
async fn ask(peer: &Peer<RoleClient>, cursor: Option<String>) -> Result<Value, ServiceError> {
    let request = ClientRequest::ListToolsRequest(ListToolsRequest {
        method: Default::default(),
        params: Some(PaginatedRequestParams::default().with_cursor(cursor)),
        extensions: Default::default(),
    });
    let options = PeerRequestOptions::no_options();
    let asked = peer.send_cancellable_request(request, options).await?;
    match asked.await_response().await? {
        // An invalid tool makes the library parse the list as a custom result.
        ServerResult::CustomResult(result) => Ok(result.0),
        result @ ServerResult::ListToolsResult(_) => {
            serde_json::to_value(result).map_err(|_| ServiceError::UnexpectedResponse)
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

impl ToolListing {
    /// Creates a complete list of these tools.
    #[cfg(test)]
    pub(super) fn of(tools: Vec<ListedTool>) -> ToolListing {
        ToolListing {
            tools,
            ..ToolListing::default()
        }
    }

    /// Adds a page; returns the cursor of the next page, if there is one to read.
    fn take(&mut self, mut page: Value) -> Option<String> {
        let tools = match page.get_mut("tools").map(Value::take) {
            Some(Value::Array(tools)) => tools,
            _ => {
                self.stop("an answer of the server is not a list of tools".to_owned());
                return None;
            }
        };
        for tool in tools {
            self.count += 1;
            self.bytes += tool.to_string().len();
            if self.count > TOOLS {
                self.stop(format!("it has more than {TOOLS} tools"));
                return None;
            }
            if self.bytes > BYTES {
                self.stop(format!("it has more than {BYTES} bytes"));
                return None;
            }
            match read(tool, self.count) {
                Ok(tool) => self.tools.push(tool),
                Err(skipped) => self.skipped.push(skipped),
            }
        }
        let next = page["nextCursor"]
            .as_str()
            .filter(|next| !next.is_empty())?;
        if next.len() > CURSOR {
            self.stop(format!("a page cursor has more than {CURSOR} bytes"));
            return None;
        }
        if !self.seen.insert(next.to_owned()) {
            self.stop(format!(
                "the server returned page {} again",
                preview(&format!("{next:?}"), 80)
            ));
            return None;
        }
        Some(next.to_owned())
    }

    fn stop(&mut self, why: String) {
        self.skipped.push(SkippedTool {
            tool: REST.to_owned(),
            reason: format!("the list of tools was not read completely: {why}"),
        });
    }
}

/// Parses a tool field by field.
fn read(mut tool: Value, number: usize) -> Result<ListedTool, SkippedTool> {
    let skipped = |tool: String, reason: &str| SkippedTool {
        tool,
        reason: reason.to_owned(),
    };
    if !tool.is_object() {
        let name = format!("(number {number})");
        return Err(skipped(name, "it is not a JSON object"));
    }
    let Some(name) = tool["name"].as_str().map(str::to_owned) else {
        let name = format!("(number {number})");
        return Err(skipped(name, "it has no name"));
    };
    if name.len() > NAME {
        let reason = format!("its name has {} bytes, more than {NAME}", name.len());
        return Err(skipped(preview(&name, 64), &reason));
    }
    let described = [
        &tool["description"],
        &tool["title"],
        &tool["annotations"]["title"],
    ];
    let described = described.iter().find_map(|text| text.as_str());
    let description = described.unwrap_or_default().to_owned();
    let says = |hint: &str| tool["annotations"][hint] == true;
    // Without hints a tool may have any effect.
    let effect = if says("readOnlyHint") {
        EffectClass::Read
    } else if says("idempotentHint") {
        EffectClass::Idempotent
    } else {
        EffectClass::Once
    };
    let schema = ["inputSchema", "input_schema", "parameters"]
        .iter()
        .find_map(|field| tool.get_mut(field).map(Value::take));
    Ok(ListedTool {
        name,
        description,
        schema: schema.unwrap_or_default(),
        effect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn page(tools: Value, next: Value) -> Value {
        json!({ "tools": tools, "nextCursor": next })
    }

    fn why(list: &ToolListing) -> &str {
        &list.skipped.last().unwrap().reason
    }

    #[test]
    fn a_list_ends_where_its_server_says_so() {
        for last in [json!(null), json!(""), json!(7)] {
            let mut list = ToolListing::default();
            let one = json!([{ "name": "a", "inputSchema": {} }]);
            assert_eq!(
                list.take(page(one.clone(), json!("2"))).as_deref(),
                Some("2")
            );
            assert_eq!(list.take(page(one, last)), None);
            assert_eq!((list.tools.len(), list.skipped.len()), (2, 0));
        }
    }

    #[test]
    fn a_list_without_an_end_is_read_no_further_and_says_why() {
        let mut list = ToolListing::default();
        assert!(list.take(page(json!([]), json!("a"))).is_some());
        assert!(list.take(page(json!([]), json!("b"))).is_some());
        assert!(list.take(page(json!([]), json!("a"))).is_none());
        assert!(why(&list).contains("\"a\" again"), "{}", why(&list));

        let many: Vec<Value> = (0..=TOOLS)
            .map(|one| json!({ "name": format!("{one}") }))
            .collect();
        let mut list = ToolListing::default();
        assert!(list.take(page(json!(many), json!("a"))).is_none());
        assert_eq!(list.tools.len(), TOOLS);
        assert!(why(&list).contains("1024 tools"), "{}", why(&list));

        let large = "x".repeat(BYTES / 4);
        let many: Vec<Value> = (0..5)
            .map(|one| json!({ "name": format!("{one}"), "description": large }))
            .collect();
        let mut list = ToolListing::default();
        assert!(list.take(page(json!(many), json!(null))).is_none());
        assert_eq!(list.tools.len(), 3);
        assert!(why(&list).contains("bytes"), "{}", why(&list));

        let mut list = ToolListing::default();
        let mark = "x".repeat(CURSOR + 1);
        assert!(list.take(page(json!([]), json!(mark))).is_none());
        assert!(why(&list).contains("page cursor"), "{}", why(&list));

        let mut list = ToolListing::default();
        assert!(list.take(json!({ "tools": {} })).is_none());
        assert!(why(&list).contains("not a list"), "{}", why(&list));
    }

    #[test]
    fn what_is_no_tool_is_named_with_its_reason_and_costs_no_other() {
        let mut list = ToolListing::default();
        let tools = json!([
            { "name": "fine", "description": 7, "annotations": { "readOnlyHint": true } },
            { "inputSchema": {} },
            "a tool",
            { "name": "x".repeat(NAME + 1) },
            { "name": "titled", "title": "Does it", "inputSchema": null, "annotations": [] },
        ]);
        assert_eq!(list.take(page(tools, json!(null))), None);
        let names: Vec<&str> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["fine", "titled"]);
        assert_eq!(list.tools[0].effect, EffectClass::Read);
        assert_eq!(list.tools[1].description, "Does it");
        assert_eq!(list.tools[1].effect, EffectClass::Once);
        assert_eq!(list.skipped.len(), 3);
        assert!(list.skipped[0].tool.contains("number 2"));
    }

    #[test]
    fn what_a_repeat_does_is_what_the_server_says() {
        let effect = |hints: Value| {
            read(json!({ "name": "a", "annotations": hints }), 1)
                .unwrap()
                .effect
        };
        assert_eq!(effect(json!(null)), EffectClass::Once);
        assert_eq!(effect(json!({ "readOnlyHint": true })), EffectClass::Read);
        assert_eq!(
            effect(json!({ "idempotentHint": true })),
            EffectClass::Idempotent
        );
        assert_eq!(effect(json!({ "readOnlyHint": false })), EffectClass::Once);
        assert_eq!(effect(json!({ "readOnlyHint": "yes" })), EffectClass::Once);
    }
}
