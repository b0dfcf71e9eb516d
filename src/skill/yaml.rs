//! Parses YAML into a tree of strings: values keep their spelling (`1.10`, `yes`, a date), each
//! field knows its line, and front matter that would expand without limit is refused. Called by
//! `parse`.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::front_matter::LoadError;

/// Maximum number of values, aliases counted with everything they stand for.
const NODES: usize = 5_000;
/// Maximum nesting of lists and maps.
const DEPTH: usize = 32;

/// A YAML value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum YamlNode {
    /// An empty value, `~` or `null`.
    Null,
    /// Any other plain or quoted value, as text.
    Text(String),
    /// A list.
    List(Vec<YamlNode>),
    /// A map in its original order, without duplicate names.
    Map(Vec<YamlField>),
}

/// A field of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlField {
    /// The field's name.
    pub name: String,
    /// Its line in the front matter, counted from 1.
    pub line: usize,
    /// The field's value.
    pub value: YamlNode,
}

impl YamlNode {
    /// The value of the field `name`; `None` if this is no map or lacks the field.
    pub(super) fn get(&self, name: &str) -> Option<&YamlNode> {
        match self {
            YamlNode::Map(fields) => fields
                .iter()
                .find(|field| field.name == name)
                .map(|field| &field.value),
            _ => None,
        }
    }

    /// The text; `None` if this is another kind of value.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            YamlNode::Text(text) => Some(text),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            YamlNode::Null | YamlNode::Text(_) => 0,
            YamlNode::List(items) => items.iter().map(YamlNode::size).sum(),
            YamlNode::Map(fields) => fields.iter().map(|field| field.value.size()).sum(),
        }
    }
}

/// Parsed front matter.
#[derive(Debug)]
pub(super) struct FrontMatter {
    /// The top-level fields of the front matter, in file order.
    pub fields: Vec<YamlField>,
    /// Remarks about oddities, each with its line.
    pub notes: Vec<(usize, String)>,
}

/// Parses front matter. The line of an error is counted within it, from 1.
pub(super) fn read(header: &str) -> Result<FrontMatter, LoadError> {
    let options = granit_parser::options! { emit_comments: false };
    let mut reader = YamlReader {
        parser: Parser::new_from_str_with_options(header, options),
        anchors: HashMap::new(),
        nodes: 0,
        notes: Vec::new(),
    };
    let root = reader.document()?;
    let fields = match root {
        YamlNode::Map(fields) => fields,
        YamlNode::Null => Vec::new(),
        YamlNode::Text(_) | YamlNode::List(_) => {
            return Err(LoadError::at(1, "not YAML with fields: name: value"));
        }
    };
    Ok(FrontMatter {
        fields,
        notes: reader.notes,
    })
}

struct YamlReader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, YamlNode>,
    nodes: usize,
    notes: Vec<(usize, String)>,
}

impl<'a> YamlReader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), LoadError> {
        let line = |span: &Span| span.start.line().max(1);
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, line(&span))),
            Some(Err(error)) => Err(LoadError::at(
                error.marker().line().max(1),
                format!("not YAML: {}", error.info()),
            )),
            None => Ok((Event::StreamEnd, 1)),
        }
    }

    fn document(&mut self) -> Result<YamlNode, LoadError> {
        loop {
            let (event, line) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(YamlNode::Null),
                event => {
                    let root = self.node(event, line, 0)?;
                    // The rest may be invalid, and a second document is not allowed.
                    loop {
                        match self.next()? {
                            (Event::StreamEnd, _) => return Ok(root),
                            (Event::DocumentEnd, _) => {}
                            (_, line) => {
                                return Err(LoadError::at(
                                    line,
                                    "not YAML: a second document begins",
                                ));
                            }
                        }
                    }
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<YamlNode, LoadError> {
        self.count(1, line)?;
        if depth > DEPTH {
            let message = format!("lists and maps are nested more than {DEPTH} deep");
            return Err(LoadError::at(line, message));
        }
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null");
                let node = match is_null {
                    true => YamlNode::Null,
                    false => YamlNode::Text(text.into_owned()),
                };
                (anchor, node)
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, line) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    items.push(self.node(event, line, depth + 1)?);
                }
                (anchor, YamlNode::List(items))
            }
            Event::MappingStart(_, anchor, _) => (anchor, YamlNode::Map(self.fields(depth)?)),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                let node = known.ok_or_else(|| {
                    LoadError::at(line, "an alias refers to the value that contains it")
                })?;
                self.count(node.size(), line)?;
                return Ok(node);
            }
            _ => return Err(LoadError::at(line, "not YAML: a value is expected")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<YamlField>, LoadError> {
        let mut fields: Vec<YamlField> = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(fields);
            }
            let name = match self.node(event, line, depth + 1)? {
                YamlNode::Text(name) => name,
                YamlNode::Null => "null".to_owned(),
                YamlNode::List(_) | YamlNode::Map(_) => {
                    return Err(LoadError::at(line, "a field's name is text"));
                }
            };
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, depth + 1)?;
            if fields.iter().any(|field| field.name == name) {
                let note = format!("{name} occurs twice; the first one is used");
                self.notes.push((line, note));
                continue;
            }
            fields.push(YamlField { name, line, value });
        }
    }

    fn count(&mut self, more: usize, line: usize) -> Result<(), LoadError> {
        self.nodes += more;
        if self.nodes > NODES {
            let message = format!("more than {NODES} values (aliases count as their expansion)");
            return Err(LoadError::at(line, message));
        }
        Ok(())
    }
}
