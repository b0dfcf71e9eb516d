//! Text in the language of manual pages, man(7): escaping, paragraphs, lists, examples. Used by the
//! pages of the manual.

use std::fmt::Write;

use crate::cli::output::text::wrap;

/// Width of lines in the source of a page.
const WIDTH: usize = 76;

/// The source of one page, built from top to bottom.
pub(super) struct Roff(String);

impl Roff {
    /// A page with its title line. `date` is shown at the bottom of the page.
    pub(super) fn new(name: &str, date: &str, version: &str) -> Roff {
        let mut page = Roff(String::new());
        let title = escaped(&name.to_uppercase());
        // mandoc reads a date only without escapes.
        page.push(&format!(
            r#".TH "{title}" 1 "{date}" "abide {version}" "abide manual""#
        ));
        page
    }

    /// Begins a section.
    pub(super) fn section(&mut self, title: &str) {
        self.push(&format!(".SH {}", escaped(title)));
    }

    /// Begins a part of a section.
    pub(super) fn part(&mut self, title: &str) {
        self.push(&format!(".SS {}", escaped(title)));
    }

    /// Adds paragraphs, which are separated by empty lines. The first needs no mark after the head
    /// of a section.
    pub(super) fn prose(&mut self, text: &str) {
        let paragraphs = text.split("\n\n").map(str::trim);
        for (at, paragraph) in paragraphs.filter(|text| !text.is_empty()).enumerate() {
            if at > 0 {
                self.push(".PP");
            }
            self.lines(paragraph);
        }
    }

    /// Adds an item of a list: its name in bold, then its description.
    pub(super) fn item(&mut self, name: &str, description: &str) {
        self.push(".TP");
        self.push(&format!(r"\fB{}\fR", escaped(name)));
        self.lines(description);
    }

    /// Adds an option or argument: the words of its name in bold, what it takes in italics.
    pub(super) fn option(&mut self, name: &str, description: &str) {
        self.push(".TP");
        self.push(&styled(name));
        self.lines(description);
    }

    /// Adds how a command is called; each line is a way.
    pub(super) fn synopsis(&mut self, usage: &str) {
        for (at, line) in usage.lines().map(str::trim).enumerate() {
            if at > 0 {
                self.push(".br");
            }
            self.push(&styled(line));
        }
    }

    /// Adds lines as they are typed.
    pub(super) fn typed(&mut self, lines: &str) {
        self.push(".EX");
        for line in lines.lines() {
            self.push(&protected(&escaped(line)));
        }
        self.push(".EE");
    }

    /// Adds references to other pages, separated by commas.
    pub(super) fn references(&mut self, names: &[String]) {
        for (at, name) in names.iter().enumerate() {
            let comma = if at + 1 < names.len() { "," } else { "" };
            self.push(&format!(".BR {} (1){comma}", escaped(name)));
        }
    }

    /// Adds an item of a list whose name is another page.
    pub(super) fn reference_item(&mut self, name: &str, description: &str) {
        self.push(".TP");
        self.push(&format!(".BR {} (1)", escaped(name)));
        self.lines(description);
    }

    /// The finished source.
    pub(super) fn finish(self) -> String {
        self.0
    }

    fn lines(&mut self, text: &str) {
        for line in wrap(text, WIDTH) {
            self.push(&protected(&escaped(line.trim())));
        }
    }

    fn push(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Text without a meaning for roff. Hyphens and quotes stay those that are typed.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for ch in text.chars() {
        match ch {
            '\\' => out.push_str(r"\e"),
            '-' => out.push_str(r"\-"),
            '\'' => out.push_str(r"\(aq"),
            '"' => out.push_str(r"\(dq"),
            '`' => out.push_str(r"\(ga"),
            '^' => out.push_str(r"\(ha"),
            '~' => out.push_str(r"\(ti"),
            ch if ch.is_ascii() => out.push(ch),
            // Writing to a string cannot fail.
            ch => drop(write!(out, r"\[u{:04X}]", u32::from(ch))),
        }
    }
    out
}

/// An escaped line that is no request, however it begins.
fn protected(line: &str) -> String {
    match line.starts_with('.') {
        true => format!(r"\&{line}"),
        false => line.to_owned(),
    }
}

/// A usage or the name of an option: words in bold, values (`<URL>`, `URL` in brackets) in italics.
fn styled(text: &str) -> String {
    let mut out = String::new();
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 {
            out.push(' ');
        }
        let is_value = word.contains(['<', '[']);
        let font = if is_value { 'I' } else { 'B' };
        // Writing to a string cannot fail.
        let _ = write!(out, r"\f{font}{}\fR", escaped(word));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_a_request() {
        let mut page = Roff::new("abide-x", "2026-11-30", "0.1.0");
        page.typed(".sh\n'br\n\\fB a-b \"c\" ~/é");
        assert_eq!(
            page.finish(),
            ".TH \"ABIDE\\-X\" 1 \"2026-11-30\" \"abide 0.1.0\" \"abide manual\"\n\
             .EX\n\\&.sh\n\\(aqbr\n\\efB a\\-b \\(dqc\\(dq \\(ti/\\[u00E9]\n.EE\n"
        );
    }

    #[test]
    fn values_are_in_italics_and_words_in_bold() {
        assert_eq!(styled("--url <URL>"), r"\fB\-\-url\fR \fI<URL>\fR");
    }
}
