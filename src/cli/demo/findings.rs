//! Parses the search agent's answer into findings and checks each against the files. Used by the
//! demo, which trusts no answer unchecked.

use std::fs;
use std::path::Path;

use crate::cli::output::text::clean;

/// A place that an answer names, with the lines quoted from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The file, relative to the explored folder.
    pub(super) path: String,
    /// Number of the matching line.
    pub(super) line: usize,
    /// Quoted lines with their numbers.
    pub(super) quoted: Vec<(usize, String)>,
}

impl Finding {
    /// `file:line` and the text of that line.
    pub(super) fn text(&self) -> String {
        let own = self.quoted.iter().find(|(line, _)| *line == self.line);
        let text = own.map_or("", |(_, text)| text.trim());
        format!("{}:{}  {text}", self.path, self.line)
    }

    /// Compares the quoted lines with the file.
    pub(super) fn check(&self, folder: &Path) -> Result<(), String> {
        let file = folder.join(&self.path);
        let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", self.path))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        if self.quoted.is_empty() {
            return Err(format!(
                "{}:{} is named but not quoted",
                self.path, self.line
            ));
        }
        for (number, quoted) in &self.quoted {
            let there = number.checked_sub(1).and_then(|index| lines.get(index));
            let Some(there) = there else {
                return Err(format!("{} has no line {number}", self.path));
            };
            // A long line is quoted up to an ellipsis.
            let start = clean(quoted.trim_end().trim_end_matches('…'));
            if !clean(there).starts_with(start.trim_end()) {
                return Err(format!("{}:{number} is not {quoted:?}", self.path));
            }
        }
        Ok(())
    }
}

/// Parses the findings of an answer, best first.
pub(super) fn read(answer: &str) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for line in answer.lines() {
        if let Some((path, line)) = place(line) {
            found.push(Finding {
                path,
                line,
                quoted: Vec::new(),
            });
        } else if let (Some(finding), Some(quoted)) = (found.last_mut(), quote(line)) {
            finding.quoted.push(quoted);
        }
    }
    found
}

/// Parses `3. src/main.rs:12 (why)` or `- src/main.rs:1 (why)`.
fn place(line: &str) -> Option<(String, usize)> {
    let (mark, rest) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').unwrap_or_default();
    if mark != "-" && number.parse::<u32>().is_err() {
        return None;
    }
    let why = rest.find(" (")?;
    let (path, number) = rest[..why].rsplit_once(':')?;
    Some((path.to_owned(), number.parse().ok()?))
}

/// Parses `     12 | text`.
fn quote(line: &str) -> Option<(usize, String)> {
    let (number, text) = line.strip_prefix(' ')?.trim_start().split_once(" | ")?;
    Some((number.parse().ok()?, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
This is a search.
Searched 3 text files for main. The best matches, the best first:

1. src/main.rs:2 (has main; a definition)
       2 | fn main() {
       3 |     run(1 | 2)

2. a b.txt:1 (has main)
       1 | main thi…
";

    #[test]
    fn an_answer_is_read_back() {
        let found = read(ANSWER);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].text(), "src/main.rs:2  fn main() {");
        assert_eq!(found[0].quoted[1], (3, "    run(1 | 2)".to_owned()));
        assert_eq!(found[1].path, "a b.txt");
    }

    #[test]
    fn a_quote_that_does_not_stand_there_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("a b.txt"), "main thing\n").unwrap();
        let file = folder.path().join("src/main.rs");
        let found = read(ANSWER);
        assert!(found[0].check(folder.path()).is_err(), "no such file");
        fs::write(&file, "//\nfn main() {\n    run(1 | 2)\n}\n").unwrap();
        for finding in &found {
            assert_eq!(finding.check(folder.path()), Ok(()));
        }
        fs::write(&file, "//\nfn main() {\n    run(2)\n}\n").unwrap();
        assert!(found[0].check(folder.path()).is_err(), "another line");
        fs::write(&file, "//\n").unwrap();
        assert!(found[0].check(folder.path()).is_err(), "too short");
    }
}
