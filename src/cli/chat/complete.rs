//! Tab completion in `abide chat`: commands, their arguments, and `@files` of the session's folder.

use std::fs;
use std::path::PathBuf;

use super::command::COMMANDS;
use crate::cli::output::text::clean;
use crate::kernel::run::thinking::Thinking;

/// Maximum number of files that are offered at once.
const OFFERED: usize = 200;

/// Values for the arguments of commands, and the folder for `@files`.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) agents: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) sessions: Vec<String>,
    /// Folder that `@files` are relative to.
    pub(super) folder: Option<PathBuf>,
}

/// Byte offset of the word before the cursor, and its candidates.
pub(super) fn complete(words: &Words, before: &str) -> (usize, Vec<String>) {
    if before.starts_with('/') {
        let Some((name, rest)) = before.split_once(char::is_whitespace) else {
            let names = COMMANDS
                .iter()
                .filter(|(name, ..)| name.starts_with(before));
            let with_gap = |(name, argument, _): &(&str, &str, &str)| match argument.is_empty() {
                true => (*name).to_owned(),
                false => format!("{name} "),
            };
            return (0, names.map(with_gap).collect());
        };
        let typed = rest.trim_start();
        let levels = || Thinking::ALL.iter().map(|level| level.as_str().to_owned());
        let default = || std::iter::once("default".to_owned());
        let known: Vec<String> = match name {
            "/agent" => words.agents.clone(),
            "/model" => words.models.iter().cloned().chain(default()).collect(),
            "/thinking" => levels().chain(default()).collect(),
            "/attach" => words.sessions.clone(),
            _ => Vec::new(),
        };
        let fits = known.into_iter().filter(|word| word.starts_with(typed));
        return (before.len() - typed.len(), fits.collect());
    }
    let start = before.rfind(char::is_whitespace).map_or(0, |at| {
        at + before[at..].chars().next().map_or(0, char::len_utf8)
    });
    match before[start..].strip_prefix('@') {
        Some(path) => (start, files(words, path)),
        None => (start, Vec::new()),
    }
}

/// Entries of the folder that `path` points into. Names with blanks or terminal control characters
/// are skipped.
fn files(words: &Words, path: &str) -> Vec<String> {
    let Some(root) = &words.folder else {
        return Vec::new();
    };
    let (folder, name) = match path.rfind('/') {
        Some(at) => path.split_at(at + 1),
        None => ("", path),
    };
    let mut found: Vec<String> = fs::read_dir(root.join(folder))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let file = entry.file_name().into_string().ok()?;
            let is_plain = clean(&file) == file && !file.contains(char::is_whitespace);
            let is_hidden = file.starts_with('.') && !name.starts_with('.');
            if !is_plain || is_hidden || !file.starts_with(name) {
                return None;
            }
            let end = if entry.path().is_dir() { "/" } else { "" };
            Some(format!("@{folder}{file}{end}"))
        })
        .collect();
    found.sort();
    found.truncate(OFFERED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> (tempfile::TempDir, Words) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        for name in [
            "src/main.rs",
            "src/map.rs",
            "src/.git",
            "with blank",
            "odd\u{1b}[2J",
            "sum.md",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let words = Words {
            agents: vec!["build".into(), "review".into()],
            models: vec!["script/x".into()],
            sessions: vec!["agent:build:chat".into()],
            folder: Some(folder.path().to_owned()),
        };
        (folder, words)
    }

    #[test]
    fn words_of_commands_and_files_are_completed() {
        let (_folder, words) = words();
        for (before, start, all) in [
            ("/th", 0, vec!["/thinking "]),
            ("/qu", 0, vec!["/quit"]),
            ("/agent re", 7, vec!["review"]),
            ("/attach a", 8, vec!["agent:build:chat"]),
            ("/model s", 7, vec!["script/x"]),
            ("/thinking hi", 10, vec!["high"]),
            ("look at @s", 8, vec!["@src/", "@sum.md"]),
            ("@src/ma", 0, vec!["@src/main.rs", "@src/map.rs"]),
            ("@src/.", 0, vec!["@src/.git"]),
            ("子 @su", 4, vec!["@sum.md"]),
            ("@odd", 0, vec![]),
            ("nothing", 0, vec![]),
        ] {
            let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
            assert_eq!(complete(&words, before), (start, all), "{before:?}");
        }
    }
}
