//! House rules that no compiler knows.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the package.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`, sorted.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What `cargo fmt` and clippy look at, apart from files that are data.
fn own_files() -> Vec<PathBuf> {
    let sample = root().join("src/cli/demo/sample");
    let mut files = rust_files(&root().join("src"));
    files.extend(rust_files(&root().join("tests")));
    files.retain(|file| !file.starts_with(&sample));
    files
}

#[test]
fn every_test_file_is_declared() {
    let folder = root().join("tests/it");
    let main = fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_module =
            path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").exists();
        if name == "main" || !is_module {
            continue;
        }
        let declaration = format!("mod {name};");
        assert!(
            main.lines().any(|line| line.trim() == declaration),
            "tests/it/{name} never runs: main.rs lacks `{declaration}`"
        );
    }
}

#[test]
fn every_file_opens_by_saying_what_lives_in_it() {
    for file in own_files() {
        let text = fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap_or("");
        assert!(
            first.starts_with("//! ") && first.len() > 12,
            "{} does not open with a `//!` sentence",
            file.display()
        );
    }
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let home = ["/home/", "/root/", "/Users/"];
    let here = root().to_str().unwrap();
    for file in own_files() {
        // This file has to name what it looks for.
        if file.ends_with("tests/it/house.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let bad = line.contains(here) || home.iter().any(|start| line.contains(start));
            assert!(!bad, "{}:{}: {line}", file.display(), number + 1);
        }
    }
}

/// `docs/guarantees.md` names a test for each guarantee: a test that was renamed, moved or dropped
/// must not stay a promise there.
#[test]
fn each_guarantee_has_the_tests_that_it_names() {
    let document = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let rows = rows_with_tests("docs/guarantees.md", &document);
    assert!(rows >= 68, "{rows}");
}

#[test]
fn each_threat_has_the_tests_that_it_names() {
    let document = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (_, threats) = document.split_once("## Threats").unwrap();
    let (threats, _) = threats.split_once("\n## ").unwrap();
    let rows = rows_with_tests("docs/security.md", threats);
    assert!(rows >= 12, "{rows}");
}

/// Checks that the tests in the last column of each table exist; returns the number of rows.
fn rows_with_tests(name: &str, document: &str) -> usize {
    let sources: Vec<(PathBuf, String)> = own_files()
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            (file, text)
        })
        .collect();
    let mut rows = 0;
    for row in document.lines().filter(|line| line.starts_with("| ")) {
        if row.starts_with("| Guarantee |") || row.starts_with("| Threat |") {
            continue;
        }
        rows += 1;
        let (_, named) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let tests: Vec<(&str, &str)> = named
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|code| code.rsplit_once("::").unwrap())
            .collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for (module, test) in tests {
            let opens = format!("fn {test}(");
            assert!(
                sources
                    .iter()
                    .any(|(file, text)| is_module(file, module) && text.contains(&opens)),
                "{name} names {module}::{test}, and there is no such test"
            );
        }
    }
    rows
}

/// True if the last part of `module` names this file, its unit tests, or its folder.
fn is_module(file: &Path, module: &str) -> bool {
    let last = module.rsplit("::").next().unwrap();
    let stem = file.file_stem().unwrap().to_str().unwrap();
    let folder = file.parent().unwrap().file_name().unwrap();
    stem == last || stem == format!("{last}_tests") || folder == last
}

/// A role is named (caller, client, operator, agent), a limit is a number, a run is paused. The few
/// lines that remain are values in tests.
#[test]
fn texts_name_roles_and_use_the_terms_of_the_field() {
    let avoided_words = ["nobody", "somebody", "whoever"];
    let avoided_phrases = ["so many", "holds still"];
    let mut files = rust_files(&root().join("src"));
    files.extend(documents());
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (at, line) in text.lines().enumerate() {
            let text = line.to_lowercase();
            let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            if words.any(|word| avoided_words.contains(&word))
                || avoided_phrases.iter().any(|phrase| text.contains(phrase))
            {
                lines.push(format!("{}:{}: {}", file.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(lines.len() < 30, "{}:\n{}", lines.len(), lines.join("\n"));
}

/// Every document that users and contributors read.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| root().join(name))
        .into();
    for folder in ["docs", "docs/reference"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found
}
