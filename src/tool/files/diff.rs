//! Unified diffs with masked environment values. Lines are compared unmasked and masked afterwards,
//! so that every change is visible. Used by `preview.rs`.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use similar::{DiffOp, DiffTag, TextDiff};

use crate::kernel::text::redact::Redactor;

/// The number of unchanged lines shown around a change.
const CONTEXT: usize = 3;
/// The time limit of the search for the smallest diff; after it, the diff found so far is shown.
const SEARCH: Duration = Duration::from_millis(300);
/// Appended to a hunk with lines that differ only in a value and its mask.
const ALIKE: &str = "\\ Some lines look alike here but differ: one has an environment value, the other \
                     the text [secret:NAME] in its place\n";

/// A text, its lines, and the positions of values in it.
struct Side<'a> {
    text: &'a str,
    /// Split at `
    /// ` only: a lone carriage return is part of a line.
    lines: Vec<&'a str>,
    starts: Vec<usize>,
    values: Vec<(Range<usize>, &'a str)>,
}

impl<'a> Side<'a> {
    fn of(text: &'a str, redactor: &'a Redactor) -> Side<'a> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut starts = Vec::with_capacity(lines.len());
        let mut at = 0;
        for line in &lines {
            starts.push(at);
            at += line.len();
        }
        Side {
            text,
            starts,
            lines,
            values: redactor.places(text),
        }
    }

    /// The masked line. Each line of a multi-line value shows the mask.
    fn shown(&self, line: usize) -> String {
        let (start, whole) = (self.starts[line], self.lines[line]);
        let end = start + whole.trim_end_matches('\n').len();
        let first = self.values.partition_point(|(value, _)| value.end <= start);
        let mut out = String::with_capacity(whole.len());
        let mut at = start;
        for (value, mask) in self.values[first..]
            .iter()
            .take_while(|(value, _)| value.start < end)
        {
            out.push_str(&self.text[at..value.start.max(at)]);
            out.push_str(mask);
            at = value.end.clamp(at, end);
        }
        out.push_str(&self.text[at..start + whole.len()]);
        out
    }
}

/// Creates the diff. The error is a lower bound of its size in bytes, larger than `limit`.
pub(crate) fn unified(
    path: &str,
    before: Option<&str>,
    after: &str,
    redactor: &Redactor,
    limit: usize,
) -> Result<String, usize> {
    let old = Side::of(before.unwrap_or_default(), redactor);
    let new = Side::of(after, redactor);
    let least = least(&old.lines, &new.lines);
    if least > limit {
        return Err(least);
    }
    let diff = TextDiff::configure()
        .timeout(SEARCH)
        .diff_slices(&old.lines, &new.lines);
    let mut out = match before {
        Some(_) => format!("--- a/{path}\n+++ b/{path}\n"),
        None => format!("--- /dev/null\n+++ b/{path}\n"),
    };
    for hunk in diff.grouped_ops(CONTEXT) {
        add_hunk(&mut out, &hunk, &old, &new);
        if out.len() > limit {
            return Err(out.len());
        }
    }
    Ok(out)
}

/// A lower bound of the size of any diff: the lines that only one side has.
fn least(old: &[&str], new: &[&str]) -> usize {
    let mut left: HashMap<&str, isize> = HashMap::new();
    old.iter()
        .for_each(|line| *left.entry(line).or_default() -= 1);
    new.iter()
        .for_each(|line| *left.entry(line).or_default() += 1);
    let sizes = left
        .iter()
        .map(|(line, count)| (line.len() + 1) * count.unsigned_abs());
    sizes.sum()
}

fn add_hunk(out: &mut String, hunk: &[DiffOp], old: &Side<'_>, new: &Side<'_>) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let of = |range: Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    };
    let removed = of(first.old_range().start..last.old_range().end);
    let added = of(first.new_range().start..last.new_range().end);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "@@ -{removed} +{added} @@");
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for op in hunk {
        let (tag, before, after) = op.as_tag_tuple();
        if tag == DiffTag::Equal {
            before.for_each(|line| add(out, ' ', &old.shown(line)));
            continue;
        }
        for line in before {
            gone.push(old.shown(line));
            add(out, '-', &old.shown(line));
        }
        for line in after {
            come.push(new.shown(line));
            add(out, '+', &new.shown(line));
        }
    }
    let has_values = !old.values.is_empty() || !new.values.is_empty();
    if has_values && gone.iter().any(|line| come.contains(line)) {
        out.push_str(ALIKE);
    }
}

fn add(out: &mut String, sign: char, line: &str) {
    out.push(sign);
    out.push_str(line);
    if !line.ends_with('\n') {
        out.push_str("\n\\ No newline at end of file\n");
    }
}
