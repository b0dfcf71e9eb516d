//! What a call of a tool is about, as the rules of a gate look at it ([`crate::kernel::gate`]).
//! The catalogue asks for every call before anything of it is done.

use std::path::Path;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Workspace, fetch};
use crate::contract::runner::Admission;
use crate::kernel::approval::Consent;
use crate::kernel::gate::{Decision, Rights, Subject, Thing, Verdict, Writes};
use crate::kernel::shell::Line;

/// Which of its arguments says what a tool's call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// These, a path in the workspace or a list of some; the workspace itself if none is given.
    Paths(&'static [&'static str]),
    /// These, likewise; of a folder everything in it.
    Trees(&'static [&'static str]),
    /// This one, a command for a shell.
    Command(&'static str),
    /// This one, an address of the web.
    Address(&'static str),
    /// None more than the others: rules look at all of them, as JSON.
    Whole,
}

/// The name by which rules speak of agents that are programs.
const PROGRAM: &str = "command";

/// Whether an agent that is a program may be started with these arguments: by the same rules
/// as a call of a tool.
pub fn admit_program(rights: &Rights, argv: &[String]) -> Admission {
    if let Some(refused) = confined(PROGRAM, rights) {
        return refused;
    }
    let subject = commands(Line::of_argv(argv), &argv.join(" "));
    let verdict = rights.judge(PROGRAM, Decision::Allow, &subject);
    admission(PROGRAM, verdict, subject.covers)
}

/// What a verdict on a call lets happen.
pub(super) fn admission(name: &str, verdict: Verdict, covers: String) -> Admission {
    let Verdict { decision, why } = verdict;
    match decision {
        Decision::Allow => Admission::Goes,
        Decision::Ask => Admission::Asks(Consent {
            why,
            covers,
            arguments: None,
        }),
        Decision::Deny => Admission::Refused(format!(
            "denied: {why}. The call of {name} was not made, nothing was done. Go on without it, \
             or say in your result what you could not do."
        )),
    }
}

/// Refuses programs to who may not write everywhere: where a program writes, no rule of paths
/// can tell.
pub(super) fn confined(name: &str, rights: &Rights) -> Option<Admission> {
    let writes = rights.writes();
    (*writes != Writes::Anywhere).then(|| {
        Admission::Refused(format!(
            "access_denied: {name} could write anywhere, and this agent may write {writes} only \
             (field write_scope); nothing was done"
        ))
    })
}

/// Of which kind a call's aim is tells only the tool; the rest is in the arguments. May touch
/// the disk, where the links in a path lead being part of what it names.
pub(super) fn subject(aim: Aim, workspace: Option<&Workspace>, arguments: &Value) -> Subject {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match aim {
        Aim::Paths(names) => paths(workspace, &named(names, arguments), false),
        Aim::Trees(names) => paths(workspace, &named(names, arguments), true),
        Aim::Command(name) => {
            let text = text(name).unwrap_or_default();
            commands(Line::read(text), text)
        }
        Aim::Address(name) => web(text(name).unwrap_or_default()),
        Aim::Whole => whole(arguments),
    }
}

/// The paths that these arguments hold.
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

/// The files that are named and those that their links lead to: all are touched.
fn paths(workspace: Option<&Workspace>, named: &[&str], is_tree: bool) -> Subject {
    let mut subject = Subject::default();
    let mut covers = Vec::new();
    for path in named {
        let Some(workspace) = workspace else {
            subject.things.push(Thing::Named(vec![(*path).to_owned()]));
            subject.things.push(Thing::Unknown);
            covers.push((*path).to_owned());
            continue;
        };
        let (written, led_to) = workspace.spellings(path);
        let is_folder = is_tree && !led_to.is_file();
        let thing = |place: &Path| {
            // A rule may name it from the workspace or from the root.
            let names = vec![workspace.shown(place), place.to_string_lossy().into_owned()];
            match is_folder {
                true => Thing::Folder(names),
                false => Thing::Named(names),
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

/// An address by itself or by its host, in the spelling in which it is asked for and with its
/// escapes taken away: to a server both are the same.
fn web(text: &str) -> Subject {
    let Ok(mut url) = fetch::address(text) else {
        return Subject {
            things: vec![Thing::Named(vec![text.to_owned()]), Thing::Unknown],
            ..Subject::default()
        };
    };
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_owned();
    // It could be set before.
    let _ = url.set_host(Some(&host));
    let written = url.to_string();
    let decoded = unescaped(&written);
    let mut texts = vec![text.trim().to_owned()];
    for one in [&written, &decoded] {
        let Some((scheme, rest)) = one.split_once("://") else {
            continue;
        };
        texts.push(rest.to_owned());
        // The same place over the other scheme, and with its port.
        let other = if scheme == "http" { "https" } else { "http" };
        texts.push(format!("{other}://{rest}"));
        if let (None, Some(port)) = (url.port(), url.port_or_known_default()) {
            let path = rest.strip_prefix(host.as_str()).unwrap_or_default();
            texts.push(format!("{scheme}://{host}:{port}{path}"));
            texts.push(format!("{host}:{port}"));
        }
    }
    let mut things = vec![Thing::Named(vec![written.clone(), host.clone()])];
    if decoded != written {
        // What was hidden in it may lead elsewhere: `..%2f`.
        let settled = reqwest::Url::parse(&decoded).map(String::from);
        things.push(Thing::Named(vec![settled.unwrap_or(decoded), host.clone()]));
    }
    Subject {
        covers: host,
        things,
        texts,
    }
}

/// The address without its `%41` escapes, over and over: some servers take them away twice.
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

/// Arguments as JSON, with their names in order, and each text in them by itself.
fn whole(arguments: &Value) -> Subject {
    let mut texts = vec![ordered(arguments).to_string()];
    collect(arguments, &mut texts);
    Subject {
        things: vec![Thing::Named(vec![arguments.to_string()])],
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

/// Every text in `value`.
pub(super) fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Each command that a line runs.
fn commands(line: Line, text: &str) -> Subject {
    Subject {
        things: line.commands.into_iter().map(Thing::Command).collect(),
        texts: line.texts,
        covers: text.trim().to_owned(),
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
