//! The tool `list`: lists the entries of a folder.

use serde_json::Value;

use super::walk::walk;
use crate::contract::BoxFuture;
use crate::kernel::run::step::Effect;
use crate::tool::arguments::{Arguments, Parameter, Shape, schema};
use crate::tool::blocking::blocking;
use crate::tool::output::Lines;
use crate::tool::{Aim, Tool, ToolOutput, Workspace};

const DEFAULT_RESULTS: usize = 200;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "path",
        shape: Shape::Text,
        required: false,
        description: "The folder, relative to the workspace folder. Default: the workspace folder.",
    },
    Parameter {
        name: "depth",
        shape: Shape::Count { min: 1, max: 8 },
        required: false,
        description: "The number of levels to show. Default 1.",
    },
    Parameter {
        name: "max_results",
        shape: Shape::Count { min: 1, max: 2_000 },
        required: false,
        description: "The maximum number of entries to show. Default 200.",
    },
];

/// The tool `list`.
pub(crate) struct List;

impl Tool for List {
    fn name(&self) -> &'static str {
        "list"
    }

    fn description(&self) -> &'static str {
        "Lists a folder, sorted; folders end with a slash. Files that git ignores, and folders of \
         dependencies or build output, are left out."
    }

    fn parameters(&self) -> Value {
        schema(PARAMETERS)
    }

    fn misfit(&self, arguments: &Value) -> Option<String> {
        Arguments::misfit(PARAMETERS, arguments)
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn aim(&self) -> Aim {
        Aim::Trees(&["path"])
    }

    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput> {
        blocking(move |stop| {
            let arguments = Arguments::check(PARAMETERS, arguments)?;
            let folder = workspace.resolve(arguments.text("path").unwrap_or("."))?;
            let shown = workspace.shown(&folder);
            if !workspace.is_folder(&folder)? {
                return Err(format!("{shown} is a file; use read"));
            }
            let depth = arguments.count("depth").unwrap_or(1);
            let most = arguments.count("max_results").unwrap_or(DEFAULT_RESULTS);
            let mut lines = Lines::default();
            let mut total = 0;
            let walked = walk(&workspace, &folder, Some(depth), stop, |entry| {
                total += 1;
                if total <= most {
                    let slash = if entry.is_folder { "/" } else { "" };
                    lines.push(&format!("{}{slash}", workspace.shown(&entry.path)));
                }
                Ok(())
            })?;
            let mut notes = Vec::new();
            if total == 0 {
                notes.push(format!("{shown} is empty"));
            }
            let left_out = total.saturating_sub(most) + lines.left_out();
            if left_out > 0 {
                notes.push(format!("… {left_out} more"));
            }
            notes.extend(walked.notes());
            Ok(lines.finish(&notes))
        })
    }
}
