//! What kind of file and what kind of line a match is in: source counts more than tests and
//! lock files, a definition more than an import.

use super::words::Term;

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn extension(path: &str) -> &str {
    file_name(path).rsplit_once('.').map_or("", |(_, end)| end)
}

/// How much a match in the file counts; `tests` says that the task asks about tests.
pub(super) fn file_weight(path: &str, tests: bool) -> f64 {
    let path = path.to_lowercase();
    let name = file_name(&path);
    let starts = |texts: &[&str]| texts.iter().any(|text| name.starts_with(text));
    if name.ends_with(".lock")
        || name.contains(".min.")
        || starts(&[
            "license",
            "copying",
            "package-lock.",
            "pnpm-lock.",
            "go.sum",
        ])
    {
        return 0.05;
    }
    if ["generated", "vendor", "third_party", "bindgen", "dist"]
        .iter()
        .any(|part| path.contains(part))
    {
        return 0.15;
    }
    if starts(&["changelog", "changes", "news"]) {
        return 0.2;
    }
    let kind = match extension(&path) {
        "md" | "markdown" | "rst" | "txt" | "adoc" | "org" => 0.6,
        "toml" | "yaml" | "yml" | "ini" | "cfg" => 0.6,
        "json" | "csv" | "svg" | "xml" | "html" | "snap" | "css" => 0.35,
        _ => 1.0,
    };
    if is_test_file(&path) && !tests {
        return kind * 0.2;
    }
    kind
}

/// Does the file hold tests, examples or measurements?
fn is_test_file(path: &str) -> bool {
    const FOLDERS: &str = "test tests testing __tests__ spec specs bench benches example examples \
                           fixtures testdata snapshots";
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut folders = folders.split('/');
    let stem = name.split('.').next().unwrap_or_default();
    folders.any(|folder| FOLDERS.split(' ').any(|one| one == folder))
        || matches!(stem, "test" | "tests")
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || name.contains(".test.")
        || name.contains(".spec.")
}

/// Does a block of tests begin at this line?
pub(super) fn begins_tests(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("mod tests") || line.starts_with("mod test ")
}

/// How much a match in the line counts by its kind, and whether the line defines a term.
pub(super) fn line_weight(path: &str, line: &str, terms: &[Term]) -> (f64, bool) {
    let line = line.trim();
    let starts = |texts: &[&str]| texts.iter().any(|text| line.starts_with(text));
    if let Some(name) = defined_name(path, line)
        && terms.iter().any(|term| term.is_in(name))
    {
        return (1.6, true);
    }
    let import = line.strip_prefix("pub ").unwrap_or(line);
    let imports = [
        "use ",
        "import ",
        "from ",
        "mod ",
        "extern crate",
        "package ",
    ];
    let weight = if is_prose(path) {
        1.0
    } else if starts(&["#include", "#[", "#!", "@"])
        || imports.iter().any(|start| import.starts_with(start))
        || is_list_of_names(line)
    {
        0.2
    } else if starts(&["//", "/*", "*", "#", "--", ";;", "\"\"\""]) {
        0.8
    } else {
        1.0
    };
    (weight, false)
}

/// A line of a longer list of names, as long imports have it.
fn is_list_of_names(line: &str) -> bool {
    line.ends_with(',')
        && line.contains(char::is_alphabetic)
        && line
            .chars()
            .all(|ch| ch.is_alphanumeric() || "_:{}, ".contains(ch))
        && !line.contains(": ")
}

fn is_prose(path: &str) -> bool {
    matches!(
        extension(path),
        "md" | "markdown" | "rst" | "txt" | "adoc" | "org"
    )
}

/// The name that a line defines, with everything up to its first bracket; the text of a
/// heading in prose.
pub(super) fn defined_name<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    const MODIFIERS: &str = "pub pub(crate) pub(super) async unsafe export default extern \
                             abstract public private protected static final override virtual \
                             inline const declare";
    const DEFINING: &str = "fn struct enum trait impl type macro_rules! class def function func \
                            interface module namespace union record object sub proc";
    if is_prose(path) {
        return line.starts_with('#').then_some(line);
    }
    let mut is_constant = false;
    let mut rest = line.trim();
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if MODIFIERS.split(' ').any(|modifier| modifier == word) {
            is_constant |= matches!(word, "const" | "static");
            rest = after.trim_start();
            continue;
        }
        let name = if word.starts_with("impl<") || DEFINING.split(' ').any(|one| one == word) {
            after
        } else if is_constant && rest.contains('=') {
            rest
        } else {
            return None;
        };
        let end = name.find(['(', '<', '{', ':', '=', ';']);
        return Some(&name[..end.unwrap_or(name.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::terms;
    use super::*;

    #[test]
    fn a_definition_of_the_term_counts_most_and_an_import_least() {
        let terms = terms("limit");
        let weight = |path, line| line_weight(path, line, &terms);
        for line in [
            "pub async fn limit(&self) {",
            "    pub(crate) struct Limit<T> {",
            "impl<T> Limit<T> {",
            "pub const MAX_LIMIT: usize = 3;",
            "def limit(path):",
            "export default class Limit {",
            "func limit() {",
        ] {
            assert_eq!(weight("src/a.x", line), (1.6, true), "{line}");
        }
        assert_eq!(weight("README.md", "# Limits"), (1.6, true));
        for line in [
            "use crate::limit;",
            "mod limit;",
            "import limit",
            "#include <limit.h>",
        ] {
            assert_eq!(weight("src/a.x", line), (0.2, false), "{line}");
        }
        assert_eq!(
            weight("a.rs", "    MAX, limit::Gate, reject,"),
            (0.2, false)
        );
        for line in ["/// The limit.", "# The limit"] {
            assert_eq!(weight("a.py", line), (0.8, false), "{line}");
        }
        for line in [
            "    pub max_limit: u32,",
            "let limit = 3;",
            "fn other(limit: u8) {",
        ] {
            assert_eq!(weight("a.rs", line), (1.0, false), "{line}");
        }
    }

    #[test]
    fn source_counts_more_than_tests_and_locks() {
        let weight = |path| file_weight(path, false);
        assert!(weight("src/server.rs") > weight("README.md"));
        assert!(weight("README.md") > weight("tests/server.rs"));
        assert!(weight("tests/server.rs") > weight("Cargo.lock"));
        assert!(is_test_file("src/machine_tests.rs") && !is_test_file("src/latest.rs"));
        assert!(file_weight("tests/server.rs", true) > weight("tests/server.rs"));
    }
}
