//! `abide agents`: lists, shows, checks, creates and deletes agents.

mod new;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::serve;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{TextTable, clean, wrap};
use crate::contract::catalog::InactiveDefinition;
use crate::daemon::AgentCheck;
use crate::wire::agents::{
    Agent, Agents as Listing, Audience, CreateAgent, DeleteAgent, Deleted, Format, GetAgent,
    ListAgents, ReloadAgents,
};
use crate::wire::input::{PAGE_LIMIT, PageSize};

/// List, inspect and define agents
///
/// Without a subcommand it lists the agents that are visible in the current folder: built-in ones,
/// those stored by the daemon, the files in your configuration folder (abide/agents) and in the
/// project (.abide/agents and .claude/agents).
#[derive(Debug, Args)]
#[command(after_help = "abide agents
abide agents show explore
abide agents new reviewer --edit
abide agents check .abide/agents/reviewer.md")]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    what: Option<AgentsCommand>,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// List the agents that are visible in the current folder
    List(AgentsListArgs),
    /// Show one agent: its source, its settings and what it shadows
    Show {
        /// The agent's name
        name: String,
    },
    New(new::New),
    /// Check agent files; needs no daemon
    Check {
        /// The agent files to check
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Store an agent definition in the daemon
    Create {
        /// Definition file: .md, .toml or .json
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete an agent that is stored in the daemon
    Delete {
        /// The agent's name
        name: String,
    },
    /// Reload all agent files
    Reload,
}

#[derive(Debug, Default, Args)]
struct AgentsListArgs {
    /// Only agents that users can choose (without hidden ones), or only those for spawned runs
    #[arg(long = "for", value_name = "WHOM")]
    audience: Option<Whom>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Whom {
    People,
    Task,
}

impl AgentsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let what = self
            .what
            .unwrap_or(AgentsCommand::List(AgentsListArgs::default()));
        let what = match what {
            AgentsCommand::Check { files } => return check(&files, common),
            AgentsCommand::New(new) => return new.run(common),
            what => what,
        };
        let link = DaemonLink::open(&common.place).await?;
        match what {
            AgentsCommand::Check { .. } | AgentsCommand::New(_) => Ok(0),
            AgentsCommand::List(list) => list.run(&link, common).await,
            AgentsCommand::Show { name } => show(&link, name, common).await,
            AgentsCommand::Create { file } => create(&link, &file, common).await,
            AgentsCommand::Delete { name } => delete(&link, name, common).await,
            AgentsCommand::Reload => {
                let raw = link.raw(&ReloadAgents {}).await?;
                listed(&raw, common)
            }
        }
    }
}

impl AgentsListArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = ListAgents {
            audience: self.audience.map(|whom| match whom {
                Whom::People => Audience::People,
                Whom::Task => Audience::Task,
            }),
            cwd: here(),
            limit: PageSize(PAGE_LIMIT),
            cursor: None,
        };
        let raw = link.raw(&request).await?;
        listed(&raw, common)
    }
}

/// The current folder, which selects the project; `None` if its path is not UTF-8.
fn here() -> Option<String> {
    std::env::current_dir()
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}

fn listed(raw: &Value, common: &Common) -> Result<u8, Failure> {
    if common.json {
        print::object(raw)?;
        return Ok(0);
    }
    let listing: Listing = link::read(raw)?;
    let mut table = TextTable::new(&["NAME", "MODE", "FROM", "WHAT FOR"]);
    for agent in &listing.agents {
        let what = match agent.health.problems.first() {
            Some(problem) => format!("! {problem}"),
            None => agent
                .title
                .clone()
                .unwrap_or_else(|| agent.description.clone()),
        };
        table.row(vec![
            agent.name.clone(),
            agent.mode.clone(),
            agent.source.clone(),
            what,
        ]);
    }
    print::answer(&table.lines().join("\n"))?;
    for agent in &listing.agents {
        for warning in &agent.warnings {
            print::note(&format!("{}: {}", agent.name, clean(warning)));
        }
    }
    for aside in &listing.rejected {
        print::note(&format!("{} {}", styled(BAD, "rejected:"), place_of(aside)));
    }
    for off in &listing.off {
        print::note(&format!(
            "{} is off: it needs {} ({})",
            off.name, off.program, off.needs
        ));
    }
    Ok(0)
}

fn place_of(aside: &InactiveDefinition) -> String {
    let mut text = clean(aside.file.as_deref().unwrap_or(&aside.source));
    if let Some(at) = aside.line {
        text.push_str(&format!(":{at}"));
    }
    format!("{text}: {}", clean(&aside.reason))
}

async fn show(link: &DaemonLink, name: String, common: &Common) -> Result<u8, Failure> {
    let request = GetAgent {
        agent: name,
        cwd: here(),
    };
    let Some(agent) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    let mut lines = vec![styled(HEAD, clean(&agent.name)), clean(&agent.description)];
    let mut say = |what: &str, value: &str| {
        let value = wrap(&clean(value), print::columns() - 13).join("\n             ");
        lines.push(format!("  {what:<10} {value}"));
    };
    say("from", &from(&agent));
    say("mode", &agent.mode);
    match &agent.program {
        // Model, tools and limits do not apply to an external program.
        Some(program) => say("program", &program.join(" ")),
        None => {
            say("model", &agent.model);
            if let Some(level) = &agent.thinking {
                say("thinking", level);
            }
            say("tools", &or_none(&agent.tools));
            match &agent.allow_agents {
                Some(names) => say("may spawn", &or_none(names)),
                None => say(
                    "may spawn",
                    "itself, agents for spawned runs, linked agents",
                ),
            }
            if !agent.linked_agents.is_empty() {
                say("linked", &agent.linked_agents.join(", "));
            }
            say("max loops", &agent.max_loops.to_string());
        }
    }
    for problem in &agent.health.problems {
        say("! problem", problem);
    }
    let known = &agent.health.problems;
    for warning in agent.warnings.iter().filter(|one| !known.contains(one)) {
        say("note", warning);
    }
    for aside in &agent.shadowed {
        say("shadows", aside.file.as_deref().unwrap_or(&aside.source));
    }
    print::folded(&lines.join("\n"))?;
    let prompt = agent.system_prompt.as_ref();
    if let Some(prompt) = prompt.filter(|_| agent.program.is_none()) {
        print::prose(&format!("\n{prompt}"))?;
    }
    Ok(0)
}

fn from(agent: &Agent) -> String {
    match (&agent.file, agent.revision) {
        (Some(file), _) => format!("{} ({file})", agent.source),
        (None, Some(revision)) => format!("{} (revision {revision})", agent.source),
        (None, None) => agent.source.clone(),
    }
}

fn or_none(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// Checks each file; exit code 0 if all are valid agents, [`exit::FAILED`] otherwise.
fn check(files: &[PathBuf], common: &Common) -> Result<u8, Failure> {
    let loaded = serve::settings(None)?;
    let check = AgentCheck::new(&loaded.config)
        .map_err(|failure| Failure::new(failure.exit_code(), "config", failure.to_string()))?;
    let mut all_good = true;
    for file in files {
        let shown = clean(&file.display().to_string());
        let outcome = match file.symlink_metadata() {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => {
                Err((None, "there is no such file".to_owned()))
            }
            _ => check.check(file),
        };
        all_good &= outcome.is_ok();
        if common.json {
            print::object(&match &outcome {
                Ok((name, warnings)) => {
                    json!({ "file": shown, "ok": true, "agent": name, "warnings": warnings })
                }
                Err((at, reason)) => {
                    json!({ "file": shown, "ok": false, "line": at, "reason": reason })
                }
            })?;
            continue;
        }
        match outcome {
            Ok((name, warnings)) => {
                print::folded(&format!("{} {shown}: agent {name}", styled(GOOD, "ok")))?;
                for warning in warnings {
                    print::folded(&format!("   {shown}{}", at_line(&clean(&warning))))?;
                }
            }
            Err((at, reason)) => {
                let at = at.map_or_else(String::new, |at| format!(":{at}"));
                let reason = clean(&reason);
                print::folded(&format!("{} {shown}{at}: {reason}", styled(BAD, "invalid")))?;
            }
        }
    }
    Ok(if all_good { 0 } else { exit::FAILED })
}

/// A warning behind its file: `line 4: …` becomes `:4: …`, which editors can open.
fn at_line(warning: &str) -> String {
    let at = warning
        .strip_prefix("line ")
        .and_then(|rest| rest.split_once(": "));
    match at {
        Some((line, said)) if line.bytes().all(|digit| digit.is_ascii_digit()) => {
            format!(":{line}: {said}")
        }
        _ => format!(": {warning}"),
    }
}

async fn create(link: &DaemonLink, file: &Path, common: &Common) -> Result<u8, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::local(file.display(), error))?;
    let ending = file.extension().and_then(|ending| ending.to_str());
    let format = match ending {
        Some("toml") => Format::Toml,
        Some("json") => Format::Json,
        _ => Format::Markdown,
    };
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let request = CreateAgent {
        name: stem.map(str::to_owned),
        definition: None,
        text: Some(text),
        format: Some(format),
    };
    let Some(agent) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    print::answer(&format!("{} is stored", clean(&agent.name)))?;
    for warning in &agent.warnings {
        print::note(&format!("note: {}", clean(warning)));
    }
    if agent.source != "stored" {
        let file = agent.file.as_deref().unwrap_or("another definition");
        print::note(&format!("note: {} shadows it", clean(file)));
    }
    print::note(&styled(
        DIM,
        format!("use it: abide run --agent {} \"…\"", clean(&agent.name)),
    ));
    Ok(0)
}

async fn delete(link: &DaemonLink, name: String, common: &Common) -> Result<u8, Failure> {
    let shown = clean(&name);
    let request = DeleteAgent {
        agent: name,
        if_revision: None,
    };
    let raw = link.raw(&request).await?;
    let answer: Deleted = link::read(&raw)?;
    if !answer.deleted {
        let message = format!("no agent {shown} is stored in the daemon");
        return Err(
            Failure::new(exit::NOT_FOUND, "not_found", message).hint("list agents: abide agents")
        );
    }
    if common.json {
        print::object(&raw)?;
    } else {
        print::answer(&format!("{shown} is deleted; its runs continue unchanged"))?;
    }
    Ok(0)
}
