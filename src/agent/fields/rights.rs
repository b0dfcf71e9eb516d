//! Parses the fields for what an agent may use: tools, servers and the gate.

use serde_json::Value;

use super::FieldReader;
use crate::agent::values::{decision, rule, text, texts};
use crate::kernel::policy::gate::{Decision, Rule};
use crate::kernel::text::preview;

impl FieldReader<'_> {
    pub(super) fn tools(&mut self, value: &Value) -> Result<(), String> {
        let choice = &mut self.draft.tools;
        match value {
            Value::Object(fields) if fields.values().all(Value::is_boolean) => {
                choice.switches = fields
                    .iter()
                    .map(|(name, on)| (name.clone(), on.as_bool() == Some(true)))
                    .collect();
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "allow" => choice.allow = Some(texts(value)?),
                        "deny" => choice.deny.extend(texts(value)?),
                        _ => {
                            return Err(
                                "a map of names to true or false, or the lists allow and deny, is expected".to_owned()
                            );
                        }
                    }
                }
            }
            _ => choice.allow = Some(texts(value)?),
        }
        Ok(())
    }

    /// Reads names of servers under `[mcp]`. A server that is described inline, as other programs
    /// allow, is never started.
    pub(super) fn mcp_servers(&mut self, value: &Value) -> Result<(), String> {
        let items = match value {
            Value::Array(items) => items.clone(),
            Value::Object(fields) => vec![Value::Object(fields.clone())],
            list => texts(list)?.into_iter().map(Value::String).collect(),
        };
        let mut names = Vec::new();
        for item in &items {
            let Value::Object(described) = item else {
                names.push(text(item)?);
                continue;
            };
            let described: Vec<&str> = described.keys().map(String::as_str).collect();
            self.draft.warnings.push(format!(
                "mcp_servers: {} is defined inline, which is ignored; define it under [mcp] in the \
                 configuration, and name it here",
                preview(&described.join(", "), 64)
            ));
        }
        if !items.is_empty() {
            self.needs("mcp_servers");
        }
        self.draft.definition.mcp_servers = Some(names);
        Ok(())
    }

    /// Reads, for each tool, one decision for all calls or a list of rules for its arguments.
    pub(super) fn gate(&mut self, value: &Value) -> Result<(), String> {
        let Value::Object(tools) = value else {
            return Err("names of tools with allow, deny or ask are expected".to_owned());
        };
        let mut rules = Vec::new();
        for (tool, value) in tools {
            let line = self.raw.line_of(&["gate", tool]);
            self.draft.gate_lines.push((tool.clone(), line));
            match value {
                Value::String(_) => rules.push(Rule {
                    tool: tool.clone(),
                    pattern: None,
                    node: None,
                    decision: decision(value)?,
                }),
                Value::Array(items) => {
                    for item in items {
                        rules.push(rule(tool, item)?);
                    }
                }
                _ => return Err("allow, deny, ask or a list of rules is expected".to_owned()),
            }
        }
        if rules.iter().any(|rule| rule.decision == Decision::Allow) {
            // A file of a project must not grant an approval that the user would be asked for.
            self.needs("gate: allow");
        }
        self.draft.definition.gate = rules;
        Ok(())
    }
}
