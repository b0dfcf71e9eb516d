//! Help of `abide top`: its keys.

use ratatui::text::Line;

use super::draw::ASKS;
use super::keys::PressedKey;
use crate::cli::output::text::wrap;

/// Columns of the keys.
const INDENT: usize = 9;

/// Keys and their effects.
const KEYS: [(&str, &str); 12] = [
    ("Up Down", "select a line (also k and j)"),
    (
        "PgUp PgDn",
        "ten lines up or down; Home and End go to the ends",
    ),
    ("Tab", "switch between open requests and runs"),
    (
        "Enter",
        "on a request: show all of it and answer; on a run: attach to it",
    ),
    ("Space", "in a request or this help: next page"),
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
    ("Esc", "close what lies over the lists"),
    ("q", "quit; the runs continue"),
];

/// The open help.
#[derive(Default)]
pub(super) struct Help {
    /// Index of the first visible line.
    top: usize,
    /// Number of visible lines, as last laid out.
    height: usize,
    /// True if all lines were visible at once.
    pub(super) is_whole: bool,
}

impl Help {
    /// Scrolls.
    pub(super) fn press(&mut self, key: PressedKey) {
        let page = self.height.saturating_sub(1).max(1);
        self.top = match key {
            PressedKey::Down | PressedKey::Char('j') => self.top + 1,
            PressedKey::Up | PressedKey::Char('k') => self.top.saturating_sub(1),
            PressedKey::PageDown | PressedKey::Char(' ') => self.top + page,
            PressedKey::PageUp => self.top.saturating_sub(page),
            PressedKey::Home | PressedKey::Char('g') => 0,
            PressedKey::End | PressedKey::Char('G') => usize::MAX,
            _ => self.top,
        };
    }

    /// The visible lines. If lines follow, the last one says so.
    pub(super) fn lay_out(&mut self, columns: usize, height: usize) -> Vec<Line<'static>> {
        let lines = lines(columns);
        self.is_whole = lines.len() <= height;
        // A line is taken for the number of those that follow.
        self.height = if self.is_whole {
            height
        } else {
            height.saturating_sub(1)
        };
        self.top = self.top.min(lines.len().saturating_sub(self.height));
        let more = lines.len().saturating_sub(self.top + self.height);
        let shown = lines.into_iter().skip(self.top).take(self.height);
        let mut shown: Vec<Line<'_>> = shown.map(Line::raw).collect();
        match more {
            0 => {}
            1 => shown.push(Line::styled("… 1 more line: Space", ASKS)),
            more => shown.push(Line::styled(format!("… {more} more lines: Space"), ASKS)),
        }
        shown
    }
}

/// All lines, each at most `columns` wide.
fn lines(columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, what) in KEYS {
        let told = wrap(what, columns.saturating_sub(INDENT + 1).max(8));
        for (at, part) in told.iter().enumerate() {
            let key = if at == 0 { key } else { "" };
            lines.push(format!("{key:<INDENT$} {part}"));
        }
    }
    lines
}
