//! Parses files with front matter: decodes the bytes, separates header and body, and reports the
//! line of an error. Used for agent and skill files.

use std::fmt;

use serde_json::Value;

/// Why a file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Line of the error, counted from 1; `None` if the whole file is affected.
    pub line: Option<usize>,
    /// What is wrong and what is expected.
    pub reason: String,
}

impl LoadError {
    /// An error that concerns the whole file.
    pub fn whole(reason: impl Into<String>) -> Self {
        LoadError {
            line: None,
            reason: reason.into(),
        }
    }

    /// An error at `line`.
    pub fn at(line: usize, reason: impl Into<String>) -> Self {
        LoadError {
            line: Some(line),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Decodes UTF-8 text: removes a byte order mark, normalizes line ends to `
/// `, and refuses merge conflict markers. `limit` is the maximum number of bytes; `what` names the
/// file in the error.
pub fn decode(bytes: &[u8], limit: usize, what: &str) -> Result<String, LoadError> {
    if bytes.len() > limit {
        return Err(LoadError::whole(format!(
            "{} bytes; the limit for {what} is {limit}",
            bytes.len()
        )));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(LoadError::whole("it is UTF-16; save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        LoadError::at(line, format!("not UTF-8 at byte {at}; save it as UTF-8"))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find('\0') {
        return Err(LoadError::at(
            line_at(text, at),
            "it contains a NUL character",
        ));
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let conflict = text.lines().position(|line| line.starts_with("<<<<<<< "));
    if let Some(line) = conflict {
        return Err(LoadError::at(
            line + 1,
            "an unresolved merge conflict begins here",
        ));
    }
    Ok(text)
}

/// The line that contains the byte offset `byte`, counted from 1.
pub fn line_at(text: &str, byte: usize) -> usize {
    let end = byte.min(text.len());
    text.as_bytes()[..end]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// A file split at its two `---` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Number of empty lines before the first `---`.
    pub blank: usize,
    /// Text between the two lines.
    pub header: String,
    /// Text after the second line, trimmed.
    pub body: String,
}

impl Split {
    /// Line number of the first header line in the file, counted from 1.
    pub fn first_line(&self) -> usize {
        self.blank + 2
    }
}

/// Splits a decoded file. Only a line that consists of `---` ends the header.
pub fn split(text: &str) -> Result<Split, LoadError> {
    let blank = text
        .lines()
        .take_while(|line| line.trim().is_empty())
        .count();
    let mut lines = text.lines().skip(blank);
    if lines.next().map(str::trim_end) != Some("---") {
        return Err(LoadError::at(
            blank + 1,
            "no front matter: the file must begin with a line ---, the fields, and a second line ---",
        ));
    }
    let mut header = String::new();
    let mut closed = false;
    for line in lines.by_ref() {
        if line.trim_end() == "---" {
            closed = true;
            break;
        }
        header.push_str(line);
        header.push('\n');
    }
    if !closed {
        return Err(LoadError::at(
            blank + 1,
            "the front matter has no closing line ---",
        ));
    }
    let body: Vec<&str> = lines.collect();
    Ok(Split {
        blank,
        header,
        body: body.join("\n").trim().to_owned(),
    })
}

/// The header with unquoted top-level values quoted if they contain a colon, the most common
/// mistake in such files.
pub fn quoted(header: &str) -> String {
    let mut out = String::with_capacity(header.len() + 64);
    for line in header.lines() {
        match line.split_once(": ") {
            Some((key, value)) if is_bare(key) && is_plain(value.trim()) => {
                let value = Value::String(value.trim().to_owned());
                out.push_str(&format!("{key}: {value}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

fn is_bare(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn is_plain(value: &str) -> bool {
    value.contains(": ") && !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#'])
}
