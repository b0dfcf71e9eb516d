//! Parses a `SKILL.md` into a skill. The parser is lenient: it takes what it understands and notes
//! each departure from the Agent Skills specification with its line. Called for every file that
//! `scan` finds, and by `abide skills check`.

use std::collections::BTreeSet;

use super::requires::{SkillRequirements, requires};
use super::yaml::{self, FrontMatter, YamlField, YamlNode};
use crate::contract::catalog::Pinned;
use crate::front_matter::{LoadError, decode, quoted, split};
use crate::kernel::text::{in_quotes, preview};

/// Maximum characters of a name in the specification.
const NAME_LIMIT: usize = 64;
/// Maximum characters of a description in the specification.
pub(super) const DESCRIPTION_LIMIT: usize = 1024;
/// Maximum characters of `compatibility` in the specification.
const COMPATIBILITY_LIMIT: usize = 500;

/// The fields of the specification.
const FIELDS: &[&str] = &[
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
];
/// Fields of other clients that are supported here.
const KNOWN: &[&str] = &["disable-model-invocation", "user-invocable"];

/// A skill as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name; its folder's name if the file gives none.
    pub name: String,
    /// What it does and when to use it; never empty.
    pub description: String,
    /// The license that it names.
    pub license: Option<String>,
    /// Its stated environment requirements, as free text.
    pub compatibility: Option<String>,
    /// Patterns of the tools that it was made for.
    pub allowed_tools: Vec<String>,
    /// It is not offered to models (`disable-model-invocation`).
    pub hidden: bool,
    /// Users may ask for it by its name (`user-invocable`, true if unset).
    pub user_invocable: bool,
    /// What must be available for it to be usable.
    pub requires: SkillRequirements,
    /// The text after the front matter.
    pub body: Pinned,
    /// What was corrected or ignored, and departures from the specification.
    pub notes: Vec<Note>,
    /// Set if this is an earlier version: a clause saying why the file's present content is not
    /// used (`changed on disk, not valid yet (…)`, `it cannot be read: …`).
    pub stale: Option<String>,
}

/// A remark about a file that was accepted nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, counted from 1; `None` if it concerns the whole file.
    pub line: Option<usize>,
    /// What was found, for users.
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Parses the skill in `bytes`, from a folder named `folder`; more than `limit` bytes are refused.
pub fn parse(folder: &str, bytes: &[u8], limit: usize) -> Result<Skill, LoadError> {
    let text = decode(bytes, limit, "a skill")?;
    let split = split(&text)?;
    let mut reader = SkillReader {
        first_line: split.first_line(),
        notes: Vec::new(),
    };
    if split.blank > 0 {
        reader.note(
            Some(1),
            format!("{} empty lines before the front matter", split.blank),
        );
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        reader.note(Some(1), "a byte order mark".to_owned());
    }
    let fields = reader.tree(&split.header)?;
    reader.skill(folder, &fields, split.body)
}

struct SkillReader {
    first_line: usize,
    notes: Vec<Note>,
}

impl SkillReader {
    fn note(&mut self, line: Option<usize>, text: String) {
        self.notes.push(Note { line, text });
    }

    /// The front matter's fields: parsed as YAML if possible, otherwise line by line.
    fn tree(&mut self, header: &str) -> Result<Vec<YamlField>, LoadError> {
        let refused = match yaml::read(header) {
            Ok(tree) => return Ok(self.taken(tree)),
            Err(broken) => LoadError {
                line: broken.line.map(|line| line + self.first_line - 1),
                ..broken
            },
        };
        if let Ok(tree) = yaml::read(&quoted(header)) {
            let note = format!(
                "{}; the whole line was taken as text, put it in quotes",
                refused.reason
            );
            self.note(refused.line, note);
            return Ok(self.taken(tree));
        }
        let fields = by_lines(header);
        if !fields.iter().any(|field| field.name == "description") {
            return Err(refused);
        }
        let note = format!(
            "{}; only name and description were taken, line by line",
            refused.reason
        );
        self.note(refused.line, note);
        Ok(fields)
    }

    fn taken(&mut self, tree: FrontMatter) -> Vec<YamlField> {
        let first = self.first_line - 1;
        for (line, note) in tree.notes {
            self.note(Some(line + first), note);
        }
        let mut fields = tree.fields;
        for field in &mut fields {
            field.line += first;
        }
        fields
    }

    fn skill(
        mut self,
        folder: &str,
        fields: &[YamlField],
        body: String,
    ) -> Result<Skill, LoadError> {
        for field in fields {
            if !FIELDS.contains(&field.name.as_str()) {
                let name = preview(&field.name, NAME_LIMIT);
                let note = match KNOWN.contains(&field.name.as_str()) {
                    true => {
                        format!("{name} is not a field of the specification; it is supported here")
                    }
                    false => {
                        format!("{name} is not a field of the specification and has no effect")
                    }
                };
                self.note(Some(field.line), note);
            }
        }
        let find = |name: &str| fields.iter().find(|field| field.name == name);
        let description = self.text(find("description"))?.unwrap_or_default();
        if description.is_empty() {
            let line = find("description").map(|field| field.line);
            return Err(LoadError {
                line,
                reason: "description is missing: what the skill does and when to use it".to_owned(),
            });
        }
        self.bounded(
            "description",
            find("description"),
            &description,
            DESCRIPTION_LIMIT,
        );
        let name = self.name(folder, find("name"))?;
        let compatibility = self.text(find("compatibility"))?;
        if let Some(text) = &compatibility {
            self.bounded(
                "compatibility",
                find("compatibility"),
                text,
                COMPATIBILITY_LIMIT,
            );
        }
        let hidden = find("disable-model-invocation").is_some_and(|field| is_true(&field.value));
        let metadata = find("metadata");
        let requires = metadata
            .map(|field| self.metadata(field))
            .unwrap_or_default();
        Ok(Skill {
            name,
            description,
            license: self.text(find("license"))?,
            compatibility,
            allowed_tools: self.tools(find("allowed-tools")),
            hidden,
            user_invocable: find("user-invocable").is_none_or(|field| is_true(&field.value)),
            requires,
            body: Pinned::of(body.into()),
            notes: self.notes,
            stale: None,
        })
    }

    fn name(&mut self, folder: &str, field: Option<&YamlField>) -> Result<String, LoadError> {
        let line = field.map(|field| field.line);
        let found = self.text(field)?.unwrap_or_default();
        if found.is_empty() {
            self.note(
                line,
                format!("name is missing; the folder's name {folder:?} is used"),
            );
            return self.named(folder.to_owned(), line);
        }
        if found != folder {
            let (found, folder) = (in_quotes(&found, NAME_LIMIT), in_quotes(folder, NAME_LIMIT));
            self.note(
                line,
                format!("name {found} differs from the folder's name, {folder}"),
            );
        }
        self.named(found, line)
    }

    fn named(&mut self, name: String, line: Option<usize>) -> Result<String, LoadError> {
        if name.chars().any(char::is_control) {
            let reason = "name has a line break or another control character".to_owned();
            return Err(LoadError { line, reason });
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = name.chars().all(is_plain)
            && !name.starts_with('-')
            && !name.ends_with('-')
            && !name.contains("--");
        if !fits {
            let shown = in_quotes(&name, NAME_LIMIT);
            self.note(
                line,
                format!("name {shown}: lower-case letters, digits and single hyphens are expected"),
            );
        }
        let count = name.chars().count();
        if count > NAME_LIMIT {
            self.note(
                line,
                format!("name has {count} characters, {NAME_LIMIT} at most"),
            );
        }
        Ok(name)
    }

    /// The trimmed text of a field. Line breaks inside a block are kept.
    fn text(&mut self, field: Option<&YamlField>) -> Result<Option<String>, LoadError> {
        let Some(field) = field else {
            return Ok(None);
        };
        match &field.value {
            YamlNode::Null => Ok(None),
            YamlNode::Text(text) => Ok(Some(text.trim().to_owned())),
            // Unquoted brackets split whole sentences at their commas.
            YamlNode::List(_) | YamlNode::Map(_) => Err(LoadError::at(
                field.line,
                format!("{}: text is expected; put it in quotes", field.name),
            )),
        }
    }

    fn bounded(&mut self, name: &str, field: Option<&YamlField>, text: &str, limit: usize) {
        let count = text.chars().count();
        if count > limit {
            let note = format!("{name} has {count} characters, {limit} at most");
            self.note(field.map(|field| field.line), note);
        }
    }

    /// Tool patterns separated by spaces or commas outside parentheses, or a list.
    fn tools(&mut self, field: Option<&YamlField>) -> Vec<String> {
        let Some(field) = field else {
            return Vec::new();
        };
        match &field.value {
            YamlNode::Null => Vec::new(),
            YamlNode::Text(text) => {
                if text.contains(',') {
                    let note = "allowed-tools: spaces are expected between tools".to_owned();
                    self.note(Some(field.line), note);
                }
                parted(text)
            }
            YamlNode::List(items) => {
                let note = "allowed-tools: one text with spaces is expected, not a list".to_owned();
                self.note(Some(field.line), note);
                items
                    .iter()
                    .filter_map(YamlNode::text)
                    .map(str::to_owned)
                    .collect()
            }
            YamlNode::Map(_) => {
                let note = "allowed-tools: text is expected; it is ignored".to_owned();
                self.note(Some(field.line), note);
                Vec::new()
            }
        }
    }

    fn metadata(&mut self, field: &YamlField) -> SkillRequirements {
        let line = Some(field.line);
        let parsed;
        let map = match &field.value {
            YamlNode::Null => return SkillRequirements::default(),
            YamlNode::Map(fields) => {
                if fields.iter().any(|one| one.value.text().is_none()) {
                    let note = "metadata: its values must be text".to_owned();
                    self.note(line, note);
                }
                &field.value
            }
            // JSON is valid YAML.
            YamlNode::Text(text) => match yaml::read(text) {
                Ok(tree) => {
                    self.note(line, "metadata is text; it was read as JSON".to_owned());
                    parsed = YamlNode::Map(tree.fields);
                    &parsed
                }
                Err(_) => {
                    self.note(
                        line,
                        "metadata: a map is expected; it is ignored".to_owned(),
                    );
                    return SkillRequirements::default();
                }
            },
            YamlNode::List(_) => {
                self.note(
                    line,
                    "metadata: a map is expected; it is ignored".to_owned(),
                );
                return SkillRequirements::default();
            }
        };
        let (found, odd) = requires(map);
        for what in odd {
            self.note(line, format!("metadata: {what}"));
        }
        found
    }
}

/// Reads `name` and `description` at the left margin, each up to the next line that begins a field:
/// text over several lines may contain colons and quotes.
fn by_lines(header: &str) -> Vec<YamlField> {
    let mut seen = BTreeSet::new();
    let mut fields: Vec<(&str, usize, Vec<&str>)> = Vec::new();
    for (index, line) in header.lines().enumerate() {
        let begins = line.split_once(':').map(|(name, _)| name);
        let begins = begins.filter(|name| FIELDS.contains(name) || KNOWN.contains(name));
        match begins {
            Some(name) if seen.insert(name) => {
                let first = line[name.len() + 1..].trim();
                fields.push((name, index + 1, vec![first]));
            }
            _ => {
                if let Some((_, _, lines)) = fields.last_mut() {
                    lines.push(line);
                }
            }
        }
    }
    let taken = fields
        .into_iter()
        .filter(|(name, ..)| matches!(*name, "name" | "description"));
    let taken = taken.filter_map(|(name, line, lines)| {
        let text = lines.join("\n");
        let text = text.trim();
        let bare = unquoted(text).unwrap_or(text);
        (!bare.is_empty()).then(|| YamlField {
            name: name.to_owned(),
            line,
            value: YamlNode::Text(bare.to_owned()),
        })
    });
    taken.collect()
}

fn unquoted(value: &str) -> Option<&str> {
    ['"', '\'']
        .iter()
        .find_map(|mark| value.strip_prefix(*mark)?.strip_suffix(*mark))
}

fn parted(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let mut parts = vec![String::new()];
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if depth > 0 || !(c == ',' || c.is_whitespace()) => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

pub(super) fn is_true(value: &YamlNode) -> bool {
    value
        .text()
        .is_some_and(|text| matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "on"))
}
