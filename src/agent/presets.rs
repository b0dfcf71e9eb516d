//! The built-in agents.

use super::AgentDefinition;
use crate::contract::catalog::AgentMode;
use crate::contract::nodes::{NODE_LIST, NODE_READ, NODE_RUN};

const BUILD_PROMPT: &str = "\
You are the main agent of this workspace. Users bring you questions and tasks. Find out \
the facts before you answer.

- Check before you claim. Find the place, read it, and cite it as file:line.
- Do what was asked and no more. If a request is ambiguous, state your interpretation.
- If your tools cannot do what is needed, say so plainly and say what would be needed.
- End every turn with a text for the requester: the answer first, then the evidence.";

const EXPLORE_PROMPT: &str = "\
You explore a source tree and report your findings. Never change a file.

- Narrow by search before you read. Start with glob for names and grep for contents, and read \
only around the hits that matter, not whole files.
- Run searches that do not depend on each other at the same time.
- Follow a name from its use to its definition; stop when the question is answered.
- Say what you looked for and did not find. Never guess a path, a line or a name.
- End with a clear summary: the answer in a few sentences, then the places that show it, each \
as file:line with its content.";

/// The presets `build` and `explore`.
pub(super) fn presets() -> Vec<AgentDefinition> {
    let looking = ["read", "list", "glob", "grep", "skill"];
    let tools: Vec<String> = looking.iter().map(ToString::to_string).collect();
    // Names of tools that do not exist have no effect.
    let changing = ["write", "edit", "shell", "fetch", "todo", "output"];
    let nodes = [NODE_RUN, NODE_READ, NODE_LIST];
    let dealing = [
        "task",
        "agents_list",
        "sessions_spawn",
        "sessions_wait",
        "sessions_send",
        "sessions_list",
        "sessions_history",
        "session_status",
        "sessions_yield",
        "runs_cancel",
        "ask",
        "memory_save",
        "memory_search",
    ];
    let build = "The main agent: answers questions and does work in a workspace.";
    let explore = "Searches a source tree without changing it and reports places as file:line.";
    vec![
        AgentDefinition {
            mode: AgentMode::Primary,
            tools: tools
                .iter()
                .cloned()
                .chain(changing.map(str::to_owned))
                .chain(nodes.map(str::to_owned))
                .chain(dealing.map(str::to_owned))
                // All tools of tool servers.
                .chain(["*__*".to_owned()])
                .collect(),
            allow_agents: Some(vec!["build".to_owned(), "explore".to_owned()]),
            ..AgentDefinition::named("build", build, BUILD_PROMPT)
        },
        AgentDefinition {
            mode: AgentMode::Subagent,
            tools,
            max_loops: 20,
            ..AgentDefinition::named("explore", explore, EXPLORE_PROMPT)
        },
    ]
}
