//! Converts the argument schema of a server tool to one that every provider accepts. Called by
//! `names`.
//!
//! One unsupported schema makes a provider refuse the whole request. Providers expect an object at
//! the top without `anyOf` and the like, keywords with valid values, and resolvable references.
//! Anything else is widened, never narrowed: the server checks the arguments of each call itself,
//! so every call that it accepts stays possible.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::kernel::text::{prefix, storable};

/// The maximum size of one tool's schema, in bytes.
const SCHEMA_LIMIT: usize = 64 * 1024;
/// The maximum size of a description within a schema, in bytes.
const DESCRIPTION_LIMIT: usize = 2 * 1024;
/// The maximum depth; deeper schemas accept anything.
const DEPTH: usize = 24;
/// The maximum number of parts of a schema, after references are resolved.
const PARTS: usize = 20_000;
/// The maximum number of references and alternatives that are resolved.
const JUMPS: usize = 200;
/// The maximum length of an argument name that every provider accepts.
const NAME_LIMIT: usize = 64;

/// The arguments of a tool in the form that providers accept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConvertedArguments {
    /// Their schema, of type object.
    pub schema: Value,
    /// Renamed arguments: the name for models to the server's name.
    pub renamed: BTreeMap<String, String>,
}

/// Converts `schema`. The error says why no provider would accept it.
pub(super) fn arguments(schema: &Value) -> Result<ConvertedArguments, String> {
    let mut parts = SchemaConversion {
        root: schema,
        left: PARTS,
        jumps: JUMPS,
    };
    // This also limits the size of the copies.
    within_limit(schema, 4 * SCHEMA_LIMIT)?;
    let top = match schema {
        Value::Object(fields) => parts.flat(fields.clone(), 0)?,
        Value::Null | Value::Bool(true) => Map::new(),
        // Some languages encode an object without fields as an empty array.
        Value::Array(items) if items.is_empty() => Map::new(),
        _ => return Err("the schema of its arguments is not a JSON object".to_owned()),
    };
    let mut top = parts.fields(top, 0);
    if parts.left == 0 {
        return Err(format!(
            "the schema of its arguments has more than {PARTS} parts"
        ));
    }
    top.insert("type".to_owned(), "object".into());
    let mut properties = match top.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let required = names(top.get("required"));
    for name in &required {
        properties.entry(name.as_str()).or_insert_with(|| json!({}));
    }
    let (properties, renamed) = renamed(properties);
    let required = required
        .iter()
        .map(|name| {
            let new = renamed.iter().find(|(_, own)| *own == name);
            Value::from(new.map_or(name.as_str(), |(new, _)| new))
        })
        .collect::<Vec<_>>();
    match required.is_empty() {
        true => top.shift_remove("required"),
        false => top.insert("required".to_owned(), required.into()),
    };
    top.insert("properties".to_owned(), Value::Object(properties));
    let schema = Value::Object(top);
    within_limit(&schema, SCHEMA_LIMIT)?;
    Ok(ConvertedArguments { schema, renamed })
}

fn within_limit(schema: &Value, limit: usize) -> Result<(), String> {
    let size = schema.to_string().len();
    match size > limit {
        true => Err(format!(
            "the schema of its arguments has {size} bytes; the maximum is {SCHEMA_LIMIT}"
        )),
        false => Ok(()),
    }
}

/// Renames properties that a provider would not accept; returns all, and the changed names.
fn renamed(properties: Map<String, Value>) -> (Map<String, Value>, BTreeMap<String, String>) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut taken: BTreeSet<String> = properties.keys().cloned().collect();
    let mut renamed = BTreeMap::new();
    let mut all = Map::new();
    for (name, schema) in properties {
        if !name.is_empty() && name.len() <= NAME_LIMIT && name.chars().all(fits) {
            all.insert(name, schema);
            continue;
        }
        let plain = name.replace(|c| !fits(c), "_");
        let plain = prefix(&plain, NAME_LIMIT - 8).to_owned();
        let mut new = plain.clone();
        let mut count = 1;
        while new.is_empty() || !taken.insert(new.clone()) {
            count += 1;
            new = format!("{plain}_{count}");
        }
        all.insert(new.clone(), schema);
        renamed.insert(new, name);
    }
    (all, renamed)
}

/// The distinct texts in a list of names.
fn names(list: Option<&Value>) -> Vec<String> {
    let mut names = Vec::new();
    for name in list.and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = name.as_str() else { continue };
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The types that a schema allows, in the standard's words; `None` = any type.
fn kinds(value: Option<&Value>) -> Option<Vec<&'static str>> {
    let kind = |word: &Value| {
        Some(match word.as_str()?.to_ascii_lowercase().as_str() {
            "object" | "dict" | "map" | "record" => "object",
            "array" | "list" | "tuple" => "array",
            "string" | "str" | "text" => "string",
            "integer" | "int" | "long" => "integer",
            "number" | "float" | "double" | "decimal" => "number",
            "boolean" | "bool" => "boolean",
            "null" | "none" => "null",
            _ => return None,
        })
    };
    let mut kinds = Vec::new();
    match value? {
        Value::Array(words) => {
            for word in words {
                let kind = kind(word)?;
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        word => kinds.push(kind(word)?),
    }
    (!kinds.is_empty()).then_some(kinds)
}

/// Keywords that are not accepted at the top of a schema.
const TOP: [&str; 10] = [
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "enum",
    "const",
    "if",
    "then",
    "else",
    "dependentSchemas",
];

/// A schema conversion in progress.
struct SchemaConversion<'a> {
    /// The schema that references point into.
    root: &'a Value,
    /// The remaining number of parts.
    left: usize,
    /// The remaining number of references and alternatives to resolve.
    jumps: usize,
}

impl SchemaConversion<'_> {
    /// Flattens the schema of an object for the top level: resolves references and merges the
    /// properties of all alternatives.
    fn flat(
        &mut self,
        mut schema: Map<String, Value>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        if depth > DEPTH || self.jumps == 0 {
            return Err("its schema refers to itself, or has too many alternatives".to_owned());
        }
        self.jumps -= 1;
        if let Some(reference) = schema.shift_remove("$ref") {
            let found = self.resolve(&reference);
            let Some(Value::Object(found)) = found.cloned() else {
                return Err(format!(
                    "its schema refers to {reference}, which cannot be resolved"
                ));
            };
            let found = self.flat(found, depth + 1)?;
            all_of(&mut schema, found);
        }
        if kinds(schema.get("type")).is_some_and(|kinds| !kinds.contains(&"object")) {
            return Err(format!(
                "its arguments are of type {}, but must be an object",
                schema["type"]
            ));
        }
        let [any, one, all] = ["anyOf", "oneOf", "allOf"].map(|name| schema.shift_remove(name));
        for branch in branches(all) {
            let branch = self.flat(branch, depth + 1)?;
            all_of(&mut schema, branch);
        }
        for alternatives in [any, one] {
            let alternatives = branches(alternatives);
            let (mut forms, mut refused) = (Vec::new(), None);
            for branch in alternatives {
                match self.flat(branch, depth + 1) {
                    Ok(form) => forms.push(form),
                    Err(why) => refused = Some(why),
                }
            }
            match (forms.is_empty(), refused) {
                (true, Some(why)) => return Err(why),
                _ => any_of(&mut schema, forms),
            }
        }
        for name in ["then", "else"] {
            if let Some(Value::Object(branch)) = schema.shift_remove(name)
                && let Ok(mut branch) = self.flat(branch, depth + 1)
            {
                branch.shift_remove("required");
                all_of(&mut schema, branch);
            }
        }
        for name in TOP {
            schema.shift_remove(name);
        }
        Ok(schema)
    }

    fn resolve(&self, reference: &Value) -> Option<&Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// Converts a schema below the top level.
    fn schema(&mut self, schema: Value, depth: usize) -> Value {
        self.left = self.left.saturating_sub(1);
        if depth > DEPTH || self.left == 0 {
            return json!({});
        }
        match schema {
            Value::Object(fields) => Value::Object(self.fields(fields, depth)),
            Value::Bool(false) => json!({ "not": {} }),
            // The name of a type instead of a schema.
            Value::String(_) => {
                let fields = Map::from_iter([("type".to_owned(), schema)]);
                Value::Object(self.fields(fields, depth))
            }
            _ => json!({}),
        }
    }

    /// Converts the fields of a schema to the standard's form.
    fn fields(&mut self, fields: Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut out = Map::new();
        let mut required = names(fields.get("required"));
        let mut kinds = kinds(fields.get("type"));
        if fields.get("nullable") == Some(&Value::Bool(true))
            && let Some(kinds) = &mut kinds
            && !kinds.contains(&"null")
        {
            kinds.push("null");
        }
        for (name, value) in fields {
            match name.as_str() {
                "type" => match kinds.as_deref() {
                    Some([kind]) => drop(out.insert(name, (*kind).into())),
                    Some(kinds) => drop(out.insert(name, kinds.to_vec().into())),
                    None => {}
                },
                "required" | "nullable" => {}
                "$ref" => self.reference(&mut out, value, depth),
                // An older draft marks a required property in the property itself.
                "properties" => {
                    if let Value::Object(all) = &value {
                        let marked = all.iter().filter(|(_, one)| one["required"] == true);
                        required.extend(marked.map(|(name, _)| name.clone()));
                    }
                    out.insert(name, self.named(value, depth));
                }
                "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    out.insert(name, self.named(value, depth));
                }
                "items" => drop(out.insert(name, self.items(value, depth))),
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                    if let Some(all) = self.list(value, depth) {
                        out.insert(name, all);
                    }
                }
                "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems"
                    if value.is_boolean() =>
                {
                    out.insert(name, value);
                }
                "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "not"
                | "contains"
                | "propertyNames"
                | "if"
                | "then"
                | "else" => {
                    out.insert(name, self.schema(value, depth + 1));
                }
                "exclusiveMinimum" | "exclusiveMaximum" if value == true => {
                    // An older draft states the bound in another field.
                    let bound = match name.as_str() {
                        "exclusiveMinimum" => "minimum",
                        _ => "maximum",
                    };
                    if let Some(bound) = out.shift_remove(bound) {
                        out.insert(name, bound);
                    }
                }
                _ => {
                    if let Some(value) = plain(&name, value) {
                        out.insert(name, value);
                    }
                }
            }
        }
        let is_array = kinds.is_some_and(|kinds| kinds.contains(&"array"));
        if is_array && !out.contains_key("items") {
            out.insert("items".to_owned(), json!({}));
        }
        let mut seen = BTreeSet::new();
        required.retain(|name| seen.insert(name.clone()));
        if !required.is_empty() {
            out.insert("required".to_owned(), required.into());
        }
        out
    }

    /// Keeps a reference to a definition; any other reference is replaced by its target.
    fn reference(&mut self, out: &mut Map<String, Value>, reference: Value, depth: usize) {
        let Some(found) = self.resolve(&reference).cloned() else {
            return;
        };
        let text = reference.as_str().unwrap_or_default();
        let definition = ["#/$defs/", "#/definitions/"]
            .iter()
            .find_map(|place| text.strip_prefix(place));
        // Deeper references may point to something that was converted.
        if definition.is_some_and(|name| !name.contains('/')) {
            out.insert("$ref".to_owned(), reference);
            return;
        }
        if self.jumps == 0 {
            return;
        }
        self.jumps -= 1;
        // Each reference increases the depth considerably, so that a cycle ends soon.
        if let Value::Object(found) = self.schema(found, depth + DEPTH / 4) {
            out.extend(found);
        }
    }

    fn named(&mut self, value: Value, depth: usize) -> Value {
        let Value::Object(all) = value else {
            return json!({});
        };
        let all = all.into_iter().map(|(name, one)| {
            let one = self.schema(one, depth + 1);
            (name, one)
        });
        Value::Object(all.collect())
    }

    fn list(&mut self, value: Value, depth: usize) -> Option<Value> {
        let Value::Array(all) = value else {
            return None;
        };
        let all: Vec<Value> = all
            .into_iter()
            .map(|one| self.schema(one, depth + 1))
            .collect();
        (!all.is_empty()).then(|| all.into())
    }

    /// Items with individual schemas become items of any of these, which every provider supports.
    fn items(&mut self, value: Value, depth: usize) -> Value {
        match value {
            Value::Array(_) => match self.list(value, depth) {
                Some(all) => json!({ "anyOf": all }),
                None => json!({}),
            },
            value => self.schema(value, depth + 1),
        }
    }
}

/// A keyword without a subschema; `None` if its value has the wrong type.
fn plain(name: &str, value: Value) -> Option<Value> {
    let is_right = match name {
        "$schema" | "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef"
        | "$recursiveAnchor" | "$vocabulary" | "$comment" | "id" | "dependencies"
        | "dependentRequired" | "additionalItems" => false,
        "enum" => value.as_array().is_some_and(|all| !all.is_empty()),
        "examples" => value.is_array(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => value.is_u64(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|step| step > 0.0),
        "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" => value.is_boolean(),
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        _ => true,
    };
    match value {
        Value::String(text) if is_right && name == "description" => {
            Some(storable(prefix(&text, DESCRIPTION_LIMIT)).into())
        }
        value => is_right.then_some(value),
    }
}

/// The branches of `anyOf` and the like that are objects; a branch that accepts anything adds
/// nothing.
fn branches(value: Option<Value>) -> Vec<Map<String, Value>> {
    let Some(Value::Array(all)) = value else {
        return Vec::new();
    };
    let all = all.into_iter().filter_map(|one| match one {
        Value::Object(branch) => Some(branch),
        _ => None,
    });
    all.collect()
}

/// Adds the constraints of `branch`.
fn all_of(schema: &mut Map<String, Value>, branch: Map<String, Value>) {
    let required = [names(schema.get("required")), names(branch.get("required"))].concat();
    put_properties(schema, &branch, "allOf");
    for (name, value) in branch {
        if name != "properties" && name != "required" {
            schema.entry(name).or_insert(value);
        }
    }
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}

/// Adds alternatives: all their properties are allowed, and those are required that every one
/// requires.
fn any_of(schema: &mut Map<String, Value>, forms: Vec<Map<String, Value>>) {
    let mut forms = forms.into_iter();
    let Some(first) = forms.next() else {
        return;
    };
    let mut required = names(first.get("required"));
    put_properties(schema, &first, "anyOf");
    for form in forms {
        let here = names(form.get("required"));
        required.retain(|name| here.contains(name));
        put_properties(schema, &form, "anyOf");
    }
    let required = [names(schema.get("required")), required].concat();
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}

/// Adds the properties of `branch`; `how` (`allOf` or `anyOf`) combines properties that both have.
fn put_properties(schema: &mut Map<String, Value>, branch: &Map<String, Value>, how: &str) {
    let Some(Value::Object(new)) = branch.get("properties") else {
        return;
    };
    let properties = schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    if !properties.is_object() {
        *properties = Value::Object(Map::new());
    }
    let Value::Object(properties) = properties else {
        return;
    };
    for (name, new) in new {
        match properties.get_mut(name) {
            None => drop(properties.insert(name.clone(), new.clone())),
            Some(known) if known == new => {}
            Some(known) => {
                let before = known.take();
                *known = json!({ how: [before, new] });
            }
        }
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
