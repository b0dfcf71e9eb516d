//! The command of a terminal: what an outside agent wants to run, in the form that the gate judges,
//! that people see, and that is started.

use serde_json::{Value, json};

use super::calls::quoted;
use crate::acp_protocol::RpcError;
use crate::acp_protocol::terminal::CreateTerminal;
use crate::kernel::policy::overlay::{is_blocked, is_name};

/// A command with its folder and environment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TerminalCommand {
    program: Started,
    /// Variables besides those of the run.
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: Option<String>,
    /// Maximum number of bytes of output that the agent wants.
    pub(super) limit: Option<u64>,
}

/// What is started.
#[derive(Clone, Debug, PartialEq)]
enum Started {
    /// A program with its arguments.
    Argv(Vec<String>),
    /// A line for a shell: some agents send one as the command, without arguments.
    Line(String),
}

impl TerminalCommand {
    /// The command that the agent asks for. What a rule could misread is refused: a program that looks
    /// like an assignment or option, and variables that change what programs load or start.
    pub(super) fn new(asked: CreateTerminal) -> Result<Self, RpcError> {
        let refused = |why: String| Err(RpcError::params(why));
        let args = asked.args.unwrap_or_default();
        let env: Vec<(String, String)> = asked
            .env
            .unwrap_or_default()
            .into_iter()
            .map(|variable| (variable.name, variable.value))
            .collect();
        let mut texts = args.iter().chain(env.iter().map(|(_, value)| value));
        if asked.command.contains('\0') || texts.any(|text| text.contains('\0')) {
            return refused("a command cannot contain U+0000".to_owned());
        }
        for (name, _) in &env {
            if !is_name(name) {
                return refused(format!("env: {name:?} is no name of a variable"));
            }
            if is_blocked(name) {
                return refused(format!(
                    "env: {name} cannot be set, because it can control what programs load or start"
                ));
            }
        }
        let is_line = args.is_empty() && asked.command.trim().contains(char::is_whitespace);
        let program = match is_line {
            true => Started::Line(asked.command),
            false => {
                let command = asked.command;
                if command.trim().is_empty() || command.starts_with('-') || command.contains('=') {
                    return refused(format!(
                        "command: {command:?} is no name of a program; it cannot be empty, begin \
                         with - or contain ="
                    ));
                }
                Started::Argv([command].into_iter().chain(args).collect())
            }
        };
        Ok(TerminalCommand {
            program,
            env,
            cwd: asked.cwd,
            limit: asked.output_byte_limit,
        })
    }

    /// The program and arguments that are started.
    pub(super) fn started(&self) -> Vec<String> {
        match &self.program {
            Started::Argv(argv) => argv.clone(),
            Started::Line(line) => ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
        }
    }

    /// As one line for a shell.
    pub(super) fn line(&self) -> String {
        match &self.program {
            Started::Argv(argv) => {
                let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
                words.join(" ")
            }
            Started::Line(line) => line.clone(),
        }
    }

    /// What rules judge, with the variables as the program `env` would set them; `None` for a line,
    /// which they judge as one.
    pub(super) fn judged(&self) -> Option<Vec<String>> {
        match (&self.program, &self.env[..]) {
            (Started::Line(_), []) => None,
            (_, []) => Some(self.started()),
            (_, env) => {
                let set = env.iter().map(|(name, value)| format!("{name}={value}"));
                let words = ["env".to_owned()].into_iter().chain(set);
                Some(words.chain(self.started()).collect())
            }
        }
    }

    /// The arguments of its call, which people see.
    pub(super) fn arguments(&self) -> Value {
        let mut arguments = json!({ "command": self.line() });
        if let Some(cwd) = &self.cwd {
            arguments["cwd"] = json!(cwd);
        }
        if !self.env.is_empty() {
            let env = self
                .env
                .iter()
                .map(|(name, value)| (name.clone(), json!(value)));
            arguments["env"] = Value::Object(env.collect());
        }
        arguments
    }

    /// Bytes of the request.
    pub(super) fn bytes(&self) -> usize {
        let env = self
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len());
        let words: usize = self.started().iter().map(String::len).sum();
        words + env.sum::<usize>() + self.cwd.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::runner::Admission;
    use crate::kernel::policy::gate::{Bundle, Decision, Rights, Rule, WriteScope};
    use crate::tool::admit_argv;

    fn command(asked: Value) -> Result<TerminalCommand, RpcError> {
        let mut asked = asked;
        asked["sessionId"] = json!("s");
        TerminalCommand::new(serde_json::from_value(asked).unwrap())
    }

    /// The decision on a command by an agent that may run `git` alone.
    fn decided(asked: Value) -> Decision {
        let rule = |pattern: Option<&str>, decision| Rule {
            tool: "shell".to_owned(),
            pattern: pattern.map(str::to_owned),
            decision,
            node: None,
        };
        let rules = [
            rule(None, Decision::Deny),
            rule(Some("git *"), Decision::Allow),
        ];
        let rights = Rights::new("a", &rules, WriteScope::Workspace, Bundle::default());
        let Ok(command) = command(asked) else {
            return Decision::Deny;
        };
        match admit_argv(&rights, &command.judged().unwrap(), &command.line()) {
            Admission::Allowed => Decision::Allow,
            Admission::NeedsApproval(_) => Decision::Ask,
            Admission::Refused(_) => Decision::Deny,
        }
    }

    #[test]
    fn a_rule_for_one_program_admits_no_other() {
        let allowed = [
            json!({ "command": "git", "args": ["status"] }),
            json!({ "command": "git", "args": ["log", "a; rm b"] }),
            json!({ "command": "git", "args": ["status"], "env": [{ "name": "LANG", "value": "C" }] }),
            json!({ "command": "env", "args": ["LANG=C", "git", "status"] }),
        ];
        for asked in allowed {
            assert_eq!(decided(asked.clone()), Decision::Allow, "{asked}");
        }
        let refused = [
            json!({ "command": "A=/x", "args": ["git", "status"] }),
            json!({ "command": "A=/usr/bin/git", "args": ["git", "status"] }),
            json!({ "command": "-S", "args": ["git", "status"], "env": [{ "name": "A", "value": "b" }] }),
            json!({ "command": "/x/git", "args": ["status"] }),
            json!({ "command": "git status", "args": ["status"] }),
            json!({ "command": "env", "args": ["-S", "rm x", "git", "status"] }),
            json!({ "command": "env", "args": ["LD_PRELOAD=/x", "git", "status"] }),
            json!({ "command": "env", "args": ["PATH=/x", "git", "status"] }),
            json!({ "command": "git", "args": ["status"], "env": [{ "name": "PATH", "value": "/x" }] }),
            json!({ "command": "git", "args": ["status"], "env": [{ "name": "-S", "value": "x" }] }),
            json!({ "command": "git", "args": ["status"], "env": [{ "name": "A=b git", "value": "x" }] }),
            json!({ "command": "if", "args": ["git", "status"] }),
            json!({ "command": "" }),
        ];
        for asked in refused {
            assert_ne!(decided(asked.clone()), Decision::Allow, "{asked}");
        }
    }

    #[test]
    fn people_see_the_whole_command() {
        let asked = command(json!({
            "command": "rm", "args": ["a b", "c"], "cwd": "/w",
            "env": [{ "name": "A", "value": "b" }],
        }));
        assert_eq!(
            asked.unwrap().arguments(),
            json!({ "command": "rm 'a b' c", "cwd": "/w", "env": { "A": "b" } })
        );
        let line = command(json!({ "command": "cd x && make" })).unwrap();
        assert_eq!(line.started(), ["/bin/sh", "-c", "cd x && make"]);
        assert_eq!(line.judged(), None);
    }
}
