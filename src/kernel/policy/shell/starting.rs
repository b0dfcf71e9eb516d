//! Programs that start others: what can be concluded from their words. Sources are their manuals,
//! and that of the shell for builtins.

use super::interpreters::{self, is_interpreter, is_other_shell, is_shell, of_shell};
use super::word::{HOLE, ShellWord};
use super::wrappers::{WRAPPERS, behind};

/// What a program starts.
pub(super) enum Starts {
    /// Nothing that its words show.
    Nothing,
    /// Unknown, but starting programs is its purpose, so a rule that names it covers this.
    Anything,
    /// Unknown, although it is in its words; a rule that names the program does not cover it.
    Unread,
    /// The content of its input.
    Input,
    /// This script.
    Script(String),
    /// These words instead of its own.
    Words {
        words: Vec<ShellWord>,
        /// With other privileges, as another user or in another root.
        raised: bool,
        /// What a pattern must name in addition.
        needs: Vec<String>,
    },
    /// These commands, in addition to its own work.
    Both(Vec<Vec<ShellWord>>),
}

/// Programs that run what their arguments or input contain, in a shell or on another machine.
#[rustfmt::skip]
const RUNNING: &[&str] = &[
    "watch", "su", "runuser", "sg", "newgrp", "script", "parallel", "entr", "strace", "ltrace",
    "ssh", "slogin", "rsh", "mosh", "at", "batch", "crontab", "screen", "tmux", "expect",
    "systemd-run", "pkexec", "machinectl",
];
/// Builtins that run content from elsewhere, or change the meaning of names.
const CHANGING: &[&str] = &[".", "source", "alias", "hash"];

/// What the program named `base` starts. `is_fed`: its input may be non-empty.
pub(super) fn starts(base: &str, words: &[ShellWord], is_fed: bool) -> Starts {
    let rest = &words[1..];
    if let Some(wrapper) = WRAPPERS.iter().find(|one| one.name == base) {
        return behind(wrapper, rest);
    }
    if is_shell(base) {
        return of_shell(rest);
    }
    match base {
        "eval" => Starts::Script(joined(without_mark(rest))),
        "trap" => of_trap(without_mark(rest)),
        "xargs" => of_xargs(rest),
        "find" => of_find(rest),
        _ if RUNNING.contains(&base) || CHANGING.contains(&base) => Starts::Anything,
        _ if is_other_shell(base) || interpreters::has_code(base, rest) => Starts::Anything,
        _ if is_fed && is_interpreter(base) => Starts::Anything,
        _ => Starts::Nothing,
    }
}

/// The words without the `--` that ends options.
fn without_mark(words: &[ShellWord]) -> &[ShellWord] {
    match words {
        [first, rest @ ..] if first.text == "--" => rest,
        all => all,
    }
}

fn of_trap(rest: &[ShellWord]) -> Starts {
    let Some(first) = rest.first() else {
        return Starts::Nothing;
    };
    match first.text.as_str() {
        "-" | "-l" | "-p" | "-P" => Starts::Nothing,
        text if text.starts_with('-') => Starts::Unread,
        _ if first.splits => Starts::Script(HOLE.to_string()),
        text if rest.len() > 1 => Starts::Script(text.to_owned()),
        _ => Starts::Nothing,
    }
}

fn joined(words: &[ShellWord]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let hole = words.iter().any(|word| word.splits);
    texts.join(" ") + if hole { "\0" } else { "" }
}

fn of_xargs(rest: &[ShellWord]) -> Starts {
    const VALUED: &[&str] = &["-a", "-d", "-E", "-L", "-n", "-P", "-s"];
    const FLAGS: &[&str] = &[
        "--null",
        "--no-run-if-empty",
        "--verbose",
        "--exit",
        "--open-tty",
    ];
    const LONG: &[&str] = &[
        "--max-args",
        "--max-procs",
        "--max-lines",
        "--max-chars",
        "--delimiter",
        "--arg-file",
    ];
    let mut at = 0;
    let mut names_input = false;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.known() else {
            return Starts::Unread;
        };
        if !text.starts_with('-') {
            break;
        }
        let value = rest.get(at + 1).map(|word| word.text.as_str());
        let head = text.split('=').next().unwrap_or(text);
        let short = text.get(..2).unwrap_or(text);
        at += match text {
            "--" => {
                at += 1;
                break;
            }
            "-I{}" | "-i" | "--replace" => {
                names_input = true;
                1
            }
            "-I" if value == Some("{}") => {
                names_input = true;
                2
            }
            _ if VALUED.contains(&text) => 2,
            _ if VALUED.contains(&short) => 1,
            _ if FLAGS.contains(&text) || (LONG.contains(&head) && head != text) => 1,
            _ if text[1..].chars().all(|c| "0rtxop".contains(c)) => 1,
            // A placeholder other than `{}` could stand for any word of the command.
            _ => return Starts::Unread,
        };
    }
    if rest.iter().take(at).any(ShellWord::has_hole) {
        return Starts::Unread;
    }
    let mut words: Vec<ShellWord> = rest.get(at..).unwrap_or_default().to_vec();
    if words.is_empty() {
        words.push(ShellWord::plain("echo"));
    }
    match names_input {
        true => words = words.into_iter().map(marked).collect(),
        false => words.push(ShellWord::anything()),
    }
    Starts::Words {
        words,
        raised: false,
        needs: Vec::new(),
    }
}

/// The word with a hole for `{}`, which stands for a name that is found or read.
fn marked(word: ShellWord) -> ShellWord {
    ShellWord {
        text: word.text.replace("{}", "\0"),
        ..word
    }
}

fn of_find(rest: &[ShellWord]) -> Starts {
    let mut inner: Vec<Vec<ShellWord>> = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        if !["-exec", "-execdir", "-ok", "-okdir"].contains(&word.text.as_str()) {
            continue;
        }
        let ends = |at: usize| match rest[at].text.as_str() {
            ";" => true,
            "+" => at > 0 && rest[at - 1].text == "{}",
            _ => false,
        };
        let end = (at..rest.len()).find(|at| ends(*at)).unwrap_or(rest.len());
        inner.push(rest[at..end].iter().cloned().map(marked).collect());
        at = end;
    }
    match inner.is_empty() {
        true => Starts::Nothing,
        false => Starts::Both(inner),
    }
}
