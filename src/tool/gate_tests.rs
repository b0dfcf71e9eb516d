//! Tests the subjects of calls, as rules see them.

use serde_json::json;

use super::*;
use crate::kernel::policy::gate::{Bundle, Rule, WriteScope};

/// The names of each thing.
fn named(subject: &Subject) -> Vec<Vec<&str>> {
    let names = |thing: &'_ CallTarget| match thing {
        CallTarget::Named(names) | CallTarget::Folder(names) => names
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
            node: None,
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
            node: None,
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
    // Addresses that look like one host and lead to another, or are invalid.
    assert_eq!(about("http://a.org\\@b.org/").covers, "a.org");
    for odd in ["http://a.org@b.org/", "ftp://a.org/", "a.org", ""] {
        assert!(about(odd).things.contains(&CallTarget::Unknown), "{odd}");
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
    assert!(matches!(&tree.things[..], [CallTarget::Folder(names)] if names[0] == "."));
    let file = subject(
        Aim::Trees(&["path"]),
        Some(&workspace),
        &json!({ "path": "secrets/key" }),
    );
    assert!(matches!(&file.things[..], [CallTarget::Named(_)]));
}
