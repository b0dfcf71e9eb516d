//! The built-in agents, and outside agents that are agents as soon as their program is installed.

use super::command::{CommandSpec, ProgramCheck, Speaks};
use super::{AgentDefinition, Progress, Stdin};
use crate::contract::catalog::{AgentMode, OffPreset};
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

/// An outside agent that many users have.
struct OutsidePreset {
    name: &'static str,
    argv: &'static [&'static str],
    description: &'static str,
    needs: &'static str,
}

const OUTSIDE: &[OutsidePreset] = &[
    OutsidePreset {
        name: "codex",
        argv: &["codex-acp"],
        description: "Codex of OpenAI: changes code in a workspace by itself.",
        needs: "npm install -g @zed-industries/codex-acp, and a sign-in with codex or OPENAI_API_KEY in \
                env.pass",
    },
    OutsidePreset {
        name: "gemini",
        argv: &["gemini", "--experimental-acp"],
        description: "Gemini CLI of Google: changes code in a workspace by itself.",
        needs: "npm install -g @google/gemini-cli, and a sign-in with gemini or GEMINI_API_KEY in env.pass",
    },
    OutsidePreset {
        name: "opencode",
        argv: &["opencode", "acp"],
        description: "opencode: changes code in a workspace by itself.",
        needs: "npm install -g opencode-ai, and a provider set up by opencode auth login",
    },
    OutsidePreset {
        name: "claude",
        argv: &["claude-agent-acp"],
        description: "Claude Code of Anthropic: changes code in a workspace by itself.",
        needs: "npm install -g @zed-industries/claude-agent-acp, and a sign-in with claude or \
                ANTHROPIC_API_KEY in env.pass",
    },
];

/// True for the program of a preset.
#[cfg(test)]
pub(super) fn is_program(name: &str) -> bool {
    OUTSIDE
        .iter()
        .any(|preset| preset.argv.first() == Some(&name))
}

/// The presets of outside agents: those whose programs are found, and what the others need.
pub(super) fn outside_presets(programs: &ProgramCheck) -> (Vec<AgentDefinition>, Vec<OffPreset>) {
    let (mut found, mut off) = (Vec::new(), Vec::new());
    for preset in OUTSIDE {
        let argv: Vec<String> = preset.argv.iter().map(ToString::to_string).collect();
        if programs(&argv[0]).is_err() {
            off.push(OffPreset {
                name: preset.name.to_owned(),
                program: argv[0].clone(),
                needs: preset.needs.to_owned(),
            });
            continue;
        }
        found.push(AgentDefinition {
            mode: AgentMode::Subagent,
            command: Some(CommandSpec {
                argv,
                stdin: Stdin::None,
                cwd: None,
                progress: Progress::Text,
                output_limit: super::command::OUTPUT,
                speaks: Speaks::Acp,
            }),
            ..AgentDefinition::named(preset.name, preset.description, "")
        });
    }
    (found, off)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_outside_agent_is_there_once_its_program_is_found() {
        let programs: ProgramCheck = Arc::new(|name| match name {
            "opencode" => Ok(()),
            _ => Err("it was not found in PATH".to_owned()),
        });
        let (found, off) = outside_presets(&programs);
        let [opencode] = &found[..] else {
            panic!("{found:?}");
        };
        let command = opencode.command.as_ref().unwrap();
        assert_eq!(
            (command.speaks, command.argv.as_slice()),
            (Speaks::Acp, &["opencode".to_owned(), "acp".to_owned()][..])
        );
        let names: Vec<&str> = off.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["codex", "gemini", "claude"]);
        assert!(
            off.iter()
                .all(|one| !one.needs.is_empty() && is_program(&one.program))
        );
    }
}
