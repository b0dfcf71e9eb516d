//! Selects and names the tools of a server that are offered. Names must fit every provider
//! (letters, digits, `_` and `-`, at most 64) and be distinguishable for a model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::listing::{ListedTool, ToolListing};
use super::schema::{ConvertedArguments, arguments};
use crate::contract::servers::{Served, ServedTool, SkippedTool};
use crate::kernel::text::{prefix, preview, storable};

/// The maximum length of a tool name.
const NAME_LIMIT: usize = 64;
/// The length of the hash suffix of a changed name.
const MARK: usize = 8;
/// The maximum size of a description, in bytes.
const DESCRIPTION_LIMIT: usize = 8 * 1024;
/// The maximum number of tools of one server: more would leave too little room in the model's
/// context.
const MAX_TOOLS: usize = 256;
/// The maximum size of all descriptions and schemas of one server, in bytes.
const MOST_BYTES: usize = 512 * 1024;
/// The maximum number of skipped tools that are named.
const MOST_NAMED: usize = 64;

/// The tools that a server offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The offered tools, sorted by name.
    pub tools: Arc<[ServedTool]>,
    /// The tools that are not offered, with reasons.
    pub skipped: Arc<[SkippedTool]>,
}

/// Converts the tools of `server` for models. A tool that no provider would accept is left out; of
/// tools with indistinguishable names none is offered.
pub(super) fn offer(server: &str, local: bool, list: ToolListing) -> Offer {
    let ToolListing {
        tools, mut skipped, ..
    } = list;
    let mut by_name: BTreeMap<String, Vec<ServedTool>> = BTreeMap::new();
    for tool in once_each(tools, &mut skipped) {
        match served(server, local, &tool) {
            Ok(served) => {
                let slug = tool.name.to_ascii_lowercase();
                by_name.entry(slug).or_default().push(served);
            }
            Err(reason) => skipped.push(SkippedTool {
                tool: tool.name,
                reason,
            }),
        }
    }
    let (mut offered, mut bytes) = (Vec::new(), 0);
    for mut same in by_name.into_values() {
        let reason = match same.as_slice() {
            [tool] => {
                bytes += tool.description.len() + tool.parameters.to_string().len();
                if offered.len() == MAX_TOOLS {
                    format!("the limit of {MAX_TOOLS} tools per server is reached")
                } else if bytes > MOST_BYTES {
                    format!(
                        "the descriptions and schemas of a server's tools together exceed \
                         {MOST_BYTES} bytes"
                    )
                } else {
                    offered.append(&mut same);
                    continue;
                }
            }
            same => {
                let names = same.iter().map(|tool| format!("{:?}", tool.served.tool));
                format!(
                    "{} of server {server} would have the same name, and a model could not tell them \
                     apart: none of them is offered",
                    names.collect::<Vec<_>>().join(" and ")
                )
            }
        };
        skipped.extend(same.into_iter().map(|tool| SkippedTool {
            tool: tool.served.tool,
            reason: reason.clone(),
        }));
    }
    Offer {
        tools: offered.into(),
        skipped: named(skipped).into(),
    }
}

/// Keeps each name once: the server itself can only distinguish tools by name.
fn once_each(tools: Vec<ListedTool>, skipped: &mut Vec<SkippedTool>) -> Vec<ListedTool> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<ListedTool> = Vec::with_capacity(tools.len());
    for tool in tools {
        match known.get(&tool.name) {
            None => {
                known.insert(tool.name.clone(), all.len());
                all.push(tool);
            }
            Some(&at) if all[at] == tool => {}
            Some(_) => skipped.push(SkippedTool {
                reason: "the server lists it twice; the first one is used".to_owned(),
                tool: tool.name,
            }),
        }
    }
    all
}

/// Limits the skipped tools to those that are shown, with a count of the others.
fn named(mut skipped: Vec<SkippedTool>) -> Vec<SkippedTool> {
    for one in &mut skipped {
        one.tool = preview(&storable(&one.tool), 2 * NAME_LIMIT);
    }
    let more = skipped.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        skipped.truncate(MOST_NAMED);
        skipped.push(SkippedTool {
            tool: format!("({more} more)"),
            reason: "only the first ones are named".to_owned(),
        });
    }
    skipped
}

fn served(server: &str, local: bool, tool: &ListedTool) -> Result<ServedTool, String> {
    let ConvertedArguments { schema, renamed } = arguments(&tool.schema)?;
    Ok(ServedTool {
        name: name(server, &tool.name),
        description: storable(prefix(&tool.description, DESCRIPTION_LIMIT)),
        parameters: schema,
        served: Served {
            server: server.to_owned(),
            effect: tool.effect,
            local,
            of_session: false,
            tool: tool.name.clone(),
            renamed,
        },
    })
}

/// `server__tool` if providers accept it; otherwise the accepted characters and a hash suffix.
fn name(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let whole = format!("{server}__{tool}");
    if !tool.is_empty() && whole.len() <= NAME_LIMIT && whole.chars().all(fits) {
        return whole;
    }
    let plain = whole.replace(|c| !fits(c), "_");
    let mark = blake3::hash(whole.as_bytes()).to_hex();
    let kept = prefix(&plain, NAME_LIMIT - MARK - 1);
    format!("{kept}_{}", &mark[..MARK])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run::step::EffectClass;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn tool(name: &str) -> ListedTool {
        ListedTool {
            name: name.to_owned(),
            description: "does it".to_owned(),
            schema: json!({}),
            effect: EffectClass::Once,
        }
    }

    fn with_schema(name: &str, schema: Value) -> ListedTool {
        ListedTool {
            schema,
            ..tool(name)
        }
    }

    fn list(tools: Vec<ListedTool>) -> ToolListing {
        ToolListing::of(tools)
    }

    fn names(offer: &Offer) -> Vec<&str> {
        offer.tools.iter().map(|one| one.name.as_str()).collect()
    }

    proptest! {
        #[test]
        fn every_provider_takes_every_name(tool in "\\PC{0,90}", server in "[a-z][a-z0-9-]{0,31}") {
            let name = name(&server, &tool);
            prop_assert!(name.len() <= NAME_LIMIT, "{name}");
            prop_assert!(name.starts_with(&format!("{server}__")), "{name}");
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!(name.chars().all(fits), "{name}");
        }
    }

    #[test]
    fn a_plain_name_is_kept_and_two_long_ones_stay_two() {
        assert_eq!(name("files", "read_file"), "files__read_file");
        let (one, other) = ("x".repeat(80), "x".repeat(81));
        assert_ne!(name("files", &one), name("files", &other));
        assert_ne!(name("files", "a.b"), name("files", "a/b"));
    }

    #[test]
    fn names_that_cannot_be_told_apart_are_refused_with_both() {
        let tools = vec![tool("Get"), tool("get"), tool("put")];
        let offer = offer("a", true, list(tools));
        assert_eq!(names(&offer), ["a__put"]);
        assert_eq!(offer.skipped.len(), 2);
        for skipped in offer.skipped.iter() {
            assert!(
                skipped.reason.contains("\"Get\" and \"get\""),
                "{skipped:?}"
            );
        }
    }

    #[test]
    fn a_tool_that_is_listed_twice_is_offered_once() {
        let other = with_schema("get", json!({ "properties": { "a": {} } }));
        let offer = offer("a", true, list(vec![tool("get"), tool("get"), other]));
        assert_eq!(names(&offer), ["a__get"]);
        assert_eq!(offer.skipped.len(), 1);
        assert!(offer.skipped[0].reason.contains("twice"), "{offer:?}");
    }

    #[test]
    fn one_odd_schema_costs_its_own_tool_alone() {
        let odd = with_schema("odd", json!({ "type": "string" }));
        let offer = offer("a", true, list(vec![odd, tool("fine")]));
        assert_eq!(names(&offer), ["a__fine"]);
        assert_eq!(offer.skipped[0].tool, "odd");
        assert!(offer.skipped[0].reason.contains("object"), "{offer:?}");
    }

    #[test]
    fn a_server_does_not_flood_the_context() {
        let many = (0..MAX_TOOLS + 3).map(|one| tool(&format!("t{one}")));
        let offer_of = |tools: Vec<ListedTool>| offer("a", true, list(tools));
        let found = offer_of(many.collect());
        assert_eq!((found.tools.len(), found.skipped.len()), (MAX_TOOLS, 3));

        let long = |one: usize| ListedTool {
            description: "x".repeat(1 << 20),
            schema: json!({ "description": "y".repeat(2000), "title": "z".repeat(40_000) }),
            ..tool(&format!("t{one:02}"))
        };
        let found = offer_of((0..20).map(long).collect());
        let bytes = |tool: &ServedTool| tool.description.len() + tool.parameters.to_string().len();
        assert!(found.tools.iter().map(bytes).sum::<usize>() <= MOST_BYTES);
        assert!(found.tools.len() > 5, "{}", found.tools.len());
        assert_eq!(found.tools.len() + found.skipped.len(), 20);

        let bad = (0..500).map(|one| with_schema(&format!("t{one}"), json!(7)));
        let found = offer_of(bad.collect());
        assert_eq!(found.skipped.len(), MOST_NAMED + 1);
        assert!(found.skipped[MOST_NAMED].tool.contains("436 more"));
    }
}
