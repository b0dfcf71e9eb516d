//! `awk` and `sed` scripts in arguments: whether they run programs or write files.

use std::iter::Peekable;
use std::str::Chars;

use super::options::UNNAMED;
use super::word::ShellWord;

/// True for an `awk`.
pub(super) fn is_awk(base: &str) -> bool {
    matches!(base, "awk" | "gawk" | "mawk" | "nawk")
}

/// The parts of an `awk` script that run programs, load code or write files, as a pattern must name
/// them.
pub(super) fn awk(words: &[ShellWord]) -> Vec<String> {
    const ACTS: &[&str] = &["system", "getline", "|", "@load", "@include", "@"];
    let mut found = Vec::new();
    let mut value_of = "";
    let mut has_script = false;
    for word in words {
        let text = word.text.as_str();
        if !has_script && word.splits {
            found.push(UNNAMED.to_owned());
        }
        match value_of {
            "-v" | "-F" => value_of = "",
            _ if matches!(text, "-v" | "-F") => value_of = text,
            _ if text.starts_with("-F") || text.starts_with("-v") => {}
            _ if text.starts_with('-') && text.len() > 1 => found.push(text.to_owned()),
            _ if has_script => {}
            _ => {
                has_script = true;
                if word.has_hole() {
                    found.push(UNNAMED.to_owned());
                }
                found.extend(
                    ACTS.iter()
                        .filter(|act| text.contains(*act))
                        .map(|act| (*act).to_owned()),
                );
                // `print > file`; `$1 > 5` only compares.
                if text.contains("print") && text.contains('>') {
                    found.push(">".to_owned());
                }
            }
        }
    }
    found
}

/// The requirements of `sed` scripts that do more than print, delete and replace text.
pub(super) fn sed(words: &[ShellWord]) -> Vec<String> {
    let mut found = Vec::new();
    let mut scripts: Vec<&ShellWord> = Vec::new();
    let mut operands: Vec<&ShellWord> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        // Some programs take a file with such a name as an option.
        if word.has_hole() && word.may_be_option() {
            found.push(UNNAMED.to_owned());
        }
        match text {
            "-e" | "--expression" => scripts.extend(words.next()),
            "-n" | "-E" | "-r" | "-s" | "-z" | "-u" | "-i" | "-nE" | "-En" | "-nr" | "-ne"
            | "-Ee" | "--quiet" | "--silent" | "--regexp-extended" | "--in-place" | "--posix"
            | "--debug" | "--sandbox" => {
                if text.ends_with('e') && !text.starts_with("--") {
                    scripts.extend(words.next());
                }
            }
            text if text.starts_with('-') && text.len() > 1 => found.push(text.to_owned()),
            _ => operands.push(word),
        }
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    if !scripts
        .iter()
        .all(|script| !script.has_hole() && is_plain_sed(&script.text))
    {
        found.push(UNNAMED.to_owned());
    }
    found
}

/// True if the script has only addresses and commands that cannot run programs or access files.
fn is_plain_sed(script: &str) -> bool {
    let mut rest = script.chars().peekable();
    loop {
        // Skips addresses and command separators.
        while let Some(c) = rest.peek().copied() {
            match c {
                '/' => {
                    rest.next();
                    if !passes(&mut rest, '/', true) {
                        return false;
                    }
                }
                c if c.is_ascii_digit() || " \t\n;,$!~+{}I".contains(c) => {
                    rest.next();
                }
                _ => break,
            }
        }
        match rest.next() {
            None => return true,
            Some('p' | 'd' | 'q' | '=' | 'n' | 'N' | 'D' | 'P' | 'g' | 'G' | 'h' | 'H' | 'x') => {}
            Some(c @ ('s' | 'y')) => {
                let Some(mark) = rest.next() else {
                    return false;
                };
                let is_regex = c == 's';
                if !"/|,#:@!%_;+~=".contains(mark)
                    || !passes(&mut rest, mark, is_regex)
                    || !passes(&mut rest, mark, false)
                {
                    return false;
                }
                while c == 's'
                    && let Some(flag) = rest.peek().copied()
                    && (flag.is_ascii_digit() || "gpiI".contains(flag))
                {
                    rest.next();
                }
            }
            Some(_) => return false,
        }
    }
}

/// Skips past the next unescaped `mark`. Some programs take it as text within brackets of an
/// expression; if that is possible, this fails.
fn passes(rest: &mut Peekable<Chars<'_>>, mark: char, is_regex: bool) -> bool {
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                rest.next();
            }
            '[' if is_regex && !passes_brackets(rest, mark) => return false,
            c if c == mark => return true,
            _ => {}
        }
    }
    false
}

/// Skips past the bracket that closes what `[` opened.
fn passes_brackets(rest: &mut Peekable<Chars<'_>>, mark: char) -> bool {
    if rest.peek() == Some(&'^') {
        rest.next();
    }
    let mut is_first = true;
    // The sign of `[:space:]`, `[.x.]` and `[=x=]`.
    let mut class: Option<char> = None;
    let mut last = ' ';
    while let Some(c) = rest.next() {
        match c {
            c if c == mark => return false,
            '\\' | '\n' => return false,
            ']' if class == Some(last) => class = None,
            ']' if class.is_some() => {}
            ']' if !is_first => return true,
            '[' if class.is_none() => {
                class = rest.peek().copied().filter(|sign| ":.=".contains(*sign));
            }
            _ => {}
        }
        is_first = false;
        last = c;
    }
    false
}
