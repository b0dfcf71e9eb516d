//! Fields of other programs' agent files in our words. What restricts an agent is either
//! understood or makes its file unusable: an agent never gets more than its file says. Nothing of
//! another program is ever run. Called by `folder` for every file, since files of one program are
//! often put among those of another.

mod looks;
mod names;
mod permission;

use serde_json::{Map, Value, json};

use self::names::{DELEGATING, Entry, entry, key};
use self::permission::listed;
use super::fields::is_known;
use super::folder::Dialect;
use super::names::derived;
use super::raw::{Broken, Raw};
use super::values::{count, duration, flag, line, no_word, text};
use crate::kernel::gate::{Decision, Rule};
use crate::kernel::text::preview;
use crate::kernel::thinking::Thinking;

pub(super) use self::looks::{refusal, restricts};
#[cfg(test)]
pub(super) use self::names::OURS;
use self::names::{gated, no_tool};

/// The names of models that mean nothing outside that program.
const ALIASES: &[&str] = &[
    "inherit", "sonnet", "opus", "haiku", "default", "auto", "best", "opusplan",
];
/// The most characters of a description.
const DESCRIPTION: usize = 4096;

/// What fields of other programs take from an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Narrowing {
    /// Rules that hold besides its own gate, and never open anything. Those of each field by
    /// themselves: what one forbids no other allows.
    pub rules: Vec<Vec<Rule>>,
    /// The most model calls.
    pub loops: Option<u32>,
    /// The longest that a run may take, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whom it may delegate to.
    pub agents: Option<Vec<String>>,
    /// Which skills it may use.
    pub skills: Option<Vec<String>>,
    /// It is not used.
    pub inactive: bool,
    /// What was made of it.
    pub notes: Vec<String>,
    /// Tools that it may have.
    allowed: Option<Vec<String>>,
    /// Tools that it may not have.
    denied: Vec<String>,
}

impl Narrowing {
    fn rule(&mut self, tool: &str, pattern: Option<String>, decision: Decision) {
        let rule = Rule {
            tool: tool.to_owned(),
            pattern,
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
}

/// Does a line of a header that is no YAML begin a field with this name?
pub(super) fn begins(name: &str) -> bool {
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
    let is_bare = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    !name.is_empty() && is_bare && (is_known(name) || THEIRS.contains(&name) || restricts(name))
}

/// Turns fields of other programs into ours.
pub(super) fn translate(raw: &mut Raw, dialect: Dialect, stem: &str) -> Result<(), Broken> {
    let fields = std::mem::take(&mut raw.fields);
    let mut reader = Reader {
        is_foreign: dialect != Dialect::Own,
        narrowing: Narrowing::default(),
        fields: Vec::new(),
        switches: Map::new(),
        soft_model: false,
    };
    for (written, value) in fields {
        let taken = reader.field(&written, value);
        taken.map_err(|reason| Broken {
            line: raw.line_of(&[&written]),
            reason: format!("{written}: {reason}"),
        })?;
    }
    if reader.is_foreign {
        reader.name(stem);
    }
    let Reader {
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

struct Reader {
    /// The file is of another program.
    is_foreign: bool,
    narrowing: Narrowing,
    fields: Vec<(String, Value)>,
    /// Tools that are switched on and off.
    switches: Map<String, Value>,
    soft_model: bool,
}

impl Reader {
    fn keep(&mut self, name: &str, value: Value) {
        self.fields.push((name.to_owned(), value));
    }

    fn field(&mut self, written: &str, value: Value) -> Result<(), String> {
        // An empty value says nothing.
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
            "network" | "networkaccess" => {
                if !switch(&value)? {
                    // Commands may reach out, too.
                    self.narrowing.all(&["fetch", "shell"], Decision::Deny);
                }
            }
            "isolation" => match value.as_str() {
                Some("none") => {}
                _ => {
                    self.narrowing
                        .all(&["write", "edit", "shell"], Decision::Ask);
                    let note =
                        "isolation: it works in the run's own folder, and each change is asked for";
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
            _ => return self.other(written, value),
        }
        Ok(())
    }

    /// Fields that take nothing away.
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
            "memory" | "background" | "initialPrompt" | "is_background" => {
                self.narrowing.note(format!("not in force: {written}"));
            }
            // It only colours their screen.
            "color" => {}
            _ if is_known(written) => self.keep(written, value),
            _ => match looks::ours(written) {
                Some(ours) => self.keep(ours, value),
                None if restricts(written) => return Err(refusal(written)),
                None => self.keep(written, value),
            },
        }
        Ok(())
    }

    fn timeout(&mut self, limit: u64) {
        let known = self.narrowing.timeout_ms.unwrap_or(limit);
        self.narrowing.timeout_ms = Some(known.min(limit));
    }

    /// A list, a map of switches, or `{allow, deny}`.
    fn tools(&mut self, value: Value) -> Result<(), String> {
        let Value::Object(fields) = value else {
            if listed(&value).is_err() {
                // Refused where it is read, with what is expected.
                self.keep("tools", value);
                return Ok(());
            }
            return self.allow(&value);
        };
        if !fields.is_empty() && fields.values().all(Value::is_boolean) {
            for (name, on) in fields {
                self.switch(&name, on == Value::Bool(true))?;
            }
            return Ok(());
        }
        for (name, value) in &fields {
            match name.as_str() {
                "allow" => self.allow(value)?,
                "deny" => self.narrowing.deny(value)?,
                _ => return Err("names with true or false, or the lists allow and deny".to_owned()),
            }
        }
        Ok(())
    }

    fn switch(&mut self, name: &str, on: bool) -> Result<(), String> {
        let tools = match entry(name, on) {
            Entry::Tool(tool) => vec![tool],
            Entry::Agents(_) if on => vec!["task".to_owned()],
            Entry::Agents(_) => DELEGATING.iter().map(ToString::to_string).collect(),
            Entry::Nothing(_) => return Ok(()),
            _ if on => vec![name.to_owned()],
            // A tool of a server, whose name has one `_` there and two here.
            Entry::Unknown(_) if name.contains('_') => vec![name.replace('_', "*")],
            _ => return Err(no_tool(name)),
        };
        for tool in tools {
            self.switches.insert(tool, Value::Bool(on));
        }
        Ok(())
    }

    /// Of two lists that say which tools there are, only what both name.
    fn allow(&mut self, value: &Value) -> Result<(), String> {
        let mut tools: Vec<String> = Vec::new();
        let mut only: Vec<(String, Vec<String>)> = Vec::new();
        let mut agents: Vec<String> = Vec::new();
        let mut any_agent = false;
        for written in listed(value)? {
            match entry(&written, true) {
                Entry::Tool(tool) => tools.push(tool),
                Entry::Calls(tool, patterns) => only.push((tool, patterns)),
                Entry::Agents(named) => {
                    any_agent |= named.is_empty();
                    agents.extend(named.iter().map(|name| derived(name)));
                    tools.push("task".to_owned());
                }
                Entry::Nothing(name) => {
                    self.narrowing
                        .note(format!("tool {name} has no counterpart here"));
                }
                Entry::Unreadable(written) => self.narrowing.note(format!(
                    "tool {written} is left out: which calls are meant has no counterpart here"
                )),
                Entry::Unknown(name) => tools.push(name),
            }
        }
        // Where a tool is named with and without its calls, it is named.
        let named: Vec<String> = tools.clone();
        only.retain(|(tool, _)| !named.contains(tool));
        for (tool, _) in &only {
            if !tools.contains(tool) {
                tools.push(tool.clone());
                self.narrowing.rule(tool, None, Decision::Deny);
            }
        }
        for (tool, patterns) in only {
            for pattern in patterns {
                self.narrowing.rule(&tool, Some(pattern), Decision::Allow);
            }
        }
        if !any_agent && !agents.is_empty() {
            self.narrowing.agents = Some(agents);
        }
        match &mut self.narrowing.allowed {
            Some(known) => known.retain(|tool| tools.contains(tool)),
            none => *none = Some(tools),
        }
        Ok(())
    }

    /// Rules on tools that are not known would forbid nothing.
    fn gate(&mut self, value: Value) -> Result<(), String> {
        let Value::Object(tools) = value else {
            self.keep("gate", value);
            return Ok(());
        };
        let mut gate = Map::new();
        for (name, rules) in tools {
            let opens = rules == Value::String("allow".to_owned());
            match gated(&name) {
                Some(names) => {
                    for own in names {
                        gate.insert(own, rules.clone());
                    }
                }
                None if opens => {
                    self.narrowing.note(format!("gate: {}", no_tool(&name)));
                }
                None => return Err(no_tool(&name)),
            }
        }
        self.keep("gate", Value::Object(gate));
        Ok(())
    }

    fn model(&mut self, value: Value) {
        let first = match value {
            Value::Array(items) => items.into_iter().next().unwrap_or_default(),
            value => value,
        };
        self.soft_model = true;
        match first.as_str() {
            Some(alias) if ALIASES.contains(&alias) => self
                .narrowing
                .note(format!("model {alias}: the default model is used")),
            // Their models are all of one provider, ours say which.
            Some(model) if !model.contains('/') && !model.trim().is_empty() => {
                self.keep(
                    "model",
                    Value::String(format!("anthropic/{}", model.trim())),
                );
            }
            _ => self.keep("model", first),
        }
    }

    /// Levels that there are not here are the highest that there is.
    fn thinking(&mut self, value: Value) {
        match value.as_str() {
            Some(word @ ("xhigh" | "max")) if Thinking::parse(word).is_none() => {
                self.narrowing
                    .note(format!("effort {word}: high is the most here"));
                self.keep("thinking", json!("high"));
            }
            Some(word) if Thinking::parse(word).is_none() => {
                let shown = preview(word, 32);
                self.narrowing.note(format!(
                    "effort {shown:?} is not known: the model's own is used"
                ));
            }
            Some(_) => self.keep("thinking", value),
            // A number of tokens and the like.
            None => self.narrowing.note("not in force: effort".to_owned()),
        }
    }

    fn description(&mut self, value: Value) {
        let long = value
            .as_str()
            .filter(|text| text.chars().count() > DESCRIPTION);
        let Some(text) = long else {
            return self.keep("description", value);
        };
        let note = format!(
            "description has {} characters; {DESCRIPTION} are kept",
            text.chars().count()
        );
        self.narrowing.note(note);
        let cut: String = text.chars().take(DESCRIPTION - 1).collect();
        self.keep("description", Value::String(cut));
    }

    /// A name that no agent can have here becomes its title, and one is derived from it.
    fn name(&mut self, stem: &str) {
        let stated = self.fields.iter().position(|(name, _)| name == "name");
        let written = stated
            .and_then(|at| self.fields[at].1.as_str())
            .filter(|name| !name.trim().is_empty())
            .unwrap_or(stem)
            .trim()
            .to_owned();
        if super::names::check(&written).is_ok() {
            return;
        }
        let mut own = derived(&written);
        if super::names::check(&own).is_err() {
            own = derived(stem);
        }
        if super::names::check(&own).is_err() {
            own = format!("agent-{}", &blake3::hash(written.as_bytes()).to_hex()[..8]);
        }
        let shown = preview(&written, 64);
        self.narrowing.note(format!(
            "name {shown:?} cannot be used here: the agent is called {own}"
        ));
        if !self.fields.iter().any(|(name, _)| name == "title")
            && let Ok(title) = line(&Value::String(written))
        {
            self.keep("title", Value::String(title));
        }
        match stated {
            Some(at) => self.fields[at].1 = Value::String(own),
            None => self.keep("name", Value::String(own)),
        }
    }
}

/// `true`, `"true"`, `yes`.
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
