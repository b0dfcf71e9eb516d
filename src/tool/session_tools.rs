//! Tools with which a run calls the registry: spawn, wait, send, ask, and inspect sessions. The
//! catalogue lists them.

use schemars::JsonSchema;
use serde::Deserialize;

use super::OUTPUT_LIMIT;
use super::arguments::{BoundedCount, NonEmptyText};
use super::built_in::BuiltIn;
use super::registry_tool::ms;
use crate::contract::allow::AGENT_FORMAT;
use crate::contract::delegate::{QuestionArgs, SendArgs, SessionRef, SpawnArgs, WaitArgs};
use crate::kernel::ids::AgentId;
use crate::kernel::run::step::EffectClass;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, SessionMode};

/// The tool with which a model ends its turn until a message arrives.
pub const YIELD: &str = "sessions_yield";

/// The default timeout of a wait or a send, in seconds.
const DEFAULT_WAIT: usize = 30;
/// The maximum timeout of a wait or a send, in seconds.
const MAX_WAIT: usize = 3600;
/// The maximum time limit of a spawned run, in seconds.
const LONGEST_RUN: usize = 30 * 24 * 3600;
/// Reserved for the note on a part of a long result, in bytes.
const PART_NOTE: usize = 1024;
/// The maximum offset in a long result, in bytes.
const LAST_OFFSET: usize = 1 << 30;
/// The default time until a question expires, in seconds.
const QUESTION: usize = 600;
/// The maximum time until a question expires, in seconds.
const LONGEST_QUESTION: usize = 24 * 3600;

/// Starts a subagent on a task in its own session and returns at once. It does not see this
/// conversation: put everything that it needs into the task. You will get a message when it
/// finishes. Do not poll.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpawnToolArgs {
    /// The task, self-contained.
    task: NonEmptyText,
    /// The agent for the task; agents_list describes each. Default: your own agent.
    #[schemars(extend("format" = AGENT_FORMAT))]
    agent: Option<String>,
    /// A short label for the session.
    label: Option<String>,
    /// Overrides its agent's model: provider/name.
    model: Option<String>,
    /// Overrides its agent's thinking level.
    #[schemars(with = "Option<String>", extend("enum" = Thinking::ALL))]
    thinking: Option<Thinking>,
    /// Whether to keep or delete its session after its result is delivered. Default keep.
    #[schemars(with = "Option<String>", extend("enum" = Cleanup::ALL))]
    cleanup: Option<Cleanup>,
    /// run: for this task only. session: it stays open for sessions_send. Default run.
    #[schemars(with = "Option<String>", extend("enum" = SessionMode::ALL))]
    mode: Option<SessionMode>,
    /// fork: it starts with a copy of this conversation. Default isolated.
    #[serde(default)]
    context: SpawnContext,
    /// The time limit of the run in seconds.
    run_timeout: Option<BoundedCount<1, LONGEST_RUN>>,
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SpawnContext {
    #[default]
    Isolated,
    Fork,
}

/// Waits until runs that you spawned have ended, and returns their results. Returned results are
/// not delivered again. After the timeout, the runs continue.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WaitToolArgs {
    /// The ids of the runs. Default: all your open runs.
    #[serde(default)]
    run_ids: Vec<NonEmptyText>,
    /// Wait for all runs, or for any one of them. Default all.
    #[serde(default)]
    mode: WaitCondition,
    /// The timeout in seconds. Default 30.
    wait_seconds: Option<BoundedCount<0, MAX_WAIT>>,
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WaitCondition {
    #[default]
    All,
    Any,
}

/// Sends a message to another session, whose agent answers it in a turn of its own, and waits for
/// the reply. A later reply is delivered to you as a message: do not send the same again.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SendToolArgs {
    /// The session's key, as sessions_list shows it.
    session_key: Option<String>,
    /// The session's label, instead of its key.
    label: Option<String>,
    /// The message to send.
    message: NonEmptyText,
    /// The timeout for the reply in seconds; 0 = do not wait. Default 30.
    wait_seconds: Option<BoundedCount<0, MAX_WAIT>>,
}

/// Lists your session and those that you can access: its descendants, and others that are visible
/// to you.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SessionsToolArgs {}

/// Returns the last messages of a session that you can access, without tool calls.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HistoryToolArgs {
    /// The session's key, as sessions_list shows it.
    session_key: Option<String>,
    /// The session's label, instead of its key.
    label: Option<String>,
    /// The number of messages. Default 10.
    limit: Option<BoundedCount<1, 50>>,
}

/// Returns the status of a session: what runs in it, and which of its spawned runs have not ended.
/// Default: your own session.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusToolArgs {
    /// The session's key, as sessions_list shows it.
    session_key: Option<String>,
    /// The session's label, instead of its key.
    label: Option<String>,
}

/// Lists the agents that you may spawn, and what each is for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentsToolArgs {}

/// Ends your turn while your spawned runs continue. Their results arrive as messages and start your
/// next turn. Call it alone, when there is nothing else to do.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct YieldToolArgs {
    /// An interim message for the requester.
    #[serde(rename = "message")]
    _message: Option<String>,
}

/// Cancels a run that you spawned, or one of its descendants, together with everything that it has
/// spawned.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CancelToolArgs {
    /// The run id, from sessions_spawn or session_status.
    run_id: NonEmptyText,
    /// The reason, shown to people.
    reason: Option<String>,
}

/// Returns more of a result that was cut, from the offset that the cut names.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OutputToolArgs {
    /// The id of the call, as the cut names it.
    tool_call_id: NonEmptyText,
    /// The first byte to return. Default 0.
    offset: Option<BoundedCount<0, LAST_OFFSET>>,
}

/// Asks the user a question and waits for the answer. Ask only what you cannot find out yourself.
/// Without an answer in time, treat it as denied.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskToolArgs {
    /// The question, self-contained.
    question: NonEmptyText,
    /// Answers to choose from; the user may give another one.
    #[serde(default)]
    choices: Vec<NonEmptyText>,
    /// The number of seconds until the question expires. Default 600.
    timeout: Option<BoundedCount<1, LONGEST_QUESTION>>,
}

/// All session tools.
pub(super) fn all() -> [BuiltIn; 11] {
    use EffectClass::{Idempotent, Read};
    [
        BuiltIn::of_registry(
            "sessions_spawn",
            Idempotent,
            |registry, by, given: SpawnToolArgs| {
                registry.spawn(
                    by.site,
                    SpawnArgs {
                        task: given.task.into(),
                        agent: given
                            .agent
                            .as_deref()
                            .and_then(AgentId::given)
                            .map(str::to_owned),
                        label: filled(given.label),
                        run_timeout_ms: given.run_timeout.map(|limit| ms(limit.into())),
                        model: filled(given.model),
                        thinking: given.thinking,
                        cleanup: given.cleanup.unwrap_or(Cleanup::Keep),
                        mode: given.mode.unwrap_or(SessionMode::Run),
                        fork: given.context == SpawnContext::Fork,
                        bundle: by.rights.bundle(),
                    },
                )
            },
        ),
        BuiltIn::of_registry(
            "sessions_wait",
            Idempotent,
            |registry, by, given: WaitToolArgs| {
                registry.wait(
                    by.site,
                    WaitArgs {
                        runs: given.run_ids.into_iter().map(String::from).collect(),
                        any: given.mode == WaitCondition::Any,
                        timeout_ms: ms(given.wait_seconds.map_or(DEFAULT_WAIT, usize::from)),
                    },
                )
            },
        ),
        BuiltIn::of_registry(
            "sessions_send",
            Idempotent,
            |registry, by, given: SendToolArgs| {
                registry.send(
                    by.site,
                    SendArgs {
                        to: named(given.session_key, given.label),
                        message: given.message.into(),
                        timeout_ms: ms(given.wait_seconds.map_or(DEFAULT_WAIT, usize::from)),
                    },
                )
            },
        ),
        BuiltIn::of_registry(
            "sessions_list",
            Read,
            |registry, by, _: SessionsToolArgs| registry.sessions(by.site),
        ),
        BuiltIn::of_registry(
            "sessions_history",
            Read,
            |registry, by, given: HistoryToolArgs| {
                let limit = given.limit.map_or(10, usize::from);
                let limit = u32::try_from(limit).unwrap_or(u32::MAX);
                registry.history(by.site, named(given.session_key, given.label), limit)
            },
        ),
        BuiltIn::of_registry(
            "session_status",
            Read,
            |registry, by, given: StatusToolArgs| {
                registry.status(by.site, named(given.session_key, given.label))
            },
        ),
        BuiltIn::of_registry("agents_list", Read, |registry, by, _: AgentsToolArgs| {
            registry.agents(by.site)
        }),
        BuiltIn::of_registry(YIELD, Read, |registry, by, _: YieldToolArgs| {
            registry.awaits(by.site)
        }),
        BuiltIn::of_registry(
            "runs_cancel",
            Idempotent,
            |registry, by, given: CancelToolArgs| {
                registry.cancel(by.site, given.run_id.into(), filled(given.reason))
            },
        ),
        BuiltIn::of_registry("output", Read, |registry, by, given: OutputToolArgs| {
            let offset = given.offset.map_or(0, usize::from) as u64;
            let call = given.tool_call_id.into();
            registry.output(by.site, call, offset, OUTPUT_LIMIT - PART_NOTE)
        }),
        BuiltIn::of_registry("ask", Idempotent, |registry, by, given: AskToolArgs| {
            registry.ask(
                by.site,
                QuestionArgs {
                    text: given.question.into(),
                    choices: given.choices.into_iter().map(String::from).collect(),
                    timeout_ms: ms(given.timeout.map_or(QUESTION, usize::from)),
                },
            )
        }),
    ]
}

/// The trimmed text; models send an empty one for an optional value.
fn filled(text: Option<String>) -> Option<String> {
    let text = text?.trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}

fn named(key: Option<String>, label: Option<String>) -> SessionRef {
    SessionRef { key, label }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::delegate::Site;
    use crate::kernel::ids::{RunId, StepId};
    use crate::kernel::policy::gate::{Bundle, Rights, WriteScope};
    use crate::tool::built_in::ToolAction;
    use crate::tool::registry_tool::{Called, CallingStep, call};
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn g4_10_the_spawn_tool_takes_nine_arguments_and_no_route() {
        let spawn = &all()[0].schema;
        assert_eq!(spawn["name"], "sessions_spawn");
        let schema = &spawn["parameters"];
        let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "task",
                "agent",
                "label",
                "model",
                "thinking",
                "cleanup",
                "mode",
                "context",
                "runTimeout"
            ]
        );
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["agent"]["format"], AGENT_FORMAT);
    }

    #[tokio::test]
    async fn a_tool_without_a_registry_says_so() {
        let site = Site {
            run: RunId(Uuid::from_u128(1)),
            id: StepId(Uuid::from_u128(2)),
            step: 1,
            attempt: 1,
        };
        let rights = Rights::new("a", &[], WriteScope::Workspace, Bundle::default());
        let by = CallingStep {
            site,
            rights: &rights,
            link: None,
        };
        let [spawn, ..] = all();
        let ToolAction::Registry(ask) = &spawn.action else {
            panic!("it is called otherwise");
        };
        let called = call(spawn.name, ask, None, by, json!({ "task": "x" })).await;
        assert!(matches!(called, Called::Done(output) if output.is_error));
    }
}
