//! The tool `write`: creates or replaces a whole text file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::text_file::{Existing, FILE_LIMIT, WriteTarget, with_crlf};
use crate::tool::Workspace;
use crate::tool::arguments::NonEmptyText;
use crate::tool::blocking::StopFlag;

/// Creates a text file with this content, or replaces a whole file. To change a part of a file use
/// edit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteToolArgs {
    /// The file, relative to the workspace folder. Missing folders are created.
    path: NonEmptyText,
    /// The complete content of the file.
    content: String,
}

/// Answers a call of the tool.
pub(crate) fn write(
    given: WriteToolArgs,
    workspace: &Workspace,
    _: &StopFlag,
) -> Result<String, String> {
    let target = WriteTarget::of(workspace, &given.path)?;
    let shown = &target.shown;
    let existing = target.existing()?;
    let content = new_content(workspace, shown, existing.as_ref(), &given.content)?;
    let size = format!("{} bytes, {} lines", content.len(), content.lines().count());
    let note = match &existing {
        Some(existing) if existing.has_crlf() => "; its line ends stay CRLF",
        _ => "",
    };
    let what = match &existing {
        Some(existing) if existing.text == content => {
            return Ok(format!("{shown} has this content already: {size}{note}"));
        }
        Some(_) => "replaced",
        None => "created",
    };
    target.put(&content, existing.as_ref())?;
    Ok(format!("{what} {shown}: {size}{note}"))
}

/// Computes the new content; the error says why the call is refused. `preview.rs` also calls this
/// before the call.
pub(crate) fn new_content(
    workspace: &Workspace,
    shown: &str,
    existing: Option<&Existing>,
    content: &str,
) -> Result<String, String> {
    if content.len() > FILE_LIMIT {
        return Err(format!(
            "content: {} bytes; {FILE_LIMIT} at most",
            content.len()
        ));
    }
    if content.contains('\0') {
        return Err("content: a text file cannot contain NUL".to_owned());
    }
    if existing.is_some_and(|one| workspace.would_mask(&one.text, content)) {
        return Err(format!(
            "{shown} contains an environment value where content has [secret:NAME]; \
             nothing was changed. Use edit around that place"
        ));
    }
    Ok(match existing.is_some_and(Existing::has_crlf) {
        true => with_crlf(content),
        false => content.to_owned(),
    })
}
