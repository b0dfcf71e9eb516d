//! Agents that an agent may delegate to, as one resolved value. Refusals, listings and tool schemas
//! are all made from it. The catalog creates it; the registry queries it.

use super::catalog::{AgentMode, AgentSummary};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::AgentId;

/// The `format` of a tool argument that names an agent to delegate to. When an agent is resolved,
/// it is replaced by an `enum` of the agents that it may name.
pub const AGENT_FORMAT: &str = "agent";

/// The agents that an agent may delegate to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowList {
    /// Its definition sets no list: itself, every agent made for spawned work, and its linked
    /// agents.
    #[default]
    Unset,
    /// `*`: every configured agent.
    Any,
    /// These agents, if they are configured.
    Only(Vec<AgentId>),
}

impl AllowList {
    /// The agents among `configured`, in their order, to which agent `own`, linked with `linked`,
    /// may delegate. Inactive agents are excluded.
    pub fn allowed(
        &self,
        own: &AgentId,
        linked: &[AgentId],
        configured: &[AgentSummary],
    ) -> Vec<AgentId> {
        configured
            .iter()
            .filter(|agent| agent.active)
            .filter(|agent| match self {
                AllowList::Any => true,
                AllowList::Only(names) => names.contains(&agent.id),
                AllowList::Unset => {
                    agent.mode != AgentMode::Primary
                        || agent.id == *own
                        || linked.contains(&agent.id)
                }
            })
            .map(|agent| agent.id.clone())
            .collect()
    }
}

/// Refuses a delegation by `own` to an agent outside `allowed`; the fault lists the allowed ones.
pub fn check_allowed(own: &AgentId, target: &AgentId, allowed: &[AgentId]) -> Result<(), Fault> {
    if allowed.contains(target) {
        return Ok(());
    }
    let names: Vec<&str> = allowed.iter().map(AgentId::as_str).collect();
    let mut more = names.clone();
    more.push(target.as_str());
    let more = more.join(", ");
    let list = match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    Err(Fault::new(
        Kind::Forbidden,
        format!(
            "agent {own} may not delegate to {target} by this tool; allowed: {list}, pinned when \
             this run began. Nothing was created"
        ),
    )
    .hint(format!(
        "use one of these, or let {own} delegate to {target}: set `allow_agents: [{more}]` in its \
         agent file. To replace built-in {own}, create agents/{own}.md in the configuration folder \
         (~/.config/abide) or .abide/agents/{own}.md in the project with the whole definition: \
         `abide agents show {own}` prints the current one"
    ))
    .with("agent", target.as_str())
    .with("allowed", names))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AgentId {
        AgentId::parse(name).unwrap()
    }

    fn agents() -> Vec<AgentSummary> {
        [
            ("build", AgentMode::Primary, true),
            ("explore", AgentMode::Subagent, true),
            ("gone", AgentMode::All, false),
            ("helper", AgentMode::All, true),
            ("other", AgentMode::Primary, true),
        ]
        .into_iter()
        .map(|(name, mode, active)| AgentSummary {
            mode,
            active,
            ..AgentSummary::named(id(name))
        })
        .collect()
    }

    fn allowed(list: &AllowList, linked: &[&str]) -> Vec<String> {
        let linked: Vec<AgentId> = linked.iter().map(|name| id(name)).collect();
        let found = list.allowed(&id("build"), &linked, &agents());
        found.into_iter().map(String::from).collect()
    }

    #[test]
    fn unset_is_itself_those_for_spawned_work_and_the_linked() {
        let unset = AllowList::Unset;
        assert_eq!(allowed(&unset, &[]), ["build", "explore", "helper"]);
        assert_eq!(
            allowed(&unset, &["other"]),
            ["build", "explore", "helper", "other"]
        );
    }

    #[test]
    fn a_written_list_narrows_also_what_is_linked() {
        let only = AllowList::Only(vec![id("helper"), id("nobody"), id("gone")]);
        assert_eq!(allowed(&only, &["other"]), ["helper"]);
        assert_eq!(allowed(&AllowList::Only(Vec::new()), &["other"]), [""; 0]);
    }

    #[test]
    fn g4_8_a_wildcard_means_every_configured_agent_and_no_other() {
        assert_eq!(
            allowed(&AllowList::Any, &[]),
            ["build", "explore", "helper", "other"]
        );
        let all = AllowList::Any.allowed(&id("build"), &[], &agents());
        let fault = check_allowed(&id("build"), &id("invented"), &all).unwrap_err();
        assert_eq!(fault.kind, Kind::Forbidden);
    }

    #[test]
    fn g4_7_a_refusal_lists_the_allowed_names() {
        let allowed = [id("helper"), id("explore")];
        assert!(check_allowed(&id("build"), &id("helper"), &allowed).is_ok());
        let fault = check_allowed(&id("build"), &id("other"), &allowed).unwrap_err();
        assert!(fault.message.contains("helper, explore"), "{fault}");
        assert_eq!(
            fault.data["allowed"],
            serde_json::json!(["helper", "explore"])
        );
        let hint = fault.hint.unwrap();
        assert!(
            hint.contains("`allow_agents: [helper, explore, other]`"),
            "{hint}"
        );
        assert!(hint.contains("agents/build.md"), "{hint}");
        let nobody = check_allowed(&id("build"), &id("other"), &[]).unwrap_err();
        assert!(nobody.message.contains("allowed: none"), "{nobody}");
    }
}
