//! Fields with which other programs restrict an agent beyond lists of tools: permissions, modes,
//! sandboxes and hooks. All become rules that only narrow.

use serde_json::{Map, Value};

use super::names::{DELEGATING, NamedTool, commands, entry, patterns, split};
use super::{Narrowing, no_word};
use crate::agent::values::text;
use crate::kernel::policy::gate::Decision;
use crate::kernel::text::in_quotes;

/// Tools that change something or access the network.
const ACTING: &[&str] = &["write", "edit", "shell", "fetch"];

impl Narrowing {
    /// Adds one decision for all calls of these tools.
    pub(super) fn all(&mut self, tools: &[&str], decision: Decision) {
        for tool in tools {
            self.rule(tool, None, decision);
        }
    }

    /// Translates another program's approval mode (`permissionMode`, `approval_policy`).
    pub(super) fn mode(&mut self, value: &Value) -> Result<(), String> {
        let word = text(value)?;
        match word.as_str() {
            // Changes need approval; commands and addresses do so by default.
            "default" | "auto" | "manual" | "untrusted" | "always" => {
                self.all(&["write", "edit", "shell", "fetch"], Decision::Ask);
            }
            "acceptEdits" | "on-request" | "on-failure" => {
                self.all(&["shell", "fetch"], Decision::Ask);
            }
            // That mode refuses every call that needs approval.
            "dontAsk" => self.all(ACTING, Decision::Deny),
            "plan" => self.all(&["write", "edit", "shell"], Decision::Deny),
            "bypassPermissions" | "never" | "yolo" => self.note(format!(
                "{word}: only the gate decides here which calls need approval"
            )),
            other => {
                let known = [
                    "default",
                    "acceptEdits",
                    "dontAsk",
                    "plan",
                    "bypassPermissions",
                    "untrusted",
                    "on-request",
                    "on-failure",
                    "never",
                ];
                return Err(no_word(other, &known));
            }
        }
        Ok(())
    }

    /// Restricts the agent to reading.
    pub(super) fn read_only(&mut self) {
        self.all(&["write", "edit", "shell"], Decision::Deny);
        // It is unknown which server tools write.
        self.rule("*__*", None, Decision::Ask);
    }

    /// Translates `sandbox` and `sandbox_mode`.
    pub(super) fn sandbox(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Bool(false) => return Ok(()),
            Value::String(word) => match word.as_str() {
                "read-only" | "readonly" => self.read_only(),
                "workspace-write" => {
                    self.all(&["shell"], Decision::Ask);
                    self.note(
                        "sandbox: commands need approval here and are not confined".to_owned(),
                    );
                }
                "danger-full-access" | "none" | "off" | "false" => {}
                other => {
                    let known = ["read-only", "workspace-write", "danger-full-access"];
                    return Err(no_word(other, &known));
                }
            },
            _ => {
                return Err(
                    "read-only, workspace-write or danger-full-access is expected".to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Hooks are commands of another program and never run here. A hook that could refuse a call is
    /// replaced by an approval request.
    pub(super) fn hooks(&mut self, value: &Value) {
        self.note("hooks are another program's commands: they are never run".to_owned());
        let Value::Object(events) = value else { return };
        for event in [
            "PreToolUse",
            "PermissionRequest",
            "preToolUse",
            "beforeShellExecution",
        ] {
            for hook in events
                .get(event)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let matcher = hook
                    .get("matcher")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let named: Option<Vec<String>> = matcher
                    .split('|')
                    .map(|name| match entry(name, false) {
                        NamedTool::Tool(own) if !own.contains(['.', '(', '[', '?']) => Some(own),
                        _ => None,
                    })
                    .collect();
                match named.filter(|_| !matcher.is_empty()) {
                    Some(tools) => tools
                        .iter()
                        .for_each(|tool| self.rule(tool, None, Decision::Ask)),
                    None => {
                        self.all(ACTING, Decision::Ask);
                        self.rule("*__*", None, Decision::Ask);
                    }
                }
            }
        }
    }

    /// Translates lists of rules: `{allow: [], ask: [], deny: [], defaultMode}`.
    pub(super) fn lists(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in fields {
            let within = |why: String| format!("{name}: {why}");
            match name.as_str() {
                "allow" => self.note(
                    "permissions.allow: only the gate decides here which calls need no approval"
                        .to_owned(),
                ),
                "deny" => self.deny(value).map_err(within)?,
                "ask" => self.ask(value).map_err(within)?,
                "defaultMode" => self.mode(value).map_err(within)?,
                "additionalDirectories" | "disableBypassPermissionsMode" => {}
                other => return Err(no_word(other, &["allow", "ask", "deny", "defaultMode"])),
            }
        }
        Ok(())
    }

    fn ask(&mut self, value: &Value) -> Result<(), String> {
        for written in listed(value)? {
            match entry(&written, false) {
                NamedTool::Tool(tool) => self.rule(&tool, None, Decision::Ask),
                NamedTool::Calls(tool, patterns) => {
                    for pattern in patterns {
                        self.rule(&tool, Some(pattern), Decision::Ask);
                    }
                }
                NamedTool::Agents(_) => self.all(DELEGATING, Decision::Ask),
                NamedTool::Nothing(_) => {}
                NamedTool::Unreadable(written) | NamedTool::Unknown(written) => {
                    return Err(super::names::no_tool(&written));
                }
            }
        }
        Ok(())
    }

    /// Translates `permission: {edit: deny, bash: {"*": ask, "git *": allow}}`: the last match
    /// wins.
    pub(super) fn permission(&mut self, value: &Value) -> Result<(), String> {
        let fields = match value {
            Value::String(word) => {
                let decision = decision(word)?;
                if decision != Decision::Allow {
                    self.rule("*", None, decision);
                }
                return Ok(());
            }
            Value::Object(fields) => fields,
            _ => return Err("allow, ask, deny or a map of tools is expected".to_owned()),
        };
        for (name, value) in fields {
            self.permitted(name, value)
                .map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    fn permitted(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let rules: Vec<(Option<&str>, Decision)> = match value {
            Value::String(word) => vec![(None, decision(word)?)],
            Value::Object(rules) => rules
                .iter()
                .map(|(pattern, word)| {
                    let word = word.as_str().ok_or("allow, ask or deny is expected")?;
                    let pattern = Some(pattern.as_str()).filter(|pattern| *pattern != "*");
                    Ok((pattern, decision(word)?))
                })
                .collect::<Result<_, String>>()?,
            _ => return Err("allow, ask, deny or a map of patterns is expected".to_owned()),
        };
        let narrows = rules
            .iter()
            .any(|(_, decision)| *decision != Decision::Allow);
        if name == "*" {
            // `*` overrides the rules before it there; here the stricter of those stay.
            if let [(None, decision)] = rules[..] {
                if decision != Decision::Allow {
                    if let Some(rules) = self.rules.last_mut() {
                        rules.retain(|rule| rule.decision != Decision::Allow);
                    }
                    self.rule("*", None, decision);
                }
                return Ok(());
            }
        }
        match super::names::key(name).as_str() {
            "task" | "agent" => return self.permitted_names(&rules, true),
            "skill" => return self.permitted_names(&rules, false),
            // File tools never leave the workspace; commands need approval.
            "externaldirectory" if narrows => {
                self.all(&["shell"], Decision::Ask);
                return Ok(());
            }
            _ => {}
        }
        let tools: Vec<String> = match entry(name, false) {
            NamedTool::Tool(own) if own == "edit" => vec!["write".to_owned(), own],
            NamedTool::Tool(own) => vec![own],
            NamedTool::Nothing(_) => return Ok(()),
            // A server tool: separated by one `_` there, by two here.
            NamedTool::Unknown(_) if name.contains('_') => vec![name.replace('_', "*")],
            _ if !narrows => return Ok(()),
            _ => return Err(super::names::no_tool(name)),
        };
        for (pattern, decision) in rules {
            for tool in &tools {
                let found = match pattern {
                    None => Some(vec![None]),
                    Some(pattern) => spelled(tool, pattern, decision == Decision::Allow)
                        .map(|all| all.into_iter().map(Some).collect()),
                };
                match found {
                    Some(patterns) => {
                        for pattern in patterns {
                            self.rule(tool, pattern, decision);
                        }
                    }
                    // An allow rule that cannot be translated is dropped; the earlier rules apply.
                    None if decision == Decision::Allow => {}
                    None => {
                        return Err(format!(
                            "{} cannot be translated",
                            in_quotes(pattern.unwrap_or(""), 64)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Translates permissions for agents or skills by name: after a denied `*`, the allowed names;
    /// otherwise all are denied.
    fn permitted_names(
        &mut self,
        rules: &[(Option<&str>, Decision)],
        agents: bool,
    ) -> Result<(), String> {
        let narrows = |rule: &&(Option<&str>, Decision)| rule.1 != Decision::Allow;
        if !rules.iter().any(|rule| narrows(&rule)) {
            return Ok(());
        }
        let tools: &[&str] = if agents { DELEGATING } else { &["skill"] };
        // One decision for all names.
        if let [(None, decision)] = rules {
            self.all(tools, *decision);
            return Ok(());
        }
        let is_closed = rules
            .first()
            .is_some_and(|(name, decision)| name.is_none() && *decision == Decision::Deny);
        let allowed: Option<Vec<String>> = rules[1..]
            .iter()
            .map(|(name, decision)| {
                let name = name.filter(|name| *decision == Decision::Allow && !name.contains('?'));
                name.map(str::to_owned)
            })
            .collect();
        match allowed.filter(|_| is_closed) {
            Some(names) if agents => self.only_agents(names),
            Some(names) => self.skills = Some(names),
            None => self.all(tools, Decision::Deny),
        }
        Ok(())
    }

    /// Removes the tools in a list.
    pub(super) fn deny(&mut self, value: &Value) -> Result<(), String> {
        for written in listed(value)? {
            match entry(&written, false) {
                NamedTool::Tool(tool) => self.denied.push(tool),
                NamedTool::Calls(tool, patterns) => {
                    // A file that may not be edited may not be written, and one that may not be
                    // read may not be searched or listed.
                    let also: &[&str] = match tool.as_str() {
                        "edit" | "write" => &["edit", "write"],
                        "read" => &["read", "grep", "glob", "list"],
                        _ => &[],
                    };
                    for pattern in patterns {
                        self.rule(&tool, Some(pattern.clone()), Decision::Deny);
                        for other in also.iter().filter(|other| **other != tool) {
                            self.rule(other, Some(pattern.clone()), Decision::Deny);
                        }
                    }
                }
                NamedTool::Agents(named) => {
                    if !named.is_empty() {
                        let named = named.join(", ");
                        self.note(format!("denying {named} denies all delegation here"));
                    }
                    self.denied
                        .extend(DELEGATING.iter().map(ToString::to_string));
                    self.only_agents(Vec::new());
                }
                NamedTool::Nothing(_) => {}
                // Denying less than was meant would be unsafe, so all calls are denied.
                NamedTool::Unreadable(written) => {
                    let name = written.split('(').next().unwrap_or_default();
                    match entry(name, false) {
                        NamedTool::Tool(tool) => self.denied.push(tool),
                        _ => return Err(super::names::no_tool(&written)),
                    }
                }
                NamedTool::Unknown(written) => return Err(super::names::no_tool(&written)),
            }
        }
        Ok(())
    }
}

/// Converts a pattern of a permission map to gate patterns.
fn spelled(tool: &str, pattern: &str, widens: bool) -> Option<Vec<String>> {
    match tool {
        "shell" => commands(pattern, widens),
        "fetch" => Some(vec![pattern.to_owned()]),
        _ => patterns(tool, pattern, widens)
            .or_else(|| Some(vec![pattern.to_owned()]).filter(|_| !widens)),
    }
}

fn decision(word: &str) -> Result<Decision, String> {
    Decision::parse(word).ok_or_else(|| no_word(word, &["allow", "ask", "deny"]))
}

/// The entries of a list or of one text.
pub(super) fn listed(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(list) => Ok(split(list)),
        Value::Array(items) => {
            let texts: Result<Vec<String>, String> = items.iter().map(text).collect();
            // One item may be a list itself: `- Read, Grep`.
            Ok(texts?.iter().flat_map(|item| split(item)).collect())
        }
        _ => Err("a list of names is expected".to_owned()),
    }
}
