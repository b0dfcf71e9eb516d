//! Resolves simple commands to what they run: wrappers are removed, and scripts in arguments are
//! parsed.

use super::builtins;
use super::command::ShellCommand;
use super::interpreters::{is_shell, only_prints};
use super::options;
use super::parser::{ShellScript, Simple, script};
use super::starting::{Starts, starts};
use super::word::{HOLE, ShellWord};

/// Maximum depth of nested scripts.
const DEPTH: usize = 6;
/// Maximum length of parsed texts; longer ones may hold any command.
const TEXT_LIMIT: usize = 4096;
/// Files to which writing has no effect.
const SINKS: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr"];

/// The context in which the commands of a script run.
#[derive(Clone, Copy, Default)]
pub(super) struct ScriptContext {
    /// Number of enclosing scripts.
    depth: usize,
    /// Their input may be non-empty.
    is_fed: bool,
}

impl ScriptContext {
    fn deeper(self) -> ScriptContext {
        ScriptContext {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// The commands that a script runs.
pub(super) fn commands(script: &ShellScript, within: ScriptContext) -> Vec<ShellCommand> {
    let within = ScriptContext {
        is_fed: within.is_fed || script.is_fed,
        ..within
    };
    let mut found = Vec::new();
    for simple in &script.commands {
        found.extend(of_simple(simple, within));
    }
    if script.is_opaque {
        found.push(anything());
    }
    found
}

/// The commands that a program runs that is started with these words.
pub(super) fn argv(words: &[ShellWord]) -> Vec<ShellCommand> {
    let mut found = Vec::new();
    unwrap(words, None, ScriptContext::default(), &mut found);
    found
}

/// A command of which nothing is known.
fn anything() -> ShellCommand {
    ShellCommand {
        words: vec![ShellWord::anything()],
        runs_anything: true,
        ..ShellCommand::default()
    }
}

fn of_simple(simple: &Simple, within: ScriptContext) -> Vec<ShellCommand> {
    let mut found = Vec::new();
    for (sign, target) in &simple.redirected {
        if target.known().is_some_and(|file| SINKS.contains(&file)) {
            continue;
        }
        found.push(ShellCommand {
            words: vec![ShellWord::plain(sign), target.clone()],
            needs: vec![(*sign).to_owned()],
            ..ShellCommand::default()
        });
    }
    let steering: Vec<String> = steering(&simple.assigned);
    if simple.words.is_empty() {
        if !steering.is_empty() {
            found.push(ShellCommand {
                words: simple.assigned.clone(),
                needs: steering,
                // The value may be run by a later command.
                runs_anything: true,
                ..ShellCommand::default()
            });
        }
        return found;
    }
    let first = found.len();
    unwrap(&simple.words, simple.input.as_ref(), within, &mut found);
    if let Some(input) = &simple.input
        && let Some(last) = found[first..].last_mut()
        && !last
            .words
            .first()
            .is_some_and(|word| only_prints(word.base()) || is_shell(word.base()))
    {
        read_by(last, input, within);
    }
    for command in &mut found[first..] {
        command.needs.extend(steering.iter().cloned());
        command.runs_anything |= !steering.is_empty();
        if !simple.assigned.is_empty() {
            let written = simple.assigned.iter().chain(&simple.words);
            command
                .outer
                .get_or_insert_with(|| written.cloned().collect());
        }
    }
    found
}

/// Assignments that change what programs do or load, in the form that a pattern must name.
fn steering(assigned: &[ShellWord]) -> Vec<String> {
    let names = assigned.iter().filter_map(ShellWord::assigned);
    names
        .filter(|name| builtins::is_steering(name))
        .map(|name| format!("{name}="))
        .collect()
}

/// Adds the commands that a program may run from its input: the whole text and each line of it.
fn read_by(command: &mut ShellCommand, input: &ShellWord, within: ScriptContext) {
    if input.literal.len() > TEXT_LIMIT {
        command.runs_anything = true;
        return;
    }
    let lines = input.literal.lines().filter(|line| !line.trim().is_empty());
    for text in [input.literal.as_str()].into_iter().chain(lines) {
        command.inner.extend(loosely(text, within.deeper()));
    }
}

/// Adds the commands that these words run.
fn unwrap(
    words: &[ShellWord],
    input: Option<&ShellWord>,
    within: ScriptContext,
    found: &mut Vec<ShellCommand>,
) {
    let Some(first) = words.first() else { return };
    let needs = options::needs(words);
    let mut command = ShellCommand {
        words: words.to_vec(),
        runs_anything: !needs.is_empty(),
        needs,
        inner: inner(words, within),
        ..ShellCommand::default()
    };
    if within.depth >= DEPTH {
        command.runs_anything = true;
        command.needs.push(options::UNNAMED.to_owned());
        found.push(command);
        return;
    }
    let Some(name) = first.known() else {
        command.runs_anything |= first.splits;
        found.push(command);
        return;
    };
    let base = name.rsplit('/').next().unwrap_or(name);
    let starts = starts(base, words, within.is_fed);
    let replaces = matches!(
        starts,
        Starts::Input | Starts::Script(_) | Starts::Words { .. }
    );
    if replaces && !options::is_standard(name) {
        // Any program may have this name, be it `./env` or `A=/env`, so it must be allowed as well.
        found.push(command.clone());
    }
    match starts {
        Starts::Nothing => found.push(command),
        Starts::Anything => {
            command.runs_anything = true;
            found.push(command);
        }
        Starts::Unread => {
            command.runs_anything = true;
            command.needs.push(options::UNNAMED.to_owned());
            found.push(command);
        }
        Starts::Input => match input.and_then(ShellWord::known) {
            Some(text) => scripted(text, words, within, found),
            None => {
                command.runs_anything = true;
                found.push(command);
            }
        },
        Starts::Script(text) => match text.contains(HOLE) {
            false => scripted(&text, words, within, found),
            true => {
                command.runs_anything = true;
                command.needs.push(options::UNNAMED.to_owned());
                found.push(command);
            }
        },
        Starts::Words {
            words: inner,
            raised,
            needs,
        } => {
            let first = found.len();
            unwrap(&inner, input, within.deeper(), found);
            for command in &mut found[first..] {
                command.needs.extend(needs.iter().cloned());
                command.runs_anything |= !needs.is_empty();
                if raised {
                    command.is_raised = true;
                    command.outer = Some(words.to_vec());
                }
                command.outer.get_or_insert_with(|| words.to_vec());
            }
        }
        Starts::Both(inner) => {
            found.push(command);
            for words in inner {
                unwrap(&words, None, within.deeper(), found);
            }
        }
    }
}

/// Adds the commands of a script that a shell gets; the shell itself does not count.
fn scripted(text: &str, words: &[ShellWord], within: ScriptContext, found: &mut Vec<ShellCommand>) {
    let first = found.len();
    found.extend(commands(&script(text), within.deeper()));
    for command in &mut found[first..] {
        command.outer.get_or_insert_with(|| words.to_vec());
    }
}

/// The commands in arguments, in case the program runs them.
fn inner(words: &[ShellWord], within: ScriptContext) -> Vec<ShellCommand> {
    if within.depth >= 2 {
        return Vec::new();
    }
    let within = ScriptContext {
        depth: within.depth.max(1) + 1,
        ..within
    };
    let mut found = Vec::new();
    for word in words.iter().skip(1) {
        let may_run = |c: char| c.is_whitespace() || "$`;|&<>{".contains(c);
        if word.literal.contains(may_run) && word.text.len() <= TEXT_LIMIT {
            found.extend(loosely(&word.literal, within));
        }
    }
    found
}

/// The commands of a text that may not be a script; text that is not a command line yields none.
fn loosely(text: &str, within: ScriptContext) -> Vec<ShellCommand> {
    let mut script = script(text);
    script.is_opaque = false;
    commands(&script, within)
}
