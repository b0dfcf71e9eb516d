//! The tool `write`: creates or replaces a whole text file.

use serde_json::Value;

use super::text_file::{Existing, FILE_LIMIT, Target, with_crlf};
use crate::contract::BoxFuture;
use crate::kernel::run::step::Effect;
use crate::tool::arguments::{Arguments, Parameter, Shape, schema};
use crate::tool::blocking::blocking;
use crate::tool::{Aim, Tool, ToolOutput, Workspace};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "path",
        shape: Shape::Text,
        required: true,
        description: "The file, relative to the workspace folder. Missing folders are created.",
    },
    Parameter {
        name: "content",
        shape: Shape::AnyText,
        required: true,
        description: "The complete content of the file.",
    },
];

/// The tool `write`.
pub(crate) struct Write;

impl Tool for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn description(&self) -> &'static str {
        "Creates a text file with this content, or replaces a whole file. To change a part of \
         a file use edit."
    }

    fn parameters(&self) -> Value {
        schema(PARAMETERS)
    }

    fn misfit(&self, arguments: &Value) -> Option<String> {
        Arguments::misfit(PARAMETERS, arguments)
    }

    fn effect(&self) -> Effect {
        Effect::Idempotent
    }

    fn aim(&self) -> Aim {
        Aim::Paths(&["path"])
    }

    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let arguments = Arguments::check(PARAMETERS, arguments)?;
            let content = arguments.text("content").unwrap_or_default();
            let target = Target::of(&workspace, arguments.text("path").unwrap_or_default())?;
            let shown = &target.shown;
            let existing = target.existing()?;
            let keeps_crlf = existing.as_ref().is_some_and(|one| one.has_crlf());
            let content = new_content(&workspace, shown, existing.as_ref(), content)?;
            let size = format!("{} bytes, {} lines", content.len(), content.lines().count());
            let note = if keeps_crlf {
                "; its line ends stay CRLF"
            } else {
                ""
            };
            match &existing {
                Some(existing) if existing.text == content => {
                    return Ok(format!("{shown} has this content already: {size}{note}"));
                }
                _ => target.put(&content, existing.as_ref())?,
            }
            let what = if existing.is_some() {
                "replaced"
            } else {
                "created"
            };
            Ok(format!("{what} {shown}: {size}{note}"))
        })
    }
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
