//! Programs that start others: where the command begins that they are given. Sources are their
//! manuals, and that of the shell for builtins.

use super::scripts;
use super::word::{HOLE, Word};
use crate::kernel::overlay;

/// What a program starts.
pub(super) enum Starts {
    /// Nothing that its words tell of.
    Nothing,
    /// It cannot be told what.
    Anything,
    /// What its input says.
    Input,
    /// This script.
    Script(String),
    /// These words in its place.
    Words {
        words: Vec<Word>,
        /// With other rights, as another user or in another root.
        raised: bool,
        /// What a pattern must name besides.
        needs: Vec<String>,
    },
    /// These, beside what it does itself.
    Both(Vec<Vec<Word>>),
}

/// A program that starts the command in its arguments.
struct Wrapper {
    name: &'static str,
    /// Options that take the next word as their value.
    valued: &'static [&'static str],
    /// Options that take none.
    flags: &'static [&'static str],
    /// Words before the command.
    operands: usize,
    /// It takes `NAME=value` before the command.
    assigns: bool,
    raised: bool,
}

const fn wrapper(
    name: &'static str,
    valued: &'static [&'static str],
    flags: &'static [&'static str],
) -> Wrapper {
    Wrapper {
        name,
        valued,
        flags,
        operands: 0,
        assigns: false,
        raised: false,
    }
}

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        assigns: true,
        ..wrapper(
            "env",
            &["-u", "--unset", "-C", "--chdir"],
            &["-i", "-", "--ignore-environment", "-v", "--debug"],
        )
    },
    wrapper("command", &[], &["-p"]),
    wrapper("builtin", &[], &[]),
    wrapper("exec", &["-a"], &["-c", "-l"]),
    wrapper("nohup", &[], &[]),
    wrapper("nice", &["-n", "--adjustment"], &[]),
    wrapper(
        "ionice",
        &["-c", "-n", "--class", "--classdata"],
        &["-t", "--ignore"],
    ),
    Wrapper {
        operands: 1,
        ..wrapper(
            "timeout",
            &["-s", "--signal", "-k", "--kill-after"],
            &["--preserve-status", "--foreground", "-v", "--verbose"],
        )
    },
    wrapper("time", &[], &["-p", "-v"]),
    wrapper("stdbuf", &["-i", "-o", "-e"], &[]),
    wrapper(
        "setsid",
        &[],
        &["-c", "-f", "-w", "--ctty", "--fork", "--wait"],
    ),
    wrapper("caffeinate", &["-t", "-w"], &["-d", "-i", "-m", "-s", "-u"]),
    wrapper("unbuffer", &[], &["-p"]),
    wrapper("busybox", &[], &[]),
    wrapper("toybox", &[], &[]),
    Wrapper {
        operands: 1,
        ..wrapper("taskset", &[], &["-a", "-c"])
    },
    Wrapper {
        operands: 1,
        ..wrapper("chrt", &[], &["-b", "-f", "-i", "-o", "-r"])
    },
    Wrapper {
        assigns: true,
        raised: true,
        ..wrapper(
            "sudo",
            &[
                "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-T",
                "-r", "--role", "-t", "--type", "-D", "--chdir", "-R", "--chroot", "-U",
            ],
            &[
                "-A", "-b", "-E", "-H", "-k", "-n", "-P", "-S", "--preserve-env", "--set-home",
                "--non-interactive", "--stdin", "--background",
            ],
        )
    },
    Wrapper {
        raised: true,
        ..wrapper("doas", &["-u", "-C", "-a"], &["-n"])
    },
    Wrapper {
        raised: true,
        operands: 1,
        ..wrapper("chroot", &[], &[])
    },
    Wrapper {
        raised: true,
        operands: 1,
        ..wrapper(
            "flock",
            &["-w", "--timeout", "-E"],
            &["-n", "-s", "-x", "-e", "-u", "-o", "-F"],
        )
    },
];

#[rustfmt::skip]
const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "yash",
];
/// Builtins that change what names mean, or run what is elsewhere.
#[rustfmt::skip]
const CHANGING: &[&str] = &[
    ".", "source", "alias", "hash", "enable", "shopt", "bind", "complete",
];
/// Interpreters, with the options that are followed by code.
const CODE: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "-p", "--eval", "--print"]),
    ("bun", &["-e", "--eval"]),
    ("deno", &["eval"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
    ("osascript", &["-e"]),
    ("tclsh", &["-c"]),
    ("Rscript", &["-e"]),
    ("pwsh", &["-c", "-Command", "-EncodedCommand"]),
];

/// What the program called `base` starts.
pub(super) fn starts(base: &str, words: &[Word]) -> Starts {
    let rest = &words[1..];
    if let Some(wrapper) = WRAPPERS.iter().find(|one| one.name == base) {
        return behind(wrapper, rest);
    }
    if SHELLS.contains(&base) {
        return of_shell(rest);
    }
    match base {
        "eval" => Starts::Script(joined(rest)),
        "trap" => match rest.first().filter(|_| rest.len() > 1) {
            Some(script) => Starts::Script(script.text.clone()),
            None => Starts::Nothing,
        },
        "watch" | "su" | "runuser" | "script" | "parallel" | "entr" | "strace" | "ltrace" => {
            Starts::Anything
        }
        "xargs" => of_xargs(rest),
        "find" => of_find(rest),
        _ if CHANGING.contains(&base) => Starts::Anything,
        _ if has_code(base, rest) => Starts::Anything,
        _ => Starts::Nothing,
    }
}

fn joined(words: &[Word]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let hole = words.iter().any(|word| word.splits);
    texts.join(" ") + if hole { "\0" } else { "" }
}

/// The command behind a wrapper's own options and operands.
fn behind(wrapper: &Wrapper, rest: &[Word]) -> Starts {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.known() else {
            return Starts::Anything;
        };
        if text == "--" {
            at += 1;
            break;
        }
        if !text.starts_with('-') {
            break;
        }
        let head = text.split('=').next().unwrap_or(text);
        let short = text.get(..2).filter(|_| !text.starts_with("--"));
        let is_joined = head.len() < text.len() && wrapper.valued.contains(&head)
            || text.len() > 2 && short.is_some_and(|short| wrapper.valued.contains(&short));
        // `nice -5`, as it was written once.
        let is_number = text[1..].chars().all(|c| c.is_ascii_digit()) && text.len() > 1;
        match () {
            () if wrapper.valued.contains(&text) => at += 2,
            () if wrapper.flags.contains(&head) || is_joined || is_number => at += 1,
            // `env -S`, `command -v` and what else there may be.
            () if wrapper.name == "command" => return Starts::Nothing,
            () => return Starts::Anything,
        }
    }
    let mut needs = Vec::new();
    while wrapper.assigns
        && let Some(name) = rest.get(at).and_then(Word::assigned)
    {
        if overlay::is_blocked(name) {
            needs.push(format!("{name}="));
        }
        at += 1;
    }
    if rest.iter().take(at + wrapper.operands).any(Word::has_hole) {
        return Starts::Anything;
    }
    at += wrapper.operands;
    match rest.get(at..).unwrap_or_default() {
        [] => Starts::Nothing,
        words => Starts::Words {
            words: words.to_vec(),
            raised: wrapper.raised,
            needs,
        },
    }
}

/// `sh -c SCRIPT`, or a file, or what it reads.
fn of_shell(rest: &[Word]) -> Starts {
    let mut at = 0;
    let mut is_command = false;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.known() else {
            return Starts::Anything;
        };
        match text {
            "--" => {
                at += 1;
                break;
            }
            "-" | "-s" => return Starts::Input,
            "-o" | "+o" | "-O" | "+O" => at += 2,
            "--norc" | "--noprofile" | "--posix" => at += 1,
            // Files of their own choice are read first.
            text if text.starts_with("--") => return Starts::Anything,
            text if text.starts_with(['-', '+']) => {
                if text.contains(['l', 'i']) {
                    return Starts::Anything;
                }
                is_command |= text.contains('c');
                at += 1;
            }
            _ => break,
        }
    }
    match (rest.get(at), is_command) {
        (Some(script), true) if !script.splits => Starts::Script(script.text.clone()),
        (Some(_), true) => Starts::Script(HOLE.to_string()),
        (None, false) => Starts::Input,
        _ => Starts::Anything,
    }
}

fn of_xargs(rest: &[Word]) -> Starts {
    const VALUED: &[&str] = &["-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"];
    let mut at = 0;
    let mut names_input = false;
    while let Some(text) = rest.get(at).map(|word| word.text.as_str()) {
        if !text.starts_with('-') {
            break;
        }
        // Another mark than `{}` could stand for any word of the command.
        let value = rest.get(at + 1).map(|word| word.text.as_str());
        match text {
            "-I" if value == Some("{}") => names_input = true,
            "-I{}" | "-i" | "--replace" => names_input = true,
            text if text.starts_with("-I")
                || text.starts_with("-J")
                || text.starts_with("-R")
                || text.starts_with("-i")
                || text.starts_with("--replace") =>
            {
                return Starts::Anything;
            }
            _ => {}
        }
        at += if VALUED.contains(&text) { 2 } else { 1 };
        if text == "--" {
            break;
        }
    }
    if rest.iter().take(at).any(Word::has_hole) {
        return Starts::Anything;
    }
    let mut words: Vec<Word> = rest.get(at..).unwrap_or_default().to_vec();
    if words.is_empty() {
        words.push(Word::plain("echo"));
    }
    match names_input {
        true => words = words.into_iter().map(marked).collect(),
        false => words.push(Word::anything()),
    }
    Starts::Words {
        words,
        raised: false,
        needs: Vec::new(),
    }
}

/// A word in which `{}` stands for a name that is found or read.
fn marked(word: Word) -> Word {
    Word {
        text: word.text.replace("{}", "\0"),
        ..word
    }
}

fn of_find(rest: &[Word]) -> Starts {
    let mut inner: Vec<Vec<Word>> = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        if !["-exec", "-execdir", "-ok", "-okdir"].contains(&word.text.as_str()) {
            continue;
        }
        let ends = |word: &&Word| matches!(word.text.as_str(), ";" | "+");
        let words: Vec<Word> = rest[at..]
            .iter()
            .take_while(|word| !ends(word))
            .cloned()
            .collect();
        at += words.len();
        inner.push(words.into_iter().map(marked).collect());
    }
    match inner.is_empty() {
        true => Starts::Nothing,
        false => Starts::Both(inner),
    }
}

/// Is an interpreter given code in its arguments?
fn has_code(base: &str, rest: &[Word]) -> bool {
    if scripts::is_awk(base) {
        return !scripts::awk(rest).is_empty();
    }
    let name = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let Some((_, options)) = CODE.iter().find(|(known, _)| *known == name) else {
        return false;
    };
    let first = rest.first().is_none_or(|word| word.text == "-");
    first
        || rest.iter().any(|word| {
            let text = word.text.as_str();
            options.iter().any(|option| {
                let is_short = option.len() == 2 && !text.starts_with("--");
                text == *option
                    || (option.starts_with("--") && text.starts_with(&format!("{option}=")))
                    || (is_short && text.starts_with('-') && text.contains(&option[1..]))
            })
        })
}
