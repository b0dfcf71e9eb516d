//! Scripts of `awk` and `sed` in arguments: whether they run programs or write files.

use super::options::UNNAMED;
use super::word::Word;

/// Is it an `awk`?
pub(super) fn is_awk(base: &str) -> bool {
    matches!(base, "awk" | "gawk" | "mawk" | "nawk")
}

/// What of an `awk` script runs programs, loads code or writes files, as a pattern must name it.
pub(super) fn awk(words: &[Word]) -> Vec<String> {
    const ACTS: &[&str] = &["system", "getline", "|", "@load", "@include", "@"];
    let mut found = Vec::new();
    let mut value_of = "";
    let mut has_script = false;
    for word in words {
        let text = word.text.as_str();
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

/// What of a `sed` script is more than printing, deleting and replacing text.
pub(super) fn sed(words: &[Word]) -> Vec<String> {
    let mut found = Vec::new();
    let mut scripts: Vec<&Word> = Vec::new();
    let mut operands: Vec<&Word> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
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

/// Does the script hold nothing but addresses, `p`, `d`, `q`, `=`, `s` and `y`?
fn is_plain_sed(script: &str) -> bool {
    let mut rest = script.chars().peekable();
    loop {
        // Addresses, and what parts commands.
        while let Some(c) = rest.peek().copied() {
            match c {
                '/' => {
                    rest.next();
                    if !passes(&mut rest, '/') {
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
                if !passes(&mut rest, mark) || !passes(&mut rest, mark) {
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

/// Goes past the next `mark` that is not escaped.
fn passes(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, mark: char) -> bool {
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                rest.next();
            }
            c if c == mark => return true,
            _ => {}
        }
    }
    false
}
