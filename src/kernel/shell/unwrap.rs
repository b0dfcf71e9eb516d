//! From simple commands to what they run: programs that start others are taken away, scripts in
//! arguments are read.

use super::command::Command;
use super::options;
use super::parser::{Script, Simple, script};
use super::starting::{Starts, starts};
use super::word::{HOLE, Word};
use crate::kernel::overlay;

/// Scripts within scripts that are read.
const DEPTH: usize = 6;
/// Files to which writing does nothing.
const SINKS: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr"];

/// What a script runs.
pub(super) fn commands(script: &Script, depth: usize) -> Vec<Command> {
    let mut found = Vec::new();
    for simple in &script.commands {
        found.extend(of_simple(simple, depth));
    }
    if script.is_opaque {
        found.push(anything());
    }
    found
}

/// What a program runs that is started with these words.
pub(super) fn argv(words: &[Word], depth: usize) -> Vec<Command> {
    let mut found = Vec::new();
    unwrap(words, None, depth, &mut found);
    found
}

/// A command that nothing is known of.
fn anything() -> Command {
    Command {
        words: vec![Word::anything()],
        runs_anything: true,
        ..Command::default()
    }
}

fn of_simple(simple: &Simple, depth: usize) -> Vec<Command> {
    let mut found = Vec::new();
    for (sign, target) in &simple.redirected {
        if target.known().is_some_and(|file| SINKS.contains(&file)) {
            continue;
        }
        found.push(Command {
            words: vec![Word::plain(sign), target.clone()],
            needs: vec![(*sign).to_owned()],
            ..Command::default()
        });
    }
    let steering: Vec<String> = steering(&simple.assigned);
    if simple.words.is_empty() {
        if !steering.is_empty() {
            found.push(Command {
                words: simple.assigned.clone(),
                needs: steering,
                ..Command::default()
            });
        }
        return found;
    }
    let first = found.len();
    unwrap(&simple.words, simple.input.as_ref(), depth, &mut found);
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

/// Assignments that change what programs do or load, as a pattern must name them.
fn steering(assigned: &[Word]) -> Vec<String> {
    let names = assigned.iter().filter_map(Word::assigned);
    names
        .filter(|name| overlay::is_blocked(name))
        .map(|name| format!("{name}="))
        .collect()
}

/// Adds what these words run.
fn unwrap(words: &[Word], input: Option<&Word>, depth: usize, found: &mut Vec<Command>) {
    let Some(first) = words.first() else { return };
    let needs = options::needs(words);
    let mut command = Command {
        words: words.to_vec(),
        runs_anything: !needs.is_empty(),
        needs,
        inner: inner(words, depth),
        ..Command::default()
    };
    if depth >= DEPTH {
        command.runs_anything = true;
        found.push(command);
        return;
    }
    let Some(name) = first.known() else {
        command.runs_anything |= first.splits;
        found.push(command);
        return;
    };
    let base = name.rsplit('/').next().unwrap_or(name);
    match starts(base, words) {
        Starts::Nothing => found.push(command),
        Starts::Anything => {
            command.runs_anything = true;
            found.push(command);
        }
        Starts::Input => match input.and_then(Word::known) {
            Some(text) => scripted(text, words, depth, found),
            None => {
                command.runs_anything = true;
                found.push(command);
            }
        },
        Starts::Script(text) => match text.contains(HOLE) {
            false => scripted(&text, words, depth, found),
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
            unwrap(&inner, input, depth + 1, found);
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
                unwrap(&words, None, depth + 1, found);
            }
        }
    }
}

/// A script that a shell is given: what it runs is all that counts.
fn scripted(text: &str, words: &[Word], depth: usize, found: &mut Vec<Command>) {
    let first = found.len();
    found.extend(commands(&script(text), depth + 1));
    for command in &mut found[first..] {
        command.outer.get_or_insert_with(|| words.to_vec());
    }
}

/// Arguments that would be commands if a program ran them.
fn inner(words: &[Word], depth: usize) -> Vec<Command> {
    if depth >= 2 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for word in words.iter().skip(1) {
        if word.text.contains(char::is_whitespace) && word.text.len() <= 4096 {
            // What is no command line runs nothing.
            let mut script = script(&word.literal);
            script.is_opaque = false;
            found.extend(commands(&script, depth.max(1) + 1));
        }
    }
    found
}
