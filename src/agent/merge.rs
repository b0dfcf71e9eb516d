//! The order of trust among definitions of one name, and the one function by which a less trusted
//! one only narrows a more trusted one. Called by `set`.

use super::AgentDefinition;
use super::fields::Draft;
use super::tools::{ToolChoice, Within};
use crate::contract::linked::Link;
use crate::kernel::gate::{Layer, WriteScope};
use crate::kernel::pattern::fits;
use crate::kernel::run::OnUncertain;

/// How far a definition is trusted; later ones more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// A file for another program, of a project that is not trusted.
    UntrustedForeign,
    /// A file of a project that is not trusted.
    Untrusted,
    /// A file of this user's for another program.
    UserForeign,
    /// What this user has said: files in the configuration, stored agents, what is built in, and
    /// projects that are trusted. Of two of these the upper layer counts whole.
    User,
}

/// What the last of these definitions comes to, and which of its fields were narrowed; `None` for
/// no definition. They are in the order of their layers.
pub(super) fn effective(
    written: &[(Level, Draft)],
    is_primary: &dyn Fn(&str) -> bool,
) -> Option<(Draft, Vec<&'static str>)> {
    let ((level, draft), below) = written.split_last()?;
    let mut draft = draft.clone();
    // Who has not said which servers has none by that.
    if *level <= Level::Untrusted {
        draft.definition.mcp_servers.get_or_insert_default();
    }
    let trusted: Vec<(Level, Draft)> = below
        .iter()
        .filter(|(above, _)| above > level)
        .cloned()
        .collect();
    match effective(&trusted, is_primary) {
        None => Some((draft, Vec::new())),
        Some((bound, _)) => Some(narrowed(&bound, draft, is_primary)),
    }
}

/// `draft` with no more rights than `bound`, and the fields that were narrowed. Every field is
/// named here, so that a new one cannot be forgotten.
fn narrowed(
    bound: &Draft,
    draft: Draft,
    is_primary: &dyn Fn(&str) -> bool,
) -> (Draft, Vec<&'static str>) {
    let before = draft.clone();
    let Draft {
        definition,
        mut tools,
        warnings,
        not_in_force,
        needs_trust,
        soft_model,
    } = draft;
    let limit = &bound.definition;
    let AgentDefinition {
        // What it is and how it goes about its work is its own.
        name,
        title,
        description,
        system_prompt,
        hidden,
        compression,
        temperature,
        thinking,
        mode,
        model,
        fallback_models,
        max_tokens,
        provider,
        tools: _,
        mcp_servers,
        skills,
        max_loops,
        inactive,
        org,
        run_timeout_ms,
        allow_agents,
        linked_agents,
        max_spawn_depth,
        gate,
        mut bounds,
        write_scope,
        strategy: _,
        command,
        on_uncertain,
        env,
        secret_env,
        on_child_failure,
    } = definition;
    tools.within.push(Within {
        choice: bound.tools.clone(),
        names_servers: limit
            .mcp_servers
            .as_ref()
            .is_some_and(|named| !named.is_empty()),
    });
    let mut layers = limit.bounds.clone();
    if !limit.gate.is_empty() {
        layers.push(Layer {
            agent: limit.name.clone(),
            rules: limit.gate.clone(),
        });
    }
    bounds.extend(layers.into_iter().filter(|layer| !layer.rules.is_empty()));
    let narrower = AgentDefinition {
        name,
        title,
        description,
        system_prompt,
        hidden,
        compression,
        temperature,
        thinking,
        // A model is a place to which everything that is said goes.
        model: limit.model.clone().or(model),
        fallback_models: limit.fallback_models.clone().or(fallback_models),
        provider: match limit.provider.is_empty() {
            true => provider,
            false => limit.provider.clone(),
        },
        mode: match limit.mode {
            crate::contract::catalog::AgentMode::All => mode,
            stated => stated,
        },
        max_tokens: least(limit.max_tokens, max_tokens),
        tools: Vec::new(),
        mcp_servers: both(limit.mcp_servers.as_deref(), mcp_servers.as_deref()),
        skills: both(limit.skills.as_deref(), skills.as_deref()),
        max_loops: max_loops.min(limit.max_loops),
        inactive: inactive || limit.inactive,
        org: limit.org.clone().or(org),
        run_timeout_ms: least(limit.run_timeout_ms, run_timeout_ms),
        allow_agents: delegates(limit, allow_agents, is_primary),
        linked_agents: links(&limit.linked_agents, linked_agents),
        // Unset is the operator's default, above which nobody else raises it.
        max_spawn_depth: match (limit.max_spawn_depth, max_spawn_depth) {
            (None, Some(0)) => Some(0),
            (None, _) => None,
            (most, own) => least(most, own),
        },
        gate,
        bounds,
        write_scope: match (limit.write_scope, write_scope) {
            (Some(WriteScope::None), _) | (_, Some(WriteScope::None)) => Some(WriteScope::None),
            (Some(WriteScope::Own), _) | (_, Some(WriteScope::Own)) => Some(WriteScope::Own),
            (stated, own) => own.or(stated),
        },
        // Plans may choose among all agents.
        strategy: limit.strategy,
        // It needs trust, and a model's agent becomes no program without it.
        command: command.filter(|command| limit.command.as_ref() == Some(command)),
        on_uncertain: match (limit.on_uncertain, on_uncertain) {
            (Some(OnUncertain::Review), _) => Some(OnUncertain::Review),
            (stated, Some(OnUncertain::Retry)) => stated,
            (stated, own) => own.or(stated),
        },
        // Names with the values of the more trusted one.
        env: limit
            .env
            .iter()
            .filter(|(name, _)| env.contains_key(*name))
            .map(|(name, given)| (name.clone(), given.clone()))
            .collect(),
        // What one of them calls a secret is one.
        secret_env: limit.secret_env.union(&secret_env).cloned().collect(),
        on_child_failure: limit.on_child_failure.or(on_child_failure),
    };
    let draft = Draft {
        definition: narrower,
        tools,
        warnings,
        not_in_force,
        needs_trust,
        soft_model: soft_model && limit.model.is_none(),
    };
    let kept = changed(bound, &before, &draft);
    (draft, kept)
}

/// The smaller of two limits; unset is none.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What two lists of names and patterns both hold; unset is everything.
fn both(one: Option<&[String]>, other: Option<&[String]>) -> Option<Vec<String>> {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.or(other).map(<[String]>::to_vec),
    };
    let within = |name: &&String, list: &[String]| list.iter().any(|pattern| fits(pattern, name));
    let mut found: Vec<String> = other
        .iter()
        .filter(|name| within(name, one))
        .cloned()
        .collect();
    for name in one.iter().filter(|name| within(name, other)) {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    Some(found)
}

/// Whom both may delegate to.
fn delegates(
    limit: &AgentDefinition,
    own: Option<Vec<String>>,
    is_primary: &dyn Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let is_any = |names: &Vec<String>| names.iter().any(|name| name == "*");
    let own = own.filter(|names| !is_any(names));
    match (&limit.allow_agents, own) {
        (Some(known), own) if is_any(known) => own.or_else(|| Some(known.clone())),
        (Some(known), None) => Some(known.clone()),
        (Some(known), Some(own)) => Some(
            own.into_iter()
                .filter(|name| known.contains(name))
                .collect(),
        ),
        (None, None) => None,
        // Unset: itself, agents for spawned work, and those that it is linked with.
        (None, Some(own)) => {
            let linked = limit.linked();
            let is_open = |name: &String| {
                *name == limit.name
                    || linked.iter().any(|agent| agent.as_str() == name)
                    || !is_primary(name)
            };
            Some(own.into_iter().filter(is_open).collect())
        }
    }
}

/// Links that both have, each as narrow as the narrower one.
fn links(limit: &[Link], own: Vec<Link>) -> Vec<Link> {
    let own = own.into_iter().filter_map(|link| {
        let known = limit.iter().find(|known| known.agent == link.agent)?;
        let rank = |scope: Option<WriteScope>| match scope {
            None | Some(WriteScope::Workspace) => 0,
            Some(WriteScope::Own) => 1,
            Some(WriteScope::None) => 2,
        };
        let write_scope = match rank(known.write_scope) >= rank(link.write_scope) {
            true => known.write_scope,
            false => link.write_scope,
        };
        Some(Link {
            // In which session it works decides what it sees.
            session: known.session,
            timeout_ms: least(known.timeout_ms, link.timeout_ms),
            write_scope,
            stream: known.stream,
            on_failure: known.on_failure,
            agent: link.agent,
        })
    });
    own.collect()
}

/// The fields in which the more trusted definition has taken something from the other.
fn changed(bound: &Draft, before: &Draft, after: &Draft) -> Vec<&'static str> {
    let (was, is, limit) = (&before.definition, &after.definition, &bound.definition);
    let narrows_tools = bound.tools != ToolChoice::default() && bound.tools != before.tools;
    [
        ("tools", narrows_tools),
        ("gate", !limit.gate.is_empty() || !limit.bounds.is_empty()),
        ("mcp_servers", was.mcp_servers != is.mcp_servers),
        ("skills", was.skills != is.skills),
        ("write_scope", was.write_scope != is.write_scope),
        ("allow_agents", was.allow_agents != is.allow_agents),
        ("linked_agents", was.linked_agents != is.linked_agents),
        ("max_spawn_depth", was.max_spawn_depth != is.max_spawn_depth),
        ("max_loops", was.max_loops != is.max_loops),
        ("timeout", was.run_timeout_ms != is.run_timeout_ms),
        ("max_tokens", was.max_tokens != is.max_tokens),
        ("model", was.model != is.model && was.model.is_some()),
        ("fallback_models", was.fallback_models != is.fallback_models),
        ("provider", was.provider != is.provider),
        ("mode", was.mode != is.mode),
        ("active", was.inactive != is.inactive),
        ("strategy", was.strategy != is.strategy),
        ("command", was.command != is.command),
        ("on_uncertain", was.on_uncertain != is.on_uncertain),
        ("env", was.env != is.env),
    ]
    .into_iter()
    .filter_map(|(field, kept)| kept.then_some(field))
    .collect()
}

/// What a definition says of rights, as text: two that differ in it differ in what an agent may do.
pub(super) fn rights(draft: &Draft) -> String {
    let definition = AgentDefinition {
        title: None,
        description: String::new(),
        system_prompt: String::new(),
        temperature: None,
        thinking: None,
        hidden: false,
        compression: None,
        ..draft.definition.clone()
    };
    // Plain data with text keys.
    let fields = serde_json::to_string(&definition).unwrap_or_default();
    format!("{fields}\n{:?}", draft.tools)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
