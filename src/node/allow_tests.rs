//! Tests of the allow-list with real files as programs.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

struct Toolbox {
    folder: tempfile::TempDir,
}

impl Toolbox {
    fn new() -> Toolbox {
        let folder = tempfile::tempdir().unwrap();
        let toolbox = Toolbox { folder };
        for name in ["git", "make", "sh", "sudo", "tool", "env"] {
            toolbox.program(&format!("bin/{name}"));
        }
        toolbox.program("other/git");
        symlink(toolbox.path("bin/git"), toolbox.path("bin/alias")).unwrap();
        symlink(toolbox.path("bin/git"), toolbox.path("other/linked-git")).unwrap();
        fs::create_dir(toolbox.path("other/links")).unwrap();
        symlink(toolbox.path("bin/git"), toolbox.path("other/links/git")).unwrap();
        toolbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn program(&self, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn judge(&self, list: &str, argv: &[&str]) -> GateVerdict {
        let list = AllowList::parse(&list.replace("BIN", self.path("bin").to_str().unwrap()));
        let argv: Vec<String> = argv
            .iter()
            .map(|word| word.replace("HERE", self.path("").to_str().unwrap()))
            .collect();
        list.unwrap().judge(AllowSubject {
            argv: &argv,
            cwd: &self.path(""),
            path: Some(self.path("bin").as_os_str()),
        })
    }

    fn decides(&self, list: &str, argv: &[&str]) -> Decision {
        self.judge(list, argv).decision
    }
}

const STATUS: &str =
    "default = \"deny\"\n[[rule]]\ndecision = \"allow\"\nargv = [\"git\", \"status\", \"**\"]\n";

#[test]
fn the_program_is_the_file_that_the_rule_names() {
    let toolbox = Toolbox::new();
    for (argv, decision) in [
        (&["git", "status"][..], Decision::Allow),
        (&["HERE/bin/git", "status", "-s"], Decision::Allow),
        (&["HERE/other/links/git", "status"], Decision::Allow),
        (&["./bin/git", "status"], Decision::Allow),
        (&["HERE/other/git", "status"], Decision::Deny),
        (&["./other/git", "status"], Decision::Deny),
        // Called by another name, one file may be another program.
        (&["alias", "status"], Decision::Deny),
        (&["git", "push"], Decision::Deny),
        (&["git"], Decision::Deny),
        (&["gone", "status"], Decision::Deny),
        (&["git", "-c", "core.pager=x", "status"], Decision::Deny),
    ] {
        assert_eq!(toolbox.decides(STATUS, argv), decision, "{argv:?}");
    }
    let absolute = STATUS.replace("\"git\"", "\"BIN/git\"");
    assert_eq!(
        toolbox.decides(&absolute, &["git", "status"]),
        Decision::Allow
    );
}

#[test]
fn deny_wins_over_ask_and_ask_over_allow() {
    let toolbox = Toolbox::new();
    let list = r#"
        default = "allow"
        [[rule]]
        decision = "allow"
        argv = ["git", "**"]
        [[rule]]
        decision = "ask"
        argv = ["git", "push", "**"]
        [[rule]]
        decision = "deny"
        argv = ["git", "push", "--force"]
    "#;
    for (argv, decision) in [
        (&["git", "status"][..], Decision::Allow),
        (&["git", "push"], Decision::Ask),
        (&["git", "push", "--force"], Decision::Deny),
        (&["sh", "-c", "make && git push --force"], Decision::Deny),
        (&["env", "git", "push"], Decision::Ask),
        (&["make"], Decision::Allow),
        // It may run anything, so also what is denied.
        (&["sh", "-c", "$X"], Decision::Ask),
        (&["sh", "script"], Decision::Ask),
        // A link to a denied program is that program.
        (&["alias", "push", "--force"], Decision::Deny),
    ] {
        assert_eq!(toolbox.decides(list, argv), decision, "{argv:?}");
    }
    let verdict = toolbox.judge(list, &["git", "push"]);
    assert_eq!(verdict.why, r#"rule 2 says ask for ["git", "push", "**"]"#);
}

#[test]
fn wrappers_and_shells_are_judged_by_what_they_run_or_named_as_a_whole() {
    let toolbox = Toolbox::new();
    for (argv, decision) in [
        (&["env", "A=1", "git", "status"][..], Decision::Allow),
        (&["sh", "-c", "git status"], Decision::Allow),
        (&["sh", "-c", "git status; git push"], Decision::Deny),
        (&["sudo", "git", "status"], Decision::Deny),
        (&["env", "-S", "git push"], Decision::Deny),
        (&["env", "PATH=/x", "git", "status"], Decision::Deny),
    ] {
        assert_eq!(toolbox.decides(STATUS, argv), decision, "{argv:?}");
    }
    let exact = r#"
        default = "deny"
        [[rule]]
        decision = "allow"
        argv = ["sh", "-c", "$X"]
        [[rule]]
        decision = "deny"
        argv = ["git", "**"]
    "#;
    assert_eq!(toolbox.decides(exact, &["sh", "-c", "$X"]), Decision::Allow);
    assert_eq!(toolbox.decides(exact, &["sh", "-c", "$Y"]), Decision::Deny);
    let shell = exact.replace(r#"["sh", "-c", "$X"]"#, r#"["sh", "**"]"#);
    assert_eq!(
        toolbox.decides(&shell, &["sh", "-c", "make"]),
        Decision::Deny
    );
}

#[test]
fn what_is_named_like_a_wrapper_elsewhere_is_a_program_of_its_own() {
    let toolbox = Toolbox::new();
    for name in ["env", "sh", "sudo", "nice", "A=/env", "A=/x"] {
        toolbox.program(&format!("evil/{name}"));
        toolbox.program(name);
    }
    for argv in [
        &["./env", "git", "status"][..],
        &["HERE/evil/env", "git", "status"],
        &["evil/nice", "git", "status"],
        &["HERE/evil/sudo", "git", "status"],
        &["HERE/evil/sh", "-c", "git status"],
        &["A=/x", "git", "status"],
        &["A=/env", "git", "status"],
        &["env", "HERE/evil/env", "git", "status"],
        &["sh", "-c", "./env git status"],
    ] {
        assert_eq!(toolbox.decides(STATUS, argv), Decision::Deny, "{argv:?}");
    }
    let named = r#"
        default = "deny"
        [[rule]]
        decision = "allow"
        argv = ["git", "status", "**"]
        [[rule]]
        decision = "allow"
        argv = ["env", "**"]
    "#;
    let with_path = named.replace("\"env\"", &format!("{:?}", toolbox.path("evil/env")));
    let call = &["HERE/evil/env", "git", "status"];
    assert_eq!(toolbox.decides(named, call), Decision::Deny);
    assert_eq!(toolbox.decides(&with_path, call), Decision::Allow);
}

#[test]
fn a_rule_may_be_of_one_folder() {
    let toolbox = Toolbox::new();
    let here = format!("{STATUS}cwd = {:?}\n", toolbox.path(""));
    let there = format!("{STATUS}cwd = {:?}\n", toolbox.path("bin"));
    let gone = format!("{STATUS}cwd = {:?}\n", toolbox.path("gone"));
    assert_eq!(toolbox.decides(&here, &["git", "status"]), Decision::Allow);
    assert_eq!(toolbox.decides(&there, &["git", "status"]), Decision::Deny);
    assert_eq!(toolbox.decides(&gone, &["git", "status"]), Decision::Deny);
}

#[test]
fn a_file_that_is_not_valid_is_refused_with_the_place() {
    let new = AllowList::parse(NEW_FILE).unwrap();
    assert_eq!((new.default, new.ask), (Decision::Ask, AskPlace::Either));
    assert!(new.rules.is_empty());
    for (text, says) in [
        ("default = \"maybe\"", "line 1"),
        ("\ndefualt = \"deny\"", "defualt"),
        (
            "[[rule]]\ndecision = \"allow\"\nargv = []",
            "rule 1: argv names no program",
        ),
        (
            "[[rule]]\ndecision = \"allow\"\nargv = [\"*\"]",
            "without *",
        ),
        (
            "[[rule]]\ndecision = \"deny\"\nargv = [\"./x\"]",
            "absolute path",
        ),
        (
            "[[rule]]\ndecision = \"deny\"\nargv = [\"x\"]\ncwd = \"y\"",
            "absolute path",
        ),
        ("[[rule]]\nargv = [\"x\"]", "decision"),
    ] {
        let why = AllowList::parse(text).unwrap_err();
        assert!(why.contains(says), "{text}: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("allow.toml");
    assert!(AllowList::read(&file).is_err());
    fs::write(&file, NEW_FILE).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o620)).unwrap();
    let why = AllowList::read(&file).unwrap_err();
    assert!(why.contains("other users can write"), "{why}");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(AllowList::read(&file).is_ok());
}
