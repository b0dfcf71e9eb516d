//! The allow-list of a node: the file `allow.toml` in the folder of a gateway, by which this
//! machine alone decides which programs run for that gateway. A call cannot say that it is
//! approved.
//!
//! A rule names a program and a pattern of its arguments. `git` stands for the file that is found
//! by this name in the `PATH` of the node; a call matches only if its program is the same file.
//! Deny wins over ask, ask over allow, and the default decides where no rule applies. Wrappers and
//! shells are judged by what they run (see [`crate::kernel::policy::shell`]).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::program::base_environment;
use crate::kernel::policy::gate::{Decision, GateVerdict};
use crate::kernel::policy::shell::{ArgvPattern, CommandLine, Fit};
use crate::kernel::text::text_enum::text_enum;
use crate::process::find;

/// The content of a new allow-list.
pub const NEW_FILE: &str = r#"# Which programs the gateway may run on this machine. It is read anew for each call; while it is not
# valid, every call is denied. docs/nodes.md describes it.
#
# What happens to a call that no rule matches: "deny", "ask" or "allow".
default = "ask"
# Who is asked: "here" (a prompt of `abide node run` at its terminal; denied without a terminal),
# "gateway" (the operator of the gateway), or "here_or_gateway" (here if there is a terminal).
ask = "here_or_gateway"

# Within a word * matches any text, and ** at the end any further arguments. Deny wins over ask, and
# ask over allow. Try a call without running it: abide node allow check -- git status
#
# [[rule]]
# decision = "allow"
# argv = ["git", "status", "**"]
# cwd = "/srv/project"        # only in this folder and below; may be left out
"#;

/// Maximum size of the file in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// Programs that do what the name says by which they are called.
const BY_NAME: &[&str] = &["busybox", "toybox", "coreutils"];

text_enum! {
    /// Who is asked about a call.
    AskPlace {
        /// The person at the terminal of the node; without one the call is denied.
        Here = "here",
        /// The operator of the gateway.
        Gateway = "gateway",
        /// The person at the terminal of the node, or without one the operator of the gateway.
        Either = "here_or_gateway",
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowFile {
    #[serde(default = "asks")]
    default: Decision,
    #[serde(default = "either")]
    ask: AskPlace,
    #[serde(default)]
    rule: Vec<RuleForm>,
}

fn asks() -> Decision {
    Decision::Ask
}

fn either() -> AskPlace {
    AskPlace::Either
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    decision: Decision,
    argv: Vec<String>,
    cwd: Option<PathBuf>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowRule {
    /// What happens to a call that matches.
    pub decision: Decision,
    /// The pattern of program and arguments.
    pub argv: ArgvPattern,
    /// The folder in which, with its descendants, the rule applies; `None`: anywhere.
    pub cwd: Option<PathBuf>,
}

/// A valid allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    /// What happens to a call that no rule matches.
    pub default: Decision,
    /// Who is asked.
    pub ask: AskPlace,
    /// The rules in the order of the file.
    pub rules: Vec<AllowRule>,
}

/// A call as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct AllowSubject<'a> {
    /// The program as called, and its arguments.
    pub argv: &'a [String],
    /// The working folder, without links.
    pub cwd: &'a Path,
    /// The `PATH` of the node.
    pub path: Option<&'a OsStr>,
}

impl AllowList {
    /// Reads the file. The error says why it denies every call.
    pub fn read(file: &Path) -> Result<AllowList, String> {
        let refused = |why: String| format!("{}: {why}", file.display());
        let about = fs::metadata(file).map_err(|fault| refused(fault.to_string()))?;
        if !about.is_file() || about.len() > FILE_LIMIT {
            return Err(refused(format!(
                "it is not a file of at most {FILE_LIMIT} bytes"
            )));
        }
        let own = rustix::process::geteuid().as_raw();
        if ![0, own].contains(&about.uid()) || about.mode() & 0o022 != 0 {
            return Err(refused("other users can write to it".to_owned()));
        }
        let text = fs::read_to_string(file).map_err(|fault| refused(fault.to_string()))?;
        AllowList::parse(&text).map_err(refused)
    }

    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<AllowList, String> {
        let file: AllowFile = toml::from_str(text).map_err(|fault| match fault.span() {
            Some(span) => {
                let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                format!("line {line}: {}", fault.message())
            }
            None => fault.message().to_owned(),
        })?;
        let rules = file.rule.into_iter().enumerate();
        let rules =
            rules.map(|(at, form)| rule(form).map_err(|why| format!("rule {}: {why}", at + 1)));
        Ok(AllowList {
            default: file.default,
            ask: file.ask,
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// Decides on a call. Looks at files: call it where that may block.
    pub fn judge(&self, subject: AllowSubject<'_>) -> GateVerdict {
        let lines = readings(&subject);
        let rules = || {
            self.rules
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.is_at(subject.cwd))
        };
        let mut asked = None;
        let mut unsure = None;
        for (at, rule) in rules().filter(|(_, rule)| rule.decision != Decision::Allow) {
            let commands = lines.iter().flat_map(|line| &line.commands);
            let fit = commands
                .map(|command| command.is_restricted_by(&rule.argv))
                .max();
            match (fit, rule.decision) {
                (Some(Fit::Yes), Decision::Deny) => return by_rule(Decision::Deny, at, rule),
                (Some(Fit::Yes), _) => asked = asked.or(Some((at, rule))),
                (Some(Fit::Maybe), _) => unsure = unsure.or(Some((at, rule))),
                _ => {}
            }
        }
        if let Some((at, rule)) = asked {
            return by_rule(Decision::Ask, at, rule);
        }
        let is_program = |named: &str, called: &str| is_same_program(named, called, &subject);
        let allows = || rules().filter(|(_, rule)| rule.decision == Decision::Allow);
        let exact = allows().find(|(_, rule)| {
            rule.argv.is_literal()
                && is_program(rule.argv.program(), &subject.argv[0])
                && rule.argv.has_arguments(&subject.argv[1..])
        });
        if let Some((at, rule)) = exact {
            return by_rule(Decision::Allow, at, rule);
        }
        let covering = lines[0].commands.iter().map(|command| {
            allows().find(|(_, rule)| command.is_allowed_by(&rule.argv, subject.argv, is_program))
        });
        let covering: Option<Vec<_>> = covering.collect();
        let covering = covering.as_deref().and_then(<[_]>::first).copied();
        match (covering, unsure) {
            (Some(_), Some((at, rule))) => may_match(at, rule),
            (Some((at, rule)), None) => by_rule(Decision::Allow, at, rule),
            (None, Some((at, rule))) if self.default == Decision::Allow => may_match(at, rule),
            (None, _) => GateVerdict {
                decision: self.default,
                why: format!("no rule applies, and the default is {}", self.default),
            },
        }
    }
}

impl AllowRule {
    fn is_at(&self, cwd: &Path) -> bool {
        self.cwd.as_ref().is_none_or(|folder| {
            // A folder that does not exist contains no call.
            let real = folder.canonicalize();
            real.is_ok_and(|real| cwd.starts_with(real))
        })
    }
}

/// Decides on a call from this machine, as if a gateway had made it. Looks at files.
pub fn decide(list: &AllowList, argv: &[String], cwd: &Path) -> GateVerdict {
    list.judge(AllowSubject {
        argv,
        cwd,
        path: base_environment().get("PATH"),
    })
}

fn rule(form: RuleForm) -> Result<AllowRule, String> {
    let argv = ArgvPattern::new(&form.argv)?;
    let program = argv.program();
    if form.decision == Decision::Allow && program.contains('*') {
        return Err("an allow rule must name its program without *".to_owned());
    }
    if program.contains('/') && !program.starts_with('/') {
        return Err(format!(
            "the program {program} is neither a name nor an absolute path"
        ));
    }
    if form
        .cwd
        .as_ref()
        .is_some_and(|folder| !folder.is_absolute())
    {
        return Err("cwd must be an absolute path".to_owned());
    }
    Ok(AllowRule {
        decision: form.decision,
        argv,
        cwd: form.cwd,
    })
}

fn by_rule(decision: Decision, at: usize, rule: &AllowRule) -> GateVerdict {
    GateVerdict {
        decision,
        why: format!("rule {} says {decision} for {}", at + 1, rule.argv),
    }
}

fn may_match(at: usize, rule: &AllowRule) -> GateVerdict {
    GateVerdict {
        decision: Decision::Ask,
        why: format!(
            "rule {} says {} for {}, and this call may run that",
            at + 1,
            rule.decision,
            rule.argv
        ),
    }
}

/// The commands of the call as written, and with the name of the file that its program links to.
fn readings(subject: &AllowSubject<'_>) -> Vec<CommandLine> {
    let mut lines = vec![CommandLine::of_argv(subject.argv)];
    let called = &subject.argv[0];
    let real = find(called, subject.path, subject.cwd);
    let Some(real) = real.ok().and_then(|file| file.canonicalize().ok()) else {
        return lines;
    };
    let name = base(&real);
    if name != base(Path::new(called)) && !BY_NAME.contains(&&*name) {
        let mut argv = subject.argv.to_vec();
        argv[0] = real.to_string_lossy().into_owned();
        lines.push(CommandLine::of_argv(&argv));
    }
    lines
}

/// True if the program, as called, is the file that a rule names. It must be called by that name,
/// too, since one file may be several programs.
fn is_same_program(named: &str, called: &str, subject: &AllowSubject<'_>) -> bool {
    if base(Path::new(named)) != base(Path::new(called)) {
        return false;
    }
    let real = |name: &str| {
        let file = find(name, subject.path, subject.cwd).ok()?;
        file.canonicalize().ok()
    };
    matches!((real(named), real(called)), (Some(named), Some(called)) if named == called)
}

fn base(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "allow_tests.rs"]
mod tests;
