//! `abide skills`: lists, shows, checks and reloads skills.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{TextTable, clean, wrap};
use crate::contract::catalog::InactiveDefinition;
use crate::skill::{self, Host, MissingPrograms, ScanLimits, SkillFile};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::skills::{ListSkills, RefreshSkills, Skill, Skills as Listing};

/// List the skills of agents, and check skills that you write
///
/// Without a subcommand it lists the skills that apply in the current folder: those built into the
/// program, your own (~/.agents/skills, abide/skills in your configuration folder), the project's
/// (.agents/skills, .abide/skills) and the folder's (skills).
#[derive(Debug, Args)]
#[command(after_help = "abide skills
abide skills show delegate
abide skills check --strict skills")]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    what: Option<SkillsCommand>,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// List the skills that apply in the current folder
    List,
    /// Show one skill: its source, whether runs get it, and its text
    Show {
        /// The skill's name
        name: String,
    },
    /// Check skills; needs no daemon
    Check {
        /// Skills, or folders of skills [default: skills in the current folder]
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Reject what deviates from the Agent Skills specification
        #[arg(long)]
        strict: bool,
    },
    /// Reload skills, and show the version before and after
    Refresh {
        /// Only skills of this session's folder [default: every known folder]
        #[arg(value_name = "SESSION")]
        session: Option<String>,
    },
}

impl SkillsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let what = self.what.unwrap_or(SkillsCommand::List);
        if let SkillsCommand::Check { paths, strict } = &what {
            return check(paths, *strict, common);
        }
        let link = DaemonLink::open(&common.place).await?;
        match what {
            SkillsCommand::Check { .. } => Ok(0),
            SkillsCommand::List => list(&link, common).await,
            SkillsCommand::Show { name } => show(&link, name, common).await,
            SkillsCommand::Refresh { session } => refresh(&link, session, common).await,
        }
    }
}

/// The current folder, which selects the skills; `None` if its path is not UTF-8.
fn here() -> Option<String> {
    std::env::current_dir()
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}

fn request(name: Option<String>) -> ListSkills {
    ListSkills {
        workspace: here(),
        name,
        limit: PageSize(PAGE_LIMIT),
        cursor: None,
    }
}

async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let Some(listing) = link.ask_or_print(&request(None), common).await? else {
        return Ok(0);
    };
    let mut table = TextTable::new(&["NAME", "FROM", "WHAT FOR"]);
    for skill in &listing.skills {
        let what = match &skill.reason {
            Some(reason) => format!("! {reason}"),
            None => match &skill.node {
                Some(node) => format!("on node {node}: {}", skill.description),
                None => skill.description.clone(),
            },
        };
        table.row(vec![skill.name.clone(), skill.source.clone(), what]);
    }
    print::answer(&table.lines().join("\n"))?;
    for skill in &listing.skills {
        for hidden in &skill.shadowed {
            let file = hidden.file.as_deref().unwrap_or(&hidden.source);
            print::note(&format!("{} shadows {}", clean(&skill.path), clean(file)));
        }
    }
    for aside in &listing.rejected {
        print::note(&format!("{} {}", styled(BAD, "rejected:"), place_of(aside)));
    }
    print::note(&styled(
        DIM,
        format!(
            "version {} of {}",
            listing.version,
            clean(&listing.workspace)
        ),
    ));
    Ok(0)
}

fn place_of(aside: &InactiveDefinition) -> String {
    let file = aside.file.as_deref().unwrap_or(&aside.source);
    at(file, aside.line, &aside.reason)
}

fn at(file: &str, line: Option<usize>, reason: &str) -> String {
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    format!("{}{line}: {}", clean(file), clean(reason))
}

async fn show(link: &DaemonLink, name: String, common: &Common) -> Result<u8, Failure> {
    let raw = link.raw(&request(Some(name))).await?;
    let listing: Listing = link::read(&raw)?;
    let Some(skill) = listing.skills.first() else {
        return Err(Failure::new(exit::NOT_FOUND, "not_found", "no such skill"));
    };
    if common.json {
        print::object(skill)?;
        return Ok(0);
    }
    print::folded(&page(skill).join("\n"))?;
    if let Some(body) = &skill.body {
        print::prose(&format!("\n{body}"))?;
    }
    Ok(0)
}

fn page(skill: &Skill) -> Vec<String> {
    let mut lines = vec![styled(HEAD, clean(&skill.name))];
    lines.extend(wrap(&clean(&skill.description), print::columns()));
    let mut say = |what: &str, value: &str| {
        let value = wrap(&clean(value), print::columns() - 13).join("\n             ");
        lines.push(format!("  {what:<10} {value}"));
    };
    say("from", &format!("{} ({})", skill.source, skill.path));
    if let Some(node) = &skill.node {
        say("on node", node);
    }
    if let Some(reason) = &skill.reason {
        say("! not used", reason);
    }
    if let Some(license) = &skill.license {
        say("license", license);
    }
    if let Some(needs) = &skill.compatibility {
        say("needs", needs);
    }
    if !skill.required_env.is_empty() {
        say("env", &skill.required_env.join(", "));
    }
    if !skill.allowed_tools.is_empty() {
        say("made for", &skill.allowed_tools.join(", "));
    }
    for install in &skill.install {
        say(
            "install",
            &match install.bins.is_empty() {
                true => install.hint.clone(),
                false => format!("{} ({})", install.hint, install.bins.join(", ")),
            },
        );
    }
    for warning in &skill.warnings {
        say("note", warning);
    }
    for hidden in &skill.shadowed {
        say("shadows", hidden.file.as_deref().unwrap_or(&hidden.source));
    }
    lines
}

async fn refresh(
    link: &DaemonLink,
    session: Option<String>,
    common: &Common,
) -> Result<u8, Failure> {
    let session_key = match session {
        Some(named) => Some(ids::session(link, &named).await?),
        None => None,
    };
    let request = RefreshSkills {
        session_key,
        workspace: None,
    };
    let Some(answer) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    for folder in &answer.folders {
        let change = match folder.before {
            None => format!("version {}", folder.after),
            Some(before) if before == folder.after => format!("version {before}, unchanged"),
            Some(before) => format!("version {before} -> {}", folder.after),
        };
        print::answer(&format!("{}: {change}", clean(&folder.workspace)))?;
    }
    Ok(0)
}

/// Checks skills; exit code 0 if every file is a valid skill and, with `strict`, none deviates from
/// the specification.
fn check(paths: &[PathBuf], strict: bool, common: &Common) -> Result<u8, Failure> {
    let usual = [PathBuf::from("skills")];
    let paths = match paths.is_empty() {
        true => &usual,
        false => paths,
    };
    let host = Host::of_this_process();
    let mut all_good = true;
    for path in paths {
        let found = match path.exists() {
            true => skill::check(path, ScanLimits::default()),
            false => return Err(nothing_at(path, "there is no such file or folder")),
        };
        if found.is_empty() {
            return Err(nothing_at(path, "no folder in it contains a SKILL.md"));
        }
        for found in &found {
            all_good &= told(found, strict, &host, common)?;
        }
    }
    Ok(if all_good { 0 } else { exit::FAILED })
}

fn nothing_at(path: &Path, why: &str) -> Failure {
    let path = clean(&path.display().to_string());
    Failure::new(exit::NOT_FOUND, "not_found", format!("{path}: {why}"))
        .hint("name a skill's folder, its SKILL.md, or a folder of skills")
}

/// Prints the result for one file; returns whether it passes.
fn told(found: &SkillFile, strict: bool, host: &Host, common: &Common) -> Result<bool, Failure> {
    let file = found.file.display().to_string();
    let passes = match &found.outcome {
        Ok(skill) => !strict || skill.notes.is_empty(),
        Err(_) => false,
    };
    if common.json {
        print::object(&verdict(found, &file, passes, host))?;
        return Ok(passes);
    }
    match &found.outcome {
        Err(broken) => {
            let reason = at(&file, broken.line, &broken.reason);
            print::answer(&format!("{} {reason}", styled(BAD, "invalid")))?;
        }
        Ok(skill) => {
            let word = if passes {
                styled(GOOD, "ok")
            } else {
                styled(BAD, "invalid")
            };
            let name = clean(&skill.name);
            print::answer(&format!("{word} {}: skill {name}", clean(&file)))?;
            for note in &skill.notes {
                for line in wrap(&clean(&note.to_string()), print::columns() - 3) {
                    print::answer(&format!("   {line}"))?;
                }
            }
            // Not an error of the file: another machine may have them.
            for missing in skill.requires.missing_programs(host) {
                for line in wrap(&clean(&wanted(&missing)), print::columns() - 3) {
                    print::answer(&format!("   {line}"))?;
                }
            }
        }
    }
    Ok(passes)
}

/// Programs that are missing on the PATH, and how to install them.
fn wanted(missing: &MissingPrograms<'_>) -> String {
    let names = missing.any_of.join(" or ");
    let hints: Vec<String> = missing.hints.iter().map(|hint| hint.words()).collect();
    match hints.is_empty() {
        true => format!("it needs {names}, not on your PATH"),
        false => format!(
            "it needs {names}, not on your PATH: {}",
            hints.join(", or ")
        ),
    }
}

fn verdict(found: &SkillFile, file: &str, passes: bool, host: &Host) -> Value {
    match &found.outcome {
        Err(broken) => {
            json!({ "file": file, "ok": false, "line": broken.line, "reason": broken.reason })
        }
        Ok(skill) => {
            let notes = skill.notes.iter();
            let notes: Vec<Value> = notes
                .map(|note| json!({ "line": note.line, "text": note.text }))
                .collect();
            let missing = skill.requires.missing_programs(host).into_iter();
            let missing: Vec<Value> = missing
                .map(|one| {
                    let hints: Vec<String> = one.hints.iter().map(|hint| hint.words()).collect();
                    json!({ "anyOf": one.any_of, "install": hints })
                })
                .collect();
            json!({
                "file": file, "ok": passes, "skill": skill.name, "notes": notes,
                "missing": missing,
            })
        }
    }
}
