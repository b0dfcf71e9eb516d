//! Templates of texts: fixed text with places for the fields of a JSON body and for headers. There
//! are no conditions, loops or calls. Settings of inbound hooks have them.

use toml::Value;

use super::form::{SettingForm, Text};
use crate::kernel::ids::SessionKey;

/// Maximum number of characters of a place, without its default.
const NAME_LIMIT: usize = 200;
/// Prefix of a place that names a header.
const HEADER: &str = "header.";

/// A text with places to fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    parts: Vec<TemplatePart>,
}

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Fixed text.
    Text(String),
    /// A value to fill in.
    Field(TemplateField),
}

/// A place of a [`Template`]: `{path.to.field}`, or `{path.to.field|default}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateField {
    /// The place as it is written, without its default.
    pub name: String,
    /// Where its value is.
    pub source: FieldSource,
    /// The text if there is no value.
    pub default: Option<String>,
}

/// Where the value of a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// In the body: names of fields, and indexes of arrays from 0. Empty: the whole body.
    Body(Vec<String>),
    /// In the header of this name.
    Header(http::HeaderName),
}

impl Template {
    /// Parses a template; the error says what is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("a } closes nothing; the brace itself is written }}".to_owned());
            }
            let (place, after) = rest
                .split_once('}')
                .ok_or("a { is not closed; the brace itself is written {{")?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Field(TemplateField::parse(place)?));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Template {
            source: text.to_owned(),
            parts,
        })
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The text with each place replaced by `x`.
    fn with_samples(&self) -> String {
        let texts = self.parts.iter().map(|part| match part {
            TemplatePart::Text(text) => text.as_str(),
            TemplatePart::Field(_) => "x",
        });
        texts.collect()
    }
}

impl TemplateField {
    fn parse(place: &str) -> Result<Self, String> {
        let (name, default) = match place.split_once('|') {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (place, None),
        };
        let refused = || {
            let shown = crate::kernel::text::preview(name, 40);
            format!(
                "{{{shown}}} names no field: names and indexes separated by dots are expected, such \
                 as {{issue.labels.0.name}}, {{header.X-GitHub-Event}} or {{.}} for the whole body; \
                 a brace itself is written {{{{"
            )
        };
        let is_plain = |one: char| !one.is_whitespace() && !one.is_control();
        let fits = name.chars().count() <= NAME_LIMIT
            && name
                .chars()
                .all(|one| is_plain(one) && !"{<>\"".contains(one));
        if !fits || default.as_ref().is_some_and(|text| text.contains('{')) {
            return Err(refused());
        }
        let source = match name.strip_prefix(HEADER) {
            Some(header) => FieldSource::Header(header.parse().map_err(|_| refused())?),
            None => {
                // A dot at the beginning is for a field of the body that is called `header`.
                let path = name.strip_prefix('.').unwrap_or(name);
                match path.is_empty() && name == "." {
                    true => FieldSource::Body(Vec::new()),
                    false => {
                        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
                        if names.iter().any(String::is_empty) {
                            return Err(refused());
                        }
                        FieldSource::Body(names)
                    }
                }
            }
        };
        Ok(TemplateField {
            name: name.to_owned(),
            source,
            default,
        })
    }
}

/// A template of a text.
pub struct TextTemplate;

impl SettingForm<Template> for TextTemplate {
    fn read(&self, value: &Value) -> Result<Template, String> {
        Template::parse(&Text.read(value)?)
    }

    fn show(&self, value: &Template) -> Option<Value> {
        Some(value.source.clone().into())
    }
}

/// A template of a session key. With places it begins with fixed text up to a colon, so that values
/// choose among the sessions under that name alone.
pub struct SessionTemplate;

impl SettingForm<Template> for SessionTemplate {
    fn read(&self, value: &Value) -> Result<Template, String> {
        let template = TextTemplate.read(value)?;
        SessionKey::parse(&template.with_samples()).map_err(|error| error.to_string())?;
        let has_fields = |part: &TemplatePart| matches!(part, TemplatePart::Field(_));
        match template.parts.first() {
            Some(TemplatePart::Text(text)) if text.contains(':') => Ok(template),
            _ if !template.parts.iter().any(has_fields) => Ok(template),
            _ => Err(
                "a session key with places begins with fixed text and a colon, such as \
                 github:{issue.number}"
                    .to_owned(),
            ),
        }
    }

    fn show(&self, value: &Template) -> Option<Value> {
        TextTemplate.show(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let parts = Template::parse(text).unwrap().parts;
        let names = parts.into_iter().map(|part| match part {
            TemplatePart::Text(text) => format!("'{text}'"),
            TemplatePart::Field(field) => match (field.source, field.default) {
                (FieldSource::Body(path), None) => path.join("/"),
                (FieldSource::Body(path), Some(text)) => format!("{}={text}", path.join("/")),
                (FieldSource::Header(name), _) => format!("header {name}"),
            },
        });
        names.collect()
    }

    #[test]
    fn places_are_fields_of_the_body_and_headers_and_braces_are_doubled() {
        assert_eq!(names("plain"), ["'plain'"]);
        assert_eq!(names("a {b.0.c} d"), ["'a '", "b/0/c", "' d'"]);
        assert_eq!(names("{{{a}}}"), ["'{'", "a", "'}'"]);
        assert_eq!(names("{{\"a\": 1}}"), ["'{\"a\": 1}'"]);
        assert_eq!(names("{a|none given}{b|}"), ["a=none given", "b="]);
        assert_eq!(names("{header.X-GitHub-Event}"), ["header x-github-event"]);
        assert_eq!(names("{.header.a}{.}"), ["header/a", ""]);
    }

    #[test]
    fn a_template_that_names_no_field_is_refused_with_the_way_to_write_it() {
        for wrong in [
            "{",
            "}",
            "a { b",
            "{}",
            "{a",
            "{a b}",
            "{a..b}",
            "{..}",
            "{a.}",
            "{|x}",
            "{a|{b}}",
            "{header.}",
            "{header.a b}",
            "{a<<<b}",
            "{a\nb}",
        ] {
            let refused = Template::parse(wrong).unwrap_err();
            assert!(
                refused.contains("{{") || refused.contains("}}"),
                "{refused}"
            );
        }
        assert!(Template::parse(&format!("{{{}}}", "a".repeat(201))).is_err());
    }

    #[test]
    fn values_cannot_choose_a_session_outside_of_the_name_in_the_settings() {
        let read = |text: &str| SessionTemplate.read(&Value::from(text));
        for right in [
            "agent:build:desk",
            "github:{a}",
            "github:issue-{a}.{b|none}",
            "hooks",
        ] {
            assert!(read(right).is_ok(), "{right}");
        }
        for wrong in ["{a}", "github{a}", "github{a}:b", "github:{a}/b", "a b", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
