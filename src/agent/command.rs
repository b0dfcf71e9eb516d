//! Agents that are programs: how the program is started, and how it receives the task. Parsed from
//! the field `command` of a definition.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::values::{no_word, text, word};
use crate::kernel::text::preview;
use crate::kernel::text::text_enum::text_enum;

/// Returns why a program, by name or absolute path, cannot be started.
pub type ProgramCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The placeholder for the task in an argument.
pub const TASK: &str = "{task}";

/// The default of `output_limit`, in bytes.
pub(super) const OUTPUT: u64 = 256 * 1024;
/// The bounds of `output_limit`, in bytes.
const OUTPUT_LEAST: u64 = 1024;
const OUTPUT_MOST: u64 = 4 << 20;
/// The maximum number of arguments, the program included.
const ARGUMENTS: usize = 256;

text_enum! {
    /// The standard input of the program.
    Stdin {
        /// The task.
        Task = "task",
        /// Empty input.
        None = "none",
    }
}

text_enum! {
    /// What observers see of a running program.
    Progress {
        /// Its output, as it arrives.
        Text = "text",
        /// Nothing before the program has ended.
        None = "none",
    }
}

text_enum! {
    /// How the daemon talks with the program.
    Speaks {
        /// It gets the task as text, and its output is the answer.
        Text = "text",
        /// It speaks the Agent Client Protocol.
        Acp = "acp",
    }
}

impl Speaks {
    fn is_text(&self) -> bool {
        *self == Speaks::Text
    }
}

fn text_is_usual() -> Speaks {
    Speaks::Text
}

/// How the program of an agent is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The program, by name or path, and its arguments; [`TASK`] in an argument is replaced by the
    /// task.
    pub argv: Vec<String>,
    /// The standard input of the program.
    pub stdin: Stdin,
    /// Its working folder, relative to the run's; the run's folder if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What observers see of it while it runs.
    pub progress: Progress,
    /// The maximum number of output bytes in its answer: the first and the last part are kept.
    pub output_limit: u64,
    /// How the daemon talks with it: by the field `runner` of the definition.
    #[serde(default = "text_is_usual", skip_serializing_if = "Speaks::is_text")]
    pub speaks: Speaks,
}

impl CommandSpec {
    /// Why it cannot be started, as far as that does not depend on the run's folder.
    pub(super) fn problem(&self, programs: &ProgramCheck) -> Option<String> {
        let name = self.argv.first()?;
        if name.contains('/') && !name.starts_with('/') {
            return None;
        }
        let why = programs(name).err()?;
        Some(format!("its program cannot be started: {why}"))
    }
}

/// Parses the field; the error says what is expected.
pub(super) fn read(value: &Value) -> Result<CommandSpec, String> {
    let Value::Object(fields) = value else {
        return Err("fields such as argv are expected".to_owned());
    };
    let known = ["argv", "stdin", "cwd", "progress", "output_limit"];
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(no_word(name, &known));
    }
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let within = |name: &'static str| move |reason: String| format!("{name}: {reason}");
    let argv = given("argv").ok_or("argv is missing: the program and its arguments, as a list")?;
    let argv = argv_of(argv).map_err(within("argv"))?;
    let takes_task = argv.iter().any(|argument| argument.contains(TASK));
    let stdin = match given("stdin") {
        None if takes_task => Stdin::None,
        None => Stdin::Task,
        Some(value) => word(value, &["task", "none"]).map_err(within("stdin"))?,
    };
    let progress = match given("progress") {
        None => Progress::None,
        Some(value) => word(value, &["text", "none"]).map_err(within("progress"))?,
    };
    let output_limit = match given("output_limit") {
        None => OUTPUT,
        Some(value) => value
            .as_u64()
            .filter(|bytes| (OUTPUT_LEAST..=OUTPUT_MOST).contains(bytes))
            .ok_or_else(|| {
                format!(
                    "output_limit: a number of bytes from {OUTPUT_LEAST} to {OUTPUT_MOST} is \
                     expected"
                )
            })?,
    };
    Ok(CommandSpec {
        argv,
        stdin,
        cwd: given("cwd").map(text).transpose().map_err(within("cwd"))?,
        progress,
        output_limit,
        speaks: Speaks::Text,
    })
}

/// The fields of `value` that a program with the Agent Client Protocol cannot have, with the reason.
pub(super) fn not_for_acp(value: &Value) -> Option<String> {
    let own = ["stdin", "progress"];
    let field = own
        .iter()
        .find(|name| value.get(**name).is_some_and(|value| !value.is_null()));
    if let Some(field) = field {
        return Some(format!(
            "{field}: a program with runner: acp gets its task and shows its work by the protocol"
        ));
    }
    let argv = value.get("argv").and_then(Value::as_array);
    let mut arguments = argv.into_iter().flatten().filter_map(Value::as_str);
    arguments.any(|argument| argument.contains(TASK)).then(|| {
        format!("argv: {TASK} has no meaning with runner: acp, which sends the task itself")
    })
}

fn argv_of(value: &Value) -> Result<Vec<String>, String> {
    let Value::Array(items) = value else {
        return Err("a list is expected, with the program first; no shell is used".to_owned());
    };
    if items.len() > ARGUMENTS {
        return Err(format!("{} items; {ARGUMENTS} at most", items.len()));
    }
    let mut argv = Vec::with_capacity(items.len());
    for item in items {
        let argument = match item {
            Value::String(text) => text.clone(),
            // YAML reads a bare 8 or true as a number or boolean.
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            other => {
                let shown = preview(&other.to_string(), 32);
                return Err(format!("text is expected, not {shown}; put it in quotes"));
            }
        };
        if argument.contains('\0') {
            return Err("an argument cannot contain U+0000".to_owned());
        }
        // Braces are passed on, except for a lone word that looks like a placeholder and would
        // reach the program literally.
        let inner = argument
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let is_word = |inner: &str| {
            !inner.is_empty()
                && inner
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        if argument != TASK && inner.is_some_and(is_word) {
            let shown = preview(&argument, 32);
            return Err(format!(
                "unknown placeholder {shown}; the only one is {TASK}"
            ));
        }
        argv.push(argument);
    }
    match argv.first() {
        None => Err("it is empty: the first item must be the program".to_owned()),
        Some(name) if name.trim().is_empty() || name.contains(TASK) => {
            Err("the first item is the program, by name or path".to_owned())
        }
        Some(_) => Ok(argv),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(value: Value) -> CommandSpec {
        read(&value).unwrap()
    }

    #[test]
    fn the_task_is_read_unless_an_argument_takes_it() {
        let spec = taken(json!({ "argv": ["wc", "-l"] }));
        assert_eq!((spec.stdin, spec.progress), (Stdin::Task, Progress::None));
        assert_eq!(
            taken(json!({ "argv": ["echo", "{task}"] })).stdin,
            Stdin::None
        );
        let both = json!({ "argv": ["x", "--say={task}", 8], "stdin": "task" });
        let both = taken(both);
        assert_eq!(both.stdin, Stdin::Task);
        assert_eq!(both.argv, ["x", "--say={task}", "8"]);
        // Braces that are not a placeholder.
        taken(json!({ "argv": ["jq", "{a: .b}", "{}", "{A}"] }));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for (value, says) in [
            (json!("ls -l"), "argv"),
            (json!({}), "argv is missing"),
            (json!({ "argv": "ls -l" }), "no shell"),
            (json!({ "argv": [] }), "empty"),
            (json!({ "argv": [""] }), "program"),
            (json!({ "argv": ["{task}"] }), "program"),
            (json!({ "argv": ["a", {}] }), "quotes"),
            (json!({ "argv": ["a", "{prompt}"] }), "{task}"),
            (json!({ "argv": ["a"], "stdin": "file" }), "stdin"),
            (json!({ "argv": ["a"], "progress": "json" }), "progress"),
            (json!({ "argv": ["a"], "output_limit": 10 }), "output_limit"),
            (json!({ "argv": ["a"], "timeout": 10 }), "timeout"),
            (json!({ "argv": ["a"], "cwd": 3 }), "cwd"),
        ] {
            let refused = read(&value).unwrap_err();
            assert!(refused.contains(says), "{value}: {refused}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_a_problem() {
        let programs: ProgramCheck = Arc::new(|name| match name {
            "ls" => Ok(()),
            name => Err(format!("{name:?} is in no folder")),
        });
        let problem = |name: &str| taken(json!({ "argv": [name] })).problem(&programs);
        assert_eq!(problem("ls"), None);
        assert!(problem("gone").unwrap().contains("gone"));
        // Its location depends on the run's folder.
        assert_eq!(problem("./gone"), None);
    }
}
