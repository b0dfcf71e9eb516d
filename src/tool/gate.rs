//! What a call of a tool is about, as the rules of a gate look at it ([`crate::kernel::gate`]).
//! The catalogue asks for every call before anything of it is done.

use serde_json::Value;

use super::{Workspace, fetch};
use crate::contract::runner::Admission;
use crate::kernel::approval::Consent;
use crate::kernel::gate::{Decision, Rights, Subject, Verdict, Writes};

/// Which of its arguments says what a tool's call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// These, a path in the workspace or a list of some; the workspace itself if none is given.
    Paths(&'static [&'static str]),
    /// This one, a command for a shell.
    Command(&'static str),
    /// This one, an address of the web.
    Address(&'static str),
    /// None more than the others: rules look at all of them, as JSON.
    Whole,
}

/// The name by which rules speak of agents that are programs.
const PROGRAM: &str = "command";

/// Whether an agent that is a program may be started with this command line: by the same rules
/// as a call of a tool.
pub fn admit_program(rights: &Rights, line: &str) -> Admission {
    if let Some(refused) = confined(PROGRAM, rights) {
        return refused;
    }
    let subject = command(line);
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
pub(super) fn subject(
    aim: Aim,
    workspace: &Result<Workspace, String>,
    arguments: &Value,
) -> Subject {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match aim {
        Aim::Paths(names) => paths(workspace, &named(names, arguments)),
        Aim::Command(name) => command(text(name).unwrap_or_default()),
        Aim::Address(name) => web(text(name).unwrap_or_default()),
        Aim::Whole => Subject {
            things: vec![vec![arguments.to_string()]],
            ..Subject::default()
        },
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
fn paths(workspace: &Result<Workspace, String>, named: &[&str]) -> Subject {
    let mut subject = Subject::default();
    let mut covers = Vec::new();
    for path in named {
        let Ok(workspace) = workspace else {
            subject.things.push(vec![(*path).to_owned()]);
            subject.is_opaque = true;
            covers.push((*path).to_owned());
            continue;
        };
        let (written, led_to) = workspace.spellings(path);
        subject.things.push(vec![workspace.shown(&written)]);
        if led_to != written {
            subject.things.push(vec![workspace.shown(&led_to)]);
        }
        covers.push(led_to.to_string_lossy().into_owned());
    }
    subject.covers = covers.join("\n");
    subject
}

/// An address by itself or by its host, in the spelling in which it is asked for.
fn web(text: &str) -> Subject {
    let Ok(url) = fetch::address(text) else {
        return Subject {
            things: vec![vec![text.to_owned()]],
            is_opaque: true,
            ..Subject::default()
        };
    };
    let host = url.host_str().unwrap_or_default().to_owned();
    Subject {
        covers: host.clone(),
        things: vec![vec![url.to_string(), host]],
        ..Subject::default()
    }
}

/// Each of the commands that are joined in one. What could hide another one in it, or write to
/// a file, makes it opaque; what only looks so, in quotes, does too: then a person is asked
/// once more than needed.
fn command(text: &str) -> Subject {
    let pieces = text.split([';', '|', '&', '\n', '\r']);
    let pieces = pieces.map(str::trim).filter(|piece| !piece.is_empty());
    Subject {
        things: pieces.map(|piece| vec![piece.to_owned()]).collect(),
        text: Some(text.to_owned()),
        is_opaque: text.contains(['`', '(', ')', '<', '>', '{', '}', '\0']),
        covers: text.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::gate::{Bundle, Rule, WriteScope};
    use serde_json::json;

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
        let nowhere = Err(String::new());
        let subject = subject(
            Aim::Command("command"),
            &nowhere,
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
            " git log | git x",
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
            "{ git x",
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
        let nowhere = Err(String::new());
        let about = |url: &str| subject(Aim::Address("url"), &nowhere, &json!({ "url": url }));
        let found = about("HTTPS://Example.org:443/a/../b#c");
        assert_eq!(found.things, [["https://example.org/b", "example.org"]]);
        assert_eq!(found.covers, "example.org");
        // What looks like one host and leads to another, or to nothing.
        assert_eq!(about("http://a.org\\@b.org/").covers, "a.org");
        for odd in ["http://a.org@b.org/", "ftp://a.org/", "a.org", ""] {
            assert!(about(odd).is_opaque, "{odd}");
        }
    }

    #[test]
    fn a_path_is_what_it_says_and_where_its_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("secrets")).unwrap();
        std::fs::write(root.join("secrets/key"), "").unwrap();
        std::os::unix::fs::symlink(root.join("secrets"), root.join("open")).unwrap();
        let workspace = Workspace::open(&root, &[]);
        let about = |path: &str| {
            subject(
                Aim::Paths(&["path", "paths"]),
                &workspace,
                &json!({ "path": path }),
            )
        };
        assert_eq!(about("secrets/../secrets/key").things, [["secrets/key"]]);
        assert_eq!(about("open/key").things, [["open/key"], ["secrets/key"]]);
        assert_eq!(about("open/new").things, [["open/new"], ["secrets/new"]]);
        assert_eq!(about("open/key").covers, about("secrets/key").covers);
        let both = json!({ "paths": ["a", "open"] });
        let both = subject(Aim::Paths(&["path", "paths"]), &workspace, &both);
        assert_eq!(both.things, [["a"], ["open"], ["secrets"]]);
    }
}
