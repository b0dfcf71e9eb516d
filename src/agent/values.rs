//! Parses the values of definition fields; each error says what is expected. Called by `fields` and
//! `command`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::nodes::{NODE_LIST, NODE_READ, NODE_RUN};
use crate::kernel::ids::AgentId;
use crate::kernel::policy::gate::{Decision, Rule};
use crate::kernel::policy::overlay;
use crate::kernel::policy::pattern::fits;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::secret::{GivenValue, Reference};
use crate::kernel::text::{in_quotes, preview};

/// The maximum number of characters of a one-line text, such as a description or title.
const TEXT_LIMIT: usize = 4096;
/// The tools whose calls may be made on a node, the last three by an agent that works on one.
const ON_NODES: [&str; 6] = [NODE_RUN, NODE_READ, NODE_LIST, "shell", "read", "list"];
/// The maximum time limit of a run.
const RUN_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Parses one rule for calls of `tool`.
pub(super) fn rule(tool: &str, item: &Value) -> Result<Rule, String> {
    let expected =
        "a rule needs decision (allow, deny or ask) and may have match and node (patterns)";
    let fields = item.as_object().ok_or(expected)?;
    if let Some(other) = fields
        .keys()
        .find(|name| !matches!(name.as_str(), "match" | "node" | "decision"))
    {
        return Err(format!("{expected}, not {}", in_quotes(other, 64)));
    }
    let node = fields.get("node").map(text).transpose()?;
    if node.is_some() && !ON_NODES.iter().any(|known| fits(tool, known)) {
        let known = ON_NODES.join(", ");
        return Err(format!(
            "{tool} is never called on a node: node is for {known}"
        ));
    }
    Ok(Rule {
        tool: tool.to_owned(),
        pattern: fields.get("match").map(text).transpose()?,
        node,
        decision: decision(fields.get("decision").ok_or(expected)?)?,
    })
}

pub(super) fn decision(value: &Value) -> Result<Decision, String> {
    word(value, &["allow", "deny", "ask"])
}

/// The parsed field `env` of an agent.
#[derive(Default)]
pub(super) struct EnvField {
    /// Names with their values or references; `None` if the value must come with each request.
    pub env: BTreeMap<String, Option<GivenValue>>,
    /// The names declared as secrets.
    pub secret: BTreeSet<String>,
}

/// Parses the field `env`. No error repeats a value.
pub(super) fn environment(value: &Value) -> Result<EnvField, String> {
    let expected = "names are expected, each with a text, {from: env:NAME}, {from: file:/PATH}, \
                    {from: cred:NAME}, or nothing for a value that requests give; secret: true \
                    beside from hides the value";
    let mut read = EnvField::default();
    for (name, value) in value.as_object().ok_or(expected)? {
        let given = match value {
            Value::Null => None,
            Value::String(text) => Some(GivenValue::text(text)),
            Value::Number(number) => Some(GivenValue::text(number.to_string())),
            Value::Bool(flag) => Some(GivenValue::text(flag.to_string())),
            Value::Object(fields) => {
                let known = |field: &String| field == "from" || field == "secret";
                if fields.is_empty() || !fields.keys().all(known) {
                    return Err(format!("{name}: {expected}"));
                }
                match fields.get("secret").map(Value::as_bool) {
                    Some(None) => return Err(format!("{name}: secret: true or false is expected")),
                    Some(Some(true)) => {
                        read.secret.insert(name.clone());
                    }
                    Some(Some(false)) | None => {}
                }
                match fields.get("from") {
                    None | Some(Value::Null) => None,
                    Some(from) => {
                        let from = from.as_str().ok_or(expected)?;
                        Some(GivenValue::From(Reference::parse(from)?))
                    }
                }
            }
            Value::Array(_) => return Err(format!("{name}: {expected}")),
        };
        let sample = given.clone().unwrap_or_else(|| GivenValue::text(""));
        overlay::check(name, &sample).map_err(|fault| fault.message)?;
        read.env.insert(name.clone(), given);
    }
    Ok(read)
}

/// The error text for a value that is not in `known`; lists the allowed values.
pub(super) fn no_word(word: &str, known: &[&str]) -> String {
    let known = known.join(", ");
    format!("{} is not one of {known}", in_quotes(word, 64))
}

/// Parses one of the words in `known`.
pub(super) fn word<T: DeserializeOwned>(value: &Value, known: &[&str]) -> Result<T, String> {
    let word = text(value)?;
    serde_json::from_value(Value::String(word.clone())).map_err(|_| no_word(&word, known))
}

/// Parses a non-empty text.
pub(super) fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
        Value::String(_) => Err("it is empty".to_owned()),
        other => Err(format!(
            "text is expected, not {}; put it in quotes",
            preview(&other.to_string(), 32)
        )),
    }
}

/// Parses a text as one line, within its limit.
pub(super) fn line(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    let count = text.chars().count();
    if count > TEXT_LIMIT {
        return Err(format!("{count} characters; {TEXT_LIMIT} at most"));
    }
    Ok(preview(&text, TEXT_LIMIT))
}

/// Parses a list of texts, or one text separated by commas.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(list) => Ok(list
            .split(',')
            .map(|item| item.trim().to_owned())
            .filter(|item| !item.is_empty())
            .collect()),
        _ => Err("a list of names is expected".to_owned()),
    }
}

pub(super) fn flag(value: &Value) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "true or false is expected".to_owned())
}

pub(super) fn count(value: &Value, least: u64, most: u64) -> Result<u32, String> {
    value
        .as_u64()
        .filter(|number| (least..=most).contains(number))
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| {
            let found = preview(&value.to_string(), 32);
            format!("a whole number from {least} to {most} is expected, not {found}")
        })
}

/// Parses `"90s"` or a number of seconds to milliseconds.
pub(super) fn duration(value: &Value) -> Result<u64, String> {
    let found = match value {
        Value::String(text) => humantime::parse_duration(text).ok(),
        value => value
            .as_f64()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    };
    found
        .filter(|limit| limit.as_millis() > 0 && *limit <= RUN_LIMIT)
        .and_then(|limit| u64::try_from(limit.as_millis()).ok())
        .ok_or_else(|| {
            "a duration such as \"10m\", or a number of seconds, up to 30 days is expected"
                .to_owned()
        })
}

pub(super) fn thinking(value: &Value) -> Result<Thinking, String> {
    match value {
        // YAML 1.1 reads a bare `off` as false.
        Value::Bool(false) => Ok(Thinking::Off),
        value => word(
            value,
            &["off", "minimal", "low", "medium", "high", "xhigh", "max"],
        ),
    }
}

/// Parses one model or a list of models, each as `provider/name` or as `{provider, model}`.
pub(super) fn models(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.iter().map(model).collect(),
        one => model(one).map(|model| vec![model]),
    }
}

pub(super) fn temperature(value: &Value) -> Result<f64, String> {
    let found = value.as_f64();
    found
        .filter(|number| (0.0..=2.0).contains(number))
        .ok_or_else(|| {
            let found = preview(&value.to_string(), 32);
            format!("a number from 0 to 2 is expected, not {found}")
        })
}

pub(super) fn model(value: &Value) -> Result<String, String> {
    let expected = "provider/name is expected";
    let model = match value {
        Value::Object(fields) => {
            let part = |name: &str| fields.get(name).ok_or(expected).map(text);
            format!("{}/{}", part("provider")??, part("model")??)
        }
        value => text(value)?,
    };
    match model.split_once('/') {
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => Ok(model),
        _ => Err(format!("{expected}, not {}", in_quotes(&model, 64))),
    }
}

pub(super) fn allow_agents(value: &Value) -> Result<Vec<String>, String> {
    let names = texts(value)?;
    match names
        .iter()
        .find(|name| *name != "*" && AgentId::parse(name).is_err())
    {
        Some(name) => Err(format!("{} is not a valid agent name", in_quotes(name, 64))),
        None => Ok(names),
    }
}
