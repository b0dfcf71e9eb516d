//! Converts tool calls to subjects for the rules of a gate ([`crate::kernel::policy::gate`]). The catalogue
//! calls this before a call has any effect.

use std::path::Path;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Shell, Workspace, fetch};
use crate::contract::runner::Admission;
use crate::kernel::policy::approval::Consent;
use crate::kernel::policy::gate::{CallTarget, Decision, GateVerdict, Rights, Subject, Writes};
use crate::kernel::policy::shell::CommandLine;

/// The arguments of a tool that gate rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// These arguments: each a workspace path or a list of paths; the workspace itself if none is
    /// given.
    Paths(&'static [&'static str]),
    /// The same, where a folder includes all its descendants.
    Trees(&'static [&'static str]),
    /// This argument, a shell command.
    Command(&'static str),
    /// This argument, a program and its arguments on the node that the argument `node` names.
    Argv(&'static str),
    /// This argument, a path on the node that the argument `node` names.
    NodePath(&'static str),
    /// This argument, a web address.
    Address(&'static str),
    /// All arguments, as JSON.
    Whole,
}

/// The tool name in rules for agents that are programs.
const PROGRAM: &str = "command";

/// Decides whether the program of an agent may be started with these arguments, by the rules for
/// tool calls.
pub fn admit_program(rights: &Rights, argv: &[String]) -> Admission {
    if let Some(refused) = confined(PROGRAM, rights) {
        return refused;
    }
    let subject = commands(CommandLine::of_argv(argv), &argv.join(" "));
    let verdict = rights.judge(PROGRAM, Decision::Allow, &subject);
    admission(PROGRAM, verdict, subject.covers)
}

/// Decides whether a program may be started with these arguments, by the rules for `shell`; `line` is
/// the same as one line for a shell, without variables that are set for it alone.
pub fn admit_argv(rights: &Rights, argv: &[String], line: &str) -> Admission {
    if let Some(refused) = confined(Shell::NAME, rights) {
        return refused;
    }
    let mut subject = commands(CommandLine::of_argv(argv), line);
    subject.texts.push(line.to_owned());
    // Different arguments could give the same line.
    subject.covers = Value::from(argv).to_string();
    let verdict = rights.judge(Shell::NAME, Shell::DECISION, &subject);
    admission(Shell::NAME, verdict, subject.covers)
}

/// Decides whether an outside agent may make a call of a kind that no tool here has, by the rules for
/// `name`. Without a rule a person is asked.
pub fn admit_unknown(rights: &Rights, name: &str, arguments: &Value) -> Admission {
    let verdict = rights.judge(name, Decision::Ask, &whole(arguments));
    admission(name, verdict, arguments.to_string())
}

/// Converts the verdict on a call to its admission.
pub(super) fn admission(name: &str, verdict: GateVerdict, covers: String) -> Admission {
    let GateVerdict { decision, why } = verdict;
    match decision {
        Decision::Allow => Admission::Allowed,
        Decision::Ask => Admission::NeedsApproval(Consent {
            why,
            covers,
            arguments: None,
        }),
        Decision::Deny => Admission::Refused(format!(
            "denied: {why}. {name} was not called, nothing was done. Continue without it, \
             or say in your result what you could not do."
        )),
    }
}

/// Refuses programs to an agent that may not write everywhere, since no path rule applies to what a
/// program writes.
pub(super) fn confined(name: &str, rights: &Rights) -> Option<Admission> {
    let writes = rights.writes();
    (*writes != Writes::Anywhere).then(|| {
        Admission::Refused(format!(
            "access_denied: {name} could write anywhere, and this agent may write {writes} only \
             (field write_scope); nothing was done"
        ))
    })
}

/// Converts a call to its subject. May access the disk, since the target of a link belongs to the
/// subject.
pub(super) fn subject(aim: Aim, workspace: Option<&Workspace>, arguments: &Value) -> Subject {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match aim {
        Aim::Paths(names) => paths(workspace, &named(names, arguments), false),
        Aim::Trees(names) => paths(workspace, &named(names, arguments), true),
        Aim::Command(name) => {
            let text = text(name).unwrap_or_default();
            commands(CommandLine::read(text), text)
        }
        Aim::Argv(name) => {
            let argv: Vec<String> = listed(name, arguments);
            let line = argv.join(" ");
            let subject = commands(CommandLine::of_argv(&argv), &line);
            // Different arguments can give the same line.
            let covers = Value::from(argv).to_string();
            Subject { covers, ..subject }.on_node(text("node"))
        }
        Aim::NodePath(name) => node_path(text(name).unwrap_or_default()).on_node(text("node")),
        Aim::Address(name) => web(text(name).unwrap_or_default()),
        Aim::Whole => whole(arguments),
    }
}

/// The texts of a list.
fn listed(name: &str, arguments: &Value) -> Vec<String> {
    let items = arguments.get(name).and_then(Value::as_array);
    let items = items.into_iter().flatten().filter_map(Value::as_str);
    items.map(str::to_owned).collect()
}

/// A path on another machine, whose links are not known here.
fn node_path(path: &str) -> Subject {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let plain = parts.fold(String::new(), |path, part| path + "/" + part);
    let plain = if plain.is_empty() {
        "/".to_owned()
    } else {
        plain
    };
    let mut things = vec![CallTarget::Named(vec![plain.clone()])];
    if path.split('/').any(|part| part == "..") || !path.starts_with('/') {
        things.push(CallTarget::Unknown);
    }
    Subject {
        things,
        texts: vec![path.to_owned()],
        covers: plain,
        node: None,
    }
}

/// The paths in these arguments.
fn named<'a>(names: &[&str], arguments: &'a Value) -> Vec<&'a str> {
    let mut found = Vec::new();
    for value in names.iter().filter_map(|name| arguments.get(name)) {
        found.extend(value.as_str());
        found.extend(
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
    }
    if found.is_empty() {
        found.push(".");
    }
    found
}

/// The named files and the targets of their links; a call touches both.
fn paths(workspace: Option<&Workspace>, named: &[&str], is_tree: bool) -> Subject {
    let mut subject = Subject::default();
    let mut covers = Vec::new();
    for path in named {
        let Some(workspace) = workspace else {
            subject
                .things
                .push(CallTarget::Named(vec![(*path).to_owned()]));
            subject.things.push(CallTarget::Unknown);
            covers.push((*path).to_owned());
            continue;
        };
        let (written, led_to) = workspace.spellings(path);
        let is_folder = is_tree && !led_to.is_file();
        let thing = |place: &Path| {
            // A rule may name it relative to the workspace or by absolute path.
            let names = vec![workspace.shown(place), place.to_string_lossy().into_owned()];
            match is_folder {
                true => CallTarget::Folder(names),
                false => CallTarget::Named(names),
            }
        };
        subject.things.push(thing(&written));
        if led_to != written {
            subject.things.push(thing(&led_to));
        }
        covers.push(led_to.to_string_lossy().into_owned());
    }
    subject.covers = covers.join("\n");
    subject
}

/// The address and its host, in the requested spelling and with decoded escapes: a server treats
/// both alike.
fn web(text: &str) -> Subject {
    let Ok(mut url) = fetch::address(text) else {
        return Subject {
            things: vec![
                CallTarget::Named(vec![text.to_owned()]),
                CallTarget::Unknown,
            ],
            ..Subject::default()
        };
    };
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_owned();
    // It could be set before, so this cannot fail.
    let _ = url.set_host(Some(&host));
    let written = url.to_string();
    let decoded = unescaped(&written);
    let mut texts = vec![text.trim().to_owned()];
    for one in [&written, &decoded] {
        let Some((scheme, rest)) = one.split_once("://") else {
            continue;
        };
        texts.push(rest.to_owned());
        // The same address with the other scheme, and with its port.
        let other = if scheme == "http" { "https" } else { "http" };
        texts.push(format!("{other}://{rest}"));
        if let (None, Some(port)) = (url.port(), url.port_or_known_default()) {
            let path = rest.strip_prefix(host.as_str()).unwrap_or_default();
            texts.push(format!("{scheme}://{host}:{port}{path}"));
            texts.push(format!("{host}:{port}"));
        }
    }
    let mut things = vec![CallTarget::Named(vec![written.clone(), host.clone()])];
    if decoded != written {
        // Decoding may reveal another path: `..%2f`.
        let settled = reqwest::Url::parse(&decoded).map(String::from);
        things.push(CallTarget::Named(vec![
            settled.unwrap_or(decoded),
            host.clone(),
        ]));
    }
    Subject {
        covers: host,
        things,
        texts,
        node: None,
    }
}

/// Decodes `%41` escapes repeatedly, since some servers decode twice.
fn unescaped(url: &str) -> String {
    let mut text = url.to_owned();
    for _ in 0..4 {
        let next = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == text {
            break;
        }
        text = next;
    }
    text
}

/// The arguments as JSON with sorted names, and each text in them.
fn whole(arguments: &Value) -> Subject {
    let mut texts = vec![ordered(arguments).to_string()];
    collect(arguments, &mut texts);
    Subject {
        things: vec![CallTarget::Named(vec![arguments.to_string()])],
        texts,
        ..Subject::default()
    }
}

fn ordered(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            let sorted = sorted
                .into_iter()
                .map(|(name, value)| (name.clone(), ordered(value)));
            Value::Object(sorted.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(ordered).collect()),
        other => other.clone(),
    }
}

/// Collects every text in `value`.
pub(super) fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Each command of a shell line.
fn commands(line: CommandLine, text: &str) -> Subject {
    Subject {
        things: line.commands.into_iter().map(CallTarget::Command).collect(),
        texts: line.texts,
        covers: text.trim().to_owned(),
        node: None,
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
