//! Parses a definition file into fields and body, with the line of each error. Supports Markdown
//! with YAML front matter, TOML and JSON; knows nothing about agents.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::dialects::{Narrowing, names_a_restriction};
pub use crate::front_matter::LoadError;
use crate::front_matter::{decode, line_at, quoted, split};

/// The maximum size of a definition, in bytes.
pub(super) const FILE_LIMIT: usize = 256 * 1024;

/// The file format of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionFormat {
    /// Front matter, followed by the system prompt.
    Markdown,
    /// Fields only, in TOML.
    Toml,
    /// Fields only, in JSON.
    Json,
}

impl DefinitionFormat {
    /// The format by file extension; `None` for a file that is no definition.
    pub fn of(file: &Path) -> Option<DefinitionFormat> {
        let ending = file.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "md" => Some(DefinitionFormat::Markdown),
            "toml" => Some(DefinitionFormat::Toml),
            "json" => Some(DefinitionFormat::Json),
            _ => None,
        }
    }

    /// The format by its name in rows and on the wire.
    pub fn parse(name: &str) -> Option<DefinitionFormat> {
        match name {
            "markdown" => Some(DefinitionFormat::Markdown),
            "toml" => Some(DefinitionFormat::Toml),
            "json" => Some(DefinitionFormat::Json),
            _ => None,
        }
    }
}

/// The unconverted fields of a definition.
#[derive(Debug)]
pub(super) struct RawDefinition {
    /// Names and values, in file order; names are unique.
    pub fields: Vec<(String, Value)>,
    /// The text after the front matter.
    pub body: Option<String>,
    /// What was corrected while parsing.
    pub warnings: Vec<String>,
    /// The restrictions from fields of other programs.
    pub narrowing: Narrowing,
    /// The model is a preference: if it is not offered, the default model is used.
    pub soft_model: bool,
    header: String,
    first_line: usize,
}

impl RawDefinition {
    /// The line of the field at `path` (such as `["execution", "timeout"]`), as far as it can be
    /// found.
    pub(super) fn line_of(&self, path: &[&str]) -> Option<usize> {
        let mut found = None;
        let mut lines = self.header.lines().enumerate();
        for name in path {
            match lines.find(|(_, line)| is_line_of(line, name)) {
                Some((line, _)) => found = Some(line + self.first_line),
                None => return found,
            }
        }
        found
    }
}

/// True if `line` begins with the key `name` in any of the three formats.
fn is_line_of(line: &str, name: &str) -> bool {
    let start = line.trim_start_matches([' ', '\t', '[', '{', ',', '"', '\'']);
    start
        .strip_prefix(name)
        .and_then(|rest| rest.trim_start_matches([' ', '"', '\'']).chars().next())
        .is_some_and(|next| matches!(next, ':' | '=' | ']' | '.'))
}

/// Decides whether a name begins a field, in a header that is not valid YAML.
pub(super) type FieldPredicate = fn(&str, &Value) -> bool;

/// Parses a definition. With `begins`, a header that is not valid YAML is read field by field.
pub(super) fn read(
    format: DefinitionFormat,
    bytes: &[u8],
    begins: Option<FieldPredicate>,
) -> Result<RawDefinition, LoadError> {
    let text = decode(bytes, FILE_LIMIT, "a definition")?;
    match format {
        DefinitionFormat::Markdown => markdown(&text, begins),
        DefinitionFormat::Toml => {
            let table: toml::Table = text.parse().map_err(|error: toml::de::Error| LoadError {
                line: error.span().map(|span| line_at(&text, span.start)),
                reason: format!("not TOML: {}", error.message()),
            })?;
            let value = serde_json::to_value(table)
                .map_err(|error| LoadError::whole(format!("cannot be read: {error}")))?;
            let fields = match value {
                Value::Object(fields) => fields.into_iter().collect(),
                _ => Vec::new(),
            };
            Ok(plain(fields, text))
        }
        DefinitionFormat::Json => {
            let fields: Fields = serde_json::from_str(&text).map_err(|error| LoadError {
                line: Some(error.line()).filter(|line| *line > 0),
                reason: format!(
                    "not JSON as expected: {}",
                    without_place(&error.to_string())
                ),
            })?;
            Ok(plain(fields.0, text))
        }
    }
}

fn plain(fields: Vec<(String, Value)>, header: String) -> RawDefinition {
    RawDefinition {
        fields,
        body: None,
        warnings: Vec::new(),
        narrowing: Narrowing::default(),
        soft_model: false,
        header,
        first_line: 1,
    }
}

/// The message without "at line 1 column 12", which is reported separately.
fn without_place(message: &str) -> &str {
    message
        .rfind(" at line ")
        .map_or(message, |end| &message[..end])
}

fn markdown(text: &str, begins: Option<FieldPredicate>) -> Result<RawDefinition, LoadError> {
    let split = split(text)?;
    let (blank, first_line) = (split.blank, split.first_line());
    let mut raw = RawDefinition {
        fields: Vec::new(),
        body: Some(split.body).filter(|body| !body.is_empty()),
        warnings: Vec::new(),
        narrowing: Narrowing::default(),
        soft_model: false,
        first_line,
        header: split.header,
    };
    if blank > 0 {
        raw.warnings.push(format!(
            "line 1: {blank} empty lines before the front matter"
        ));
    }
    raw.fields = match yaml(&raw.header) {
        Ok(fields) => fields,
        Err(error) => match yaml(&quoted(&raw.header)) {
            Ok(fields) => {
                let line = error.line.unwrap_or(1) + raw.first_line - 1;
                raw.warnings.push(format!(
                    "line {line}: {}; the whole line was read as text; put it in quotes",
                    error.reason
                ));
                fields
            }
            Err(_) => {
                let line = error.line.map(|line| line + raw.first_line - 1);
                let Some(begins) = begins else {
                    return Err(LoadError {
                        line,
                        reason: error.reason,
                    });
                };
                let place = line.map_or_else(String::new, |line| format!("line {line}: "));
                raw.warnings.push(format!(
                    "{place}{}; the fields were read one by one instead",
                    error.reason
                ));
                by_fields(&raw.header, raw.first_line, begins)?
            }
        },
    };
    Ok(raw)
}

/// Splits a header that is not valid YAML: each field extends to the next line that begins a field.
/// A multi-line text may contain colons and quotes.
fn by_fields(
    header: &str,
    first_line: usize,
    begins: FieldPredicate,
) -> Result<Vec<(String, Value)>, LoadError> {
    let mut sections: Vec<(usize, String, Vec<&str>)> = Vec::new();
    for (at, line) in header.lines().enumerate() {
        let pair = line.split_once(':');
        let pair = pair.filter(|(name, rest)| begins(name, &plain_value(rest)));
        let Some((name, _)) = pair else {
            match sections.last_mut() {
                Some((_, _, lines)) => lines.push(line),
                None if line.trim().is_empty() => {}
                None => return Err(LoadError::at(at + first_line, "a field is expected here")),
            }
            continue;
        };
        let known = sections.iter().any(|(_, known, _)| known == name);
        match sections.last_mut() {
            // An example in a description may look like a field.
            Some((_, _, lines)) if known && !names_a_restriction(name) => lines.push(line),
            _ if known => {
                return Err(LoadError::at(
                    at + first_line,
                    format!("field {name:?} occurs twice"),
                ));
            }
            _ => sections.push((at, name.to_owned(), vec![line])),
        }
    }
    let fields = sections.into_iter().map(|(_, name, lines)| {
        let whole = lines.join("\n");
        let alone = yaml(&whole).ok().filter(|fields| fields.len() == 1);
        let value = match alone.and_then(|mut fields| fields.pop()) {
            Some((_, value)) => value,
            None => Value::String(bare(&whole[name.len() + 1..])),
        };
        (name, value)
    });
    Ok(fields.collect())
}

/// The value after a field's name on its line; a text if it is not valid YAML.
fn plain_value(rest: &str) -> Value {
    let alone = yaml(&format!("field: {rest}")).ok();
    let value = alone.and_then(|mut fields| fields.pop());
    value.map_or_else(|| Value::String(bare(rest)), |(_, value)| value)
}

/// A text without surrounding blanks, block marks and quotes.
fn bare(text: &str) -> String {
    let text = text.trim();
    let text = text
        .strip_prefix(['|', '>'])
        .map_or(text, |rest| rest.trim_start_matches(['-', '+']));
    let text = text.trim();
    let quoted = ['"', '\'']
        .iter()
        .find_map(|mark| text.strip_prefix(*mark)?.strip_suffix(*mark));
    quoted.unwrap_or(text).to_owned()
}

/// The limit of YAML events in a header.
const YAML_EVENTS: usize = 5_000;

fn yaml(header: &str) -> Result<Vec<(String, Value)>, LoadError> {
    if header.trim().is_empty() {
        return Ok(Vec::new());
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: YAML_EVENTS,
            max_aliases: 16,
            max_anchors: 16,
        },
        with_snippet: false,
    };
    let fields: Option<Map<String, Value>> = serde_saphyr::from_str_with_options(header, options)
        .map_err(|error| {
        let line = error
            .location()
            .and_then(|at| usize::try_from(at.line()).ok());
        let message = error.without_snippet().to_string();
        let first = message.lines().next().unwrap_or_default();
        LoadError {
            line: line.filter(|line| *line > 0),
            reason: format!("not YAML: {}", without_place(first)),
        }
    })?;
    Ok(fields.unwrap_or_default().into_iter().collect())
}

/// The fields of a JSON object; a duplicate name is refused instead of dropped.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the fields of an agent")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        let message = format!("field {name:?} occurs twice");
                        return Err(serde::de::Error::custom(message));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}
