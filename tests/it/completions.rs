//! Shell completions, loaded and used by the shells themselves. A shell that is not installed is
//! skipped.

use std::fs;
use std::process::Command;

use crate::home::{Home, output_of};

/// A home folder with the completions for a shell, and that shell; `None` if it is not installed.
fn shell(name: &str, file: &str) -> Option<(Home, Command)> {
    Command::new(name).arg("--version").output().ok()?;
    let home = Home::new();
    let script = home.abide(&["completions", name]);
    assert_eq!(script.code, 0, "{}", script.err);
    fs::write(home.path().join(file), script.out).unwrap();
    let mut shell = home.program(name);
    shell.env("PATH", std::env::var("PATH").unwrap_or_default());
    Some((home, shell))
}

/// The output of a shell for a script.
fn answers(shell: &mut Command, arguments: &[&str]) -> String {
    let said = output_of(shell.args(arguments));
    assert_eq!((said.code, &*said.err), (0, ""), "{}", said.out);
    said.out
}

#[test]
fn bash_completes_commands_and_flags() {
    let Some((_home, mut bash)) = shell("bash", "abide.bash") else {
        println!("skipped: there is no bash here");
        return;
    };
    let script = r#"
        source abide.bash
        complete -p abide
        COMP_WORDS=(abide sta) COMP_CWORD=1
        _abide abide sta abide
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(abide ps --sta) COMP_CWORD=2
        _abide abide --sta ps
        echo "${COMPREPLY[@]}"
    "#;
    let out = answers(&mut bash, &["--noprofile", "--norc", "-c", script]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].contains("_abide"), "{out}");
    assert_eq!(lines[1..], ["status", "--state --state-dir"], "{out}");
}

#[test]
fn fish_completes_commands_and_flags() {
    let Some((_home, mut fish)) = shell("fish", "abide.fish") else {
        println!("skipped: there is no fish here");
        return;
    };
    let script = "source abide.fish; complete -C 'abide sta'; complete -C 'abide ps --sta'";
    let out = answers(&mut fish, &["--no-config", "-c", script]);
    for word in ["status\t", "--state\t", "--state-dir\t"] {
        assert!(out.lines().any(|line| line.starts_with(word)), "{out}");
    }
}

#[test]
fn zsh_finds_and_reads_the_completions() {
    let Some((_home, mut zsh)) = shell("zsh", "_abide") else {
        println!("skipped: there is no zsh here");
        return;
    };
    let script = "
        fpath=($PWD $fpath)
        autoload -Uz compinit && compinit -D -u
        print -r -- $_comps[abide]
        autoload +X _abide && whence -w _abide
    ";
    let out = answers(&mut zsh, &["-f", "-c", script]);
    assert_eq!(out, "_abide\n_abide: function\n");
}
