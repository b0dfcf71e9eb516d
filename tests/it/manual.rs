//! The manual pages: one for each command, without a finding of mandoc, and with the exit codes,
//! variables and options that the program really has.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::home::{Home, output_of};
use crate::house::{root, rust_files};

const DATE: &str = "2026-11-30";

/// A home folder with the pages in `man`.
fn written() -> Home {
    let home = Home::new();
    let said = home.abide(&["man", "--out", "man", "--date", DATE]);
    assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""));
    home
}

fn page(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path().join(format!("man/{name}.1"))).unwrap()
}

/// The page without roff's escapes, for comparisons with plain text.
fn plain(page: &str) -> String {
    let page = page.replace(r"\-", "-").replace(r"\(ti", "~");
    page.replace(r"\(aq", "'")
        .replace(r"\fB", "")
        .replace(r"\fR", "")
}

#[test]
fn every_command_has_a_page_and_no_page_is_of_another() {
    let home = written();
    let mut expected = BTreeSet::new();
    let mut open = vec![vec![]];
    while let Some(words) = open.pop() {
        expected.insert(format!(
            "{}.1",
            [vec!["abide".to_owned()], words.clone()].concat().join("-")
        ));
        let arguments: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = home.abide(&arguments).out;
        for name in listed(&help, words.is_empty()) {
            open.push([words.clone(), vec![name]].concat());
        }
    }
    let entries = fs::read_dir(home.path().join("man")).unwrap();
    let there: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(there.len() > 40, "{there:?}");
    assert_eq!(there, expected);
}

/// The commands that a help page lists: those of the program are in groups before its options.
fn listed(help: &str, is_program: bool) -> Vec<String> {
    let part = match is_program {
        true => help.split("Options:").next().unwrap_or_default(),
        false => match help.split_once("Commands:\n") {
            Some((_, rest)) => rest.split("\n\n").next().unwrap_or_default(),
            None => "",
        },
    };
    let rows = part.lines().filter_map(|line| line.strip_prefix("  "));
    rows.filter(|row| !row.starts_with(' '))
        .filter_map(|row| row.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn mandoc_finds_no_fault_in_the_pages() {
    let Ok(known) = Command::new("mandoc")
        .arg("-Tlint")
        .arg("/dev/null")
        .output()
    else {
        println!("skipped: there is no mandoc here");
        return;
    };
    assert!(
        !known.status.success(),
        "mandoc finds a fault in an empty page"
    );
    let home = written();
    let entries = fs::read_dir(home.path().join("man")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let mut command = home.program("mandoc");
    command.env("PATH", std::env::var("PATH").unwrap());
    let said = output_of(command.args(["-Tlint", "-Wwarning"]).args(&files));
    // It checks whether pages of SEE ALSO are installed, which is no matter of the source.
    let found: Vec<&str> = said.out.lines().collect();
    assert_eq!((said.code, found), (0, Vec::new()), "{}", said.err);
}

#[test]
fn the_page_of_a_command_has_its_help() {
    let home = written();
    let page = plain(&page(&home, "abide-backup"));
    for part in [
        ".TH \"ABIDE-BACKUP\" 1 \"2026-11-30\"",
        "abide-backup - Copy the store into a file while the daemon keeps running",
        "The copy is a consistent snapshot.",
        "abide backup ~/abide.db",
        ".BR abide-restore (1)",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Hidden options are for the program itself.
    assert!(!self::page(&home, "abide-serve").contains("hidden"));
    assert!(!home.abide(&["--help"]).out.contains("\n  man "));
}

#[test]
fn the_exit_codes_are_those_of_the_reference() {
    let home = written();
    let page = plain(&page(&home, "abide"));
    let path = root().join("docs/reference/command-line.md");
    let reference = fs::read_to_string(path).unwrap();
    let (_, codes) = reference.split_once("## Exit codes").unwrap();
    let (_, status) = page.split_once(".SH EXIT STATUS\n").unwrap();
    let (status, _) = status.split_once(".SH").unwrap();
    let (all, serve) = status.split_once(".SS abide serve\n").unwrap();
    let items = |part: &str| -> Vec<(String, String)> {
        let items = part.split(".TP\n").skip(1);
        let items = items.map(|item| item.split_once('\n').unwrap());
        items
            .map(|(code, text)| (code.to_owned(), text.replace('\n', " ").trim().to_owned()))
            .collect()
    };
    let rows: Vec<(String, String)> = codes
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .map(|(code, text)| (code.to_owned(), text.to_owned()))
        .collect();
    assert!(rows.len() >= 12, "{rows:?}");
    assert_eq!(items(all), rows);
    let prose = codes.replace('\n', " ");
    let of_serve = items(serve);
    assert!(of_serve.len() >= 6, "{serve}");
    for (code, text) in of_serve {
        assert!(prose.contains(&format!("{code} {text}")), "{code} {text}");
    }
}

/// A variable that the source reads is on the page, unless it is set by the program for its
/// children, or for tests.
#[test]
fn every_variable_that_the_program_reads_is_on_its_page() {
    let own = [
        "ABIDE_TEST_",
        "ABIDE_NOTIFY_",
        "ABIDE_FAILPOINT",
        "ABIDE_RUN_ID",
        "ABIDE_STEP_ID",
    ];
    let marks = ["ABIDE_SERVICE_ID", "ABIDE_CALL_ID", "ABIDE_NODE_DIR"];
    let page = page(&written(), "abide");
    let mut seen = 0;
    for file in rust_files(&root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for literal in code.split("\"ABIDE_").skip(1) {
            let Some((name, _)) = literal.split_once('"') else {
                continue;
            };
            let name = format!("ABIDE_{name}");
            let is_name = |ch: char| ch.is_ascii_uppercase() || ch == '_';
            let is_own = own
                .iter()
                .chain(&marks)
                .any(|start| name.starts_with(start));
            if !name.chars().all(is_name) || name == "ABIDE_" || is_own {
                continue;
            }
            seen += 1;
            assert!(page.contains(&name), "{}: {name}", file.display());
        }
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn a_date_has_one_form_and_a_folder_that_cannot_be_made_is_reported() {
    let home = Home::new();
    for date in ["today", "2026-1-1", "2026-11-3x"] {
        let said = home.abide(&["man", "--out", "man", "--date", date]);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("2026-11-30"), "{}", said.err);
    }
    fs::write(home.path().join("file"), "").unwrap();
    let said = home.abide(&["man", "--out", "file/man"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("file/man"), "{}", said.err);
    // Without a date it is today's, which has the same form.
    let said = home.abide(&["man", "--out", "man"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(page(&home, "abide").starts_with(".TH \"ABIDE\" 1 \"2"));
}
