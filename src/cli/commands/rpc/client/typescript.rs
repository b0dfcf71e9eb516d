//! Writes the client for TypeScript: types, and a class with a method for each call, over `fetch`.

use super::document::{Call, Document, Field, NamedType, Shape, pascal};
use super::lines::{Lines, wrapped};

/// The part that is the same for every document: transport, errors and events.
const RUNTIME: &str = include_str!("runtime.ts");

/// The whole file.
pub(super) fn write(document: &Document) -> String {
    let mut out = Lines::default();
    out.says(
        0,
        "// ",
        &format!(
            "Client of abide for Node 20 and later and for browsers, protocol {}.\n\nMade by `abide rpc \
             --client typescript` of abide {}; make it again after an upgrade.",
            document.protocol, document.version
        ),
    );
    out.line(0, "");
    out.text(RUNTIME);
    for named in &document.types {
        named_type(&mut out, named);
    }
    events(&mut out, document);
    for call in &document.calls {
        params(&mut out, call);
    }
    client(&mut out, document);
    out.into_text()
}

fn named_type(out: &mut Lines, named: &NamedType) {
    out.line(0, "");
    comment(out, 0, &named.says);
    match &named.shape {
        Shape::Object(fields) => interface(out, &format!("interface {}", named.name), fields),
        shape => {
            let kind = expression(shape);
            // Completion knows the values, and others are permitted.
            let others = match named.is_open() {
                true => " | (string & {})",
                false => "",
            };
            out.line(0, &format!("export type {} = {kind}{others};", named.name));
        }
    }
}

fn interface(out: &mut Lines, head: &str, fields: &[Field]) {
    out.line(0, &format!("export {head} {{"));
    for field in fields {
        comment(out, 1, &field.says);
        let mark = if field.is_required { "" } else { "?" };
        let kind = expression(&field.shape);
        out.line(1, &format!("{}{mark}: {kind};", name(&field.name)));
    }
    out.line(0, "}");
}

fn comment(out: &mut Lines, depth: usize, says: &str) {
    let says = says.replace("*/", "*\\/");
    let lines = wrapped(&says, 94 - 4 * depth);
    match lines.as_slice() {
        [] => {}
        [only] => out.line(depth, &format!("/** {only} */")),
        several => {
            out.line(depth, "/**");
            for line in several {
                out.line(depth, format!(" * {line}").trim_end());
            }
            out.line(depth, " */");
        }
    }
}

/// The type as TypeScript writes it.
fn expression(shape: &Shape) -> String {
    match shape {
        Shape::Anything => "unknown".to_owned(),
        Shape::Null => "null".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Integer | Shape::Number => "number".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::Constant(text) => format!("{text:?}"),
        Shape::List(items) => match **items {
            Shape::OneOf(_) => format!("({})[]", expression(items)),
            _ => format!("{}[]", expression(items)),
        },
        Shape::Map(values) => format!("Record<string, {}>", expression(values)),
        Shape::Named(name) => name.clone(),
        Shape::OneOf(choices) => {
            let choices: Vec<String> = choices.iter().map(expression).collect();
            choices.join(" | ")
        }
        // Objects have names.
        Shape::Object(_) => "Record<string, unknown>".to_owned(),
    }
}

fn events(out: &mut Lines, document: &Document) {
    out.line(0, "");
    comment(
        out,
        0,
        "What all events have. Only stored events have a `cursor`.",
    );
    interface(out, "interface EventEnvelope", &document.envelope);
    out.line(0, "");
    comment(out, 0, "The type of `data` of each kind of event.");
    out.line(0, "export interface EventData {");
    for event in &document.events {
        if !event.is_stored {
            comment(out, 1, "It is not stored.");
        }
        let kind = expression(&event.data);
        out.line(1, &format!("{:?}: {kind};", event.kind));
    }
    out.line(0, "}");
    out.line(0, "");
    comment(
        out,
        0,
        "An event; its `kind` decides the type of its `data`. Newer daemons may send further kinds.",
    );
    out.line(0, "export type Event = {");
    out.line(
        1,
        "[Kind in keyof EventData]: EventEnvelope & { kind: Kind; data: EventData[Kind] };",
    );
    out.line(0, "}[keyof EventData];");
}

fn params_of(call: &Call) -> String {
    format!("{}Params", pascal(&call.method()))
}

fn params(out: &mut Lines, call: &Call) {
    if call.params.is_empty() {
        return;
    }
    out.line(0, "");
    comment(out, 0, &format!("Parameters of `{}`.", call.method()));
    interface(out, &format!("interface {}", params_of(call)), &call.params);
}

fn client(out: &mut Lines, document: &Document) {
    out.line(0, "");
    comment(
        out,
        0,
        "A daemon and its methods: `new Client({ url, token }).sessions.spawn({ task: \"…\" })`.",
    );
    out.line(0, "export class Client extends Connection {");
    for (number, namespace) in document.namespaces().into_iter().enumerate() {
        if number > 0 {
            out.line(0, "");
        }
        comment(out, 1, &format!("The methods `{namespace}.*`."));
        out.line(1, &format!("readonly {} = {{", name(namespace)));
        let calls = document.calls.iter();
        for call in calls.filter(|call| call.namespace == namespace) {
            method(out, call);
        }
        out.line(1, "};");
    }
    out.line(0, "}");
}

fn method(out: &mut Lines, call: &Call) {
    comment(out, 2, &call.summary);
    let result = expression(&call.result);
    let mut arguments = Vec::new();
    let mut given = "{}";
    if !call.params.is_empty() {
        let none = match call.params.iter().any(|param| param.is_required) {
            true => "",
            false => " = {}",
        };
        arguments.push(format!("params: {}{none}", params_of(call)));
        given = "params";
    }
    arguments.push("options?: CallOptions".to_owned());
    let arguments = arguments.join(", ");
    let waits = if call.waits { ", true" } else { "" };
    let verb = name(&call.verb);
    out.line(2, &format!("{verb}: ({arguments}): Promise<{result}> =>"));
    out.line(
        3,
        &format!("this.call({:?}, {given}, options{waits}),", call.method()),
    );
}

/// A name as TypeScript permits it for fields.
fn name(name: &str) -> String {
    match name
        .chars()
        .all(|of| of.is_ascii_alphanumeric() || of == '_')
    {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}
