//! A word of a command line after its quotes and backslashes are removed.

/// Placeholder for text that is known only when the command runs; it may be empty.
pub(super) const HOLE: char = '\0';

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Its text, with a [`HOLE`] for every expansion.
    pub text: String,
    /// Its text with expansions as written.
    pub literal: String,
    /// It may become several words or none.
    pub splits: bool,
    /// Part of it was quoted, so it is not a reserved word.
    pub quoted: bool,
    /// Part of it was quoted before any `=`, so it is not an assignment.
    pub begins_quoted: bool,
}

impl ShellWord {
    /// A word with literal text.
    pub(super) fn plain(text: &str) -> ShellWord {
        let text: String = text.chars().filter(|c| *c != HOLE).collect();
        ShellWord {
            literal: text.clone(),
            text,
            ..ShellWord::default()
        }
    }

    /// Any number of unknown words.
    pub(super) fn anything() -> ShellWord {
        ShellWord {
            text: HOLE.to_string(),
            splits: true,
            ..ShellWord::default()
        }
    }

    /// Its text; `None` if part of it is known only when the command runs.
    pub(super) fn known(&self) -> Option<&str> {
        (!self.has_hole()).then_some(self.text.as_str())
    }

    /// True if part of it is known only when the command runs.
    pub(super) fn has_hole(&self) -> bool {
        self.splits || self.text.contains(HOLE)
    }

    /// True if it may turn out to be an option.
    pub(super) fn may_be_option(&self) -> bool {
        self.splits || self.text.starts_with(['-', HOLE])
    }

    /// The program's name without its folder.
    pub(super) fn base(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or(&self.text)
    }

    /// The `NAME` of an assignment `NAME=value` or `NAME+=value`.
    pub(super) fn assigned(&self) -> Option<&str> {
        let (name, _) = self.text.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        super::super::overlay::is_name(name).then_some(name)
    }

    /// Its text with every path normalized: no `.`, no `..`, no repeated `/`.
    pub(super) fn shortened(&self) -> String {
        let text = &self.text;
        if !text.contains('/') || text.contains("://") {
            return text.clone();
        }
        let (head, path) = match text.split_once('=') {
            Some((head, path)) if path.contains('/') => (&text[..=head.len()], path),
            _ => ("", text.as_str()),
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.last().is_some_and(|last| *last != "..") => {
                    parts.pop();
                }
                ".." if path.starts_with('/') => {}
                part => parts.push(part),
            }
        }
        let start = if path.starts_with('/') { "/" } else { "" };
        format!("{head}{start}{}", parts.join("/"))
    }
}
