//! `abide node allow`: the allow-list in force, and what it would decide on a call.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::failure;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, clean};
use crate::kernel::policy::gate::Decision;
use crate::node::allow::{AllowList, decide};
use crate::node::folder::{GatewayFolder, NodeFolders};

/// Show the allow-list in force, or what it says about a call
///
/// The list decides which programs a gateway may run on this machine. It is a file that you edit;
/// changes apply to the next call.
#[derive(Debug, Args)]
#[command(after_help = "abide node allow
abide node allow check -- git push origin main")]
pub(crate) struct AllowArgs {
    /// The gateway, by its name in abide node list [default: the only one]
    #[arg(long, value_name = "NAME", global = true)]
    gateway: Option<String>,

    #[command(subcommand)]
    what: Option<AllowCommand>,
}

#[derive(Debug, Subcommand)]
enum AllowCommand {
    Check(Check),
}

/// Say what the list decides on a call, without running it
///
/// Exit codes: 0 allowed, 8 a person is asked, 9 denied.
#[derive(Debug, Args)]
#[command(after_help = "abide node allow check -- git push origin main
abide node allow check --cwd /srv/project -- make test")]
pub(crate) struct Check {
    /// The working folder of the call [default: this folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "ARGV", required = true, trailing_var_arg = true)]
    argv: Vec<String>,
}

impl AllowArgs {
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        let folder = NodeFolders::usual().and_then(|all| all.one(self.gateway.as_deref()));
        let folder = folder.map_err(|error| failure(&error))?;
        match self.what {
            Some(AllowCommand::Check(check)) => check.run(&folder, common),
            None => shown(&folder, common),
        }
    }
}

fn read(folder: &GatewayFolder) -> Result<AllowList, Failure> {
    AllowList::read(&folder.allow_file()).map_err(|why| {
        Failure::new(exit::CONFIG, "config", why).hint("every call is denied until it is valid")
    })
}

fn shown(folder: &GatewayFolder, common: &Common) -> Result<u8, Failure> {
    let list = read(folder)?;
    let file = folder.allow_file();
    if common.json {
        let rules: Vec<_> = list
            .rules
            .iter()
            .map(|rule| json!({ "decision": rule.decision, "argv": rule.argv.to_string(), "cwd": rule.cwd }))
            .collect();
        print::object(&json!({
            "file": file, "default": list.default, "ask": list.ask, "rules": rules,
        }))?;
        return Ok(0);
    }
    print::answer(&format!("file     {}", file.display()))?;
    print::answer(&format!(
        "default  {} (where no rule applies)",
        list.default
    ))?;
    print::answer(&format!("ask      {}", list.ask))?;
    if list.rules.is_empty() {
        return Ok(0);
    }
    let mut table = TextTable::new(&["RULE", "DECISION", "FOLDER", "ARGV"]);
    for (at, rule) in list.rules.iter().enumerate() {
        let folder = rule.cwd.as_ref().map(|folder| folder.display().to_string());
        table.row(vec![
            (at + 1).to_string(),
            rule.decision.to_string(),
            folder.unwrap_or_else(|| "any".to_owned()),
            rule.argv.to_string(),
        ]);
    }
    print::answer(&table.lines().join("\n"))?;
    Ok(0)
}

impl Check {
    fn run(self, folder: &GatewayFolder, common: &Common) -> Result<u8, Failure> {
        let list = read(folder)?;
        let cwd = match self.cwd {
            Some(cwd) => cwd,
            None => {
                std::env::current_dir().map_err(|error| Failure::local("this folder", error))?
            }
        };
        let real = cwd.canonicalize();
        let cwd = real.map_err(|error| Failure::local(cwd.display(), error))?;
        let verdict = decide(&list, &self.argv, &cwd);
        if common.json {
            print::object(&json!({ "decision": verdict.decision, "why": verdict.why }))?;
        } else {
            print::answer(&format!("{}: {}", verdict.decision, clean(&verdict.why)))?;
        }
        Ok(match verdict.decision {
            Decision::Allow => 0,
            Decision::Ask => exit::NEEDS_USER,
            Decision::Deny => exit::REFUSED,
        })
    }
}
