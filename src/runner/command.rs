//! Runs of agents that are programs: the program gets the task, and its output is the answer.
//! Whether it may be started twice is unknown, so it is one step that is never repeated. A keeper
//! runs the program, so it goes on while the daemon is down; only a run whose keeper was lost ends as
//! uncertain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::prompt::conversation;
use super::rights::rights;
use super::turn::{SUMMARY_LIMIT, answer_of, has_unseen_input, pinned_agent, read_agent};
use crate::agent::{AgentDefinition, CommandSpec, Progress, Stdin, TASK};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::journal::RunView;
use crate::contract::preview::{Preview, UnapprovedCall};
use crate::contract::runner::{Admission, Next, Runner, StepOutcome, TextSink};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::RunError;
use crate::kernel::run::step::{EffectClass, Intent, Step, StepKind, StepState};
use crate::kernel::session::message::{Block, Role, plain_text};
use crate::kernel::text::{preview, storable};
use crate::kernel::time::Timestamp;
use crate::process::{
    ExitReason, Finished, Processes, Program, ProgramFault, ProgramInput, ProgramStep, signal_name,
};
use crate::tool;

/// Bytes of the program's last output that are included in its failure.
const SAID_LAST: usize = 2000;

/// Executes runs of programs. Cheap to clone.
#[derive(Clone)]
pub struct CommandRunner {
    /// Starts the programs.
    pub processes: Processes,
    /// The folder of runs that name none.
    pub workspace: Arc<Path>,
    /// Creates step ids.
    pub clock: Clock,
}

impl CommandRunner {
    /// Starts the program, unless it was already started `max_loops` times.
    fn start(&self, view: &RunView, definition: &AgentDefinition) -> Next {
        let Some(command) = &definition.command else {
            return Next::Fail(RunError::new("pins", "the pinned agent is not a program"));
        };
        if let Some(error) = out_of_turns(view, definition) {
            return Next::Fail(error);
        }
        Next::Steps(vec![Intent {
            id: StepId(self.clock.new_id()),
            kind: StepKind::Command,
            tool: None,
            tool_call: None,
            asked_by: None,
            effect: EffectClass::Kept,
            input: Value::Null,
            params_summary: Some(preview(&command.argv.join(" "), SUMMARY_LIMIT)),
            context: None,
        }])
    }

    /// The program's working folder.
    fn folder(&self, cwd: Option<&str>, command: Option<&CommandSpec>) -> PathBuf {
        working_folder(&self.workspace, cwd, command)
    }

    fn program(&self, view: &RunView, step: &Step, command: &CommandSpec) -> Program {
        let task = task(view, step);
        Program {
            argv: command
                .argv
                .iter()
                .map(|argument| argument.replace(TASK, &task))
                .collect(),
            environment: view.environment.variables.clone(),
            folder: self.folder(view.run.cwd.as_deref(), Some(command)),
            input: match command.stdin {
                Stdin::Task => ProgramInput::Text(task),
                Stdin::None => ProgramInput::Nothing,
            },
            // The run's own time limit applies.
            time: None,
            keep: usize::try_from(command.output_limit).unwrap_or(usize::MAX),
            detach: false,
        }
    }
}

impl Runner for CommandRunner {
    fn next(&self, view: &RunView) -> Next {
        next_of_program(view, "command", |definition| self.start(view, definition))
    }

    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission> {
        let admitted = pinned_agent(&view).and_then(|definition| {
            let argv = definition
                .command
                .as_ref()
                .map(|command| command.argv.clone());
            Ok(tool::admit_program(
                &rights(&definition, &view)?,
                &argv.unwrap_or_default(),
            ))
        });
        let mut admitted = admitted.unwrap_or_else(|error| Admission::Refused(error.message));
        if let Admission::NeedsApproval(consent) = &mut admitted
            && let Ok(definition) = pinned_agent(&view)
            && let Some(command) = &definition.command
        {
            // The rules match the command as the agent file has it; the user approves the command
            // as started.
            let program = self.program(&view, &step, command);
            consent.arguments = Some(match program.input {
                ProgramInput::Text(text) => json!({ "argv": program.argv, "stdin": text }),
                _ => json!({ "argv": program.argv }),
            });
        }
        Box::pin(std::future::ready(admitted))
    }

    fn preview(&self, call: UnapprovedCall) -> BoxFuture<'static, Preview> {
        let definition = read_agent(&call.agent).ok();
        let command = definition.as_ref().and_then(|one| one.command.as_ref());
        let folder = self.folder(call.cwd.as_deref(), command);
        Box::pin(std::future::ready(Preview {
            folder: Some(folder.display().to_string()),
            change: None,
        }))
    }

    fn prepare(&self, _: &RunView, step: &Step) {
        self.processes.prepare(step.run, step.id);
    }

    fn stored(&self, _: StepId) {}

    fn ended(&self, _: RunId) -> BoxFuture<'static, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome> {
        let runner = self.clone();
        Box::pin(async move {
            if step.kind == StepKind::Compaction {
                let why = "the agent is a program, so there is no model context to compact";
                return StepOutcome::failed(RunError::new("no_model", why));
            }
            let command = match pinned_agent(&view) {
                Ok(definition) => definition.command.clone(),
                Err(error) => return StepOutcome::failed(error),
            };
            let Some(command) = command else {
                return StepOutcome::failed(RunError::new("pins", "the agent is not a program"));
            };
            let program = runner.program(&view, &step, &command);
            let mut said = OutputText::new(program.keep / 2);
            let heard = move |bytes: &[u8]| {
                if command.progress == Progress::Text {
                    let piece = said.more(bytes);
                    if !piece.is_empty() {
                        sink.text(&piece);
                    }
                }
            };
            let now = runner.clock.moment().steady;
            let of_step = program_step(&view, &step, now);
            match runner.processes.run(of_step, program, heard).await {
                Ok(finished) => outcome(&finished),
                Err(ProgramFault::NotStarted(why)) => {
                    let message = format!("the program was not started: {why}");
                    StepOutcome::failed(RunError::new("command", message))
                }
                // Carried out again, the program begins anew.
                Err(ProgramFault::Lost(why)) => StepOutcome::Uncertain {
                    why,
                    is_final: true,
                },
            }
        })
    }
}

/// What follows for an agent that is a program: `start` has the intent of its next turn. A failed turn
/// ends the run with an error of this kind.
pub(super) fn next_of_program(
    view: &RunView,
    kind: &str,
    start: impl Fn(&AgentDefinition) -> Next,
) -> Next {
    let definition = match pinned_agent(view) {
        Ok(definition) => definition,
        Err(error) => return Next::Fail(error),
    };
    let mut begun = view.steps.iter().rev();
    let Some(latest) = begun.find(|step| step.kind == StepKind::Command) else {
        return start(&definition);
    };
    if latest.state != StepState::Done {
        let why = latest.error.as_deref().unwrap_or("the program failed");
        return Next::Fail(RunError::new(kind, why));
    }
    if has_unseen_input(view, latest) {
        return start(&definition);
    }
    Next::EndTurn(Some(plain_text(answer_of(view, latest))))
}

/// Why the program gets no further task: it has had as many as its `max_loops`.
pub(super) fn out_of_turns(view: &RunView, definition: &AgentDefinition) -> Option<RunError> {
    let begun = view.steps.iter();
    let begun = begun.filter(|step| step.kind == StepKind::Command).count();
    let message = format!(
        "agent {} was started {begun} times, its max_loops, and has unanswered input",
        definition.name
    );
    (begun >= definition.max_loops as usize).then(|| RunError::new("max_loops", message))
}

/// The working folder of an agent's program: its own folder inside the run's folder, which is
/// `workspace` if the run names none.
pub(super) fn working_folder(
    workspace: &Path,
    cwd: Option<&str>,
    command: Option<&CommandSpec>,
) -> PathBuf {
    let folder = match cwd {
        Some(cwd) => PathBuf::from(cwd),
        None => workspace.to_path_buf(),
    };
    match command.and_then(|command| command.cwd.as_ref()) {
        Some(cwd) => folder.join(cwd),
        None => folder,
    }
}

/// What a program of this step needs to know; `now` is the steady time.
pub(super) fn program_step(view: &RunView, step: &Step, now: Timestamp) -> ProgramStep {
    ProgramStep {
        run: step.run,
        step: step.id,
        may_have_begun: step.state == StepState::Started,
        run_time: view.run.remaining_at(now).map(Duration::from_millis),
    }
}

/// The messages to the agent since its last answer.
pub(super) fn task(view: &RunView, step: &Step) -> String {
    let seen = conversation(view, step.seen_up_to);
    let said: Vec<String> = seen
        .iter()
        .rev()
        .take_while(|message| message.role == Role::User)
        .map(|message| message.text())
        .collect();
    let said: Vec<String> = said.into_iter().rev().collect();
    storable(&said.join("\n\n"))
}

/// Exit status 0 with the output is the answer; anything else is a failure with the program's last
/// output.
fn outcome(finished: &Finished) -> StepOutcome {
    let failed = |kind: &str, what: String| {
        let said = [&finished.stderr, &finished.stdout]
            .map(|stream| storable(stream.last(SAID_LAST).trim()));
        let said = said.into_iter().find(|said| !said.is_empty());
        let message = match said {
            Some(said) => format!("{what}: {said}"),
            None => format!("{what}, without any output"),
        };
        StepOutcome::failed(RunError::new(kind, message))
    };
    match finished.ending {
        ExitReason::Exited(0) => {
            let text = storable(finished.stdout.text().trim_end());
            let text = match text.is_empty() {
                true => "exit status 0, and no output".to_owned(),
                false => text,
            };
            StepOutcome::Answer {
                blocks: vec![Block::Text { text }],
                used: None,
                warnings: Vec::new(),
            }
        }
        ExitReason::Exited(status) => failed("exit", format!("exit status {status}")),
        ExitReason::Signal(signal) => {
            failed("signal", format!("ended by signal {}", signal_name(signal)))
        }
        ExitReason::OutputLimit(most) => failed(
            "output_limit",
            format!("ended for writing more than {most} bytes (process.output_limit)"),
        ),
        ExitReason::TimedOut => failed("timeout", "its time limit passed".to_owned()),
        ExitReason::Stopped => failed(
            "stopped",
            "ended because its keeper received SIGTERM".to_owned(),
        ),
        ExitReason::Orphaned(after) => failed(
            "orphaned",
            format!(
                "ended because no daemon ran for {} (process.orphan_max)",
                humantime::format_duration(after)
            ),
        ),
    }
}

/// Converts a program's output to text piece by piece; the joined pieces are a prefix of its
/// answer.
struct OutputText {
    /// Bytes of an incomplete character, or trailing whitespace that the answer may not include.
    held: Vec<u8>,
    /// Number of bytes that may still be passed on; the final answer may omit bytes after them.
    room: usize,
}

impl OutputText {
    fn new(room: usize) -> Self {
        OutputText {
            held: Vec::new(),
            room,
        }
    }

    fn more(&mut self, bytes: &[u8]) -> String {
        let fits = bytes.len().min(self.room);
        self.room -= fits;
        self.held.extend_from_slice(&bytes[..fits]);
        let begun = match self.held.utf8_chunks().last() {
            Some(chunk) => {
                let rest = chunk.invalid();
                let is_begun =
                    std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
                if is_begun { rest.len() } else { 0 }
            }
            None => 0,
        };
        let whole = self.held.len() - begun;
        let blanks = self.held[..whole]
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        let held = self.held.split_off(whole - blanks);
        let piece = storable(&String::from_utf8_lossy(&self.held));
        self.held = held;
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_passed_on_is_the_answer_or_its_beginning(
            text in "[aä€𝄞 \n]{0,40}", piece in 1usize..9, room in 0usize..80
        ) {
            let mut said = OutputText::new(room);
            let passed: String = text.as_bytes().chunks(piece).map(|piece| said.more(piece)).collect();
            let answer = text.trim_end();
            if room >= text.len() {
                prop_assert_eq!(&passed, answer);
            }
            prop_assert!(answer.starts_with(&passed), "{:?} {:?}", passed, answer);
        }
    }
}
