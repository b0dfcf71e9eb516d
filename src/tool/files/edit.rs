//! The tool `edit`: replaces one text in a file.
//!
//! A repeated call changes nothing: if the new text is already in the place of the old one, the
//! work is done, even if the new text contains the old one.

use schemars::JsonSchema;
use serde::Deserialize;

use super::text_file::{Existing, FILE_LIMIT, WriteTarget, with_crlf};
use crate::tool::Workspace;
use crate::tool::arguments::NonEmptyText;
use crate::tool::blocking::StopFlag;

/// Replaces one text in a file by another. The old text must occur exactly once. Read the file
/// first; the line number and tab that read shows are not part of the text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditToolArgs {
    /// The file, relative to the workspace folder.
    path: NonEmptyText,
    /// The exact current text, with enough context to be unique in the file.
    old_text: NonEmptyText,
    /// The new text; empty to remove the old text.
    new_text: String,
}

/// Answers a call of the tool.
pub(crate) fn edit(
    given: EditToolArgs,
    workspace: &Workspace,
    _: &StopFlag,
) -> Result<String, String> {
    let target = WriteTarget::of(workspace, &given.path)?;
    let shown = &target.shown;
    let Some(existing) = target.existing()? else {
        let path = &*given.path;
        return Err(format!("no such file: {path}; use write to create it"));
    };
    let (text, at) = match planned_change(shown, &existing, &given.old_text, &given.new_text)? {
        EditOutcome::Made(text, at) => (text, at),
        EditOutcome::IsThere => {
            return Ok(format!(
                "{shown}: the new text is already there; nothing was changed"
            ));
        }
        EditOutcome::Impossible(why) => return Err(format!("{shown}: {why}; nothing was changed")),
    };
    target.put(&text, Some(&existing))?;
    let line = text[..at].matches('\n').count() + 1;
    Ok(format!("changed {shown} at line {line}"))
}

/// Computes the change of a file; the error says why the call is refused. `preview.rs` also calls
/// this before the call.
pub(crate) fn planned_change(
    shown: &str,
    existing: &Existing,
    old: &str,
    new: &str,
) -> Result<EditOutcome, String> {
    if new.contains('\0') {
        return Err("new_text: a text file cannot contain NUL".to_owned());
    }
    let ended = |text: &str| match existing.has_crlf() {
        true => with_crlf(text),
        false => text.to_owned(),
    };
    match replaced(&existing.text, &ended(old), &ended(new)) {
        EditOutcome::Made(text, _) if text.len() > FILE_LIMIT => Err(format!(
            "{shown} would have {} bytes; {FILE_LIMIT} at most",
            text.len()
        )),
        change => Ok(change),
    }
}

/// The result of replacing a text.
pub(crate) enum EditOutcome {
    /// The whole new text, and the byte offset of the change.
    Made(String, usize),
    /// The change was made before.
    IsThere,
    /// The change cannot be made, for this reason.
    Impossible(String),
}

/// Replaces `old` by `new`; `old` must occur exactly once.
fn replaced(text: &str, old: &str, new: &str) -> EditOutcome {
    if old == new {
        return EditOutcome::Impossible("old_text and new_text are the same".to_owned());
    }
    let places = places(text, old);
    let done = !new.is_empty()
        && self::places(text, new).iter().any(|start| {
            let within = *start..*start + new.len();
            // The old text occurs nowhere else.
            places
                .iter()
                .all(|place| within.contains(place) && place + old.len() <= within.end)
        });
    if done {
        return EditOutcome::IsThere;
    }
    match places[..] {
        [at] => {
            let (before, after) = (&text[..at], &text[at + old.len()..]);
            EditOutcome::Made([before, new, after].concat(), at)
        }
        [] => EditOutcome::Impossible(
            "old_text was not found; read the file again, the text must match exactly".to_owned(),
        ),
        _ => EditOutcome::Impossible(format!(
            "old_text occurs {} times; include more context",
            places.len()
        )),
    }
}

/// The byte offsets of `part` in `text`, overlapping ones included.
fn places(text: &str, part: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(part) {
        found.push(from + at);
        let step = text[from + at..].chars().next().map_or(1, char::len_utf8);
        from += at + step;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_insertion_is_made_once() {
        let text = "fn a() {}\nfn b() {}\n";
        let (old, new) = ("fn a() {}\n", "fn a() {}\nfn c() {}\n");
        let EditOutcome::Made(once, at) = replaced(text, old, new) else {
            panic!("not made")
        };
        assert_eq!(
            (once.as_str(), at),
            ("fn a() {}\nfn c() {}\nfn b() {}\n", 0)
        );
        assert!(matches!(replaced(&once, old, new), EditOutcome::IsThere));
    }

    #[test]
    fn what_is_not_clear_is_not_done() {
        for (text, old, new, says) in [
            ("a a", "a", "b", "2 times"),
            ("aaa", "aa", "b", "2 times"),
            ("x", "a", "b", "was not found"),
            ("x", "a", "", "was not found"),
            ("a", "a", "a", "the same"),
        ] {
            let EditOutcome::Impossible(why) = replaced(text, old, new) else {
                panic!("{text} {old} {new}")
            };
            assert!(why.contains(says), "{text} {old} {new}: {why}");
        }
    }

    proptest! {
        #[test]
        fn a_repeat_changes_nothing_more(
            before in "[ab\n]{0,6}", old in "[ab\n]{1,4}", new in "[ab\n]{1,6}", after in "[ab\n]{0,6}",
        ) {
            let text = format!("{before}{old}{after}");
            if let EditOutcome::Made(once, _) = replaced(&text, &old, &new) {
                match replaced(&once, &old, &new) {
                    EditOutcome::IsThere => {}
                    // The change has created the old text again, across its border.
                    EditOutcome::Impossible(_) => {}
                    EditOutcome::Made(..) => {
                        let inside = places(&once, &old).iter().any(|at| {
                            *at >= before.len() && at + old.len() <= before.len() + new.len()
                        });
                        prop_assert!(!inside, "{once:?}");
                    }
                }
            }
        }
    }
}
