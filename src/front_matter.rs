//! Files that begin with front matter: their bytes as text, the header apart from the body, and
//! the line of whatever is wrong. The rooms of agents and of skills read their files through it.

use std::fmt;

use serde_json::Value;

/// Why a file cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line at fault, counted from 1.
    pub line: Option<usize>,
    /// What is wrong, and what is expected.
    pub reason: String,
}

impl Broken {
    /// Without a line.
    pub fn whole(reason: impl Into<String>) -> Self {
        Broken {
            line: None,
            reason: reason.into(),
        }
    }

    /// At a line.
    pub fn at(line: usize, reason: impl Into<String>) -> Self {
        Broken {
            line: Some(line),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// The text without a byte order mark and with plain line ends, and without what a merge has
/// left. At most `limit` bytes; `what` is what the file is.
pub fn decode(bytes: &[u8], limit: usize, what: &str) -> Result<String, Broken> {
    if bytes.len() > limit {
        return Err(Broken::whole(format!(
            "{} bytes; {what} has {limit} at most",
            bytes.len()
        )));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Broken::whole("it is UTF-16; save it as UTF-8"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Broken::at(line, format!("not UTF-8 at byte {at}; save it as UTF-8"))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find('\0') {
        return Err(Broken::at(line_at(text, at), "it holds a NUL character"));
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let conflict = text.lines().position(|line| line.starts_with("<<<<<<< "));
    if let Some(line) = conflict {
        return Err(Broken::at(
            line + 1,
            "a merge conflict is not resolved here",
        ));
    }
    Ok(text)
}

/// The line on which a byte stands, counted from 1.
pub fn line_at(text: &str, byte: usize) -> usize {
    let end = byte.min(text.len());
    text.as_bytes()[..end]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// A file taken apart at its two lines `---`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// So many empty lines stand before the first of them.
    pub blank: usize,
    /// What stands between them.
    pub header: String,
    /// What stands below, without empty space around it.
    pub body: String,
}

impl Split {
    /// The line of the file on which the header begins.
    pub fn first_line(&self) -> usize {
        self.blank + 2
    }
}

/// Takes a decoded file apart. Only a whole line `---` ends the header.
pub fn split(text: &str) -> Result<Split, Broken> {
    let blank = text
        .lines()
        .take_while(|line| line.trim().is_empty())
        .count();
    let mut lines = text.lines().skip(blank);
    if lines.next().map(str::trim_end) != Some("---") {
        return Err(Broken::at(
            blank + 1,
            "no front matter: the file begins with a line --- , the fields, and a line ---",
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
        return Err(Broken::at(
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

/// The header with plain values at the left margin put in quotes: a colon in a description is
/// the commonest slip in such files.
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
