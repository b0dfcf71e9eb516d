//! Shells and other interpreters: the script or code in their arguments or their input. Sources are
//! their manuals.

use super::scripts;
use super::starting::Starts;
use super::word::{HOLE, ShellWord};

/// Shells whose scripts are parsed.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ksh", "mksh", "ash", "rbash"];
/// Shells with a grammar of their own, whose scripts are not parsed.
#[rustfmt::skip]
const OTHER_SHELLS: &[&str] = &[
    "zsh", "yash", "csh", "tcsh", "fish", "rc", "es", "nu", "elvish", "xonsh", "oil", "osh", "ysh",
    "pwsh", "powershell", "rksh", "lksh", "ksh93", "loksh", "hush", "scsh",
];
/// Interpreters, with the options that are followed by code or by something that is loaded first.
#[rustfmt::skip]
const CODE: &[(&[&str], &[&str])] = &[
    (&["python", "pypy", "jython", "ipython"], &["-c"]),
    (&["perl", "raku"], &["-e", "-E", "-M", "-m", "-d"]),
    (&["ruby", "jruby", "irb"], &["-e", "-r"]),
    (&["node", "nodejs"], &["-e", "-p", "-r", "--eval", "--print", "--require", "--import", "--loader", "--experimental-loader"]),
    (&["bun"], &["-e", "-p", "-r", "--eval", "--print", "--preload", "--require"]),
    (&["deno"], &["eval", "repl"]),
    (&["php"], &["-r", "-B", "-R", "-E", "-d", "--run", "--process-begin", "--process-code", "--process-end", "--define"]),
    (&["lua", "luajit"], &["-e", "-l"]),
    (&["osascript"], &["-e"]),
    (&["tclsh", "wish"], &["-c"]),
    (&["Rscript", "R"], &["-e"]),
    (&["julia"], &["-e", "-E", "-L", "--eval", "--print", "--load"]),
    (&["elixir", "iex"], &["-e", "--eval", "--rpc-eval", "-r"]),
    (&["erl"], &["-eval", "-run", "-s"]),
    (&["ghc", "ghci", "runghc", "groovy", "scala", "clojure", "clj", "swift"], &["-e"]),
    (&["guile"], &["-c", "-e", "-l"]),
    (&["racket"], &["-e", "-l", "--eval"]),
    (&["sbcl", "ecl", "clisp"], &["--eval", "-eval", "-x"]),
    (&["emacs", "emacsclient"], &["--eval", "-eval", "-e", "--execute", "-f", "--funcall"]),
    (&["octave", "gnuplot"], &["-e", "--eval"]),
    (&["psql"], &["-c", "--command"]),
    (&["mysql", "mariadb"], &["-e", "--execute"]),
    (&["gdb", "lldb"], &["-ex", "-o", "--eval-command", "--one-line", "--command", "--args"]),
    (&["dc"], &["-e", "--expression"]),
];
/// Programs that run commands from their input.
#[rustfmt::skip]
const READERS: &[&str] = &[
    "docker", "podman", "nerdctl", "kubectl", "oc", "lxc", "lxc-attach", "nsenter", "unshare", "bwrap", "sqlite3", "ed", "red", "ex",
    "vi", "vim", "nvim", "m4", "make", "gmake", "ftp", "sftp", "lftp", "telnet", "nc", "ncat",
    "netcat", "socat", "mail", "mailx", "bc", "jshell", "kotlinc", "ocaml", "nix-shell",
];
/// Programs that only print, count or compare their input, or take their commands from their
/// arguments.
#[rustfmt::skip]
const PRINTING: &[&str] = &[
    "cat", "tee", "head", "tail", "wc", "sort", "uniq", "grep", "egrep", "fgrep", "rg", "tr", "cut",
    "fold", "fmt", "nl", "rev", "tac", "base32", "base64", "md5sum", "sha1sum", "sha256sum",
    "sha512sum", "cksum", "jq", "column", "paste", "comm", "diff", "cmp", "od", "xxd", "hexdump",
    "strings", "read", "mapfile", "readarray", "true", "false", ":", "echo", "printf", "test", "[",
    "sed", "git", "gh", "curl", "wget", "iconv", "gzip", "less", "more",
];

/// True for a shell whose scripts are parsed.
pub(super) fn is_shell(base: &str) -> bool {
    SHELLS.contains(&base)
}

/// True for a shell whose scripts are not parsed.
pub(super) fn is_other_shell(base: &str) -> bool {
    OTHER_SHELLS.contains(&unnumbered(base)) || OTHER_SHELLS.contains(&base)
}

/// True if the program may run what its input contains.
pub(super) fn is_interpreter(base: &str) -> bool {
    READERS.contains(&base) || code_of(base).is_some()
}

/// True if the program only prints, counts or compares its input.
pub(super) fn only_prints(base: &str) -> bool {
    PRINTING.contains(&base) || scripts::is_awk(base)
}

/// `python3.11` is `python`.
fn unnumbered(base: &str) -> &str {
    base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn code_of(base: &str) -> Option<&'static [&'static str]> {
    let name = unnumbered(base);
    let found = CODE.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, options)| *options)
}

/// What a shell runs: the script of `-c`, a file, or its input.
pub(super) fn of_shell(rest: &[ShellWord]) -> Starts {
    const OPTIONS: &[&str] = &[
        "errexit",
        "nounset",
        "xtrace",
        "noglob",
        "noclobber",
        "pipefail",
        "verbose",
        "posix",
    ];
    let mut at = 0;
    let mut is_command = false;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.known() else {
            return Starts::Unread;
        };
        match text {
            "--" => {
                at += 1;
                break;
            }
            "-" | "-s" => return Starts::Input,
            "-o" | "+o" => {
                let name = rest.get(at + 1).map(|word| word.text.as_str());
                if !name.is_some_and(|name| OPTIONS.contains(&name)) {
                    return Starts::Unread;
                }
                at += 2;
            }
            "--norc" | "--noprofile" | "--posix" => at += 1,
            // It reads files of its own choice first.
            text if text.starts_with("--") => return Starts::Unread,
            text if text.starts_with(['-', '+']) => {
                // Some of the other options take the next word, and some read files first.
                if !text[1..].chars().all(|c| "ceuxfvabmCn".contains(c)) {
                    return Starts::Unread;
                }
                is_command |= text.starts_with('-') && text.contains('c');
                at += 1;
            }
            _ => break,
        }
    }
    match (rest.get(at), is_command) {
        (Some(script), true) if !script.splits => Starts::Script(script.text.clone()),
        (Some(_), true) => Starts::Script(HOLE.to_string()),
        (None, false) => Starts::Input,
        (None, true) => Starts::Unread,
        (Some(script), false) if script.has_hole() => Starts::Unread,
        (Some(_), false) => Starts::Anything,
    }
}

/// True if an interpreter gets code in its arguments or reads it from its input.
pub(super) fn has_code(base: &str, rest: &[ShellWord]) -> bool {
    if scripts::is_awk(base) {
        return !scripts::awk(rest).is_empty();
    }
    let Some(options) = code_of(base) else {
        return false;
    };
    const ASKING: &[&str] = &["--version", "-V", "-v", "--help", "-h"];
    let asks = |word: &ShellWord| ASKING.contains(&word.text.as_str());
    if !rest.is_empty() && rest.iter().all(asks) {
        return false;
    }
    let is_file = |word: &ShellWord| !word.text.starts_with('-');
    !rest.iter().any(is_file)
        || rest
            .iter()
            .any(|word| word.text == "-" || (word.has_hole() && word.may_be_option()))
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
