//! Tools with which a run calls the registry: spawn, wait, send, ask, and inspect sessions. The
//! catalogue lists them.

use super::OUTPUT_LIMIT;
use super::arguments::{Arguments, Parameter, Shape};
use super::dealing::{Dealing, ms};
use crate::contract::delegate::{Named, QuestionAsk, SendAsk, SpawnAsk, WaitAsk};
use crate::kernel::ids::AgentId;
use crate::kernel::session::{Cleanup, SessionMode};
use crate::kernel::step::Effect;
use crate::kernel::thinking::Thinking;

/// The tool with which a model ends its turn until a message arrives.
pub const YIELD: &str = "sessions_yield";

/// The default timeout of a wait or a send, in seconds.
const WINDOW: usize = 30;
/// The maximum timeout of a wait or a send, in seconds.
const LONGEST_WINDOW: usize = 3600;
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
    description: "The session's label, in place of its key.",
};

/// All session tools.
pub(super) const ALL: &[Dealing] = &[
    Dealing {
        name: "sessions_spawn",
        description: "Starts a subagent on a task in a session of its own and returns at once. \
                      It knows nothing of this conversation: write into the task all that it \
                      needs. Its end is told to you by itself, in a later message.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "task",
                shape: Shape::Text,
                required: true,
                description: "What is to be done, complete in itself.",
            },
            Parameter {
                name: "agent",
                shape: Shape::Agent,
                required: false,
                description: "Who does it; agents_list says what each is for. Default: your own kind.",
            },
            Parameter {
                name: "label",
                shape: Shape::AnyText,
                required: false,
                description: "A short name for it.",
            },
            Parameter {
                name: "model",
                shape: Shape::AnyText,
                required: false,
                description: "In place of its agent's model: provider/name.",
            },
            Parameter {
                name: "thinking",
                shape: Shape::Choice(&["off", "minimal", "low", "medium", "high", "xhigh", "max"]),
                required: false,
                description: "In place of its agent's thinking level.",
            },
            Parameter {
                name: "cleanup",
                shape: Shape::Choice(&["keep", "delete"]),
                required: false,
                description: "What becomes of its session once its end is told. Default keep.",
            },
            Parameter {
                name: "mode",
                shape: Shape::Choice(&["run", "session"]),
                required: false,
                description: "run: for this task alone. session: it stays open for sessions_send. Default run.",
            },
            Parameter {
                name: "context",
                shape: Shape::Choice(&["isolated", "fork"]),
                required: false,
                description: "fork: it begins with this conversation as it is now. Default isolated.",
            },
            Parameter {
                name: "runTimeout",
                shape: Shape::Count {
                    min: 1,
                    max: 30 * 24 * 3600,
                },
                required: false,
                description: "End it when it has run so many seconds.",
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
                SpawnAsk {
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
    Dealing {
        name: "sessions_wait",
        description: "Waits until runs that you have spawned have ended, and gives their \
                      results. What it gives is not told again later. When the window is over, \
                      the runs go on.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "runIds",
                shape: Shape::Texts,
                required: false,
                description: "Which runs. Default: all of yours that are open.",
            },
            Parameter {
                name: "mode",
                shape: Shape::Choice(&["all", "any"]),
                required: false,
                description: "Until all have ended, or one of them. Default all.",
            },
            Parameter {
                name: "waitSeconds",
                shape: Shape::Count {
                    min: 0,
                    max: LONGEST_WINDOW,
                },
                required: false,
                description: "How long to wait. Default 30.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.wait(
                by.site,
                WaitAsk {
                    runs: arguments
                        .texts("runIds")
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    any: arguments.text("mode") == Some("any"),
                    window_ms: ms(arguments.count("waitSeconds").unwrap_or(WINDOW)),
                },
            )
        },
    },
    Dealing {
        name: "sessions_send",
        description: "Says something in another session, whose agent answers it in a turn of \
                      its own, and waits a while for the reply. A reply that comes later is told \
                      to you by itself: do not send the same again.",
        effect: Effect::Idempotent,
        parameters: &[
            SESSION_KEY,
            SESSION_LABEL,
            Parameter {
                name: "message",
                shape: Shape::Text,
                required: true,
                description: "What you say.",
            },
            Parameter {
                name: "waitSeconds",
                shape: Shape::Count {
                    min: 0,
                    max: LONGEST_WINDOW,
                },
                required: false,
                description: "How long to wait for the reply; 0 = not at all. Default 30.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.send(
                by.site,
                SendAsk {
                    to: named(arguments),
                    message: owned(arguments.text("message")).unwrap_or_default(),
                    window_ms: ms(arguments.count("waitSeconds").unwrap_or(WINDOW)),
                },
            )
        },
    },
    Dealing {
        name: "sessions_list",
        description: "Lists your session and those within your reach: the ones below it, and \
                      others as far as you may see them.",
        effect: Effect::Read,
        parameters: &[],
        ask: |registry, by, _| registry.sessions(by.site),
    },
    Dealing {
        name: "sessions_history",
        description: "Gives the last messages of a session within your reach, without tool calls.",
        effect: Effect::Read,
        parameters: &[
            SESSION_KEY,
            SESSION_LABEL,
            Parameter {
                name: "limit",
                shape: Shape::Count { min: 1, max: 50 },
                required: false,
                description: "How many messages. Default 10.",
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
    Dealing {
        name: "session_status",
        description: "Tells how a session is: what runs in it, and what it has spawned that has \
                      not ended. Default: your own.",
        effect: Effect::Read,
        parameters: &[SESSION_KEY, SESSION_LABEL],
        ask: |registry, by, arguments| registry.status(by.site, named(arguments)),
    },
    Dealing {
        name: "agents_list",
        description: "Lists the agents that you may spawn, and what each is for.",
        effect: Effect::Read,
        parameters: &[],
        ask: |registry, by, _| registry.agents(by.site),
    },
    Dealing {
        name: YIELD,
        description: "Ends your turn while what you have spawned goes on: what it brings is told \
                      to you by itself and begins your next turn. Call it alone, when there is \
                      nothing else to do.",
        effect: Effect::Read,
        parameters: &[Parameter {
            name: "message",
            shape: Shape::AnyText,
            required: false,
            description: "What to say to whoever waits for you, in the meantime.",
        }],
        ask: |registry, by, _| registry.awaits(by.site),
    },
    Dealing {
        name: "runs_cancel",
        description: "Ends a run that you have spawned, or one below it, before its time, with \
                      all that it has spawned.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "runId",
                shape: Shape::Text,
                required: true,
                description: "Which, as sessions_spawn or session_status gave it.",
            },
            Parameter {
                name: "reason",
                shape: Shape::AnyText,
                required: false,
                description: "Why, for people.",
            },
        ],
        ask: |registry, by, arguments| {
            let run = owned(arguments.text("runId")).unwrap_or_default();
            let reason = arguments.text("reason").map(str::trim);
            let reason = reason.filter(|text| !text.is_empty()).map(str::to_owned);
            registry.cancel(by.site, run, reason)
        },
    },
    Dealing {
        name: "output",
        description: "Gives more of a result that was cut, from a place on that the cut names.",
        effect: Effect::Read,
        parameters: &[
            Parameter {
                name: "toolCallId",
                shape: Shape::Text,
                required: true,
                description: "Which call's, as the cut names it.",
            },
            Parameter {
                name: "offset",
                shape: Shape::Count {
                    min: 0,
                    max: 1 << 30,
                },
                required: false,
                description: "The first byte to give. Default 0.",
            },
        ],
        ask: |registry, by, arguments| {
            let call = owned(arguments.text("toolCallId")).unwrap_or_default();
            let offset = arguments.count("offset").unwrap_or(0) as u64;
            registry.output(by.site, call, offset, OUTPUT_LIMIT - PART_NOTE)
        },
    },
    Dealing {
        name: "ask",
        description: "Asks a person a question and waits for the answer. Ask only what you \
                      cannot find out yourself. Without an answer in time, take it as a no.",
        effect: Effect::Idempotent,
        parameters: &[
            Parameter {
                name: "question",
                shape: Shape::Text,
                required: true,
                description: "The question, complete in itself.",
            },
            Parameter {
                name: "choices",
                shape: Shape::Texts,
                required: false,
                description: "Answers to choose from; a person may give another one.",
            },
            Parameter {
                name: "timeout",
                shape: Shape::Count {
                    min: 1,
                    max: LONGEST_QUESTION,
                },
                required: false,
                description: "How many seconds it stands. Default 600.",
            },
        ],
        ask: |registry, by, arguments| {
            registry.ask(
                by.site,
                QuestionAsk {
                    text: owned(arguments.text("question")).unwrap_or_default(),
                    choices: arguments
                        .texts("choices")
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    window_ms: ms(arguments.count("timeout").unwrap_or(QUESTION)),
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
    use crate::kernel::gate::{Bundle, Rights, WriteScope};
    use crate::kernel::ids::{RunId, StepId};
    use crate::tool::dealing::{By, Called};
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
