//! Agents that execute tool calls while their callers wait. Tests are named after their
//! requirements.
//!
//! Guarantees for a sealed subagent (`subagent_<agent>`), and the tests for them:
//!
//! | Rule | Test |
//! |---|---|
//! | a host with nothing but subagents gets one result per call, and nothing of them is streamed | `sealed::c1_host_without_direct_tools` |
//! | long-term memory is shared by namespace, short-term memory is the child's own | `isolation::c4_subagent_memory_isolation` |
//! | its tools are its own, and it is itself a tool with a schema | `isolation::c1_subagent_allowlist_schema` |
//! | it writes only in `subagents/<name>/` | `sealed::c5_subagent_filesystem_namespace` |
//! | parallel calls do not mix, and keep their order | `sealed::c5_subagent_parallel_calls` |
//! | failure and timeout are results with `unavailable` | `sealed::c2_subagent_error_propagation` |
//! | it is checked once, when the agents are loaded | `health::c1_subagent_lifecycle_healthcheck`; counted in `agent::health_tests` |
//! | the context is packed once, by the host | `sealed::c3_context_compress_called_once` |
//! | it may not do what its host may not do | `isolation::c5_subagent_permissions` |
//!
//! The registry, and the tool `task`:
//!
//! | What | Test |
//! |---|---|
//! | agent registry: register, query, filter | `registry::e1_agent_registry` |
//! | tools of an agent, filtered | `registry::e2_get_filtered_tools` |
//! | agent runner: steps of a run, separate contexts | `registry::e3_agent_runner` |
//! | task tool: parameters, forwarded events | `task::e3_task_tool_parameter_validation`, `task::e3_task_tool_event_forwarding` |
//! | complete flow: caller, task, subagent, result | `task::e3_complete_flow` |
//! | event flow: `tool.progress` at the right call, in order | `task::e4_event_flow` |
//! | live display of a subagent's tools | `pictures::e6_display_verification` |

mod health;
mod isolation;
mod names;
mod registry;
mod sealed;
mod task;

use abide::client::EventSubscription;
use serde_json::{Value, json};

use crate::events::next;
use crate::harness::{Link, Place, Script, Spawned};

/// The tool results in this session, in order.
pub(crate) async fn tool_results(client: &Link, session: &str) -> Vec<Value> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| {
            let text = entry["content"][0]["text"].as_str().unwrap();
            serde_json::from_str(text).unwrap_or_else(|_| text.into())
        })
        .collect()
}

/// The events of these kinds up to the end of `run`.
pub(crate) async fn until_ended(events: &mut EventSubscription, run: &str) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let event = serde_json::to_value(next(events).await).unwrap();
        let is_end = event["kind"] == "run.ended" && event["runId"] == run;
        found.push(event);
        if is_end {
            return found;
        }
    }
}

pub(crate) async fn children(client: &Link, session: &str) -> Vec<Value> {
    let params = json!({ "parent": session });
    let found = client.call("runs.list", params).await;
    found["runs"].as_array().unwrap().clone()
}

/// Starts a turn in the host's session.
async fn host_turn(client: &Link, message: &str) -> Spawned {
    let params = json!({ "key": "agent:host:a", "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn("agent:host:a", message).await
}

/// A host whose only tools are two subagents.
fn host(script: Script) -> Place {
    Place::new(script)
        .with_agent(
            "host",
            "mode: primary\ntools: []\nlinked_agents:\n  - {agent: writer, session: own, \
             write_scope: own}\n  - {agent: broken, session: own, timeout: 300ms}\n  - {agent: \
             nobody, session: own}\n  - {agent: away, session: own}",
        )
        .with_agent("writer", "mode: subagent\ntools: [write]")
        .with_agent("broken", "mode: subagent")
        .with_agent("away", "mode: subagent\nmodel: nowhere/none")
}
