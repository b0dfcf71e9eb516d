//! Converts the fields of a definition to an agent. Each field is checked; fields that are not in
//! effect and unknown fields are reported, the latter with the nearest known name.

mod links;
mod rights;

use serde_json::Value;

use super::AgentDefinition;
use super::command::{self, Speaks};
use super::definition::MAX_LOOPS;
use super::dialects::Narrowing;
use super::dialects::{refusal, restricts};
use super::names;
use super::raw::{DefinitionFormat, LoadError, RawDefinition};
use super::tools::ToolChoice;
use super::values::{
    allow_agents, count, duration, environment, flag, line, model, models, no_word, temperature,
    text, texts, thinking, word,
};
use crate::contract::catalog::AgentMode;
use crate::kernel::policy::gate::Layer;
use crate::kernel::run::options;
use crate::kernel::text::in_quotes;

/// Known fields that are not in effect in this version.
const NOT_IN_FORCE: &[&str] = &["workspace"];
/// Fields that are in effect.
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
    "node",
    "execution",
    "org",
    "env",
];

/// True if it is a field of the format.
pub(super) fn is_known(name: &str) -> bool {
    IN_FORCE.contains(&name) || NOT_IN_FORCE.contains(&name)
}

/// Fields that apply to models only, and are ignored for a program.
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
    "node",
];

/// The highest accepted `max_loops`.
const LOOPS_LIMIT: u32 = 1000;
/// The highest accepted `max_tokens`.
const TOKENS_LIMIT: u64 = 1_000_000;

/// An agent as its definition describes it, before the available tools are known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentDraft {
    /// All fields except the tools.
    pub definition: AgentDefinition,
    /// The tools that it asks for.
    pub tools: ToolChoice,
    /// What was corrected or ignored, with its line.
    pub warnings: Vec<String>,
    /// Fields that are not in effect yet.
    pub not_in_effect: Vec<String>,
    /// The fields that a project may use only once it is trusted.
    pub needs_trust: Vec<&'static str>,
    /// The model is a preference: if it is not offered, the default model is used.
    pub soft_model: bool,
    /// The tools that its gate names, with their lines.
    pub gate_lines: Vec<(String, Option<usize>)>,
}

/// Converts a definition; its name is `stem` unless it states another.
pub(super) fn draft(
    format: DefinitionFormat,
    stem: &str,
    mode: AgentMode,
    raw: RawDefinition,
) -> Result<AgentDraft, LoadError> {
    let mut reader = FieldReader {
        json: format == DefinitionFormat::Json,
        draft: AgentDraft {
            definition: AgentDefinition {
                mode,
                ..AgentDefinition::named(stem, "", "")
            },
            tools: ToolChoice::default(),
            warnings: raw.warnings.clone(),
            not_in_effect: Vec::new(),
            needs_trust: Vec::new(),
            soft_model: raw.soft_model,
            gate_lines: Vec::new(),
        },
        program: None,
        raw: &raw,
    };
    for (name, value) in &raw.fields {
        reader.field(name, value)?;
    }
    reader.settle_program()?;
    let FieldReader { mut draft, .. } = reader;
    let definition = &mut draft.definition;
    narrow(definition, &raw.narrowing);
    names::check(&definition.name).map_err(|reason| LoadError {
        line: raw.line_of(&["name"]),
        reason,
    })?;
    if definition.description.is_empty() {
        return Err(LoadError::whole(
            "description is missing: one sentence that says what the agent is for",
        ));
    }
    if let Some(body) = raw.body {
        if !definition.system_prompt.is_empty() {
            let note = "system_prompt is ignored: the text after the front matter is used";
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

/// Applies the restrictions from fields of other programs.
fn narrow(definition: &mut AgentDefinition, narrowing: &Narrowing) {
    if let Some(most) = narrowing.loops {
        // The default number counts as not stated.
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

struct FieldReader<'a> {
    raw: &'a RawDefinition,
    json: bool,
    /// For `runner: command` and `runner: acp`, how the daemon talks with the program.
    program: Option<Speaks>,
    draft: AgentDraft,
}

impl FieldReader<'_> {
    fn field(&mut self, written: &str, value: &Value) -> Result<(), LoadError> {
        let name = match written {
            "systemPrompt" if self.json => "system_prompt",
            name => name,
        };
        // An empty value in front matter counts as not set.
        if value.is_null() {
            return Ok(());
        }
        let taken = self.take(name, value);
        taken.map_err(|reason| LoadError {
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
            "mode" => definition.mode = word(value, &["primary", "subagent", "all"])?,
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
            "on_uncertain" => {
                definition.on_uncertain = Some(word(value, &["report", "review", "retry"])?)
            }
            "on_child_failure" => {
                definition.on_child_failure = Some(word(value, &["continue", "abort"])?)
            }
            "allow_agents" => definition.allow_agents = Some(allow_agents(value)?),
            "skills" => definition.skills = Some(texts(value)?),
            "linked_agents" => self.linked_agents(value)?,
            "tools" => self.tools(value)?,
            "mcp_servers" => self.mcp_servers(value)?,
            "gate" => self.gate(value)?,
            "write_scope" => {
                definition.write_scope = Some(word(value, &["workspace", "own", "none"])?);
            }
            "execution" => self.execution(value)?,
            "command" => definition.command = Some(command::read(value)?),
            "node" => {
                definition.node = Some(line(value)?);
                self.needs("node");
            }
            "strategy" => definition.strategy = word(value, &["react", "plan"])?,
            "runner" => match text(value)?.as_str() {
                "model" => {}
                "command" => {
                    self.needs("runner: command");
                    self.program = Some(Speaks::Text);
                }
                "acp" => {
                    self.needs("runner: acp");
                    self.program = Some(Speaks::Acp);
                }
                other => return Err(no_word(other, &["model", "command", "acp"])),
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

    /// Settles whether a model or a program does the work, and ignores the fields of the other
    /// kind.
    fn settle_program(&mut self) -> Result<(), LoadError> {
        let line = |name: &str| {
            let line = self.raw.line_of(&[name]);
            line.map_or_else(String::new, |line| format!("line {line}: "))
        };
        let Some(speaks) = self.program else {
            if self.draft.definition.command.take().is_some() {
                let at = line("command");
                let note = format!("{at}command is ignored: it needs runner: command or acp");
                self.draft.warnings.push(note);
            }
            return Ok(());
        };
        let Some(command) = &mut self.draft.definition.command else {
            let word = match speaks {
                Speaks::Text => "command",
                Speaks::Acp => "acp",
            };
            return Err(LoadError {
                line: self.raw.line_of(&["runner"]),
                reason: format!("runner: {word} needs the field command, with its argv"),
            });
        };
        command.speaks = speaks;
        let mut written = self.raw.fields.iter();
        let value = written.find_map(|(name, value)| (name == "command").then_some(value));
        if speaks == Speaks::Acp
            && let Some(reason) = value.and_then(command::not_for_acp)
        {
            return Err(LoadError {
                line: self.raw.line_of(&["command"]),
                reason: format!("command: {reason}"),
            });
        }
        let has_gate = speaks == Speaks::Acp;
        let is_unused = |name: &str| ONLY_MODELS.contains(&name) && !(has_gate && name == "gate");
        let written = self.raw.fields.iter().filter(|(_, value)| !value.is_null());
        let unused: Vec<&str> = written
            .map(|(name, _)| name.as_str())
            .filter(|name| is_unused(name))
            .collect();
        if let Some(first) = unused.first() {
            let at = line(first);
            let names = unused.join(", ");
            let note = format!("{at}ignored, because the agent is a program: {names}");
            self.draft.warnings.push(note);
        }
        self.draft.not_in_effect.retain(|name| {
            let field = name.split([':', ' ', '.']).next().unwrap_or(name);
            !is_unused(field)
        });
        let definition = &mut self.draft.definition;
        definition.model = None;
        definition.thinking = None;
        definition.node = None;
        self.draft.tools = ToolChoice {
            allow: Some(Vec::new()),
            ..ToolChoice::default()
        };
        Ok(())
    }

    fn later(&mut self, name: &str) {
        self.draft.not_in_effect.push(name.to_owned());
    }

    fn needs(&mut self, what: &'static str) {
        self.draft.needs_trust.push(what);
    }

    /// Reports an unknown field. A field that looks like a restriction is refused: ignoring it
    /// would give the agent more rights than its file states.
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
        let shown = in_quotes(&path.join("."), 64);
        self.draft.warnings.push(match names::nearest(name, known) {
            Some(near) => format!("{at}unknown field {shown}; did you mean {near:?}?"),
            None => format!("{at}unknown field {shown}"),
        });
        Ok(())
    }

    /// Reads additional request fields. Fields that the daemon sets itself are refused. Unknown
    /// names are sent, since servers have many of their own, and reported.
    fn provider(&mut self, value: &Value) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return Err("fields of a request such as top_p are expected".to_owned());
        };
        for (name, value) in fields {
            if options::RESERVED_FIELDS.contains(&name.as_str()) {
                return Err(format!(
                    "{name}: the daemon sets this itself; use the fields model, temperature, \
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
}
