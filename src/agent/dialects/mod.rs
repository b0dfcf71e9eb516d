//! Translates fields of other programs' agent files. A restriction is either understood or makes
//! the file unusable, so that an agent never gets more rights than its file states. Commands of
//! another program are never run. Called by `folder` for every file, since files of one program are
//! often placed among those of another.

mod lists;
mod looks;
pub(super) mod names;
mod permission;
mod plain;
mod powers;

use serde_json::{Map, Value, json};

use self::names::key;
use self::permission::listed;
use super::fields::is_known;
use super::folder::Dialect;
use super::raw::{LoadError, RawDefinition};
use super::values::{count, duration, flag, no_word, text};
use crate::kernel::policy::gate::{Decision, Rule};

pub(super) use self::looks::{names_a_restriction, refusal, restricts};
#[cfg(test)]
pub(super) use self::names::OURS;

/// Restrictions from fields of other programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Narrowing {
    /// Rules that apply in addition to the agent's gate and never grant anything. Each field has
    /// its own list: what one denies, no other allows.
    pub rules: Vec<Vec<Rule>>,
    /// The maximum number of model calls.
    pub loops: Option<u32>,
    /// The time limit of a run, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The agents that it may delegate to; `None` = no restriction.
    pub agents: Option<Vec<String>>,
    /// The skills that it may use; `None` = no restriction.
    pub skills: Option<Vec<String>>,
    /// Whether it is switched off.
    pub inactive: bool,
    /// Notes about the translation.
    pub notes: Vec<String>,
    /// The tools that it may have; `None` = no restriction.
    allowed: Option<Vec<String>>,
    /// The tools that it may not have.
    denied: Vec<String>,
}

impl Narrowing {
    fn rule(&mut self, tool: &str, pattern: Option<String>, decision: Decision) {
        let rule = Rule {
            tool: tool.to_owned(),
            pattern,
            node: None,
            decision,
        };
        match self.rules.last_mut() {
            Some(rules) => rules.push(rule),
            None => self.rules.push(vec![rule]),
        }
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Restricts delegation to at most these agents.
    fn only_agents(&mut self, names: Vec<String>) {
        match &mut self.agents {
            Some(known) => known.retain(|name| names.contains(name)),
            none => *none = Some(names),
        }
    }
}

/// True if a line of an invalid YAML header begins a field with this name.
pub(super) fn begins(name: &str, value: &Value) -> bool {
    const THEIRS: &[&str] = &[
        "color",
        "effort",
        "memory",
        "background",
        "initialPrompt",
        "hooks",
        "version",
        "author",
        "tags",
        "license",
        "category",
        "metadata",
        "maxTurns",
        "mcpServers",
        "argument-hint",
    ];
    // Speakers in examples of descriptions.
    const SPEAKERS: &[&str] = &[
        "user",
        "assistant",
        "human",
        "agent",
        "context",
        "commentary",
        "example",
        "examples",
        "note",
    ];
    let is_bare = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let restricts = || match value {
        // The value follows on the next lines.
        Value::Null => looks::speaks_of_power(name),
        value => restricts(name, value) && !SPEAKERS.contains(&name.to_lowercase().as_str()),
    };
    !name.is_empty()
        && is_bare
        && (is_known(name) || THEIRS.contains(&name) || names_a_restriction(name) || restricts())
}

/// Translates fields of other programs to those of this format.
pub(super) fn translate(
    raw: &mut RawDefinition,
    dialect: Dialect,
    stem: &str,
) -> Result<(), LoadError> {
    let fields = std::mem::take(&mut raw.fields);
    let mut reader = DialectReader {
        is_foreign: dialect != Dialect::Own,
        narrowing: Narrowing::default(),
        fields: Vec::new(),
        switches: Map::new(),
        soft_model: false,
    };
    for (written, value) in fields {
        let taken = reader.field(&written, value);
        taken.map_err(|reason| LoadError {
            line: raw.line_of(&[&written]),
            reason: format!("{written}: {reason}"),
        })?;
    }
    if reader.is_foreign {
        reader.name(stem);
    }
    let DialectReader {
        mut narrowing,
        mut fields,
        switches,
        soft_model,
        ..
    } = reader;
    narrowing.rules.retain(|rules| !rules.is_empty());
    let allowed = narrowing.allowed.take();
    let denied = std::mem::take(&mut narrowing.denied);
    if allowed.is_some() || !denied.is_empty() {
        let mut tools = Map::new();
        if let Some(allowed) = allowed {
            tools.insert("allow".to_owned(), json!(allowed));
        }
        tools.insert("deny".to_owned(), json!(denied));
        fields.push(("tools".to_owned(), Value::Object(tools)));
    }
    if !switches.is_empty() {
        fields.push(("tools".to_owned(), Value::Object(switches)));
    }
    raw.fields = fields;
    raw.soft_model = soft_model;
    raw.warnings.append(&mut narrowing.notes);
    raw.narrowing = narrowing;
    Ok(())
}

struct DialectReader {
    /// True if the file belongs to another program.
    is_foreign: bool,
    narrowing: Narrowing,
    fields: Vec<(String, Value)>,
    /// Tools that are switched on or off.
    switches: Map<String, Value>,
    soft_model: bool,
}

impl DialectReader {
    fn keep(&mut self, name: &str, value: Value) {
        self.fields.push((name.to_owned(), value));
    }

    fn field(&mut self, written: &str, value: Value) -> Result<(), String> {
        // An empty value counts as not set.
        if value.is_null() {
            return Ok(());
        }
        self.narrowing.rules.push(Vec::new());
        match key(written).as_str() {
            "tools" | "tool" => self.tools(value)?,
            "allowedtools" | "allowtools" | "enabledtools" | "includetools" => {
                self.allow(&value)?
            }
            "disallowedtools" | "deniedtools" | "denytools" | "excludetools" | "excludedtools"
            | "blockedtools" | "forbiddentools" | "disabledtools" => self.narrowing.deny(&value)?,
            "permission" => self.narrowing.permission(&value)?,
            "permissions" => match &value {
                Value::Object(fields)
                    if fields.keys().any(|name| {
                        ["allow", "ask", "deny", "defaultMode"].contains(&name.as_str())
                    }) =>
                {
                    self.narrowing.lists(fields)?;
                }
                other => self.narrowing.permission(other)?,
            },
            "permissionmode" | "approvalpolicy" | "approvalmode" => self.narrowing.mode(&value)?,
            "readonly" => {
                if switch(&value)? {
                    self.narrowing.read_only();
                }
            }
            "sandbox" | "sandboxmode" => self.narrowing.sandbox(&value)?,
            "network" | "networkaccess" | "internet" | "internetaccess" | "webaccess" => {
                if !switch(&value)? {
                    // Shell commands could also reach the network.
                    self.narrowing.all(&["fetch", "shell"], Decision::Deny);
                }
            }
            "isolation" => match value.as_str() {
                Some("none") => {}
                _ => {
                    self.narrowing
                        .all(&["write", "edit", "shell"], Decision::Ask);
                    let note = "isolation: it works in the run's own folder, and each change needs approval";
                    self.narrowing.note(note.to_owned());
                }
            },
            "hooks" => self.narrowing.hooks(&value),
            "maxturns" | "maxsteps" | "steps" | "maxiterations" | "maxloops" => {
                let most = count(&value, 1, u64::from(u32::MAX))?;
                let known = self.narrowing.loops.unwrap_or(most);
                self.narrowing.loops = Some(known.min(most));
            }
            "timeout" | "runtimeout" => self.timeout(duration(&value)?),
            "timeoutmins" | "timeoutminutes" => {
                self.timeout(u64::from(count(&value, 1, 30 * 24 * 60)?) * 60_000);
            }
            "timeoutms" => self.timeout(u64::from(count(&value, 1, u64::from(u32::MAX))?)),
            "timeoutseconds" | "timeoutsecs" => {
                self.timeout(u64::from(count(&value, 1, u64::from(u32::MAX / 1000))?) * 1000);
            }
            "disable" | "disabled" => self.narrowing.inactive |= switch(&value)?,
            "enabled" => self.narrowing.inactive |= !switch(&value)?,
            "gate" => self.gate(value)?,
            "groups" => self.groups(&value)?,
            "agents" | "subagents" => self.callees(&value)?,
            _ if !is_known(written) && self.power(written, &value)? => {}
            _ => return self.other(written, value),
        }
        Ok(())
    }

    /// Translates fields that restrict nothing.
    fn other(&mut self, written: &str, value: Value) -> Result<(), String> {
        if is_known(written) && !self.is_foreign {
            self.keep(written, value);
            return Ok(());
        }
        match written {
            "model" => self.model(value),
            "effort" | "reasoning_effort" | "reasoningEffort" | "model_reasoning_effort" => {
                self.thinking(value);
            }
            "developer_instructions" => self.keep("system_prompt", value),
            "description" => self.description(value),
            "skills" => match listed(&value) {
                Ok(names) => self.keep(written, json!(names)),
                Err(_) => self.keep(written, value),
            },
            "memory"
            | "background"
            | "initialPrompt"
            | "is_background"
            | "disable-model-invocation"
            | "user-invocable" => {
                self.narrowing
                    .note(format!("not in effect here: {written}"));
            }
            // Only a display color.
            "color" => {}
            _ if is_known(written) => self.keep(written, value),
            _ => match looks::ours(written) {
                Some(ours) => self.keep(ours, value),
                None if restricts(written, &value) => return Err(refusal(written)),
                None => self.keep(written, value),
            },
        }
        Ok(())
    }

    fn timeout(&mut self, limit: u64) {
        let known = self.narrowing.timeout_ms.unwrap_or(limit);
        self.narrowing.timeout_ms = Some(known.min(limit));
    }
}

/// Parses a boolean, or a word such as `"true"` or `yes`.
fn switch(value: &Value) -> Result<bool, String> {
    match value.as_str() {
        None => flag(value),
        Some("true" | "yes" | "on" | "enabled") => Ok(true),
        Some("false" | "no" | "off" | "disabled" | "none") => Ok(false),
        Some(_) => Err(format!("true or false is expected, not {:?}", text(value)?)),
    }
}

#[cfg(test)]
mod tests;
