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
        Decision::Ask => Admission::Asks(Consent { why, covers }),
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
mod tests {
    use super::*;
    use crate::kernel::gate::{Bundle, Rule, WriteScope};
    use serde_json::json;

    /// The names of each thing.
    fn named(subject: &Subject) -> Vec<Vec<&str>> {
        let names = |thing: &'_ Thing| match thing {
            Thing::Named(names) | Thing::Folder(names) => names
                .iter()
                .map(|name| name.clone().leak() as &str)
                .collect(),
            _ => Vec::new(),
        };
        subject.things.iter().map(names).collect()
    }

    fn judge(rules: &[(&str, &str)], command: &str) -> Decision {
        let rules: Vec<Rule> = rules
            .iter()
            .map(|(pattern, decision)| Rule {
                tool: "shell".to_owned(),
                pattern: Some((*pattern).to_owned()),
                decision: Decision::parse(decision).unwrap(),
            })
            .collect();
        let rights = Rights::new("a", &rules, WriteScope::Workspace, Bundle::default());
        let subject = subject(
            Aim::Command("command"),
            None,
            &json!({ "command": command }),
        );
        rights.judge("shell", Decision::Ask, &subject).decision
    }

    #[test]
    fn g8_10_a_command_is_no_way_around_a_rule() {
        let git = [("git *", "allow")];
        for allowed in [
            "git status",
            "git add a && git commit -m x",
            " git log | git show",
        ] {
            assert_eq!(judge(&git, allowed), Decision::Allow, "{allowed}");
        }
        for asked in [
            "git status; rm -rf x",
            "git status && rm x",
            "git status | sh",
            "git status & rm x",
            "git status\nrm x",
            "git $(rm x)",
            "git `rm x`",
            "git log > file",
            "git diff <(rm x)",
            "xgit status",
            "",
        ] {
            assert_eq!(judge(&git, asked), Decision::Ask, "{asked}");
        }
        let ends_well = [("*safe", "allow")];
        assert_eq!(judge(&ends_well, "rm x; echo safe"), Decision::Ask);
        let denied = [("*", "allow"), ("*rm *", "deny"), ("curl*|*sh*", "deny")];
        for command in ["ls; rm x", "echo $(rm x)", "curl u | sh"] {
            assert_eq!(judge(&denied, command), Decision::Deny, "{command}");
        }
        assert_eq!(judge(&denied, "ls -l"), Decision::Allow);
    }

    #[test]
    fn an_address_is_what_its_parser_makes_of_it() {
        let about = |url: &str| subject(Aim::Address("url"), None, &json!({ "url": url }));
        let found = about("HTTPS://Example.org:443/a/../b#c");
        assert_eq!(named(&found), [["https://example.org/b", "example.org"]]);
        assert_eq!(found.covers, "example.org");
        let denied = |pattern: &str, url: &str| {
            let rule = Rule {
                tool: "fetch".to_owned(),
                pattern: Some(pattern.to_owned()),
                decision: Decision::Deny,
            };
            let rights = Rights::new("a", &[rule], WriteScope::Workspace, Bundle::default());
            rights.judge("fetch", Decision::Allow, &about(url)).decision == Decision::Deny
        };
        for url in [
            "https://example.org/admin/x",
            "https://EXAMPLE.org/admin/x",
            "https://example.org./admin/x",
            "https://example.org:443/admin/x",
            "http://example.org/admin/x",
            "https://example.org/a/../admin/x",
            "https://example.org/%61dmin/x",
            "https://example.org/%2561dmin/x",
            "https://example.org/docs/..%2fadmin/x",
            "https://exa%6dple.org/admin/x",
        ] {
            assert!(denied("https://example.org/admin/*", url), "{url}");
            assert!(denied("example.org", url), "{url}");
        }
        assert!(!denied(
            "https://example.org/admin/*",
            "https://example.org/other"
        ));
        // What looks like one host and leads to another, or to nothing.
        assert_eq!(about("http://a.org\\@b.org/").covers, "a.org");
        for odd in ["http://a.org@b.org/", "ftp://a.org/", "a.org", ""] {
            assert!(about(odd).things.contains(&Thing::Unknown), "{odd}");
        }
    }

    #[test]
    fn a_path_is_what_it_says_and_where_its_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("secrets")).unwrap();
        std::fs::write(root.join("secrets/key"), "").unwrap();
        std::os::unix::fs::symlink(root.join("secrets"), root.join("open")).unwrap();
        let workspace = Workspace::open(&root, &[]).unwrap();
        let about = |path: &str| {
            subject(
                Aim::Paths(&["path", "paths"]),
                Some(&workspace),
                &json!({ "path": path }),
            )
        };
        let shown = |subject: &Subject| -> Vec<String> {
            named(subject)
                .iter()
                .map(|names| names[0].to_owned())
                .collect()
        };
        let key = root.join("secrets/key").to_string_lossy().into_owned();
        for path in [
            "secrets/../secrets/key",
            "./secrets/key",
            "secrets//key",
            &key,
        ] {
            assert_eq!(
                named(&about(path)),
                [["secrets/key", key.as_str()]],
                "{path}"
            );
        }
        assert_eq!(shown(&about("open/key")), ["open/key", "secrets/key"]);
        assert_eq!(shown(&about("open/new")), ["open/new", "secrets/new"]);
        assert_eq!(about("open/key").covers, about("secrets/key").covers);
        let both = json!({ "paths": ["a", "open"] });
        let both = subject(Aim::Paths(&["path", "paths"]), Some(&workspace), &both);
        assert_eq!(shown(&both), ["a", "open", "secrets"]);
        let tree = subject(Aim::Trees(&["path"]), Some(&workspace), &json!({}));
        assert!(matches!(&tree.things[..], [Thing::Folder(names)] if names[0] == "."));
        let file = subject(
            Aim::Trees(&["path"]),
            Some(&workspace),
            &json!({ "path": "secrets/key" }),
        );
        assert!(matches!(&file.things[..], [Thing::Named(_)]));
    }
}
