//! The manual: one page for each command, from the same declarations as its help. `abide man` writes
//! them.

mod facts;
mod roff;

use clap::{Arg, Command, CommandFactory};

use self::facts::{ENVIRONMENT, FILES};
use self::roff::Roff;
use crate::cli::args::CliArgs;
use crate::cli::common::failure::exit;
use crate::cli::help::GROUPS;

/// A page of the manual.
pub(crate) struct ManualPage {
    /// The command's words joined by hyphens, such as `abide-config-set`.
    pub(crate) name: String,
    /// Its source, in man(7).
    pub(crate) source: String,
}

/// The pages of all commands; `date` (`2026-11-30`) is the date of each.
pub(crate) fn manual(date: &str) -> Vec<ManualPage> {
    let mut command = CliArgs::command();
    // Completes the usage of commands below others.
    command.build();
    let mut found = Vec::new();
    pages(&command, &[], date, &mut found);
    found
}

/// Adds the page of a command and those of its subcommands. `above` has the commands that lead to it,
/// the program first.
fn pages(command: &Command, above: &[&Command], date: &str, found: &mut Vec<ManualPage>) {
    let mut words: Vec<&Command> = above.to_vec();
    words.push(command);
    found.push(ManualPage {
        name: page_name(&words),
        source: page(&words, date),
    });
    for below in subcommands(command) {
        pages(below, &words, date, found);
    }
}

fn page_name(words: &[&Command]) -> String {
    let words: Vec<&str> = words.iter().map(|command| command.get_name()).collect();
    words.join("-")
}

/// The commands that are shown to users, without clap's own `help`.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

/// The page of the last of `words`.
fn page(words: &[&Command], date: &str) -> String {
    let [.., command] = words else {
        return String::new();
    };
    let is_program = words.len() == 1;
    let name = page_name(words);
    let mut page = Roff::new(&name, date, crate::version::version());
    let about = text_of(command.get_about());
    page.section("NAME");
    page.prose(&format!("{name} - {}", about.trim_end_matches('.')));
    page.section("SYNOPSIS");
    let usage = (*command).clone().render_usage().to_string();
    page.synopsis(usage.trim_start_matches("Usage:").trim());
    page.section("DESCRIPTION");
    let long = text_of(command.get_long_about());
    let details = long.strip_prefix(&about).unwrap_or(&long).trim();
    page.prose(if details.is_empty() { &about } else { details });
    if is_program {
        grouped(&mut page, command);
    } else if subcommands(command).next().is_some() {
        page.section("COMMANDS");
        for below in subcommands(command) {
            let name = format!("{name}-{}", below.get_name());
            page.reference_item(&name, &text_of(below.get_about()));
        }
    }
    arguments(&mut page, command, is_program);
    let after = text_of(command.get_after_help());
    if is_program {
        page.section("RUNS AND SESSIONS");
        // What follows is the list of exit codes, which has a section of its own.
        page.prose(after.split("\n\n").next().unwrap_or_default());
        program_sections(&mut page);
    } else {
        if !after.is_empty() {
            page.section("EXAMPLES");
            page.typed(&after);
        }
        page.section("EXIT STATUS");
        page.prose(
            "0 if it succeeded. The other codes are the same for all commands: see abide(1).",
        );
    }
    page.section("SEE ALSO");
    page.references(&see_also(words));
    page.finish()
}

/// The commands of the program by purpose, as in its help.
fn grouped(page: &mut Roff, command: &Command) {
    page.section("COMMANDS");
    for (group, names) in GROUPS {
        page.part(group);
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            page.reference_item(&format!("abide-{name}"), &text_of(about));
        }
    }
}

/// Arguments and options. Those of every command are on the program's page only.
fn arguments(page: &mut Roff, command: &Command, is_program: bool) {
    let shown = |arg: &&Arg| {
        let for_all = arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version");
        !arg.is_hide_set() && (is_program || !for_all)
    };
    let positional: Vec<&Arg> = command.get_positionals().filter(shown).collect();
    if !positional.is_empty() {
        page.section("ARGUMENTS");
        for arg in positional {
            page.option(&arg.to_string(), &described(arg));
        }
    }
    page.section("OPTIONS");
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    let mut options: Vec<&Arg> = options.filter(shown).collect();
    // Options without a heading first; clap keeps the order within a heading.
    options.sort_by_key(|arg| arg.get_help_heading().is_some());
    let mut heading = None;
    for arg in options {
        if arg.get_help_heading() != heading {
            heading = arg.get_help_heading();
            page.part(heading.unwrap_or_default());
        }
        page.option(&flags(arg), &described(arg));
    }
    if !is_program {
        if heading.is_some() {
            page.part("Every command");
        }
        page.item(
            "--json, --url, --socket, --state-dir, --token-file, --pin, --help",
            "The same for every command; see abide(1).",
        );
    }
}

/// `-q, --quiet`, or `--url <URL>`.
fn flags(arg: &Arg) -> String {
    let name = arg.to_string();
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(_)) => format!("-{short}, {name}"),
        _ => name,
    }
}

/// The help of an argument, with its default and its values.
fn described(arg: &Arg) -> String {
    let mut text = text_of(arg.get_help());
    let has_values = arg.get_action().takes_values();
    let defaults = arg.get_default_values();
    if has_values && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let defaults: Vec<_> = defaults
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        text.push_str(&format!(" [default: {}]", defaults.join(" ")));
    }
    let values = arg.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set());
    let names: Vec<&str> = shown.map(|value| value.get_name()).collect();
    if has_values && !names.is_empty() && !arg.is_hide_possible_values_set() {
        text.push_str(&format!(" [possible values: {}]", names.join(", ")));
    }
    text
}

/// What concerns all commands: exit codes, variables, files.
fn program_sections(page: &mut Roff) {
    page.section("EXIT STATUS");
    for (code, meaning) in exit::MEANINGS {
        page.item(&code.to_string(), meaning);
    }
    page.part("abide serve");
    for (code, meaning) in exit::MEANINGS_OF_SERVE {
        page.item(&code.to_string(), meaning);
    }
    page.section("ENVIRONMENT");
    for (name, meaning) in ENVIRONMENT {
        page.item(name, meaning);
    }
    page.section("FILES");
    for (name, meaning) in FILES {
        page.item(name, meaning);
    }
}

/// The page above, the commands beside it, and for the program, the first ones to read.
fn see_also(words: &[&Command]) -> Vec<String> {
    let [above @ .., command] = words else {
        return Vec::new();
    };
    let Some(parent) = above.last() else {
        return ["serve", "run", "setup", "doctor"]
            .map(|name| format!("abide-{name}"))
            .to_vec();
    };
    let mut names = vec![page_name(above)];
    let beside: Vec<&str> = match above.len() {
        1 => GROUPS
            .iter()
            .map(|(_, names)| *names)
            .find(|names| names.contains(&command.get_name()))
            .unwrap_or_default()
            .to_vec(),
        _ => subcommands(parent).map(Command::get_name).collect(),
    };
    let others = beside.iter().filter(|name| **name != command.get_name());
    names.extend(others.map(|name| format!("{}-{name}", page_name(above))));
    names
}

/// A text of clap's without colours; empty if there is none.
fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}
