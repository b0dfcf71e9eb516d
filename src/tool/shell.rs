//! The tool `shell`: runs a command line in the workspace. It has effects, so a call is never
//! repeated automatically. A keeper runs the command, so it goes on while the daemon is down; only a
//! command whose keeper was lost is reported to the model as uncertain.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::{BoundedCount, NonEmptyText, parse};
use super::built_in::{BuiltIn, ToolAction};
use super::registry_tool::ms;
use super::{Aim, Called, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::file_work::TOOLS;
use crate::kernel::policy::env::Environment;
use crate::kernel::policy::gate::Decision;
use crate::kernel::run::step::EffectClass;
use crate::process::{
    ExitReason, Finished, Processes, Program, ProgramFault, ProgramInput, ProgramStep, signal_name,
};

/// The maximum number of bytes kept of each stream; both and the notes fit into one result.
pub(super) const KEEP: usize = 30 * 1024;

/// The maximum timeout that a model may set, in seconds.
pub(super) const LONGEST: usize = 3600;

/// Runs a command line with /bin/sh in the workspace and returns its exit status and output.
/// Processes that it leaves running in the background are ended with it, unless you set detach.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShellToolArgs {
    /// The command line for /bin/sh. Its standard input is empty.
    pub(super) command: NonEmptyText,
    /// The time limit in seconds.
    pub(super) timeout: Option<BoundedCount<1, LONGEST>>,
    /// The folder to run it in, within the workspace. Default: the workspace folder.
    pub(super) cwd: Option<NonEmptyText>,
    /// Leave background processes, such as a server, running until your run ends.
    pub(super) detach: Option<bool>,
    /// The purpose in a few words, shown to people.
    #[serde(rename = "note")]
    _note: Option<NonEmptyText>,
}

/// Runs shell commands.
#[derive(Clone)]
pub struct Shell {
    /// Starts and ends the programs.
    pub processes: Processes,
    /// The default timeout of a command.
    pub timeout: Duration,
}

impl Shell {
    /// The name of the tool.
    pub(super) const NAME: &str = "shell";
    /// What applies to a command without a rule.
    pub(super) const DECISION: Decision = Decision::Ask;

    /// The tool `shell`. A repeated call would execute the command again.
    pub(super) fn tool(self) -> BuiltIn {
        BuiltIn {
            aim: Aim::Command("command"),
            default: Shell::DECISION,
            ..BuiltIn::new::<ShellToolArgs>(Shell::NAME, EffectClass::Kept, ToolAction::Shell(self))
        }
    }

    /// Runs a command in this environment, or follows the one that runs for the step. Dropping the
    /// future leaves it running; the end of its run ends it with all its descendants.
    pub(super) fn call(
        &self,
        step: ProgramStep,
        workspace: Workspace,
        environment: Environment,
        arguments: Value,
    ) -> BoxFuture<'static, Called> {
        let refused = |text: String| -> BoxFuture<'static, Called> {
            Box::pin(std::future::ready(Called::Done(ToolOutput::error(text))))
        };
        let given: ShellToolArgs = match parse(arguments) {
            Ok(given) => given,
            Err(text) => return refused(text),
        };
        if given.command.contains('\0') {
            return refused("command: a command cannot contain U+0000".to_owned());
        }
        let time = given.timeout.map_or(self.timeout, |seconds| {
            Duration::from_millis(ms(seconds.into()))
        });
        let argv = ["/bin/sh", "-c", &given.command]
            .map(str::to_owned)
            .to_vec();
        let processes = self.processes.clone();
        Box::pin(async move {
            let folder = TOOLS
                .run(move |_| folder(&workspace, given.cwd.as_deref()))
                .await;
            let folder = match folder.unwrap_or_else(|busy| Err(busy.to_string())) {
                Ok(folder) => folder,
                Err(text) => return Called::Done(ToolOutput::error(text)),
            };
            let program = Program {
                argv,
                environment,
                folder,
                input: ProgramInput::Nothing,
                time: Some(time),
                keep: KEEP,
                detach: given.detach.unwrap_or_default(),
            };
            let output = match processes.run(step, program, |_| {}).await {
                Ok(finished) => to_output(&finished, time),
                Err(ProgramFault::NotStarted(why)) => {
                    ToolOutput::error(format!("the command was not started: {why}"))
                }
                Err(ProgramFault::Lost(why)) => {
                    // Carried out again, the command begins anew.
                    return Called::Uncertain {
                        why,
                        is_final: true,
                    };
                }
            };
            Called::Done(output)
        })
    }
}

/// The working folder of a command.
pub(super) fn folder(workspace: &Workspace, cwd: Option<&str>) -> Result<PathBuf, String> {
    let folder = match cwd {
        None => workspace.root().to_owned(),
        Some(path) => workspace.resolve(path)?,
    };
    match folder.is_dir() {
        true => Ok(folder),
        false => Err("cwd: it is not a folder".to_owned()),
    }
}

/// Formats the result: first how it ended, since a long output is cut at the end.
fn to_output(finished: &Finished, time: Duration) -> ToolOutput {
    let (mut text, is_error) = match finished.ending {
        ExitReason::Exited(0) => ("exit status 0".to_owned(), false),
        ExitReason::Exited(status) => (format!("exit status {status}"), true),
        ExitReason::Signal(signal) => (format!("ended by signal {}", signal_name(signal)), true),
        ExitReason::TimedOut => {
            let limit = humantime::format_duration(time);
            (format!("timeout: it had not ended after {limit}"), true)
        }
        ExitReason::OutputLimit(most) => {
            let why = format!("too much output: it wrote more than {most} bytes");
            (why, true)
        }
        ExitReason::Stopped => {
            let why = "stopped: its keeper was told to end it (SIGTERM)";
            (why.to_owned(), true)
        }
        ExitReason::Orphaned(after) => {
            let after = humantime::format_duration(after);
            let why = format!("stopped: no daemon ran for {after} (process.orphan_max)");
            (why, true)
        }
    };
    let numbers: Vec<String> = finished.remaining.iter().map(u32::to_string).collect();
    let numbers = numbers.join(", ");
    match finished.ending {
        ExitReason::Exited(_) | ExitReason::Signal(_) if numbers.is_empty() => {}
        ExitReason::Exited(_) | ExitReason::Signal(_) => {
            // Writing to a String cannot fail.
            let _ = write!(text, "; still running in the background: {numbers}");
        }
        _ if numbers.is_empty() => {
            text.push_str("; it was stopped with everything that it had started");
        }
        _ => {
            let _ = write!(
                text,
                "; it could not be stopped: processes {numbers} are still running"
            );
        }
    }
    for (name, stream) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
        if stream.total() > 0 {
            let _ = write!(text, "\n{name}:\n{}", stream.text().trim_end_matches('\n'));
        }
    }
    ToolOutput { text, is_error }
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
