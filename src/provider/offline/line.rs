//! What kind of line and what kind of file something stands in: a definition is a better
//! answer than an import, source better than a test or a lock file.

/// What a line of code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// It defines something, or is a heading.
    Definition,
    /// It only names what is elsewhere, or is an attribute of what follows.
    Import,
    /// A comment that holds code, such as an example.
    Example,
    /// It is a comment.
    Comment,
    /// Anything else.
    Plain,
}

impl LineKind {
    /// How much a match in it counts.
    pub(super) fn weight(self) -> f64 {
        match self {
            LineKind::Definition => 1.6,
            LineKind::Import => 0.2,
            LineKind::Example => 0.4,
            LineKind::Comment => 0.8,
            LineKind::Plain => 1.0,
        }
    }
}

const MODIFIERS: &[&str] = &[
    "pub",
    "pub(crate)",
    "pub(super)",
    "async",
    "unsafe",
    "export",
    "default",
    "extern",
    "abstract",
    "public",
    "private",
    "protected",
    "static",
    "final",
    "override",
    "virtual",
    "inline",
    "const",
    "declare",
];

const DEFINING: &[&str] = &[
    "fn",
    "struct",
    "enum",
    "trait",
    "impl",
    "type",
    "macro_rules!",
    "class",
    "def",
    "function",
    "func",
    "interface",
    "module",
    "namespace",
    "union",
    "record",
    "object",
    "sub",
    "proc",
];

/// What `line` of the file `path` is.
pub(super) fn kind(path: &str, raw: &str) -> LineKind {
    let line = raw.trim();
    if is_prose(path) {
        return if line.starts_with('#') {
            LineKind::Definition
        } else {
            LineKind::Plain
        };
    }
    let starts = |texts: &[&str]| texts.iter().any(|text| line.starts_with(text));
    let is_indented = raw.starts_with(char::is_whitespace);
    let hash = line.starts_with('#') && !starts(&["#[", "#!", "#include", "#define"]);
    if hash || starts(&["//", "/*", "*", "--", ";;", "\"\"\""]) {
        let said = line.trim_start_matches(['/', '*', '#', '!', '-', ';', ' ']);
        let is_code = said.ends_with([';', '{', '}'])
            || imports(said)
            || said.starts_with("```")
            || line.starts_with("/// //");
        return if is_code {
            LineKind::Example
        } else {
            LineKind::Comment
        };
    }
    if imports(line) || only_names(line) || starts(&["#[", "#!", "@"]) {
        return LineKind::Import;
    }
    // `type Error = …` inside a block only fills in what is defined elsewhere.
    let is_filled_in = is_indented && line.starts_with("type ");
    if defined_name(line).is_some() && !is_filled_in {
        return LineKind::Definition;
    }
    LineKind::Plain
}

fn imports(line: &str) -> bool {
    let line = line
        .strip_prefix("pub ")
        .or_else(|| line.strip_prefix("pub(crate) "))
        .unwrap_or(line);
    let starts = [
        "use ",
        "import ",
        "from ",
        "#include",
        "mod ",
        "extern crate",
        "package ",
    ];
    // A module with a body is a definition, and `use {` only opens a list.
    starts.iter().any(|start| line.starts_with(start))
        && !(line.starts_with("mod ") && line.ends_with('{'))
}

/// A line of a longer list of names, as long imports have it.
fn only_names(line: &str) -> bool {
    line.ends_with(',')
        && line.contains(char::is_alphabetic)
        && line.split(',').all(|name| {
            name.trim()
                .chars()
                .all(|ch| ch.is_alphanumeric() || "_:{}".contains(ch))
        })
        && !line.contains(": ")
}

/// The name that a line defines, with what stands around it up to its first bracket.
pub(super) fn defined_name(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with('#') {
        return Some(line.trim_start_matches(['#', ' ']));
    }
    let mut constant = false;
    let mut rest = line;
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if MODIFIERS.contains(&word) {
            constant |= matches!(word, "const" | "static");
            rest = after.trim_start();
            continue;
        }
        if DEFINING.contains(&word) || word.starts_with("impl<") {
            return Some(until_bracket(after));
        }
        // What is left is the name of a constant or nothing that is defined.
        return (constant && rest.contains('=')).then(|| until_bracket(rest));
    }
}

fn until_bracket(text: &str) -> &str {
    let end = text
        .find(['(', '<', '{', ':', '=', ';'])
        .unwrap_or(text.len());
    &text[..end]
}

/// The head of a definition: what stands before its body.
pub(super) fn head(line: &str) -> &str {
    let line = line.trim();
    let end = line.find(['{', '=']).unwrap_or(line.len());
    let end = line.find(" where ").map_or(end, |at| at.min(end));
    line[..end].trim_end_matches([' ', ':', '(', ';'])
}

/// Levels of indentation, to tell what encloses what.
pub(super) fn indent(line: &str) -> usize {
    line.chars()
        .take_while(|ch| ch.is_whitespace())
        .map(|ch| if ch == '\t' { 4 } else { 1 })
        .sum()
}

/// Does a block of tests begin here?
pub(super) fn begins_tests(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("mod tests") || line.starts_with("mod test ")
}

fn is_prose(path: &str) -> bool {
    matches!(
        extension(path),
        "md" | "markdown" | "rst" | "txt" | "adoc" | "org"
    )
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn extension(path: &str) -> &str {
    file_name(path).rsplit_once('.').map_or("", |(_, end)| end)
}

/// Does the file hold tests, examples or measurements?
pub(super) fn is_test_file(path: &str) -> bool {
    let lower = path.to_lowercase();
    let mut parts = lower.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    let in_folder = parts.any(|part| {
        matches!(
            part,
            "test"
                | "tests"
                | "testing"
                | "__tests__"
                | "spec"
                | "specs"
                | "benches"
                | "bench"
                | "examples"
                | "example"
                | "fixtures"
                | "testdata"
                | "snapshots"
        )
    });
    in_folder
        || matches!(stem, "test" | "tests")
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || name.contains(".test.")
        || name.contains(".spec.")
}

/// How much a match in the file counts; `tests` says that the task asks about tests.
pub(super) fn file_weight(path: &str, tests: bool) -> f64 {
    let lower = path.to_lowercase();
    let name = file_name(&lower);
    if name.ends_with(".lock")
        || name.contains(".min.")
        || matches!(
            name,
            "package-lock.json" | "pnpm-lock.yaml" | "go.sum" | "cargo.toml.orig"
        )
        || name.starts_with("license")
        || name.starts_with("copying")
    {
        return 0.05;
    }
    if name.starts_with("changelog") || name.starts_with("changes") || name.starts_with("news") {
        return 0.2;
    }
    if ["generated", "vendor", "third_party", "bindgen", "dist"]
        .iter()
        .any(|part| lower.contains(part))
    {
        return 0.15;
    }
    let kind = match extension(&lower) {
        "md" | "markdown" | "rst" | "txt" | "adoc" | "org" => 0.6,
        "json" | "csv" | "svg" | "xml" | "html" | "snap" | "css" => 0.35,
        "toml" | "yaml" | "yml" | "ini" | "cfg" => 0.6,
        _ => 1.0,
    };
    if is_test_file(&lower) && !tests {
        return kind * 0.35;
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        for line in [
            "pub async fn accept(&self) {",
            "    pub(crate) struct Limit<T> {",
            "impl<T> Server<T> {",
            "pub const MAX_SIZE: usize = 3;",
            "def load(path):",
            "export default class Config {",
            "func main() {",
        ] {
            assert_eq!(kind("src/a.x", line), LineKind::Definition, "{line}");
        }
        for line in [
            "use crate::limit;",
            "mod limit;",
            "import limit",
            "#include <limit.h>",
        ] {
            assert_eq!(kind("src/a.x", line), LineKind::Import, "{line}");
        }
        let list = "    MAX_SIZE, limit::Gate, reject,";
        assert_eq!(kind("a.rs", list), LineKind::Import);
        assert_eq!(kind("a.rs", "    pub max_size: u32,"), LineKind::Plain);
        assert_eq!(kind("a.rs", "/// let limit = 3;"), LineKind::Example);
        assert_eq!(
            defined_name("pub fn set_limit(max: u8) {"),
            Some("set_limit")
        );
        assert_eq!(kind("a.rs", "/// The limit."), LineKind::Comment);
        assert_eq!(kind("a.py", "# The limit"), LineKind::Comment);
        assert_eq!(kind("README.md", "# Limits"), LineKind::Definition);
        assert_eq!(kind("a.rs", "let limit = 3;"), LineKind::Plain);
        assert_eq!(kind("a.rs", "mod limit {"), LineKind::Plain);
        assert_eq!(head("pub fn a(b: u8) -> u8 {"), "pub fn a(b: u8) -> u8");
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
