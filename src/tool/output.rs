//! Tool results and their size limits.

use crate::kernel::text;

/// The maximum size of one tool result, in bytes.
pub const OUTPUT_LIMIT: usize = 64 * 1024;

/// Reserved for the notes at the end, so that a cut result still says what it omits.
const NOTES_ROOM: usize = 1024;

/// The maximum size of one quoted line, in bytes.
const LINE_LIMIT: usize = 400;

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text. Of a longer text the catalogue shows [`OUTPUT_LIMIT`] bytes and stores the whole.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// Creates a successful result.
    pub fn text(text: impl Into<String>) -> Self {
        ToolOutput {
            text: text.into(),
            is_error: false,
        }
    }

    /// Creates a failed result; the text says what was wrong and what to do.
    pub fn error(text: impl Into<String>) -> Self {
        ToolOutput {
            text: text.into(),
            is_error: true,
        }
    }

    /// Removes U+0000, which cannot be stored.
    pub(super) fn storable(mut self) -> Self {
        if self.text.contains('\0') {
            self.text = text::storable(&self.text);
        }
        self
    }

    /// True if it exceeds [`OUTPUT_LIMIT`].
    pub(super) fn is_long(&self) -> bool {
        self.text.len() > OUTPUT_LIMIT
    }

    /// Cuts a long result, with a note about the omitted part and how to get it.
    pub(super) fn cut(mut self, rest: &Rest<'_>) -> Self {
        if !self.is_long() {
            return self;
        }
        let whole = self.text.len();
        let kept = text::prefix(&self.text, OUTPUT_LIMIT - NOTES_ROOM);
        let end = kept.len();
        let note = match rest {
            Rest::Kept(tool_call) => format!(
                "the rest: output {{toolCallId: {:?}, offset: {end}}}",
                text::prefix(tool_call, 200)
            ),
            Rest::Lost(why) => {
                format!("the rest was not kept: {}", text::preview(why, 200))
            }
        };
        self.text = format!("{kept}\n… cut: {end} of {whole} bytes are shown; {note}");
        self
    }
}

impl From<Result<String, String>> for ToolOutput {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(text) => ToolOutput::text(text),
            Err(text) => ToolOutput::error(text),
        }
    }
}

/// What happened to the omitted part of a long result.
pub(super) enum Rest<'a> {
    /// It is stored under this id of the call.
    Kept(&'a str),
    /// It is lost, for this reason.
    Lost(&'a str),
}

/// Collects result lines up to the limit; omitted lines are counted.
#[derive(Default)]
pub(super) struct ResultLines {
    text: String,
    left_out: usize,
}

impl ResultLines {
    /// Adds a line, unless the result is full.
    pub(super) fn push(&mut self, line: &str) {
        if self.left_out > 0 || self.text.len() + line.len() + 1 > OUTPUT_LIMIT - NOTES_ROOM {
            self.left_out += 1;
        } else {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// The number of lines that did not fit.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// The result followed by `notes`, one a line.
    pub(super) fn finish(mut self, notes: &[String]) -> String {
        for note in notes {
            self.text.push_str(note);
            self.text.push('\n');
        }
        let end = self.text.trim_end_matches('\n').len();
        self.text.truncate(end);
        self.text
    }
}

/// A line as results quote it: without its line end, and cut at [`LINE_LIMIT`].
pub(super) fn quoted(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\n', '\r']);
    let kept = text::prefix(line, LINE_LIMIT);
    if kept.len() == line.len() {
        kept.to_owned()
    } else {
        format!("{kept}… ({} bytes more)", line.len() - kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn g9_11_a_long_result_is_cut_between_characters(
            unit in "[aä€𝄞]{1,7}", extra in 0usize..40
        ) {
            let long = unit.repeat(OUTPUT_LIMIT / unit.len() + extra);
            let shown = ToolOutput::text(long.clone()).cut(&Rest::Kept("call-1")).text;
            prop_assert!(shown.len() <= OUTPUT_LIMIT);
            if long.len() <= OUTPUT_LIMIT {
                prop_assert_eq!(shown, long);
            } else {
                let (kept, note) = shown.rsplit_once("\n… cut: ").unwrap();
                prop_assert!(long.starts_with(kept));
                let way = format!("output {{toolCallId: \"call-1\", offset: {}}}", kept.len());
                prop_assert!(note.ends_with(&way), "{note}");
            }
        }

        #[test]
        fn g9_11_a_long_line_is_cut_between_characters(line in "[aä€𝄞]{0,300}") {
            let text = quoted(line.as_bytes());
            prop_assert!(text.len() <= LINE_LIMIT + 40);
            prop_assert!(line.starts_with(text.split('…').next().unwrap()));
        }
    }

    #[test]
    fn g9_10_bytes_that_are_no_text_are_replaced() {
        assert_eq!(quoted(b"a\xffb\r\n"), "a\u{fffd}b");
        assert_eq!(ToolOutput::text("a\0b").storable().text, "a\u{fffd}b");
    }

    #[test]
    fn a_full_result_counts_what_it_leaves_out() {
        let mut lines = ResultLines::default();
        for _ in 0..OUTPUT_LIMIT {
            lines.push("0123456789");
        }
        assert!(lines.left_out() > 0);
        let text = lines.finish(&["a note".to_owned()]);
        assert!(text.len() <= OUTPUT_LIMIT);
        assert!(text.ends_with("a note"));
    }
}
