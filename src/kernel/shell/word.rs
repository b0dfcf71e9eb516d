//! A word of a command line after quotes and backslashes are taken away.

/// Stands in a text for what is known only when the command runs: any text, also none.
pub(super) const HOLE: char = '\0';

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text, with a [`HOLE`] for every expansion.
    pub text: String,
    /// Its text with expansions as they are written.
    pub literal: String,
    /// It may become several words or none.
    pub splits: bool,
    /// Some of it was quoted, so it is no reserved word.
    pub quoted: bool,
    /// Some of it was quoted before any `=`, so it is no assignment.
    pub begins_quoted: bool,
}

impl Word {
    /// A word that is what it says.
    pub(super) fn plain(text: &str) -> Word {
        let text: String = text.chars().filter(|c| *c != HOLE).collect();
        Word {
            literal: text.clone(),
            text,
            ..Word::default()
        }
    }

    /// Words that nothing is known of.
    pub(super) fn anything() -> Word {
        Word {
            text: HOLE.to_string(),
            splits: true,
            ..Word::default()
        }
    }

    /// Its text, if nothing in it depends on when it runs.
    pub(super) fn known(&self) -> Option<&str> {
        (!self.has_hole()).then_some(self.text.as_str())
    }

    /// Does it depend on when it runs?
    pub(super) fn has_hole(&self) -> bool {
        self.splits || self.text.contains(HOLE)
    }

    /// May it turn out to be an option?
    pub(super) fn may_be_option(&self) -> bool {
        self.splits || self.text.starts_with(['-', HOLE])
    }

    /// The program's name without its folder.
    pub(super) fn base(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or(&self.text)
    }

    /// `NAME` of an assignment `NAME=value` or `NAME+=value`.
    pub(super) fn assigned(&self) -> Option<&str> {
        let (name, _) = self.text.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        super::super::overlay::is_name(name).then_some(name)
    }

    /// The same with every path in it shortened: no `.`, no `..`, no doubled `/`.
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
