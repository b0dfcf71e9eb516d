//! Layout of the help: the commands in groups, and one page for each command, the same for `-h` and
//! `--help`. Used to parse the command line, to generate completions, and for the manual.

use std::fmt::Write;

use clap::builder::{Resettable, StyledStr};
use clap::{Command, CommandFactory};
use unicode_width::UnicodeWidthStr;

use super::args::CliArgs;
use crate::cli::output::text::{COLUMNS, wrap};

/// All commands that are shown to users, grouped by purpose.
pub(super) const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Give work",
        &[
            "run",
            "spawn",
            "chat",
            "send",
            "answer",
            "approvals",
            "review",
            "env",
            "steer",
            "cancel",
            "retry",
        ],
    ),
    (
        "See progress and results",
        &[
            "ps", "top", "wait", "attach", "logs", "history", "inbox", "sessions", "events",
            "usage",
        ],
    ),
    (
        "Run the daemon",
        &[
            "serve", "service", "status", "stop", "doctor", "backup", "restore", "config", "audit",
        ],
    ),
    (
        "Set up and connect",
        &[
            "setup",
            "agents",
            "skills",
            "mcp",
            "mcp-serve",
            "memory",
            "node",
            "nodes",
            "trust",
            "tls",
            "tokens",
            "webhooks",
            "acp",
            "rpc",
            "completions",
            "demo",
        ],
    ),
];

/// The clap command with its final help pages.
pub(crate) fn command_with_help() -> Command {
    let command = CliArgs::command();
    let page = overview(&command);
    command
        .mut_subcommands(page_of)
        .help_template(StyledStr::from(page))
}

/// The overview page with all commands.
fn overview(command: &Command) -> String {
    let head = command.get_styles().get_header();
    let word = command.get_styles().get_literal();
    let mut page =
        String::from("{about-with-newline}\n{usage-heading} abide <COMMAND> [OPTIONS]\n\n");
    for (group, names) in GROUPS {
        push(&mut page, &format!("{head}{group}:{head:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            push(
                &mut page,
                &row(&format!("{word}{name}{word:#}"), name, 14, &about),
            );
        }
        page.push('\n');
    }
    push(&mut page, &format!("{head}Options:{head:#}\n"));
    for (flags, about) in [
        ("--json", "Print JSON, one object per line"),
        (
            "-h, --help",
            "Print help; for one command: abide run --help",
        ),
        ("-V, --version", "Print version"),
    ] {
        push(
            &mut page,
            &row(&format!("{word}{flags}{word:#}"), flags, 22, about),
        );
    }
    push(&mut page, &format!("\n{head}Which daemon:{head:#}\n"));
    let place = command
        .get_arguments()
        .filter(|argument| argument.get_help_heading().is_some());
    for argument in place {
        let long = argument.get_long().unwrap_or_default();
        let value = argument.get_value_names().and_then(<[_]>::first);
        let value = value.map(ToString::to_string).unwrap_or_default();
        let help = argument.get_help().map(ToString::to_string);
        let plain = format!("--{long} <{value}>");
        let name = format!("{word}--{long}{word:#} <{value}>");
        let about = help.unwrap_or_default();
        push(&mut page, &row(&name, &plain, 22, &about));
    }
    // The after-help brings its own empty line.
    page.truncate(page.trim_end().len());
    page.push_str("{after-help}");
    page
}

/// Help page of one command: purpose, usage, arguments, examples.
fn page_of(command: Command) -> Command {
    let head = *command.get_styles().get_header();
    let about = command.get_about().map(ToString::to_string);
    let long = command.get_long_about().map(ToString::to_string);
    let mut page = String::from("{about-with-newline}\n");
    if let (Some(about), Some(long)) = (about, long) {
        for paragraph in long[about.len().min(long.len())..].split("\n\n") {
            if !paragraph.trim().is_empty() {
                push(&mut page, &wrap(paragraph, COLUMNS).join("\n"));
                page.push_str("\n\n");
            }
        }
    }
    page.push_str("{usage-heading} {usage}\n\n{all-args}");
    if let Some(examples) = command.get_after_help() {
        push(&mut page, &format!("\n\n{head}Examples:{head:#}"));
        for example in examples.to_string().lines() {
            push(&mut page, &format!("\n  {example}"));
        }
    }
    command
        .mut_subcommands(page_of)
        .after_help(Resettable::Reset)
        // Without long texts, `-h` and `--help` show the same page.
        .long_about(Resettable::Reset)
        .help_template(StyledStr::from(page))
}

/// A row of name and description; `plain` is the name without colours.
fn row(name: &str, plain: &str, width: usize, about: &str) -> String {
    let indent = width + 2;
    let text = wrap(about, COLUMNS - indent).join(&format!("\n{:indent$}", ""));
    let gap = width.saturating_sub(plain.width());
    format!("  {name}{:gap$}{text}\n", "")
}

/// Appends text; writing to a string cannot fail.
fn push(page: &mut String, text: &str) {
    let _ = page.write_str(text);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), once.len());
        let command = CliArgs::command();
        let shown = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        let there: BTreeSet<&str> = shown.map(Command::get_name).collect();
        assert_eq!(once, there);
    }

    /// Collects the command words that lead to each page.
    fn pages(command: &Command, words: &[String], pages: &mut Vec<Vec<String>>) {
        let mut words = words.to_vec();
        words.push(command.get_name().to_owned());
        for below in command.get_subcommands() {
            self::pages(below, &words, pages);
        }
        pages.push(words);
    }

    #[test]
    fn a_page_is_the_same_for_both_flags_and_keeps_to_the_screen() {
        let mut all = Vec::new();
        pages(&command_with_help(), &[], &mut all);
        assert!(all.len() > 40, "{}", all.len());
        for words in all {
            let page = |flag: &str| {
                let asked = words.iter().map(String::as_str).chain([flag]);
                let page = command_with_help().try_get_matches_from(asked).unwrap_err();
                page.render().to_string()
            };
            let short = page("-h");
            assert_eq!(short, page("--help"), "{words:?}");
            for line in short.lines() {
                assert!(line.width() <= COLUMNS, "{words:?}: {line:?}");
            }
            let headings = short.lines().filter(|line| *line == "Options:").count();
            assert_eq!(headings, 1, "{words:?}: {short}");
        }
    }

    #[test]
    fn every_example_can_be_typed() {
        fn examples(command: &Command, found: &mut Vec<String>) {
            let text = command.get_after_help().map(ToString::to_string);
            found.extend(text.iter().flat_map(|text| text.lines()).map(str::to_owned));
            for below in command.get_subcommands() {
                examples(below, found);
            }
        }
        let mut found = Vec::new();
        for below in CliArgs::command().get_subcommands() {
            examples(below, &mut found);
        }
        assert!(found.len() > 20, "{}", found.len());
        for example in found {
            let typed = example.split(" | ").last().unwrap_or_default();
            let typed = typed.split(" > ").next().unwrap_or_default();
            for command in typed.split(" && ") {
                let words = words(command);
                let parsed = CliArgs::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }

    /// Splits a line into words as a shell does.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for ch in line.chars() {
            match (quote, ch) {
                (None, '"' | '\'') => quote = Some(ch),
                (Some(open), _) if open == ch => quote = None,
                (None, ' ') => words.push(String::new()),
                _ => {
                    if let Some(word) = words.last_mut() {
                        word.push(ch);
                    }
                }
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }
}
