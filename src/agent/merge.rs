//! The order of trust among definitions of one name, and the function by which a less trusted
//! definition can only narrow a more trusted one. Called by `set`.

use super::AgentDefinition;
use super::fields::AgentDraft;
use super::tools::{ToolBounds, ToolChoice};
use crate::contract::linked::Link;
use crate::kernel::policy::gate::{Layer, WriteScope};
use crate::kernel::policy::pattern::fits;
use crate::kernel::run::OnUncertain;

/// The trust in a definition; later variants are more trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrustLevel {
    /// A file for another program, in an untrusted project.
    UntrustedForeign,
    /// A file in an untrusted project.
    Untrusted,
    /// This user's file for another program.
    UserForeign,
    /// Definitions of this user: configuration files, stored agents, presets, and trusted projects.
    /// Among these the upper layer replaces the lower one completely.
    User,
}

/// Returns the last of these definitions, narrowed by the more trusted ones before it, and the
/// names of the narrowed fields; `None` if there are none. The input is ordered by layer.
pub(super) fn effective(
    written: &[(TrustLevel, AgentDraft)],
    is_primary: &dyn Fn(&str) -> bool,
) -> Option<(AgentDraft, Vec<&'static str>)> {
    let ((level, draft), below) = written.split_last()?;
    let mut draft = draft.clone();
    // An untrusted definition without `mcp_servers` has no servers.
    if *level <= TrustLevel::Untrusted {
        draft.definition.mcp_servers.get_or_insert_default();
    }
    let trusted: Vec<(TrustLevel, AgentDraft)> = below
        .iter()
        .filter(|(above, _)| above > level)
        .cloned()
        .collect();
    match effective(&trusted, is_primary) {
        None => Some((draft, Vec::new())),
        Some((bound, _)) => Some(narrowed(&bound, draft, is_primary)),
    }
}

/// Returns `draft` with no more rights than `bound`, and the narrowed fields. Every field is named
/// here, so that a new field cannot be forgotten.
fn narrowed(
    bound: &AgentDraft,
    draft: AgentDraft,
    is_primary: &dyn Fn(&str) -> bool,
) -> (AgentDraft, Vec<&'static str>) {
    let before = draft.clone();
    let AgentDraft {
        definition,
        mut tools,
        warnings,
        not_in_effect: not_in_force,
        needs_trust,
        soft_model,
        gate_lines,
    } = draft;
    let limit = &bound.definition;
    let AgentDefinition {
        // Identity and style are taken from the draft.
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
        node: _,
        on_uncertain,
        env,
        secret_env,
        on_child_failure,
    } = definition;
    tools.within.push(ToolBounds {
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
        // The model's provider receives the whole conversation, so this is a matter of trust.
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
        // Unset means the operator's default, which a less trusted definition cannot raise.
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
        // A planner may delegate to every agent.
        strategy: limit.strategy,
        // A command needs trust; an agent of a model never becomes a program without it.
        command: command.filter(|command| limit.command.as_ref() == Some(command)),
        // Only a trusted definition chooses the machine.
        node: limit.node.clone(),
        on_uncertain: match (limit.on_uncertain, on_uncertain) {
            (Some(OnUncertain::Review), _) => Some(OnUncertain::Review),
            (stated, Some(OnUncertain::Retry)) => stated,
            (stated, own) => own.or(stated),
        },
        // The names that both have, with the values of the more trusted definition.
        env: limit
            .env
            .iter()
            .filter(|(name, _)| env.contains_key(*name))
            .map(|(name, given)| (name.clone(), given.clone()))
            .collect(),
        // A secret in either definition is a secret.
        secret_env: limit.secret_env.union(&secret_env).cloned().collect(),
        on_child_failure: limit.on_child_failure.or(on_child_failure),
    };
    let draft = AgentDraft {
        definition: narrower,
        tools,
        warnings,
        not_in_effect: not_in_force,
        needs_trust,
        soft_model: soft_model && limit.model.is_none(),
        gate_lines,
    };
    let kept = changed(bound, &before, &draft);
    (draft, kept)
}

/// The smaller of two limits; unset = unlimited.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The intersection of two lists of names and patterns; unset = everything.
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

/// The agents that both may delegate to.
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
        // Unset: itself, agents that can be subagents, and its linked agents.
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

/// The links that both have, each with the narrower options.
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
            // The kind of session decides what the linked agent sees.
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

/// The fields in which the more trusted definition narrowed the other.
fn changed(bound: &AgentDraft, before: &AgentDraft, after: &AgentDraft) -> Vec<&'static str> {
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
        ("node", was.node != is.node),
        ("on_uncertain", was.on_uncertain != is.on_uncertain),
        ("env", was.env != is.env),
    ]
    .into_iter()
    .filter_map(|(field, kept)| kept.then_some(field))
    .collect()
}

/// The rights in a definition as text: equal texts mean equal rights.
pub(super) fn rights(draft: &AgentDraft) -> String {
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
    // Plain data with text keys, so this cannot fail.
    let fields = serde_json::to_string(&definition).unwrap_or_default();
    format!("{fields}\n{:?}", draft.tools)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
