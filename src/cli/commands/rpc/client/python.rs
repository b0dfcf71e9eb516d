//! Writes the client for Python: `TypedDict`s, and classes with a method for each call, with the
//! standard library alone.

use std::collections::BTreeSet;

use super::document::{Call, Document, Field, NamedType, Shape, pascal};
use super::lines::Lines;

/// The part that is the same for every document: transport, errors and events.
const RUNTIME: &str = include_str!("runtime.py");

/// Reserved words; a parameter of such a name gets an underscore, and a field needs the form of a
/// `TypedDict` that takes names as text.
const RESERVED: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// The whole file.
pub(super) fn write(document: &Document) -> String {
    let mut out = Lines::default();
    out.line(
        0,
        &format!(
            "\"\"\"Client of abide for Python 3.9 and later, protocol {}.",
            document.protocol
        ),
    );
    out.line(0, "");
    out.line(
        0,
        &format!(
            "Made by `abide rpc --client python` of abide {}; make it again after an upgrade.",
            document.version
        ),
    );
    out.line(0, "Parameters and fields have the names of the protocol.");
    out.line(0, "\"\"\"");
    out.line(0, "");
    out.text(RUNTIME);
    let choices = choices(document);
    for named in &document.types {
        named_type(&mut out, named, choices.contains(named.name.as_str()));
    }
    events(&mut out, document);
    for namespace in document.namespaces() {
        let calls = document.calls.iter();
        methods(
            &mut out,
            namespace,
            calls.filter(|call| call.namespace == namespace),
        );
    }
    client(&mut out, document);
    out.into_text()
}

/// The types that occur as choices: checkers tell them apart by `in` only if they are final.
fn choices(document: &Document) -> BTreeSet<&str> {
    let shapes = document
        .types
        .iter()
        .filter_map(|named| match &named.shape {
            Shape::OneOf(choices) => Some(choices),
            _ => None,
        });
    let names = shapes.flatten().filter_map(|choice| match choice {
        Shape::Named(name) => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

fn named_type(out: &mut Lines, named: &NamedType, is_choice: bool) {
    match &named.shape {
        Shape::Object(fields) if fields.iter().all(|field| is_name(&field.name)) => {
            class(out, named, fields, is_choice);
        }
        Shape::Object(fields) => {
            out.line(0, "");
            out.line(0, "");
            out.says(0, "# ", &named.says);
            out.line(0, &format!("{} = TypedDict(", named.name));
            out.line(1, &format!("{:?},", named.name));
            out.line(1, "{");
            for field in fields {
                out.says(2, "# ", &field.says);
                out.line(2, &format!("{:?}: {:?},", field.name, field_type(field)));
            }
            out.line(1, "},");
            out.line(0, ")");
        }
        shape => {
            out.line(0, "");
            out.line(0, "");
            out.says(0, "# ", &named.says);
            let kind = expression(shape, true);
            match named.is_open() {
                true => out.line(0, &format!("{} = Union[{kind}, str]", named.name)),
                false => out.line(0, &format!("{} = {kind}", named.name)),
            }
        }
    }
}

fn class(out: &mut Lines, named: &NamedType, fields: &[Field], is_final: bool) {
    out.line(0, "");
    out.line(0, "");
    if is_final {
        out.line(0, "@final");
    }
    out.line(0, &format!("class {}(TypedDict):", named.name));
    match named.says.is_empty() {
        false => docstring(out, 1, &named.says),
        true if fields.is_empty() => out.line(1, "pass"),
        true => {}
    }
    for field in fields {
        if !named.says.is_empty() || field != &fields[0] {
            out.line(0, "");
        }
        out.says(1, "# ", &field.says);
        out.line(1, &format!("{}: {}", field.name, field_type(field)));
    }
}

fn field_type(field: &Field) -> String {
    let kind = expression(&field.shape, false);
    match field.is_required {
        true => kind,
        false => format!("NotRequired[{kind}]"),
    }
}

fn docstring(out: &mut Lines, depth: usize, says: &str) {
    let says = says.replace('\\', "\\\\").replace("\"\"\"", "'''");
    let lines = super::lines::wrapped(&says, 88 - 4 * depth);
    match lines.as_slice() {
        [only] if !only.ends_with('"') => out.line(depth, &format!("\"\"\"{only}\"\"\"")),
        several => {
            for (number, line) in several.iter().enumerate() {
                let quotes = if number == 0 { "\"\"\"" } else { "" };
                out.line(depth, format!("{quotes}{line}").trim_end());
            }
            out.line(depth, "\"\"\"");
        }
    }
}

/// The type as Python writes it. Where it is evaluated, names are quoted: they may be defined
/// further below.
fn expression(shape: &Shape, is_evaluated: bool) -> String {
    let inner = |shape: &Shape| expression(shape, is_evaluated);
    match shape {
        Shape::Anything => "Any".to_owned(),
        Shape::Null => "None".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer => "int".to_owned(),
        Shape::Number => "float".to_owned(),
        Shape::Text => "str".to_owned(),
        Shape::Constant(text) => format!("Literal[{text:?}]"),
        Shape::List(items) => format!("List[{}]", inner(items)),
        Shape::Map(values) => format!("Dict[str, {}]", inner(values)),
        Shape::Named(name) if is_evaluated => format!("{name:?}"),
        Shape::Named(name) => name.clone(),
        Shape::OneOf(choices) => {
            let constants = choices.iter().map(|choice| match choice {
                Shape::Constant(text) => Some(format!("{text:?}")),
                _ => None,
            });
            match constants.collect::<Option<Vec<String>>>() {
                Some(constants) => format!("Literal[{}]", constants.join(", ")),
                None => {
                    let choices: Vec<String> = choices.iter().map(inner).collect();
                    format!("Union[{}]", choices.join(", "))
                }
            }
        }
        // Objects have names.
        Shape::Object(_) => "Dict[str, Any]".to_owned(),
    }
}

/// Begins a class with its description. `head` is its name, with those of its bases.
fn begin_class(out: &mut Lines, head: &str, says: &str) {
    out.line(0, "");
    out.line(0, "");
    out.line(0, &format!("class {head}:"));
    docstring(out, 1, says);
}

fn events(out: &mut Lines, document: &Document) {
    let says = "What all events have. Only stored events have a `cursor`.";
    begin_class(out, "EventEnvelope(TypedDict)", says);
    for field in &document.envelope {
        out.line(0, "");
        out.says(1, "# ", &field.says);
        out.line(1, &format!("{}: {}", field.name, field_type(field)));
    }
    for event in &document.events {
        let stored = if event.is_stored {
            ""
        } else {
            " It is not stored."
        };
        let says = format!("The event `{}`.{stored}", event.kind);
        begin_class(out, &format!("{}(EventEnvelope)", event.event), &says);
        out.line(0, "");
        out.line(1, &format!("kind: Literal[{:?}]", event.kind));
        out.line(1, &format!("data: {}", expression(&event.data, false)));
    }
    out.line(0, "");
    out.line(0, "");
    out.says(
        0,
        "# ",
        "An event; its `kind` decides the type of its `data`. Newer daemons may send further kinds.",
    );
    out.line(0, "Event = Union[");
    for event in &document.events {
        out.line(1, &format!("{},", event.event));
    }
    out.line(0, "]");
}

fn class_of(namespace: &str) -> String {
    format!("{}Methods", pascal(namespace))
}

fn methods<'a>(out: &mut Lines, namespace: &str, calls: impl Iterator<Item = &'a Call>) {
    let says = format!("The methods `{namespace}.*`.");
    begin_class(out, &class_of(namespace), &says);
    out.line(0, "");
    out.line(1, "def __init__(self, connection: Connection) -> None:");
    out.line(2, "self._connection = connection");
    for call in calls {
        method(out, call);
    }
}

fn method(out: &mut Lines, call: &Call) {
    let result = expression(&call.result, false);
    out.line(0, "");
    out.line(1, &format!("def {}(", argument(&call.verb)));
    out.line(2, "self,");
    if !call.params.is_empty() {
        out.line(2, "*,");
    }
    for param in &call.params {
        let kind = expression(&param.shape, false);
        let name = argument(&param.name);
        match param.is_required {
            true => out.line(2, &format!("{name}: {kind},")),
            false => {
                let choices = match &param.shape {
                    Shape::OneOf(choices) if choices.contains(&Shape::Null) => {
                        let choices = choices.iter().map(|of| expression(of, false));
                        choices.collect::<Vec<String>>().join(", ")
                    }
                    _ => kind,
                };
                out.line(2, &format!("{name}: Union[{choices}, Omitted] = OMITTED,"));
            }
        }
    }
    out.line(1, &format!(") -> {result}:"));
    let mut says = call.summary.clone();
    let described: Vec<&Field> = call
        .params
        .iter()
        .filter(|param| !param.says.is_empty())
        .collect();
    if !described.is_empty() {
        says.push('\n');
    }
    for param in described {
        let text = param.says.replace('\n', " ");
        says.push_str(&format!("\n- `{}`: {text}", argument(&param.name)));
    }
    docstring(out, 2, &says);
    let waits = if call.waits { ", waits=True" } else { "" };
    let given: Vec<String> = call
        .params
        .iter()
        .map(|param| format!("{:?}: {}", param.name, argument(&param.name)))
        .collect();
    let start = format!(
        "_result: {result} = self._connection.call({:?}, {{",
        call.method()
    );
    match given.is_empty() {
        true => out.line(2, &format!("{start}}}{waits})")),
        false => {
            out.line(2, &start);
            for entry in given {
                out.line(3, &format!("{entry},"));
            }
            out.line(2, &format!("}}{waits})"));
        }
    }
    out.line(2, "return _result");
}

fn client(out: &mut Lines, document: &Document) {
    let says = "A daemon and its methods: `Client.find().sessions.spawn(task=\"…\")`.";
    begin_class(out, "Client(Connection)", says);
    for namespace in document.namespaces() {
        let class = class_of(namespace);
        out.line(0, "");
        out.line(1, "@property");
        out.line(1, &format!("def {}(self) -> {class}:", argument(namespace)));
        docstring(out, 2, &format!("The methods `{namespace}.*`."));
        out.line(2, &format!("return {class}(self)"));
    }
}

/// A name as Python permits it for arguments and methods.
fn argument(name: &str) -> String {
    let name = name.replace('-', "_");
    match RESERVED.contains(&name.as_str()) {
        true => format!("{name}_"),
        false => name,
    }
}

/// True for a name that the fields of a class may have.
fn is_name(name: &str) -> bool {
    argument(name) == name
}
