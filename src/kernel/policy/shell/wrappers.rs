//! Wrappers: programs that start the command in their arguments, as described in their manuals.

use super::builtins;
use super::starting::Starts;
use super::word::ShellWord;

/// A program that starts the command in its arguments.
pub(super) struct Wrapper {
    pub name: &'static str,
    /// Options that take the next word as their value.
    valued: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    /// The options above that make the command run in another folder; a pattern must name
    /// them.
    moving: &'static [&'static str],
    /// Number of operands before the command.
    operands: usize,
    /// It accepts `NAME=value` before the command.
    assigns: bool,
    raised: bool,
    /// Without a command it starts a shell.
    has_shell: bool,
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
        moving: &[],
        operands: 0,
        assigns: false,
        raised: false,
        has_shell: false,
    }
}

#[rustfmt::skip]
pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        assigns: true,
        moving: &["-C", "--chdir"],
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
        has_shell: true,
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

/// The command after a wrapper's own options and operands.
pub(super) fn behind(wrapper: &Wrapper, rest: &[ShellWord]) -> Starts {
    let mut at = 0;
    let mut needs = Vec::new();
    while let Some(word) = rest.get(at) {
        let Some(text) = word.known() else {
            return Starts::Unread;
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
        let moves = |option: &&str| *option == head || Some(*option) == short;
        needs.extend(
            wrapper
                .moving
                .iter()
                .filter(|option| moves(option))
                .map(ToString::to_string),
        );
        // `env -u PATH`, `-uPATH`, `--unset=PATH`.
        let value = match () {
            () if wrapper.valued.contains(&text) => rest.get(at + 1).map(|word| word.text.as_str()),
            () if text.starts_with("--") => text.split_once('=').map(|(_, value)| value),
            () => text.get(2..),
        };
        needs.extend(
            value
                .filter(|name| builtins::is_steering(name))
                .map(str::to_owned),
        );
        // `nice -5`, the old syntax.
        let is_number = text[1..].chars().all(|c| c.is_ascii_digit()) && text.len() > 1;
        match () {
            () if wrapper.valued.contains(&text) => at += 2,
            () if wrapper.flags.contains(&head) || is_joined || is_number => at += 1,
            // `env -S`, `command -v` and unknown options.
            () if wrapper.name == "command" => return Starts::Nothing,
            () => return Starts::Unread,
        }
    }
    while wrapper.assigns
        && let Some(name) = rest.get(at).and_then(ShellWord::assigned)
    {
        if builtins::is_steering(name) {
            needs.push(format!("{name}="));
        }
        at += 1;
    }
    if rest
        .iter()
        .take(at + wrapper.operands)
        .any(ShellWord::has_hole)
    {
        return Starts::Unread;
    }
    at += wrapper.operands;
    match rest.get(at..).unwrap_or_default() {
        [] if wrapper.has_shell => Starts::Unread,
        [] => Starts::Nothing,
        words => Starts::Words {
            words: words.to_vec(),
            raised: wrapper.raised,
            needs,
        },
    }
}
