//! Here-documents: the delimiter after `<<`, and the text below the line, up to that delimiter.
//! Shells differ in where the text ends if lines in it are joined; where that matters, it is not
//! parsed.

use super::parser::{ParseResult, Parser};
use super::word::ShellWord;

/// A here-document whose text starts after the current line.
pub(super) struct HereDocument {
    /// Index of the command that reads it.
    command: usize,
    /// The line that ends it.
    mark: String,
    /// Expansions in it are performed.
    expands: bool,
    /// Leading tabs of its lines are removed.
    strips: bool,
}

impl Parser<'_> {
    /// Parses the delimiter after `<<`; returns the placeholder for the text until it is read.
    pub(super) fn document_mark(&mut self) -> ParseResult<ShellWord> {
        self.is_whole_sign()?;
        let strips = self.peek(0) == Some('-');
        self.at += usize::from(strips);
        self.is_whole_sign()?;
        self.blanks();
        let start = self.at;
        self.word()?;
        let written: String = self.chars[start..self.at].iter().collect();
        let quoted = ['\'', '"'].into_iter().find_map(|quote| {
            let inside = written.strip_prefix(quote)?.strip_suffix(quote)?;
            Some(inside.to_owned())
        });
        let quoted = quoted.or_else(|| written.strip_prefix('\\').map(str::to_owned));
        let expands = quoted.is_none();
        let mark = quoted.unwrap_or(written);
        let is_plain = |c: char| c.is_alphanumeric() || "_-.+%@:,!=/ ".contains(c);
        if mark.is_empty() || !mark.chars().all(is_plain) {
            return None;
        }
        self.waiting.push(HereDocument {
            command: self.script.commands.len(),
            mark,
            expands,
            strips,
        });
        Some(ShellWord::anything())
    }

    /// Parses the texts of pending here-documents, which are below the line.
    pub(super) fn documents(&mut self) -> ParseResult<()> {
        for waiting in std::mem::take(&mut self.waiting) {
            let body = self.document(&waiting)?;
            let input = match waiting.expands {
                true => self.expanded(&body)?,
                false => ShellWord::plain(&body),
            };
            self.script.text.push_str(&input.literal);
            if let Some(command) = self.script.commands.get_mut(waiting.command) {
                command.input = Some(input);
            }
        }
        Some(())
    }

    fn document(&mut self, waiting: &HereDocument) -> ParseResult<String> {
        let mut body = String::new();
        let mut is_continued = false;
        loop {
            let rest = &self.chars[self.at..];
            if rest.is_empty() {
                return None;
            }
            let end = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
            let line: String = rest[..end].iter().collect();
            self.at = (self.at + end + 1).min(self.chars.len());
            let line = match waiting.strips {
                true => line.trim_start_matches('\t'),
                false => &line,
            };
            if line == waiting.mark {
                // After a backslash it ends the text only in some shells.
                return (!is_continued).then_some(body);
            }
            // So does a delimiter before the bracket that closes a substitution.
            if self.depth > 0 && line.starts_with(&waiting.mark) {
                return None;
            }
            let backslashes = line.chars().rev().take_while(|c| *c == '\\').count();
            is_continued = waiting.expands && backslashes % 2 == 1;
            // So does a delimiter that is continued over several lines.
            if is_continued && waiting.mark.starts_with(&line[..line.len() - 1]) {
                return None;
            }
            body.push_str(line);
            body.push('\n');
        }
    }
}
