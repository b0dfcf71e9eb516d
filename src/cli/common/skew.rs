//! Compares the running daemon's program with this one. Used by `status`, `doctor` and `service`.

use crate::cli::link::discover::same_program;
use crate::contract::finding::{Finding, Health};
use crate::version::version;
use crate::wire::gateway::Status;

/// What an operator should know and do if the daemon is of another version than this program; `None` if
/// both are the same. `flag` selects its service in commands; it is empty for that of a user.
pub(crate) fn between(status: &Status, flag: &str) -> Option<(String, String)> {
    let own = version();
    if status.version == own {
        return None;
    }
    let message = format!(
        "the daemon is abide {}, {} this program ({own})",
        status.version,
        order(&status.version, own)
    );
    let is_here = status
        .program
        .as_ref()
        .is_some_and(|program| same_program(&program.path));
    let todo = match &status.program {
        Some(program) if !is_here => format!(
            "its program is {}: replace that file and restart it, or stop it and start this one: abide \
             stop && abide serve --detach",
            program.path
        ),
        _ => format!(
            "switch to this one, and open runs continue: abide service restart{flag}, or abide stop \
             --restart"
        ),
    };
    Some((message, todo))
}

/// The finding on the versions of daemon and program.
pub(crate) fn finding(status: &Status) -> Finding {
    let id = "daemon.version";
    match between(status, "") {
        Some((message, todo)) => Finding::new(id, Health::Warn, message).fix(todo),
        None => Finding::new(
            id,
            Health::Ok,
            format!("daemon and program are abide {}", status.version),
        ),
    }
}

/// How the first version relates to the second.
fn order(one: &str, other: &str) -> &'static str {
    match (numbers(one), numbers(other)) {
        (Some(one), Some(other)) if one < other => "older than",
        (Some(one), Some(other)) if one > other => "newer than",
        _ => "another version than",
    }
}

/// Major, minor and patch number.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split(['-', '+']).next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (one, other, expected) in [
            ("0.9.0", "0.10.0", "older than"),
            ("1.0.0", "0.99.99", "newer than"),
            ("1.0.0-rc.1", "1.0.0", "another version than"),
            ("1.0", "1.0.0", "another version than"),
        ] {
            assert_eq!(order(one, other), expected, "{one} {other}");
        }
    }
}
