//! Help of `abide top`: its keys.

use crate::cli::output::text::wrap;

/// Keys and their effects.
const KEYS: [(&str, &str); 11] = [
    (
        "Up Down",
        "select a line (also k and j, Page Up and Down, Home and End)",
    ),
    ("Tab", "switch between open requests and runs"),
    (
        "Enter",
        "show all of a request and answer it; on a run: attach to it",
    ),
    ("Space", "in a request: next page"),
    ("y", "in a request: allow the call (after the last page)"),
    ("n", "in a request: deny the call"),
    (
        "a",
        "attach: follow the run as abide attach does, and come back",
    ),
    (
        "s",
        "steer: a line that the next model call of the run sees",
    ),
    (
        "c",
        "cancel the run and its descendants, after a second key",
    ),
    ("Esc", "close the overlay"),
    ("q", "quit; the runs continue"),
];

/// The help as lines of at most `columns`.
pub(super) fn lines(columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, what) in KEYS {
        let told = wrap(what, columns.saturating_sub(9).max(8));
        for (at, part) in told.iter().enumerate() {
            let key = if at == 0 { key } else { "" };
            lines.push(format!("{key:<8} {part}"));
        }
    }
    lines
}
