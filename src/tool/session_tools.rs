//! Tools with which a run calls the registry: spawn, wait, send, ask, and inspect sessions. The
//! catalogue lists them.

use super::OUTPUT_LIMIT;
use super::arguments::{Arguments, Parameter, Shape};
use super::registry_tool::{RegistryTool, ms};
use crate::contract::delegate::{Named, QuestionArgs, SendArgs, SpawnArgs, WaitArgs};
use crate::kernel::ids::AgentId;
use crate::kernel::run::step::Effect;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, SessionMode};

/// The tool with which a model ends its turn until a message arrives.
pub const YIELD: &str = "sessions_yield";

/// The default timeout of a wait or a send, in seconds.
const DEFAULT_WAIT: usize = 30;
/// The maximum timeout of a wait or a send, in seconds.
const MAX_WAIT: usize = 3600;
/// Reserved for the note on a part of a long result, in bytes.
const PART_NOTE: usize = 1024;
/// The default time until a question expires, in seconds.
const QUESTION: usize = 600;
/// The maximum time until a question expires, in seconds.
const LONGEST_QUESTION: usize = 24 * 3600;

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn named(arguments: &Arguments) -> Named {
    Named {
        key: owned(arguments.text("sessionKey")),
        label: owned(arguments.text("label")),
    }
}

const SESSION_KEY: Parameter = Parameter {
    name: "sessionKey",
    shape: Shape::AnyText,
    required: false,
    description: "The session's key, as sessions_list shows it.",
};
const SESSION_LABEL: Parameter = Parameter {
    name: "label",
    shape: Shape::AnyText,
    required: false,
    description: "The session's label, instead of its key.",
};

/// All session tools.
pub(super) const ALL: &[RegistryTool] = &[
    RegistryTool {
        name: "sessions_spawn",
        description: "Starts a subagent on a task in its own session and returns at once. \
                      It does not see this conversation: put everything that it needs into the task. \
                      You will get a message when it finishes. Do not poll.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "task",
                shape: Shape::Text,
                required: true,
                description: "The task, self-contained.",
            },
            Parameter {
                name: "agent",
                shape: Shape::Agent,
                required: false,
                description: "The agent for the task; agents_list describes each. Default: your own agent.",
            },
            Parameter {
                name: "label",
                shape: Shape::AnyText,
                required: false,
                description: "A short label for the session.",
            },
            Parameter {
                name: "model",
                shape: Shape::AnyText,
                required: false,
                description: "Overrides its agent's model: provider/name.",
            },
            Parameter {
                name: "thinking",
                shape: Shape::Choice(&["off", "minimal", "low", "medium", "high", "xhigh", "max"]),
                required: false,
                description: "Overrides its agent's thinking level.",
            },
            Parameter {
                name: "cleanup",
                shape: Shape::Choice(&["keep", "delete"]),
                required: false,
                description: "Whether to keep or delete its session after its result is delivered. Default keep.",
            },
            Parameter {
                name: "mode",
                shape: Shape::Choice(&["run", "session"]),
                required: false,
                description: "run: for this task only. session: it stays open for sessions_send. Default run.",
            },
            Parameter {
                name: "context",
                shape: Shape::Choice(&["isolated", "fork"]),
                required: false,
                description: "fork: it starts with a copy of this conversation. Default isolated.",
            },
            Parameter {
                name: "runTimeout",
                shape: Shape::Count {
                    min: 1,
                    max: 30 * 24 * 3600,
                },
                required: false,
                description: "The time limit of the run in seconds.",
            },
        ],
        ask: |registry, by, arguments| {
            let filled = |name| {
                arguments
                    .text(name)
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            };
            registry.spawn(
                by.site,
                SpawnArgs {
                    task: owned(arguments.text("task")).unwrap_or_default(),
                    agent: arguments
                        .text("agent")
                        .and_then(AgentId::given)
                        .map(str::to_owned),
                    label: filled("label"),
                    run_timeout_ms: arguments.count("runTimeout").map(ms),
                    model: filled("model"),
                    thinking: arguments.text("thinking").and_then(Thinking::parse),
                    cleanup: match arguments.text("cleanup") {
                        Some("delete") => Cleanup::Delete,
                        _ => Cleanup::Keep,
                    },
                    mode: match arguments.text("mode") {
                        Some("session") => SessionMode::Session,
                        _ => SessionMode::Run,
                    },
                    fork: arguments.text("context") == Some("fork"),
                    bundle: by.rights.bundle(),
                },
            )
        },
    },
    RegistryTool {
        name: "sessions_wait",
        description: "Waits until runs that you spawned have ended, and returns their \
                      results. Returned results are not delivered again. After the timeout, \
                      the runs continue.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "runIds",
                shape: Shape::Texts,
                required: false,
                description: "The ids of the runs. Default: all your open runs.",
            },
            Parameter {
                name: "mode",
                shape: Shape::Choice(&["all", "any"]),
                required: false,
                description: "Wait for all runs, or for any one of them. Default all.",
            },
            Parameter {
                name: "waitSeconds",
                shape: Shape::Count {
                    min: 0,
                    max: MAX_WAIT,
                },
                required: false,
                description: "The timeout in seconds. Default 30.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.wait(
                by.site,
                WaitArgs {
                    runs: arguments
                        .texts("runIds")
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    any: arguments.text("mode") == Some("any"),
                    timeout_ms: ms(arguments.count("waitSeconds").unwrap_or(DEFAULT_WAIT)),
                },
            )
        },
    },
    RegistryTool {
        name: "sessions_send",
        description: "Sends a message to another session, whose agent answers it in a turn of \
                      its own, and waits for the reply. A later reply is delivered to you as a \
                      message: do not send the same again.",
        effect: Effect::Idempotent,
        parameters: &[
            SESSION_KEY,
            SESSION_LABEL,
            Parameter {
                name: "message",
                shape: Shape::Text,
                required: true,
                description: "The message to send.",
            },
            Parameter {
                name: "waitSeconds",
                shape: Shape::Count {
                    min: 0,
                    max: MAX_WAIT,
                },
                required: false,
                description: "The timeout for the reply in seconds; 0 = do not wait. Default 30.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.send(
                by.site,
                SendArgs {
                    to: named(arguments),
                    message: owned(arguments.text("message")).unwrap_or_default(),
                    timeout_ms: ms(arguments.count("waitSeconds").unwrap_or(DEFAULT_WAIT)),
                },
            )
        },
    },
    RegistryTool {
        name: "sessions_list",
        description: "Lists your session and those that you can access: its descendants, and \
                      others that are visible to you.",
        effect: Effect::Read,
        parameters: &[],
        ask: |registry, by, _| registry.sessions(by.site),
    },
    RegistryTool {
        name: "sessions_history",
        description: "Returns the last messages of a session that you can access, without tool calls.",
        effect: Effect::Read,
        parameters: &[
            SESSION_KEY,
            SESSION_LABEL,
            Parameter {
                name: "limit",
                shape: Shape::Count { min: 1, max: 50 },
                required: false,
                description: "The number of messages. Default 10.",
            },
        ],
        ask: |registry, by, arguments| {
            let limit = arguments.count("limit").unwrap_or(10);
            registry.history(
                by.site,
                named(arguments),
                u32::try_from(limit).unwrap_or(u32::MAX),
            )
        },
    },
    RegistryTool {
        name: "session_status",
        description: "Returns the status of a session: what runs in it, and which of its spawned runs have \
                      not ended. Default: your own session.",
        effect: Effect::Read,
        parameters: &[SESSION_KEY, SESSION_LABEL],
        ask: |registry, by, arguments| registry.status(by.site, named(arguments)),
    },
    RegistryTool {
        name: "agents_list",
        description: "Lists the agents that you may spawn, and what each is for.",
        effect: Effect::Read,
        parameters: &[],
        ask: |registry, by, _| registry.agents(by.site),
    },
    RegistryTool {
        name: YIELD,
        description: "Ends your turn while your spawned runs continue. Their results arrive as \
                      messages and start your next turn. Call it alone, when there is \
                      nothing else to do.",
        effect: Effect::Read,
        parameters: &[Parameter {
            name: "message",
            shape: Shape::AnyText,
            required: false,
            description: "An interim message for the requester.",
        }],
        ask: |registry, by, _| registry.awaits(by.site),
    },
    RegistryTool {
        name: "runs_cancel",
        description: "Cancels a run that you spawned, or one of its descendants, together with \
                      everything that it has spawned.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "runId",
                shape: Shape::Text,
                required: true,
                description: "The run id, from sessions_spawn or session_status.",
            },
            Parameter {
                name: "reason",
                shape: Shape::AnyText,
                required: false,
                description: "The reason, shown to people.",
            },
        ],
        ask: |registry, by, arguments| {
            let run = owned(arguments.text("runId")).unwrap_or_default();
            let reason = arguments.text("reason").map(str::trim);
            let reason = reason.filter(|text| !text.is_empty()).map(str::to_owned);
            registry.cancel(by.site, run, reason)
        },
    },
    RegistryTool {
        name: "output",
        description: "Returns more of a result that was cut, from the offset that the cut names.",
        effect: Effect::Read,
        parameters: &[
            Parameter {
                name: "toolCallId",
                shape: Shape::Text,
                required: true,
                description: "The id of the call, as the cut names it.",
            },
            Parameter {
                name: "offset",
                shape: Shape::Count {
                    min: 0,
                    max: 1 << 30,
                },
                required: false,
                description: "The first byte to return. Default 0.",
            },
        ],
        ask: |registry, by, arguments| {
            let call = owned(arguments.text("toolCallId")).unwrap_or_default();
            let offset = arguments.count("offset").unwrap_or(0) as u64;
            registry.output(by.site, call, offset, OUTPUT_LIMIT - PART_NOTE)
        },
    },
    RegistryTool {
        name: "ask",
        description: "Asks the user a question and waits for the answer. Ask only what you \
                      cannot find out yourself. Without an answer in time, treat it as denied.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "question",
                shape: Shape::Text,
                required: true,
                description: "The question, self-contained.",
            },
            Parameter {
                name: "choices",
                shape: Shape::Texts,
                required: false,
                description: "Answers to choose from; the user may give another one.",
            },
            Parameter {
                name: "timeout",
                shape: Shape::Count {
                    min: 1,
                    max: LONGEST_QUESTION,
                },
                required: false,
                description: "The number of seconds until the question expires. Default 600.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.ask(
                by.site,
                QuestionArgs {
                    text: owned(arguments.text("question")).unwrap_or_default(),
                    choices: arguments
                        .texts("choices")
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    timeout_ms: ms(arguments.count("timeout").unwrap_or(QUESTION)),
                },
            )
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::allow::AGENT_FORMAT;
    use crate::contract::delegate::Site;
    use crate::kernel::ids::{RunId, StepId};
    use crate::kernel::policy::gate::{Bundle, Rights, WriteScope};
    use crate::tool::registry_tool::{By, Called};
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn g4_10_the_spawn_tool_takes_nine_arguments_and_no_route() {
        let spawn = ALL
            .iter()
            .find(|tool| tool.name == "sessions_spawn")
            .unwrap();
        let schema = spawn.schema();
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
        let by = By {
            site,
            rights: &rights,
            link: None,
        };
        let called = ALL[0].call(None, by, json!({ "task": "x" })).await;
        assert!(matches!(called, Called::Done(output) if output.is_error));
    }
}
