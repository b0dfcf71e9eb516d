//! From the fields of a definition to an agent: each field is checked, what no part of this
//! version obeys is said, what nobody knows is reported with the nearest known name.

use serde_json::{Map, Value};

use super::command;
use super::definition::MAX_LOOPS;
use super::dialects::Narrowing;
use super::dialects::{refusal, restricts};
use super::names;
use super::raw::{Broken, Format, Raw};
use super::tools::ToolChoice;
use super::values::{
    allow_agents, count, decision, duration, environment, flag, line, matched, mode, model, models,
    no_word, on_failure, on_uncertain, temperature, text, texts, thinking,
};
use super::{AgentDefinition, Strategy};
use crate::contract::catalog::AgentMode;
use crate::contract::linked::{Link, LinkSession};
use crate::kernel::delegation::Stream;
use crate::kernel::gate::{Decision, Layer, Rule, WriteScope};
use crate::kernel::ids::AgentId;
use crate::kernel::options;
use crate::kernel::text::preview;

/// Fields that the format has and this version does not obey.
const NOT_IN_FORCE: &[&str] = &["workspace"];
/// Fields that are obeyed.
const IN_FORCE: &[&str] = &[
    "name",
    "title",
    "description",
    "mode",
    "active",
    "hidden",
    "model",
    "thinking",
    "fallback_models",
    "temperature",
    "max_tokens",
    "provider",
    "tools",
    "mcp_servers",
    "gate",
    "write_scope",
    "system_prompt",
    "linked_agents",
    "skills",
    "allow_agents",
    "max_spawn_depth",
    "on_uncertain",
    "on_child_failure",
    "strategy",
    "runner",
    "command",
    "execution",
    "org",
    "env",
];

/// Is it a field of the format?
pub(super) fn is_known(name: &str) -> bool {
    IN_FORCE.contains(&name) || NOT_IN_FORCE.contains(&name)
}

/// What says how a model works, and nothing to a program.
const ONLY_MODELS: &[&str] = &[
    "model",
    "fallback_models",
    "provider",
    "temperature",
    "max_tokens",
    "thinking",
    "tools",
    "gate",
    "skills",
    "mcp_servers",
    "strategy",
];

/// The most model calls of one run.
const LOOPS_LIMIT: u32 = 1000;
/// The most tokens of one answer.
const TOKENS_LIMIT: u64 = 1_000_000;

/// An agent as its definition describes it, before it is known which tools there are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    /// All but the tools.
    pub definition: AgentDefinition,
    /// Which tools it asks for.
    pub tools: ToolChoice,
    /// What was put right or left aside, with its line.
    pub warnings: Vec<String>,
    /// Fields that nothing obeys yet.
    pub not_in_force: Vec<String>,
    /// What it states that a project may state only once it is trusted.
    pub needs_trust: Vec<&'static str>,
    /// Its model is a wish: where nobody offers it, the default one is used.
    pub soft_model: bool,
}

/// Reads a definition whose name is `stem` unless it gives another.
pub(super) fn draft(
    format: Format,
    stem: &str,
    mode: AgentMode,
    raw: Raw,
) -> Result<Draft, Broken> {
    let mut reader = Reader {
        json: format == Format::Json,
        draft: Draft {
            definition: AgentDefinition {
                mode,
                ..AgentDefinition::named(stem, "", "")
            },
            tools: ToolChoice::default(),
            warnings: raw.warnings.clone(),
            not_in_force: Vec::new(),
            needs_trust: Vec::new(),
            soft_model: raw.soft_model,
        },
        is_program: false,
        raw: &raw,
    };
    for (name, value) in &raw.fields {
        reader.field(name, value)?;
    }
    reader.settle_program()?;
    let Reader { mut draft, .. } = reader;
    let definition = &mut draft.definition;
    narrow(definition, &raw.narrowing);
    names::check(&definition.name).map_err(|reason| Broken {
        line: raw.line_of(&["name"]),
        reason,
    })?;
    if definition.description.is_empty() {
        return Err(Broken::whole(
            "description is missing: one sentence that says what the agent is for",
        ));
    }
    if let Some(body) = raw.body {
        if !definition.system_prompt.is_empty() {
            let note = "system_prompt is left aside: the text below the front matter counts";
            draft.warnings.push(note.to_owned());
        }
        definition.system_prompt = body;
    }
    if definition.system_prompt.is_empty() {
        definition.system_prompt = format!(
            "You are agent {}. {}",
            definition.name, definition.description
        );
    }
    Ok(draft)
}

/// Takes from the agent what fields of other programs take from it.
fn narrow(definition: &mut AgentDefinition, narrowing: &Narrowing) {
    if let Some(most) = narrowing.loops {
        // The usual number was not stated.
        let is_stated = definition.max_loops != MAX_LOOPS;
        let known = if is_stated {
            definition.max_loops
        } else {
            LOOPS_LIMIT
        };
        definition.max_loops = known.min(most);
    }
    if let Some(limit) = narrowing.timeout_ms {
        let known = definition.run_timeout_ms.unwrap_or(limit);
        definition.run_timeout_ms = Some(known.min(limit));
    }
    if let Some(names) = &narrowing.agents {
        let known = definition.allow_agents.take();
        let known = known.filter(|known| known.iter().all(|name| name != "*"));
        definition.allow_agents = Some(match known {
            Some(known) => known
                .into_iter()
                .filter(|name| names.contains(name))
                .collect(),
            None => names.clone(),
        });
    }
    if let Some(names) = &narrowing.skills {
        definition.skills = Some(match definition.skills.take() {
            Some(known) => known
                .into_iter()
                .filter(|name| names.contains(name))
                .collect(),
            None => names.clone(),
        });
    }
    definition.inactive |= narrowing.inactive;
    let agent = definition.name.clone();
    let layers = narrowing.rules.iter().map(|rules| Layer {
        agent: agent.clone(),
        rules: rules.clone(),
    });
    definition.bounds.extend(layers);
}

struct Reader<'a> {
    raw: &'a Raw,
    json: bool,
    /// It says `runner: command`.
    is_program: bool,
    draft: Draft,
}

impl Reader<'_> {
    fn field(&mut self, written: &str, value: &Value) -> Result<(), Broken> {
        let name = match written {
            "systemPrompt" if self.json => "system_prompt",
            name => name,
        };
        // An empty value in front matter says nothing.
        if value.is_null() {
            return Ok(());
        }
        let taken = self.take(name, value);
        taken.map_err(|reason| Broken {
            line: self.raw.line_of(&[written]),
            reason: format!("{written}: {reason}"),
        })
    }

    fn take(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let definition = &mut self.draft.definition;
        match name {
            "name" => definition.name = text(value)?,
            "title" => definition.title = Some(line(value)?),
            "description" => definition.description = line(value)?,
            "system_prompt" => definition.system_prompt = text(value)?,
            "mode" => definition.mode = mode(value)?,
            "active" => definition.inactive = !flag(value)?,
            "hidden" => definition.hidden = flag(value)?,
            "model" => definition.model = Some(model(value)?),
            "thinking" => definition.thinking = Some(thinking(value)?),
            "fallback_models" => definition.fallback_models = Some(models(value)?),
            "temperature" => definition.temperature = Some(temperature(value)?),
            "max_tokens" => definition.max_tokens = Some(count(value, 1, TOKENS_LIMIT)?),
            "provider" => self.provider(value)?,
            "org" => definition.org = Some(text(value)?),
            "max_spawn_depth" => definition.max_spawn_depth = Some(count(value, 0, 5)?),
            "on_uncertain" => definition.on_uncertain = Some(on_uncertain(value)?),
            "on_child_failure" => definition.on_child_failure = Some(on_failure(value)?),
            "allow_agents" => definition.allow_agents = Some(allow_agents(value)?),
            "skills" => definition.skills = Some(texts(value)?),
            "linked_agents" => self.linked_agents(value)?,
            "tools" => self.tools(value)?,
            "mcp_servers" => self.mcp_servers(value)?,
            "gate" => self.gate(value)?,
            "write_scope" => {
                let word = text(value)?;
                let scope = WriteScope::parse(&word);
                let scope = scope.ok_or_else(|| no_word(&word, &["workspace", "own", "none"]))?;
                definition.write_scope = Some(scope);
            }
            "execution" => self.execution(value)?,
            "command" => definition.command = Some(command::read(value)?),
            "strategy" => match text(value)?.as_str() {
                "react" => definition.strategy = Strategy::React,
                "plan" => definition.strategy = Strategy::Plan,
                other => return Err(no_word(other, &["react", "plan"])),
            },
            "runner" => match text(value)?.as_str() {
                "model" => {}
                "command" => {
                    self.needs("runner: command");
                    self.is_program = true;
                }
                other => return Err(no_word(other, &["model", "command"])),
            },
            "env" => {
                let read = environment(value)?;
                (definition.env, definition.secret_env) = (read.env, read.secret);
                if !definition.env.is_empty() {
                    self.needs("env");
                }
            }
            name if NOT_IN_FORCE.contains(&name) => self.later(name),
            name => {
                let known = [IN_FORCE, NOT_IN_FORCE].concat();
                self.unknown(&[name], value, &known)?;
            }
        }
        Ok(())
    }

    /// An agent is a model's or a program's, and what is only for the other is left aside.
    fn settle_program(&mut self) -> Result<(), Broken> {
        let line = |name: &str| {
            let line = self.raw.line_of(&[name]);
            line.map_or_else(String::new, |line| format!("line {line}: "))
        };
        if !self.is_program {
            if self.draft.definition.command.take().is_some() {
                let at = line("command");
                let note = format!("{at}command is left aside: it needs runner: command");
                self.draft.warnings.push(note);
            }
            return Ok(());
        }
        if self.draft.definition.command.is_none() {
            return Err(Broken {
                line: self.raw.line_of(&["runner"]),
                reason: "runner: command needs the field command, with its argv".to_owned(),
            });
        }
        let written = self.raw.fields.iter().filter(|(_, value)| !value.is_null());
        let unused: Vec<&str> = written
            .map(|(name, _)| name.as_str())
            .filter(|name| ONLY_MODELS.contains(name))
            .collect();
        if let Some(first) = unused.first() {
            let at = line(first);
            let names = unused.join(", ");
            let note = format!("{at}a program has no use for {names}: left aside");
            self.draft.warnings.push(note);
        }
        self.draft.not_in_force.retain(|name| {
            let field = name.split([':', ' ', '.']).next().unwrap_or(name);
            !ONLY_MODELS.contains(&field)
        });
        let definition = &mut self.draft.definition;
        definition.model = None;
        definition.thinking = None;
        self.draft.tools = ToolChoice {
            allow: Some(Vec::new()),
            ..ToolChoice::default()
        };
        Ok(())
    }

    fn later(&mut self, name: &str) {
        self.draft.not_in_force.push(name.to_owned());
    }

    fn needs(&mut self, what: &'static str) {
        self.draft.needs_trust.push(what);
    }

    /// Says that nobody knows the field. One that looks like a restriction is refused: without
    /// it the agent would get more than its file says.
    fn unknown(&mut self, path: &[&str], value: &Value, known: &[&str]) -> Result<(), String> {
        let is_option = path.first() == Some(&"provider");
        if let Some(name) = path
            .last()
            .filter(|name| !is_option && restricts(name, value))
        {
            return Err(refusal(name));
        }
        let line = self.raw.line_of(path);
        let at = line.map_or_else(String::new, |line| format!("line {line}: "));
        let name = path.last().copied().unwrap_or_default();
        let shown = preview(&path.join("."), 64);
        self.draft.warnings.push(match names::nearest(name, known) {
            Some(near) => format!("{at}no field {shown:?}; did you mean {near:?}?"),
            None => format!("{at}no field {shown:?}"),
        });
        Ok(())
    }

    /// Further fields of requests. What the daemon says itself cannot be said here; a name that
    /// it does not know is sent, since servers have many of their own, and said.
    fn provider(&mut self, value: &Value) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return Err("fields of a request such as top_p are expected".to_owned());
        };
        for (name, value) in fields {
            if options::SAID_ELSEWHERE.contains(&name.as_str()) {
                return Err(format!(
                    "{name}: the daemon says this itself; see the fields model, temperature, \
                     max_tokens and thinking"
                ));
            }
            if !options::is_known(name) {
                self.unknown(&["provider", name], value, &options::names())?;
            }
            let definition = &mut self.draft.definition;
            definition.provider.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    fn execution(&mut self, value: &Value) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return Err("fields such as max_loops are expected".to_owned());
        };
        for (written, value) in fields {
            let name = match written.as_str() {
                "maxLoops" if self.json => "max_loops",
                "enableCompression" if self.json => "compression",
                name => name,
            };
            let definition = &mut self.draft.definition;
            let taken = match name {
                "max_loops" => {
                    count(value, 1, u64::from(LOOPS_LIMIT)).map(|most| definition.max_loops = most)
                }
                "timeout" => duration(value).map(|limit| definition.run_timeout_ms = Some(limit)),
                "compression" => flag(value).map(|on| definition.compression = Some(on)),
                name => {
                    let known = ["max_loops", "timeout", "compression"];
                    self.unknown(&["execution", name], value, &known)
                }
            };
            taken.map_err(|reason| format!("{written}: {reason}"))?;
        }
        Ok(())
    }

    fn tools(&mut self, value: &Value) -> Result<(), String> {
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
                                "names with true or false, or the lists allow and deny".to_owned()
                            );
                        }
                    }
                }
            }
            _ => choice.allow = Some(texts(value)?),
        }
        Ok(())
    }

    /// Names of servers under `[mcp]`. A server that is described here, as other programs allow, is
    /// nobody's to start.
    fn mcp_servers(&mut self, value: &Value) -> Result<(), String> {
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
                "mcp_servers: {} is described here and left aside; describe it under [mcp] in the \
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

    /// A word for every call of a tool, or a list of rules that look at what it is called with.
    fn gate(&mut self, value: &Value) -> Result<(), String> {
        let Value::Object(tools) = value else {
            return Err("names of tools with allow, deny or ask are expected".to_owned());
        };
        let mut rules = Vec::new();
        for (tool, value) in tools {
            let rule = |pattern, decision| Rule {
                tool: tool.clone(),
                pattern,
                decision,
            };
            match value {
                Value::String(_) => rules.push(rule(None, decision(value)?)),
                Value::Array(items) => {
                    for item in items {
                        let (pattern, decision) = matched(item)?;
                        rules.push(rule(pattern, decision));
                    }
                }
                _ => return Err("allow, deny, ask or a list of rules is expected".to_owned()),
            }
        }
        if rules.iter().any(|rule| rule.decision == Decision::Allow) {
            // What a person would be asked for must not be settled by somebody else's file.
            self.needs("gate: allow");
        }
        self.draft.definition.gate = rules;
        Ok(())
    }

    fn linked_agents(&mut self, value: &Value) -> Result<(), String> {
        let Value::Array(items) = value else {
            return Err("a list of agents is expected".to_owned());
        };
        let mut linked: Vec<Link> = Vec::new();
        for item in items {
            let link = match item {
                Value::Object(fields) => self.link(fields)?,
                name => Link::to(agent(name)?),
            };
            if linked.iter().any(|other| other.agent == link.agent) {
                return Err(format!("{} is named twice", link.agent));
            }
            let tool = link.tool();
            let same = |other: &&Link| tool.is_some() && other.tool() == tool;
            if let Some(other) = linked.iter().find(same) {
                let tool = tool.unwrap_or_default();
                let (first, second) = (&other.agent, &link.agent);
                return Err(format!(
                    "{first} and {second} would both be the tool {tool}"
                ));
            }
            linked.push(link);
        }
        self.draft.definition.linked_agents = linked;
        Ok(())
    }

    fn link(&mut self, fields: &Map<String, Value>) -> Result<Link, String> {
        let mut link = Link::to(agent(fields.get("agent").ok_or("each needs its agent")?)?);
        for (name, value) in fields {
            match name.as_str() {
                "agent" => {}
                "session" => match text(value)?.as_str() {
                    "own" => link.session = Some(LinkSession::Own),
                    "shared" => link.session = Some(LinkSession::Shared),
                    _ => return Err("session: own or shared is expected".to_owned()),
                },
                "timeout" => link.timeout_ms = Some(duration(value)?),
                "write_scope" => {
                    let scope = WriteScope::parse(&text(value)?);
                    let expected = "write_scope: workspace, own or none is expected";
                    link.write_scope = Some(scope.ok_or(expected)?);
                }
                "stream" => {
                    let stream = Stream::parse(&text(value)?);
                    let expected = "stream: aggregated, direct or none is expected";
                    link.stream = Some(stream.ok_or(expected)?);
                }
                "on_failure" => {
                    let taken = on_failure(value).map_err(|why| format!("on_failure: {why}"))?;
                    link.on_failure = Some(taken);
                }
                _ => self.unknown(
                    &["linked_agents", name],
                    value,
                    &[
                        "agent",
                        "session",
                        "timeout",
                        "write_scope",
                        "stream",
                        "on_failure",
                    ],
                )?,
            }
        }
        if link.session != Some(LinkSession::Shared) {
            let unused = [
                ("stream", link.stream.take().is_some()),
                ("on_failure", link.on_failure.take().is_some()),
            ];
            for (name, _) in unused.into_iter().filter(|(_, was_there)| *was_there) {
                self.draft.warnings.push(format!(
                    "linked_agents: {name} of {} is left aside: it needs session: shared",
                    link.agent
                ));
            }
        }
        Ok(link)
    }
}

fn agent(name: &Value) -> Result<AgentId, String> {
    AgentId::parse(&text(name)?).map_err(|error| error.to_string())
}
