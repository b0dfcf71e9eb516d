//! Translates the daemon's hints to the command line: its errors name methods, users type commands.
//! Used where an error of the daemon becomes a message.

use crate::kernel::fault::Kind;
use crate::wire::error::row;
use crate::wire::methods::METHODS;

/// The general hints of these error kinds name parameters and headers, which users do not send.
const OF_KINDS: [(Kind, &str); 3] = [
    (
        Kind::InvalidParams,
        "correct it; the command's --help says what is expected",
    ),
    (
        Kind::CursorExpired,
        "leave --since out: what is live now is shown first",
    ),
    (
        Kind::CursorUnknown,
        "leave --since out: cursors and ids of another store are not valid here",
    ),
];

/// Replaces methods by commands in a hint of the daemon.
pub(crate) fn in_commands(hint: &str) -> String {
    let of_kind = OF_KINDS.iter().find(|(kind, _)| row(*kind).hint == hint);
    if let Some((_, told)) = of_kind {
        return (*told).to_owned();
    }
    let mut told = String::with_capacity(hint.len());
    let mut word = String::new();
    for ch in hint.chars().chain([' ']) {
        // The characters of a method's name.
        if ch.is_ascii_lowercase() || matches!(ch, '.' | '_') {
            word.push(ch);
            continue;
        }
        told.push_str(&command(&word));
        word.clear();
        told.push(ch);
    }
    told.pop();
    told
}

/// The command for a method; any other word is unchanged.
fn command(word: &str) -> String {
    let bare = word.trim_end_matches('.');
    let row = METHODS.iter().find(|row| row.name == bare);
    match row.and_then(|row| row.command) {
        Some(command) => format!("{command}{}", &word[bare.len()..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    #[test]
    fn a_hint_names_commands() {
        for (told, read) in [
            (
                "wait for it (agent.wait), or cancel it first (runs.cancel)",
                "wait for it (abide wait), or cancel it first (abide cancel)",
            ),
            ("its result: runs.get.", "its result: abide wait."),
            (
                "raise defaults.max_client_children, or sessions.visibility",
                "raise defaults.max_client_children, or sessions.visibility",
            ),
            ("子 runs.list", "子 abide ps"),
            (
                row(Kind::CursorExpired).hint,
                "leave --since out: what is live now is shown first",
            ),
        ] {
            assert_eq!(in_commands(told), read);
        }
    }

    #[test]
    fn every_command_is_there() {
        let top = help::command_with_help();
        for row in METHODS {
            let method = row.name;
            let Some(command) = row.command else { continue };
            let mut words = command.split(' ').skip(1);
            let name = words.next().unwrap();
            let found = top.find_subcommand(name);
            let mut found = found.unwrap_or_else(|| panic!("{method}: {command}"));
            for word in words {
                if let Some(flag) = word.strip_prefix("--") {
                    let is_there = found.get_arguments().any(|of| of.get_long() == Some(flag));
                    assert!(is_there, "{method}: {command}");
                } else {
                    let below = found.find_subcommand(word);
                    found = below.unwrap_or_else(|| panic!("{method}: {command}"));
                }
            }
        }
    }
}
