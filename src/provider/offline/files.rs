//! Weighs matches by the kind of file and line: source counts more than tests and lock files, a
//! definition more than an import.

use std::sync::LazyLock;

use regex::Regex;

use super::words::Term;

/// Weights of file kinds, by patterns of the lower-case path. The first match applies.
static KINDS: LazyLock<[(Regex, f64); 5]> = LazyLock::new(|| {
    [
        (
            r"\.lock$|\.min\.|(^|/)(license|copying|package-lock|pnpm-lock|go\.sum)",
            0.05,
        ),
        (r"generated|vendor|third_party|bindgen|(^|/)dist/", 0.15),
        (r"(^|/)(changelog|changes|news)", 0.2),
        (r"\.(json|csv|svg|xml|html|snap|css)$", 0.35),
        (r"\.(md|markdown|rst|txt|adoc|org|toml|ya?ml|ini|cfg)$", 0.6),
    ]
    .map(|(pattern, weight)| (fixed(pattern), weight))
});

/// Files with tests, examples or benchmarks.
static TESTS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"(^|/)(tests?|testing|__tests__|specs?|bench(es)?|examples?|fixtures|testdata|snapshots)/
        |(^|/)tests?\.|(^|/)test_|_tests?\.|\.test\.|\.spec\.",
    )
});

static PROSE: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?i)\.(md|markdown|rst|txt|adoc|org)$"));

/// The beginning of a definition, up to the name that it defines.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^\s*((pub(\([a-z]+\))?|async|unsafe|export|default|extern|abstract|public|private
        |protected|static|final|override|virtual|inline|declare|const)\s+)*
        (fn|struct|enum|trait|impl(<[^>]*>)?|type|macro_rules!|class|def|func(tion)?|interface
        |module|namespace|union|record|object|sub|proc|(const|static)(\s+mut)?)\s+",
    )
});

/// Lines that import names of other files, and the lists of names in long imports.
static IMPORT: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^\s*((pub\s+)?(use|import|from|mod|extern\ crate|package)\s|\#include|\#\[|\#!|@)
        |^[\w{},\ ]*(::[\w{},\ ]*)*,$",
    )
});

static COMMENT: LazyLock<Regex> = LazyLock::new(|| fixed(r#"^\s*(//|/\*|\*|\#|--|;;|""")"#));

/// Compiles a fixed pattern of the search agent in extended mode, in which whitespace is ignored.
pub(super) fn fixed(pattern: &str) -> Regex {
    let pattern = format!("(?x){pattern}");
    Regex::new(&pattern).expect("the patterns are constants, and each is used by a test")
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The weight of a match in this file; `tests`: the task is about tests.
pub(super) fn file_weight(path: &str, tests: bool) -> f64 {
    let path = path.to_lowercase();
    let kind = KINDS.iter().find(|(kind, _)| kind.is_match(&path));
    let weight = kind.map_or(1.0, |(_, weight)| *weight);
    if TESTS.is_match(&path) && !tests {
        return weight * 0.2;
    }
    weight
}

/// The weight of a match in this line by its kind, and whether the line defines a term.
pub(super) fn line_weight(path: &str, line: &str, terms: &[Term]) -> (f64, bool) {
    let name = defined_name(path, line);
    if name.is_some_and(|name| terms.iter().any(|term| term.is_in(name))) {
        return (1.4, true);
    }
    let weight = if PROSE.is_match(path) {
        1.0
    } else if IMPORT.is_match(line) {
        0.2
    } else if COMMENT.is_match(line) {
        0.8
    } else {
        1.0
    };
    (weight, false)
}

/// The name that a line defines, with everything up to its first bracket; in prose, the heading.
pub(super) fn defined_name<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    if PROSE.is_match(path) {
        return line.starts_with('#').then_some(line);
    }
    let name = &line[DEFINITION.find(line)?.end()..];
    name.split(['(', '<', '{', ':', '=', ';']).next()
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
            assert_eq!(weight("src/a.x", line), (1.4, true), "{line}");
        }
        assert_eq!(weight("README.md", "# Limits"), (1.4, true));
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
        assert!(weight("src/machine_tests.rs") < weight("src/latest.rs"));
        assert!(file_weight("tests/server.rs", true) > weight("tests/server.rs"));
    }
}
