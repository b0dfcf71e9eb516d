//! Fields by which other programs say what an agent may do without its tools' names: permissions,
//! modes, sandboxes and hooks, as rules that only narrow.

use serde_json::{Map, Value};

use super::names::{DELEGATING, Entry, commands, entry, patterns, split};
use super::{Narrowing, no_word};
use crate::agent::values::text;
use crate::kernel::gate::Decision;
use crate::kernel::text::preview;

/// Tools that change something or reach out.
const ACTING: &[&str] = &["write", "edit", "shell", "fetch"];

impl Narrowing {
    /// One decision on every call of these tools.
    pub(super) fn all(&mut self, tools: &[&str], decision: Decision) {
        for tool in tools {
            self.rule(tool, None, decision);
        }
    }

    /// What a program's own way of asking comes to here (`permissionMode`, `approval_policy`).
    pub(super) fn mode(&mut self, value: &Value) -> Result<(), String> {
        let word = text(value)?;
        match word.as_str() {
            // Each change is asked for; commands and addresses are so anyway.
            "default" | "auto" | "manual" | "untrusted" | "always" => {
                self.all(&["write", "edit", "shell", "fetch"], Decision::Ask);
            }
            "acceptEdits" | "on-request" | "on-failure" => {
                self.all(&["shell", "fetch"], Decision::Ask);
            }
            // It would be refused whatever needs a person.
            "dontAsk" => self.all(ACTING, Decision::Deny),
            "plan" => self.all(&["write", "edit", "shell"], Decision::Deny),
            "bypassPermissions" | "never" | "yolo" => self.note(format!(
                "{word}: what an agent is asked for here is said by its gate alone"
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

    /// It only looks.
    pub(super) fn read_only(&mut self) {
        self.all(&["write", "edit", "shell"], Decision::Deny);
        // What tools of servers write cannot be told.
        self.rule("*__*", None, Decision::Ask);
    }

    /// `sandbox`, `sandbox_mode`.
    pub(super) fn sandbox(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Bool(false) => return Ok(()),
            Value::String(word) => match word.as_str() {
                "read-only" | "readonly" => self.read_only(),
                "workspace-write" => {
                    self.all(&["shell"], Decision::Ask);
                    self.note("sandbox: commands are asked for here, and not confined".to_owned());
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

    /// Hooks are another program's commands and never run here. Those that could refuse a call
    /// have a person asked in their place.
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
                        Entry::Tool(own) if !own.contains(['.', '(', '[', '?']) => Some(own),
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

    /// Lists of rules: `{allow: [], ask: [], deny: [], defaultMode}`.
    pub(super) fn lists(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in fields {
            let within = |why: String| format!("{name}: {why}");
            match name.as_str() {
                "allow" => self.note(
                    "permissions.allow: what is not asked for is said by the gate alone".to_owned(),
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
                Entry::Tool(tool) => self.rule(&tool, None, Decision::Ask),
                Entry::Calls(tool, patterns) => {
                    for pattern in patterns {
                        self.rule(&tool, Some(pattern), Decision::Ask);
                    }
                }
                Entry::Agents(_) => self.all(DELEGATING, Decision::Ask),
                Entry::Nothing(_) => {}
                Entry::Unreadable(written) | Entry::Unknown(written) => {
                    return Err(super::names::no_tool(&written));
                }
            }
        }
        Ok(())
    }

    /// `permission: {edit: deny, bash: {"*": ask, "git *": allow}}`: the last that fits counts.
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
            // It stands behind those before it: of these the stricter stay.
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
            // No tool of files leaves the workspace; commands are asked for.
            "externaldirectory" if narrows => {
                self.all(&["shell"], Decision::Ask);
                return Ok(());
            }
            _ => {}
        }
        let tools: Vec<String> = match entry(name, false) {
            Entry::Tool(own) if own == "edit" => vec!["write".to_owned(), own],
            Entry::Tool(own) => vec![own],
            Entry::Nothing(_) => return Ok(()),
            // A tool of a server, whose name has one `_` there and two here.
            Entry::Unknown(_) if name.contains('_') => vec![name.replace('_', "*")],
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
                    // What it would allow is left as the rules before it say.
                    None if decision == Decision::Allow => {}
                    None => {
                        return Err(format!(
                            "{:?} cannot be read",
                            preview(pattern.unwrap_or(""), 64)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Agents and skills by name: those that are allowed behind a `*` that is not, or none.
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
        // One word for all.
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

    /// Takes away what a list names.
    pub(super) fn deny(&mut self, value: &Value) -> Result<(), String> {
        for written in listed(value)? {
            match entry(&written, false) {
                Entry::Tool(tool) => self.denied.push(tool),
                Entry::Calls(tool, patterns) => {
                    // Who may not edit a file may not write it either.
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
                Entry::Agents(named) => {
                    if !named.is_empty() {
                        let named = named.join(", ");
                        self.note(format!("to deny {named} here denies all delegation"));
                    }
                    self.denied
                        .extend(DELEGATING.iter().map(ToString::to_string));
                    self.only_agents(Vec::new());
                }
                Entry::Nothing(_) => {}
                // Less than was meant must not be taken away, so all calls of it are.
                Entry::Unreadable(written) => {
                    let name = written.split('(').next().unwrap_or_default();
                    match entry(name, false) {
                        Entry::Tool(tool) => self.denied.push(tool),
                        _ => return Err(super::names::no_tool(&written)),
                    }
                }
                Entry::Unknown(written) => return Err(super::names::no_tool(&written)),
            }
        }
        Ok(())
    }
}

/// A pattern of a map of permissions as patterns of a gate.
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
            // One item may be a list of its own: `- Read, Grep`.
            Ok(texts?.iter().flat_map(|item| split(item)).collect())
        }
        _ => Err("a list of names is expected".to_owned()),
    }
}
