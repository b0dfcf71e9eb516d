//! The types, calls and events of the protocol, read from the OpenRPC document of `rpc.discover`.
//! The writers of each language use nothing else.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Methods that need a connection of their own. Generated clients follow events over `GET /events`.
const OF_A_CONNECTION: &str = "events.";

/// The protocol, as far as a client needs it.
pub(super) struct Document {
    /// Version of the program that the document describes.
    pub(super) version: String,
    /// Version of the protocol.
    pub(super) protocol: u64,
    /// Named types, sorted by name.
    pub(super) types: Vec<NamedType>,
    /// Methods, sorted by name.
    pub(super) calls: Vec<Call>,
    /// Fields of the envelope of each event, without `kind` and `data`.
    pub(super) envelope: Vec<Field>,
    /// Event kinds in the order of the document.
    pub(super) events: Vec<EventKind>,
}

/// A type with a name of its own.
pub(super) struct NamedType {
    pub(super) name: String,
    /// Description; empty if there is none.
    pub(super) says: String,
    pub(super) shape: Shape,
    /// True if the daemon sends it: an enumeration may then gain values that this client does not
    /// know.
    pub(super) is_sent: bool,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Anything,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    /// Exactly this text.
    Constant(String),
    List(Box<Shape>),
    /// An object with any names.
    Map(Box<Shape>),
    /// The type of this name.
    Named(String),
    OneOf(Vec<Shape>),
    /// Occurs only as the shape of a [`NamedType`].
    Object(Vec<Field>),
}

/// A field of an object, or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Name on the wire.
    pub(super) name: String,
    /// Description; empty if there is none.
    pub(super) says: String,
    pub(super) is_required: bool,
    pub(super) shape: Shape,
}

/// A method.
pub(super) struct Call {
    /// The part of its name before the dot.
    pub(super) namespace: String,
    /// The part behind it.
    pub(super) verb: String,
    /// One-sentence summary.
    pub(super) summary: String,
    /// Required parameters come first.
    pub(super) params: Vec<Field>,
    pub(super) result: Shape,
    /// True if it may be answered after a long time.
    pub(super) waits: bool,
}

/// A kind of event.
pub(super) struct EventKind {
    pub(super) kind: String,
    /// False for events that exist only on the stream.
    pub(super) is_stored: bool,
    /// Name of the type of its event.
    pub(super) event: String,
    /// Shape of `data`.
    pub(super) data: Shape,
}

impl Document {
    /// Reads a document; the error names the part that this program cannot express in types.
    pub(super) fn read(document: &Value) -> Result<Document, String> {
        let mut types = Types::default();
        let schemas = object(document, "/components/schemas")?;
        for (name, schema) in schemas {
            types.add(name.clone(), schema)?;
        }
        let mut calls = Vec::new();
        for method in list(document, "/methods")? {
            let name = text(method, "name");
            if !name.starts_with(OF_A_CONNECTION) {
                calls.push(types.call(&name, method)?);
            }
        }
        calls.sort_by(|a, b| (&a.namespace, &a.verb).cmp(&(&b.namespace, &b.verb)));
        let envelope = types.shape("Event", &document["x-event"])?;
        let envelope = types.take_fields(&envelope)?;
        let mut events = Vec::new();
        for event in list(document, "/x-events")? {
            let kind = text(event, "kind");
            let name = format!("{}Event", pascal(&kind));
            let data = types.shape(&format!("{name}Data"), &event["data"])?;
            if types.all.iter().any(|known| known.name == name) {
                return Err(format!("two types would be named {name}"));
            }
            events.push(EventKind {
                is_stored: event["stored"] == true,
                kind,
                event: name,
                data,
            });
        }
        let sent = calls.iter().map(|call| &call.result);
        types.mark_sent(sent.chain(events.iter().map(|event| &event.data)));
        types.all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Document {
            version: text(&document["info"], "version"),
            protocol: document["x-protocol"].as_u64().unwrap_or_default(),
            types: types.all,
            calls,
            envelope,
            events,
        })
    }

    /// The namespaces of the calls, sorted.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        let names = self.calls.iter().map(|call| call.namespace.as_str());
        names.collect()
    }
}

impl NamedType {
    /// True for an enumeration that may gain values: those of another daemon must be accepted.
    pub(super) fn is_open(&self) -> bool {
        let is_constant = |choice: &Shape| matches!(choice, Shape::Constant(_));
        self.is_sent
            && matches!(&self.shape, Shape::OneOf(choices) if choices.iter().all(is_constant))
    }
}

impl Call {
    /// Name on the wire.
    pub(super) fn method(&self) -> String {
        format!("{}.{}", self.namespace, self.verb)
    }
}

/// The types read so far.
#[derive(Default)]
struct Types {
    all: Vec<NamedType>,
}

impl Types {
    /// Adds the type `name`.
    fn add(&mut self, name: String, schema: &Value) -> Result<(), String> {
        let mut says = text(schema, "description");
        for (value, meaning) in constants(schema) {
            if !says.is_empty() {
                says.push('\n');
            }
            says.push_str(&format!("- `{value}`: {meaning}"));
        }
        let shape = match schema.get("properties") {
            Some(_) => Shape::Object(self.fields(&name, schema)?),
            None => self.shape(&name, schema)?,
        };
        if self.all.iter().any(|known| known.name == name) {
            return Err(format!("two types would be named {name}"));
        }
        self.all.push(NamedType {
            name,
            says,
            shape,
            is_sent: false,
        });
        Ok(())
    }

    /// The shape of a schema; objects in it become types whose names begin with `name`.
    fn shape(&mut self, name: &str, schema: &Value) -> Result<Shape, String> {
        if let Some(place) = schema["$ref"].as_str() {
            let name = place.rsplit('/').next().unwrap_or(place);
            return Ok(Shape::Named(name.to_owned()));
        }
        if let Some(only) = schema.get("const") {
            let only = only.as_str().ok_or(format!("{name}: a constant {only}"))?;
            return Ok(Shape::Constant(only.to_owned()));
        }
        if let Some([only]) = schema["allOf"].as_array().map(Vec::as_slice) {
            return self.shape(name, only);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[word].as_array() {
                let mut shapes = Vec::new();
                for (number, choice) in choices.iter().enumerate() {
                    let name = format!("{name}{}", variant(choice, number + 1));
                    let shape = self.shape(&name, choice)?;
                    if !shapes.contains(&shape) {
                        shapes.push(shape);
                    }
                }
                return Ok(one_of(shapes));
            }
        }
        match &schema["type"] {
            Value::String(kind) => self.of_kind(name, kind, schema),
            Value::Array(kinds) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let shapes: Result<Vec<Shape>, String> =
                    kinds.map(|kind| self.of_kind(name, kind, schema)).collect();
                Ok(one_of(shapes?))
            }
            _ if schema.get("properties").is_some() => self.of_kind(name, "object", schema),
            _ => Ok(Shape::Anything),
        }
    }

    fn of_kind(&mut self, name: &str, kind: &str, schema: &Value) -> Result<Shape, String> {
        Ok(match kind {
            "null" => Shape::Null,
            "boolean" => Shape::Boolean,
            "integer" => Shape::Integer,
            "number" => Shape::Number,
            "string" => Shape::Text,
            "array" => {
                let items = self.shape(&format!("{name}Item"), &schema["items"])?;
                Shape::List(Box::new(items))
            }
            "object" if schema.get("properties").is_some() => {
                self.add(name.to_owned(), schema)?;
                Shape::Named(name.to_owned())
            }
            "object" => {
                let values = &schema["additionalProperties"];
                let values = self.shape(&format!("{name}Value"), values)?;
                Shape::Map(Box::new(values))
            }
            other => return Err(format!("{name}: the type {other}")),
        })
    }

    fn fields(&mut self, of: &str, schema: &Value) -> Result<Vec<Field>, String> {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut fields = Vec::new();
        for (name, schema) in object(schema, "/properties")? {
            fields.push(Field {
                says: text(schema, "description"),
                is_required: required.iter().any(|of| of == name),
                shape: self.shape(&format!("{of}{}", pascal(name)), schema)?,
                name: name.clone(),
            });
        }
        Ok(fields)
    }

    fn call(&mut self, name: &str, method: &Value) -> Result<Call, String> {
        let (namespace, verb) = name
            .split_once('.')
            .ok_or(format!("the method name {name} has no dot"))?;
        let mut params = Vec::new();
        for param in list(method, "/params")? {
            let param_name = text(param, "name");
            let of = format!("{}{}", pascal(name), pascal(&param_name));
            params.push(Field {
                says: text(param, "description"),
                is_required: param["required"] == true,
                shape: self.shape(&of, &param["schema"])?,
                name: param_name,
            });
        }
        let of = format!("{}Result", pascal(name));
        Ok(Call {
            namespace: namespace.to_owned(),
            verb: verb.to_owned(),
            summary: text(method, "summary"),
            params,
            result: self.shape(&of, &method["result"]["schema"])?,
            waits: method["x-waits"] == true,
        })
    }

    /// Removes the type of the event envelope and returns its fields without `kind` and `data`.
    fn take_fields(&mut self, shape: &Shape) -> Result<Vec<Field>, String> {
        let at = self.all.iter().position(|known| match shape {
            Shape::Named(name) => known.name == *name,
            _ => false,
        });
        let taken = at.map(|at| self.all.remove(at).shape);
        let Some(Shape::Object(mut fields)) = taken else {
            return Err("the envelope of events is not an object".to_owned());
        };
        fields.retain(|field| field.name != "kind" && field.name != "data");
        Ok(fields)
    }

    /// Marks the types that can be reached from `shapes`.
    fn mark_sent<'a>(&mut self, shapes: impl Iterator<Item = &'a Shape>) {
        let mut open = Vec::new();
        shapes.for_each(|shape| names(shape, &mut open));
        while let Some(name) = open.pop() {
            let found = self.all.iter_mut().find(|known| known.name == name);
            if let Some(found) = found.filter(|found| !found.is_sent) {
                found.is_sent = true;
                names(&found.shape, &mut open);
            }
        }
    }
}

/// Adds the names of the types that `shape` refers to.
fn names(shape: &Shape, found: &mut Vec<String>) {
    match shape {
        Shape::Named(name) => found.push(name.clone()),
        Shape::List(inner) | Shape::Map(inner) => names(inner, found),
        Shape::OneOf(choices) => choices.iter().for_each(|choice| names(choice, found)),
        Shape::Object(fields) => fields.iter().for_each(|field| names(&field.shape, found)),
        _ => {}
    }
}

fn one_of(mut shapes: Vec<Shape>) -> Shape {
    match shapes.len() {
        1 => shapes.remove(0),
        _ => Shape::OneOf(shapes),
    }
}

/// What distinguishes the name of a choice: the constant in it, else its number.
fn variant(choice: &Value, number: usize) -> String {
    let fields = choice["properties"].as_object().into_iter().flatten();
    let constant = fields
        .filter_map(|(_, schema)| schema["const"].as_str())
        .next();
    constant.map_or_else(|| number.to_string(), pascal)
}

/// The values of an enumeration with their descriptions.
fn constants(schema: &Value) -> Vec<(&str, &str)> {
    let choices = schema["oneOf"].as_array().into_iter().flatten();
    choices
        .filter_map(|choice| Some((choice["const"].as_str()?, choice["description"].as_str()?)))
        .collect()
}

/// `sessions.spawn` as `SessionsSpawn`.
pub(super) fn pascal(name: &str) -> String {
    let parts = name.split(|of: char| !of.is_ascii_alphanumeric());
    parts
        .filter(|part| !part.is_empty())
        .map(|part| format!("{}{}", part[..1].to_ascii_uppercase(), &part[1..]))
        .collect()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    let found = value.pointer(place).and_then(Value::as_object);
    found.ok_or(format!("{place} is not an object"))
}

fn list<'a>(value: &'a Value, place: &str) -> Result<&'a Vec<Value>, String> {
    let found = value.pointer(place).and_then(Value::as_array);
    found.ok_or(format!("{place} is not a list"))
}
