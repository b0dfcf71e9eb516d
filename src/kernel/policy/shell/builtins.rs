//! Shell builtins that set names, and names whose values are run or evaluated. Sources are POSIX's
//! shell language and the manuals of bash, ksh and mksh.

use super::options::UNNAMED;
use super::word::{HOLE, ShellWord};
use crate::kernel::policy::overlay;

/// Builtins whose arguments are assignments.
const DECLARING: &[&str] = &["export", "declare", "typeset", "readonly", "local"];
/// Builtins whose arguments are names that they set.
const SETTING: &[&str] = &["read", "unset", "getopts", "mapfile", "readarray"];
/// Builtins that change the meaning of names, how lines are parsed, or what runs later.
const CHANGING: &[&str] = &[
    "enable", "shopt", "bind", "complete", "compgen", "fc", "let",
];
/// Names whose values shells evaluate: an expression may run commands (`a[$(…)]`).
const COMPUTED: &[&str] = &[
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "LINENO",
    "HISTCMD",
    "OPTIND",
    "BASHPID",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "MAILCHECK",
    "TMOUT",
];

/// True if a value of the name changes what programs do or load, or is run or evaluated.
pub(super) fn is_steering(name: &str) -> bool {
    overlay::is_blocked(name) || COMPUTED.contains(&name)
}

/// What a pattern must name to allow a builtin with these words; empty for other programs.
pub(super) fn needs(base: &str, words: &[ShellWord]) -> Vec<String> {
    let rest = &words[1..];
    let unnamed = |is: bool| is.then(|| UNNAMED.to_owned());
    match base {
        _ if DECLARING.contains(&base) => rest.iter().filter_map(declared).collect(),
        _ if SETTING.contains(&base) => {
            let callback = base.ends_with('y') || base == "mapfile";
            let names = rest.iter().filter_map(set).chain(
                rest.iter()
                    .filter(|word| callback && word.text.starts_with("-C"))
                    .map(|_| UNNAMED.to_owned()),
            );
            names.collect()
        }
        _ if CHANGING.contains(&base) => vec![UNNAMED.to_owned()],
        "alias" => unnamed(rest.iter().any(|word| word.text.contains(['=', HOLE])))
            .into_iter()
            .collect(),
        "hash" | "jobs" => unnamed(rest.iter().any(ShellWord::may_be_option))
            .into_iter()
            .collect(),
        "set" => options_of_set(rest),
        "printf" => match rest {
            [first, ..] if first.text.starts_with("-v") => {
                rest.iter().take(2).filter_map(set).collect()
            }
            [first, ..] if first.has_hole() && first.may_be_option() => vec![UNNAMED.to_owned()],
            _ => Vec::new(),
        },
        "test" | "[" => unnamed(computes(rest)).into_iter().collect(),
        "wait" => rest.iter().filter_map(set).collect(),
        _ => Vec::new(),
    }
}

/// The requirement of a declared word: a `NAME=value` whose name steers programs or is evaluated,
/// an index, or a word that may be one of these.
fn declared(word: &ShellWord) -> Option<String> {
    let text = word.text.as_str();
    if let Some(letters) = text.strip_prefix(['-', '+']) {
        // Its value is evaluated or is another name; for an array this applies to every index.
        return letters
            .contains(['i', 'n', HOLE])
            .then(|| UNNAMED.to_owned());
    }
    let name = text.split('=').next().unwrap_or(text);
    // Some shells also split the value and take the parts as further names.
    if name.contains(['[', HOLE]) || word.splits {
        return Some(UNNAMED.to_owned());
    }
    let is_set = text.contains('=') && is_steering(name.trim_end_matches('+'));
    is_set.then(|| format!("{name}="))
}

/// The requirement of a name that is set.
fn set(word: &ShellWord) -> Option<String> {
    if word.has_hole() || word.text.contains('[') {
        return Some(UNNAMED.to_owned());
    }
    is_steering(&word.text).then(|| word.text.clone())
}

/// True if a test may evaluate an index or a compared value.
fn computes(words: &[ShellWord]) -> bool {
    let numeric = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"];
    let is_open = |word: &ShellWord| word.has_hole() || word.text.contains(['$', '`']);
    let open = words.iter().any(is_open);
    let looks = words
        .iter()
        .any(|word| numeric.contains(&word.text.as_str()));
    let pairs = words.windows(2);
    (open && looks)
        || words.iter().any(|word| word.splits)
        || pairs
            .into_iter()
            .any(|two| two.iter().all(ShellWord::has_hole))
}

/// The requirements of `set` options that change how words are parsed.
fn options_of_set(words: &[ShellWord]) -> Vec<String> {
    const NAMES: &[&str] = &[
        "errexit",
        "nounset",
        "xtrace",
        "noglob",
        "noclobber",
        "pipefail",
        "verbose",
        "monitor",
        "notify",
        "noexec",
    ];
    let mut is_name = false;
    for word in words {
        let text = word.text.as_str();
        if text == "--" || text == "-" {
            break;
        }
        let letters = text.strip_prefix(['-', '+']);
        let is_known = match letters {
            _ if word.has_hole() => false,
            Some(letters) => letters.chars().all(|c| "euxfCvmbnao".contains(c)),
            None => !is_name || NAMES.contains(&text),
        };
        if !is_known {
            return vec![UNNAMED.to_owned()];
        }
        if letters.is_none() && !is_name {
            break;
        }
        is_name = letters.is_some_and(|letters| letters.contains('o'));
    }
    Vec::new()
}
