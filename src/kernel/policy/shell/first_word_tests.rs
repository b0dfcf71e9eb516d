//! First words that look like a wrapper or an assignment: a rule for another program allows them only
//! where the wrapper is the system's own, and where a shell reads the assignment.

use super::CommandLine;
use super::tests::{judge, judge_line};
use crate::kernel::policy::gate::Decision::{self, Allow, Ask, Deny};

const LS: &[(&str, Decision)] = &[("ls*", Allow)];
const NOT_LS: &[(&str, Decision)] = &[("*", Allow), ("ls*", Deny)];

fn argv(rules: &[(&str, Decision)], words: &[&str]) -> Decision {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    judge_line(rules, CommandLine::of_argv(&words))
}

/// Lines of a shell, and what a rule says of them that allows `ls` alone.
const LINES: &[(&str, Decision)] = &[
    ("ls", Allow),
    ("A=/x ls", Allow),
    ("A=/bin/env ls", Allow),
    ("A=/env B=./sudo ls -l", Allow),
    ("env ls", Allow),
    ("/usr/bin/env ls", Allow),
    ("/bin/sh -c ls", Allow),
    ("/usr/bin/env A=/x nice ls", Allow),
    ("A=/x", Ask),
    ("PATH=/x ls", Ask),
    ("'A=/x' ls", Ask),
    ("'A'=/env ls", Ask),
    ("\\A=/env ls", Ask),
    ("./env ls", Ask),
    ("env/env ls", Ask),
    ("/tmp/evil/env ls", Ask),
    ("/usr/bin/../../tmp/env ls", Ask),
    ("/usr/bin/x/env ls", Ask),
    ("A=/x ./env ls", Ask),
    ("env ./env ls", Ask),
    ("./nice -n 5 ls", Ask),
    ("./command ls", Ask),
    ("./exec ls", Ask),
    ("./eval ls", Ask),
    ("./eval 'ls'", Ask),
    ("./trap ls EXIT", Ask),
    ("./timeout 5 ls", Ask),
    ("./xargs ls", Ask),
    ("./sh -c ls", Ask),
    ("/tmp/evil/bash -c 'ls'", Ask),
    ("./sh <<< ls", Ask),
    ("./find . -exec ls {} +", Ask),
    ("sudo ls", Ask),
    ("/tmp/evil/sudo ls", Ask),
    ("./doas ls", Ask),
    ("./chroot / ls", Ask),
    ("./busybox ls", Ask),
    ("sh -c './env ls'", Ask),
    ("echo $(./env ls)", Ask),
];

#[test]
fn a_rule_for_a_program_allows_it_only_behind_the_wrappers_of_the_system() {
    for (line, decision) in LINES {
        assert_eq!(judge(LS, line), *decision, "{line}");
    }
}

#[test]
fn an_argument_list_runs_the_file_that_its_first_word_names() {
    for (words, decision) in [
        (&["ls"][..], Allow),
        (&["ls", "A=/x"], Allow),
        (&["env", "A=/x", "ls"], Allow),
        (&["/usr/bin/env", "ls"], Allow),
        (&["sh", "-c", "A=/x ls"], Allow),
        (&["A=/x", "ls"], Ask),
        (&["A=/x"], Ask),
        (&["A=/ls"], Ask),
        (&["A=ls", "ls"], Ask),
        (&["A=/env", "ls"], Ask),
        (&["A=/bin/env", "ls"], Ask),
        (&["A=/x/sudo", "ls"], Ask),
        (&["A=/sh", "-c", "ls"], Ask),
        (&["./env", "ls"], Ask),
        (&["/tmp/evil/env", "ls"], Ask),
        (&["/tmp/evil/sudo", "ls"], Ask),
        (&["/tmp/evil/sh", "-c", "ls"], Ask),
        (&["env", "/tmp/evil/env", "ls"], Ask),
        (&["env ls"], Ask),
        (&["A=/x ls"], Ask),
    ] {
        assert_eq!(argv(LS, words), decision, "{words:?}");
    }
}

/// A rule that names the other program covers it together with what it would run as a wrapper.
#[test]
fn a_wrapper_of_another_folder_is_allowed_by_a_rule_that_names_it() {
    let both: &[(&str, Decision)] = &[("ls*", Allow), ("./env *", Allow)];
    assert_eq!(judge(both, "./env ls"), Allow);
    assert_eq!(judge(both, "./env make"), Ask);
    assert_eq!(
        argv(&[("/opt/sudo ls", Allow)], &["/opt/sudo", "ls"]),
        Allow
    );
}

#[test]
fn a_denied_program_is_found_behind_every_first_word() {
    for (line, _) in LINES.iter().filter(|(line, _)| line.contains("ls")) {
        assert_ne!(judge(NOT_LS, line), Allow, "{line}");
    }
    for words in [
        &["A=/x", "ls"][..],
        &["A=/env", "ls"],
        &["./env", "ls"],
        &["/tmp/evil/sudo", "ls"],
        &["/tmp/evil/sh", "-c", "ls"],
    ] {
        assert_ne!(argv(NOT_LS, words), Allow, "{words:?}");
    }
    assert_eq!(judge(NOT_LS, "/tmp/evil/env ls"), Deny);
}
