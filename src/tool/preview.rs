//! What a call of `write` or `edit` would do to its file, as the file is now: the unified diff that
//! a person is shown before approving it. The runner asks the catalogue for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use super::put::{FILE_LIMIT, Target, with_crlf};
use super::{Catalogue, Workspace, edit};
use crate::contract::BoxFuture;
use crate::contract::preview::{ChangeEffect, FileChange};
use crate::file_work::{Stop, TOOLS};
use crate::kernel::gate::Writes;
use crate::kernel::redact::Redactor;

/// The largest diff that is shown, bytes.
const DIFF_LIMIT: usize = 128 << 10;
/// A file that is larger is not compared, bytes.
const COMPARED: usize = 2 << 20;
/// The search for the smallest diff ends after this time; what it has found by then is shown.
const SEARCH: Duration = Duration::from_millis(300);
/// A file system that does not answer in this time is not waited for.
const LIMIT: Duration = Duration::from_secs(3);

/// A call of a tool that writes a file.
enum Writing {
    Write { content: String },
    Edit { old: String, new: String },
}

impl Writing {
    /// The file and the change; `None` for a call that writes no file, or that is refused for its
    /// arguments.
    fn of(tool: &str, arguments: &Value) -> Option<(String, Writing)> {
        let text = |name: &str| Some(arguments.get(name)?.as_str()?.to_owned());
        let writing = match tool {
            "write" => Writing::Write {
                content: text("content")?,
            },
            "edit" => Writing::Edit {
                old: text("old_text")?,
                new: text("new_text")?,
            },
            _ => return None,
        };
        Some((text("path")?, writing))
    }
}

impl Catalogue {
    /// What the call would do to a file in the workspace at `root`; `None`: it writes none. Values
    /// of the environment are masked on both sides.
    pub fn preview(
        &self,
        root: PathBuf,
        tool: &str,
        arguments: &Value,
        redactor: Redactor,
    ) -> BoxFuture<'static, Option<FileChange>> {
        let Some((path, writing)) = Writing::of(tool, arguments) else {
            return Box::pin(std::future::ready(None));
        };
        let denied = self.denied().to_vec();
        let named = path.clone();
        Box::pin(async move {
            let work =
                TOOLS.run(move |stop| change(&root, &denied, &named, writing, &redactor, stop));
            let done = tokio::time::timeout(LIMIT, work).await;
            Some(match done {
                Ok(Ok(change)) => change,
                Ok(Err(busy)) => not_shown(path, busy.to_string()),
                Err(_) => not_shown(
                    path,
                    format!(
                        "the file system did not answer within {} s",
                        LIMIT.as_secs()
                    ),
                ),
            })
        })
    }
}

fn not_shown(path: String, why: String) -> FileChange {
    FileChange {
        path,
        effect: ChangeEffect::NotShown(why),
    }
}

fn change(
    root: &Path,
    denied: &[PathBuf],
    path: &str,
    writing: Writing,
    redactor: &Redactor,
    stop: &Stop,
) -> FileChange {
    let workspace = match Workspace::open(root, denied) {
        // Where the agent may write is decided when the call is made.
        Ok(workspace) => workspace.writing(Writes::Anywhere),
        Err(super::Unopened::Gone(why) | super::Unopened::Refused(why)) => {
            return FileChange {
                path: path.to_owned(),
                effect: ChangeEffect::Fails(why),
            };
        }
    };
    let target = Target::of(&workspace, path);
    let shown = target
        .as_ref()
        .map_or(path, |target| &target.shown)
        .to_owned();
    let effect = target
        .and_then(|target| compared(&target, writing, redactor, stop))
        .unwrap_or_else(ChangeEffect::Fails);
    FileChange {
        path: shown,
        effect,
    }
}

/// The error is the reason for which the call would fail.
fn compared(
    target: &Target,
    writing: Writing,
    redactor: &Redactor,
    stop: &Stop,
) -> Result<ChangeEffect, String> {
    let existing = target.existing()?;
    let is_there = existing.is_some();
    let has_crlf = existing.as_ref().is_some_and(|one| one.has_crlf());
    let before = existing.map(|one| redactor.whole(&one.text).into_owned());
    let ended = |text: String| match has_crlf {
        true => with_crlf(&text),
        false => text,
    };
    let after = match writing {
        Writing::Write { content } => ended(content),
        Writing::Edit { old, new } => {
            let Some(before) = &before else {
                return Err("there is no such file".to_owned());
            };
            match edit::replaced(before, &ended(old), &ended(new)) {
                edit::Change::Made(text, _) => text,
                edit::Change::IsThere => before.clone(),
                edit::Change::Impossible(why) => return Err(why),
            }
        }
    };
    if after.len() > FILE_LIMIT {
        return Err(format!(
            "it would have {} bytes; {FILE_LIMIT} at most",
            after.len()
        ));
    }
    let before = before.unwrap_or_default();
    if is_there && before == after {
        return Ok(ChangeEffect::Nothing);
    }
    stop.check()?;
    let size = before.len().max(after.len());
    if size > COMPARED {
        return Ok(ChangeEffect::NotShown(format!(
            "the file is too large to be compared ({size} bytes; {COMPARED} at most)"
        )));
    }
    let diff = unified(&target.shown, is_there, &before, &after);
    Ok(match (diff.len() > DIFF_LIMIT, is_there) {
        (true, _) => ChangeEffect::NotShown(format!(
            "the diff is too large ({} bytes; {DIFF_LIMIT} at most)",
            diff.len()
        )),
        (false, true) => ChangeEffect::Changes(diff),
        (false, false) => ChangeEffect::Creates(diff),
    })
}

fn unified(path: &str, is_there: bool, before: &str, after: &str) -> String {
    let diff = TextDiff::configure()
        .timeout(SEARCH)
        .diff_lines(before, after);
    let (old, new) = (format!("a/{path}"), format!("b/{path}"));
    let old = if is_there { old.as_str() } else { "/dev/null" };
    diff.unified_diff()
        .context_radius(3)
        .header(old, &new)
        .to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::kernel::secret::Secret;
    use crate::tool::Options;

    struct Place {
        folder: tempfile::TempDir,
        catalogue: Catalogue,
    }

    fn place() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
            catalogue: Catalogue::new(Options::default()),
        }
    }

    impl Place {
        async fn masked(&self, tool: &str, arguments: Value, redactor: Redactor) -> ChangeEffect {
            let root = self.folder.path().canonicalize().unwrap();
            let change = self.catalogue.preview(root, tool, &arguments, redactor);
            change.await.unwrap().effect
        }

        async fn effect(&self, tool: &str, arguments: Value) -> ChangeEffect {
            self.masked(tool, arguments, Redactor::default()).await
        }

        fn holds(&self, text: impl AsRef<[u8]>) {
            fs::write(self.folder.path().join("a.txt"), text).unwrap();
        }
    }

    fn write(content: &str) -> Value {
        json!({ "path": "a.txt", "content": content })
    }

    fn edit(old: &str, new: &str) -> Value {
        json!({ "path": "a.txt", "old_text": old, "new_text": new })
    }

    #[tokio::test]
    async fn a_write_is_a_diff_against_the_file_as_it_is() {
        let place = place();
        assert_eq!(
            place.effect("write", write("one\n")).await,
            ChangeEffect::Creates("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n".to_owned())
        );
        place.holds("one\ntwo");
        assert_eq!(
            place.effect("write", write("one\nthree\n")).await,
            ChangeEffect::Changes(
                "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of \
                 file\n+three\n"
                    .to_owned()
            )
        );
        assert_eq!(
            place.effect("write", write("one\ntwo")).await,
            ChangeEffect::Nothing
        );
    }

    #[tokio::test]
    async fn an_edit_is_a_diff_or_the_reason_for_which_it_would_fail() {
        let place = place();
        let missing = place.effect("edit", edit("two", "three")).await;
        assert_eq!(
            missing,
            ChangeEffect::Fails("there is no such file".to_owned())
        );
        place.holds("one\r\ntwo\r\n");
        let ChangeEffect::Changes(diff) = place.effect("edit", edit("two\n", "2\nand\n")).await
        else {
            panic!("no diff");
        };
        assert!(diff.ends_with(" one\r\n-two\r\n+2\r\n+and\r\n"), "{diff:?}");
        let ChangeEffect::Fails(why) = place.effect("edit", edit("four", "4")).await else {
            panic!("it would not fail");
        };
        assert!(why.contains("not there"), "{why}");
    }

    #[tokio::test]
    async fn what_cannot_be_compared_is_named() {
        let place = place();
        place.holds(b"\xff\xfe\0");
        let ChangeEffect::Fails(why) = place.effect("write", write("x")).await else {
            panic!("it would not fail");
        };
        assert!(why.contains("not UTF-8 text"), "{why}");
        place.holds("old\n");
        let long = "a line of text\n".repeat(20_000);
        let ChangeEffect::NotShown(why) = place.effect("write", write(&long)).await else {
            panic!("it is shown");
        };
        assert!(why.contains("too large"), "{why}");
        let outside = json!({ "path": "../a.txt", "content": "x" });
        let ChangeEffect::Fails(why) = place.effect("write", outside).await else {
            panic!("it would not fail");
        };
        assert!(why.contains("outside"), "{why}");
        let root = place.folder.path().to_owned();
        let shell = json!({ "command": "ls" });
        let change = place
            .catalogue
            .preview(root, "shell", &shell, Redactor::default());
        assert_eq!(change.await, None);
    }

    #[tokio::test]
    async fn values_of_the_environment_are_masked_on_both_sides() {
        let place = place();
        place.holds("key = hunter2-hunter2\nother\n");
        let secret = Secret::new("hunter2-hunter2");
        let redactor = Redactor::new([("API_KEY", &secret)]);
        let masked = edit(
            "key = [secret:API_KEY]\nother",
            "key = [secret:API_KEY]\nnew",
        );
        let ChangeEffect::Changes(diff) = place.masked("edit", masked, redactor).await else {
            panic!("no diff");
        };
        assert!(!diff.contains("hunter2"), "{diff}");
        assert!(
            diff.contains(" key = [secret:API_KEY]\n-other\n+new"),
            "{diff}"
        );
    }
}
