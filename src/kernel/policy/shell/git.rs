//! The options and subcommands of git that run other programs, read other settings or write files
//! elsewhere, as described in its manual: a pattern must name them to allow them.

use super::options::{UNNAMED, running};
use super::word::ShellWord;

/// Options before the subcommand that do none of this.
#[rustfmt::skip]
const SAFE: &[&str] = &[
    "-C", "-P", "-p", "--paginate", "--no-pager", "--no-replace-objects", "--literal-pathspecs",
    "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--no-optional-locks",
    "--no-lazy-fetch", "--no-advice", "--version", "--help", "--html-path", "--man-path",
    "--info-path", "-v", "-h",
];

/// Subcommands that do none of this, whatever their options, except for those in [`ALL`] and
/// [`SOME`].
#[rustfmt::skip]
const SUBCOMMANDS: &[&str] = &[
    "add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file",
    "check-attr", "check-ignore", "check-mailmap", "checkout", "cherry", "cherry-pick", "clean",
    "clone", "commit", "commit-tree", "config", "count-objects", "describe", "diff", "diff-files",
    "diff-index", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep",
    "hash-object", "init", "interpret-trailers", "log", "ls-files", "ls-remote", "ls-tree", "merge",
    "merge-base", "merge-tree", "mktree", "mv", "name-rev", "notes", "pack-refs", "patch-id",
    "prune", "pull", "push", "range-diff", "read-tree", "rebase", "reflog", "remote", "repack",
    "rerere", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show",
    "show-branch", "show-ref", "sparse-checkout", "stash", "status", "stripspace", "submodule",
    "switch", "symbolic-ref", "tag", "update-index", "update-ref", "var", "verify-commit",
    "verify-tag", "version", "whatchanged", "worktree", "write-tree", "help",
];

/// Options of any subcommand that do.
#[rustfmt::skip]
const ALL: &[&str] = &[
    "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--textconv", "--output",
    "--open-files-in-pager", "--extcmd", "--template", "--config", "--strategy",
    "--output-directory",
];

/// Options and words of single subcommands that do: the letters of short options, and the words.
#[rustfmt::skip]
const SOME: &[(&str, &str, &[&str])] = &[
    ("archive", "o", &[]),
    ("bisect", "", &["run"]),
    ("bundle", "", &["create"]),
    ("clone", "cu", &[]),
    ("format-patch", "o", &[]),
    ("grep", "O", &[]),
    ("merge", "s", &[]),
    ("pull", "s", &[]),
    ("rebase", "xs", &[]),
    ("submodule", "", &["foreach"]),
    ("remote", "", &[]),
];

/// Subcommands that take addresses of repositories.
const REACHING: &[&str] = &[
    "archive",
    "clone",
    "fetch",
    "ls-remote",
    "pull",
    "push",
    "remote",
    "submodule",
];

/// What a pattern must name to allow these words.
pub(super) fn needs(words: &[ShellWord]) -> Vec<String> {
    if let Some(sub) = words[0].base().strip_prefix("git-") {
        return of_subcommand(sub, &words[1..]);
    }
    let mut found = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else {
            found.push(UNNAMED.to_owned());
            return found;
        };
        if !text.starts_with('-') {
            found.extend(of_subcommand(text, &words[at + 1..]));
            return found;
        }
        let head = text.split('=').next().unwrap_or(text);
        if !SAFE.contains(&head) && !text.starts_with("-C") {
            // An unknown option may take the next word as its value.
            found.push(head.to_owned());
            let valued = [
                "-c",
                "--git-dir",
                "--work-tree",
                "--namespace",
                "--config-env",
            ];
            at += usize::from(valued.contains(&text));
        }
        at += if text == "-C" { 2 } else { 1 };
    }
    found
}

fn of_subcommand(sub: &str, rest: &[ShellWord]) -> Vec<String> {
    if !SUBCOMMANDS.contains(&sub) {
        return vec![sub.to_owned()];
    }
    let (letters, marked) = SOME
        .iter()
        .find(|(name, ..)| *name == sub)
        .map_or(("", &[][..]), |(_, letters, marked)| (*letters, *marked));
    if sub == "config" {
        return match reads_config(rest) {
            true => Vec::new(),
            false => vec![sub.to_owned()],
        };
    }
    let mut found = running(rest, ALL, letters);
    // A file name pattern cannot add options that matter to a subcommand that runs nothing else.
    let can_run = !letters.is_empty()
        || ["fetch", "pull", "push", "ls-remote", "log", "diff", "show"].contains(&sub);
    if !can_run {
        found.retain(|need| need != UNNAMED);
    }
    for word in rest {
        if marked.contains(&word.text.as_str()) {
            found.push(word.text.clone());
        }
        // Addresses that are commands, or that name a helper program for their protocol.
        if word.text.contains("::") && REACHING.contains(&sub) {
            found.push("::".to_owned());
        }
    }
    found
}

/// True if `git config` only reads with these words. Its first word, apart from options for scope
/// and format, must request that: after a name the same word is a value.
fn reads_config(words: &[ShellWord]) -> bool {
    const PLAIN: &[&str] = &[
        "--global",
        "--local",
        "--system",
        "--worktree",
        "--includes",
        "--no-includes",
        "-z",
        "--null",
        "--show-origin",
        "--show-scope",
        "--name-only",
        "--bool",
        "--int",
        "--path",
        "--all",
    ];
    let reads = [
        "--get",
        "--get-all",
        "--get-regexp",
        "--list",
        "-l",
        "get",
        "list",
    ];
    let is_plain = |word: &ShellWord| PLAIN.contains(&word.text.as_str());
    let mut rest = words.iter().skip_while(|word| is_plain(word));
    let is_reading = rest
        .next()
        .is_some_and(|word| reads.contains(&word.text.as_str()));
    is_reading && rest.all(|word| !word.may_be_option() || is_plain(word))
}
