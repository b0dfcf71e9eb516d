//! Whether a field that nobody knows looks as if it took something away from an agent. Such a
//! field is never passed over: the agent would get more than its file says.

use super::names::key;
use crate::agent::names::nearest;

/// Parts of names, in small letters without `-` and `_`.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "permission", "allow", "deny", "denied", "forbid", "block", "restrict", "exclude", "sandbox",
    "readonly", "approv", "policy", "gate", "guard", "whitelist", "blacklist", "tool", "network",
    "isolat", "confirm", "disable", "maxturn", "maxstep", "maxloop", "maxiter", "maxspawn",
    "maxdepth", "maxtoken", "timeout", "timelimit", "ratelimit", "budget", "protected", "writable",
    "noshell", "nowrite", "nonetwork", "offline",
];

/// Our fields that take something away.
const OURS: &[&str] = &[
    "tools",
    "gate",
    "write_scope",
    "mcp_servers",
    "skills",
    "allow_agents",
    "linked_agents",
    "max_spawn_depth",
    "max_tokens",
    "execution",
    "active",
    "on_uncertain",
];
/// Those of other programs, likewise.
const THEIRS: &[&str] = &[
    "permission",
    "permissions",
    "permission_mode",
    "allowed_tools",
    "disallowed_tools",
    "read_only",
    "sandbox_mode",
    "max_turns",
    "approval_policy",
    "isolation",
];
/// The same inside `execution` and `linked_agents`.
const INSIDE: &[&str] = &["max_loops", "timeout", "write_scope"];

/// Our name of a field that is written in another way: `allowAgents`, `write-scope`.
pub(in crate::agent) fn ours(name: &str) -> Option<&'static str> {
    OURS.iter().find(|own| key(own) == key(name)).copied()
}

/// Does the field look like one that takes something away?
pub(in crate::agent) fn restricts(name: &str) -> bool {
    let plain = key(name);
    PARTS.iter().any(|part| plain.contains(part))
        || [OURS, THEIRS, INSIDE]
            .iter()
            .any(|known| near(&plain, known).is_some())
}

/// One of `known` that is misspelt so.
fn near<'a>(plain: &str, known: &[&'a str]) -> Option<&'a str> {
    let found = nearest(plain, known)?;
    let wanted = key(found);
    let most = if wanted.len() <= 6 { 1 } else { 2 };
    let is_near = strsim::levenshtein(plain, &wanted) <= most;
    (is_near && plain.chars().next() == wanted.chars().next()).then_some(found)
}

/// What is said of such a field.
pub(in crate::agent) fn refusal(name: &str) -> String {
    let hint = match nearest(&name.to_lowercase(), &[OURS, INSIDE].concat()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "say it with tools, gate or write_scope, or take it out".to_owned(),
    };
    format!(
        "it looks like a restriction and is not understood, so that the agent cannot be used ({hint})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_restriction_is_told_from_what_does_not() {
        for name in [
            "toools",
            "Tools",
            "alowed_tools",
            "dissallowedTools",
            "permisions_policy",
            "write_scop",
            "mcp-server",
            "gat",
            "max_loop",
            "noNetwork",
            "approval",
            "toolsSettings",
            "sandbox_workspace_write",
            "denyRules",
        ] {
            assert!(restricts(name), "{name}");
        }
        for name in [
            "modell",
            "zebra",
            "tags",
            "date",
            "author",
            "version",
            "capabilities",
            "category",
            "color",
            "icon",
            "examples",
            "triggers",
            "role",
            "license",
            "priority",
        ] {
            assert!(!restricts(name), "{name}");
        }
    }
}
