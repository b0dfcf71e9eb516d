//! Lists of tools, maps of switches, and gates in an agent's file.

use serde_json::{Map, Value, json};

use super::DialectReader;
use super::names::{DELEGATING, NamedTool, entry, gated, no_tool, taken_away};
use super::permission::listed;
use crate::agent::names::derived;
use crate::kernel::policy::gate::Decision;

impl DialectReader {
    /// Reads a list, a map of switches, or `{allow, deny}`.
    pub(super) fn tools(&mut self, value: Value) -> Result<(), String> {
        let Value::Object(fields) = value else {
            if listed(&value).is_err() {
                // Refused where it is parsed, with the expected form.
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
                _ => {
                    return Err(
                        "a map of names to true or false, or the lists allow and deny, is expected"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(())
    }

    fn switch(&mut self, name: &str, on: bool) -> Result<(), String> {
        let tools = match entry(name, on) {
            NamedTool::Tool(tool) => vec![tool],
            NamedTool::Agents(_) if on => vec!["task".to_owned()],
            NamedTool::Agents(_) => DELEGATING.iter().map(ToString::to_string).collect(),
            NamedTool::Nothing(_) => return Ok(()),
            _ if on => vec![name.to_owned()],
            // A server tool: separated by one `_` there, by two here.
            NamedTool::Unknown(_) if name.contains('_') => vec![name.replace('_', "*")],
            _ => return Err(no_tool(name)),
        };
        for tool in tools {
            self.switches.insert(tool, Value::Bool(on));
        }
        Ok(())
    }

    /// Restricts the tools to a list; of two lists, the intersection.
    pub(super) fn allow(&mut self, value: &Value) -> Result<(), String> {
        let mut tools: Vec<String> = Vec::new();
        let mut only: Vec<(String, Vec<String>)> = Vec::new();
        let mut agents: Vec<String> = Vec::new();
        let mut any_agent = false;
        let mut taken: Vec<String> = Vec::new();
        let mut is_given = false;
        for written in listed(value)? {
            if let Some(name) = taken_away(&written)? {
                taken.push(name.to_owned());
                continue;
            }
            is_given = true;
            match entry(&written, true) {
                NamedTool::Tool(tool) => tools.push(tool),
                NamedTool::Calls(tool, patterns) => only.push((tool, patterns)),
                NamedTool::Agents(named) => {
                    any_agent |= named.is_empty();
                    agents.extend(named.iter().map(|name| derived(name)));
                    tools.push("task".to_owned());
                }
                NamedTool::Nothing(name) => {
                    self.narrowing
                        .note(format!("tool {name} has no counterpart here"));
                }
                NamedTool::Unreadable(written) => self.narrowing.note(format!(
                    "tool {written} is left out: its call pattern has no counterpart here"
                )),
                NamedTool::Unknown(name) => tools.push(name),
            }
        }
        if !taken.is_empty() {
            self.narrowing.deny(&json!(taken))?;
            // A list like `[-Bash]` means all tools except that one.
            if !is_given {
                return Ok(());
            }
        }
        // A tool named both with and without a pattern is allowed without restriction.
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
            self.narrowing.only_agents(agents);
        }
        match &mut self.narrowing.allowed {
            Some(known) => known.retain(|tool| tools.contains(tool)),
            none => *none = Some(tools),
        }
        Ok(())
    }

    /// Reads the gate; a restriction of an unknown tool is refused, since it would have no effect.
    pub(super) fn gate(&mut self, value: Value) -> Result<(), String> {
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
}
