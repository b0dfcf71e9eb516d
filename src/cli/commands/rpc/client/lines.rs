//! Lines of generated source. Used by the writers of both languages.

/// Maximum width of a line of a description.
const WIDTH: usize = 100;

/// Source text that grows line by line.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    /// Appends a line, indented by `depth` levels of four columns.
    pub(super) fn line(&mut self, depth: usize, text: &str) {
        if !text.is_empty() {
            self.0.push_str(&"    ".repeat(depth));
            self.0.push_str(text);
        }
        self.0.push('\n');
    }

    /// Appends a description, wrapped between words, each line behind `mark`.
    pub(super) fn says(&mut self, depth: usize, mark: &str, text: &str) {
        let width = WIDTH - 4 * depth - mark.len();
        for line in wrapped(text, width) {
            self.line(depth, format!("{mark}{line}").trim_end());
        }
    }

    /// Appends text as it is.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// The whole source.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// The paragraphs and list entries of `text`, in lines of at most `width` characters where words
/// permit.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut may_join = false;
    // Further lines of a list entry are indented.
    let mut indent = "";
    for source in text.trim().lines() {
        if source.trim().is_empty() || source.starts_with("- ") || !may_join {
            lines.push(String::new());
        }
        may_join = !source.trim().is_empty();
        if source.starts_with("- ") {
            indent = "  ";
        } else if !may_join {
            indent = "";
        }
        for word in source.split_whitespace() {
            let Some(last) = lines.last_mut() else {
                continue;
            };
            if last.is_empty() {
                last.push_str(word);
            } else if last.chars().count() + 1 + word.chars().count() <= width {
                last.push(' ');
                last.push_str(word);
            } else {
                lines.push(format!("{indent}{word}"));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_joined_within_paragraphs_and_list_entries_begin_anew() {
        let lines = wrapped("One two\nthree.\n- `a`: four\n- `b`: five six\n\nSeven", 12);
        assert_eq!(
            lines,
            [
                "One two",
                "three.",
                "- `a`: four",
                "- `b`: five",
                "  six",
                "",
                "Seven"
            ]
        );
        assert!(wrapped("", 10).is_empty());
    }
}
