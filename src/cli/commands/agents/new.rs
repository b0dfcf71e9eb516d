//! `abide agents new`: writes a template file for a new agent.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::json;

use super::check;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::clean;
use crate::daemon;
use crate::kernel::ids::AgentId;

/// Write the template file of a new agent, with every usual field
///
/// The file goes to your own agents (abide/agents in your configuration folder), or with --project
/// to the project in the current folder. The daemon loads it as soon as it is saved.
#[derive(Debug, Args)]
#[command(
    after_help = r#"abide agents new reviewer --description "Reviews changes for mistakes"
abide agents new reviewer --project --edit"#
)]
pub(super) struct New {
    /// The agent's name: lowercase letters, digits and -
    name: String,

    /// One-line description; other agents choose by it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Model, as provider/name [default: the model from the settings]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Write it to .abide/agents in the current folder
    #[arg(long)]
    project: bool,

    /// Open it in $VISUAL or $EDITOR, then check it
    #[arg(long)]
    edit: bool,
}

impl New {
    pub(super) fn run(self, common: &Common) -> Result<u8, Failure> {
        let name = AgentId::parse(&self.name)
            .map_err(|why| Failure::usage(why.to_string()).hint("nothing was written"))?;
        let editor = self.edit.then(editor).transpose()?;
        let folder = self.folder()?;
        let path = folder.join(format!("{name}.md"));
        self.write(&folder, &path, name.as_str())?;
        if let Some(editor) = editor {
            open(&editor, &path)?;
            return check(&[path], common);
        }
        if common.json {
            print::object(&json!({ "agent": name, "file": path }))?;
            return Ok(0);
        }
        print::answer(&clean(&path.display().to_string()))?;
        print::note(&styled(
            DIM,
            format!("describe its job in the file; then: abide run --agent {name} \"…\""),
        ));
        Ok(0)
    }

    fn folder(&self) -> Result<PathBuf, Failure> {
        if self.project {
            return match std::env::current_dir() {
                Ok(folder) => Ok(folder.join(".abide/agents")),
                Err(fault) => Err(Failure::local("the current folder does not exist", fault)),
            };
        }
        daemon::agent_files().ok_or_else(|| {
            Failure::new(
                exit::CONFIG,
                "config",
                "the folder for your own agents is unknown",
            )
            .hint("set HOME, or write it into the project: --project")
        })
    }

    /// Creates the file with the template text; an existing file is never overwritten.
    fn write(&self, folder: &Path, path: &Path, name: &str) -> Result<(), Failure> {
        let failure = |fault| Failure::local(path.display(), fault);
        fs::create_dir_all(folder).map_err(failure)?;
        let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => file,
            Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {
                let message = format!("{} already exists", path.display());
                return Err(Failure::new(exit::REFUSED, "conflict", message)
                    .hint("it was not changed; choose another name, or edit it"));
            }
            Err(fault) => return Err(failure(fault)),
        };
        file.write_all(self.text(name).as_bytes()).map_err(failure)
    }

    fn text(&self, name: &str) -> String {
        let quoted = |text: &str| json!(text).to_string();
        let description = match &self.description {
            Some(text) => quoted(text),
            None => quoted(&format!(
                "What {name} does, in one line. Other agents choose by it."
            )),
        };
        let model = match &self.model {
            Some(model) => format!("model: {}", quoted(model)),
            None => {
                "# model: ollama/qwen3:8b         # default: the model from the settings".to_owned()
            }
        };
        format!(
            "---\n\
             description: {description}\n\
             {model}\n\
             # thinking: medium               # off, minimal, low, medium, high, xhigh, max\n\
             # tools: [read, grep, shell]     # default: all but shell; see abide agents show {name}\n\
             # gate: {{shell: ask, write: ask}} # allow, ask or deny, for each tool that it has\n\
             # write_scope: workspace         # own: a folder of its own, none: nowhere\n\
             # mode: all                      # primary: for users, subagent: for spawned runs\n\
             ---\n\
             You are {name}. Describe here what you do, how you work, and what your answer \
             looks like.\n"
        )
    }
}

/// The editor's command line: VISUAL, else EDITOR, run through `sh -c`.
fn editor() -> Result<Vec<OsString>, Failure> {
    let named = ["VISUAL", "EDITOR"];
    let named = named.iter().filter_map(std::env::var_os);
    let Some(line) = named.into_iter().find(|line| !line.is_empty()) else {
        return Err(Failure::usage("neither VISUAL nor EDITOR is set")
            .hint("set one, or omit --edit; nothing was written"));
    };
    // Run through the shell, as git does, so that arguments and quotes in the variable work.
    let mut call = line;
    call.push(" \"$@\"");
    Ok(vec!["sh".into(), "-c".into(), call, "sh".into()])
}

fn open(editor: &[OsString], path: &Path) -> Result<(), Failure> {
    let status = Command::new(&editor[0])
        .args(&editor[1..])
        .arg(path)
        .status()
        .map_err(|fault| Failure::local("the editor", fault))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(
            exit::FAILED,
            "editor",
            format!(
                "the editor failed with {status}; {} was kept",
                path.display()
            ),
        )),
    }
}
