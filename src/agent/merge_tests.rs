//! Tests every field at every pair of trust levels.

use serde_json::json;

use super::*;
use crate::agent::Strategy;
use crate::agent::command::{CommandSpec, Progress, Stdin};
use crate::contract::catalog::AgentMode;
use crate::contract::linked::{LinkSession, OnFailure};
use crate::kernel::ids::AgentId;
use crate::kernel::policy::gate::{Bundle, Decision, Rule, Subject};
use crate::kernel::secret::GivenValue;

const LEVELS: [TrustLevel; 4] = [
    TrustLevel::UntrustedForeign,
    TrustLevel::Untrusted,
    TrustLevel::UserForeign,
    TrustLevel::User,
];

fn draft() -> AgentDraft {
    AgentDraft {
        definition: AgentDefinition::named("a", "d", "p"),
        tools: ToolChoice::default(),
        warnings: Vec::new(),
        not_in_effect: Vec::new(),
        needs_trust: Vec::new(),
        soft_model: false,
        gate_lines: Vec::new(),
    }
}

fn with(change: fn(&mut AgentDraft)) -> AgentDraft {
    let mut draft = draft();
    change(&mut draft);
    draft
}

fn rule(tool: &str, decision: Decision) -> Rule {
    Rule {
        tool: tool.to_owned(),
        pattern: None,
        node: None,
        decision,
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn link(name: &str) -> Link {
    Link {
        session: Some(LinkSession::Own),
        ..Link::to(AgentId::parse(name).unwrap())
    }
}

fn judged(draft: &AgentDraft, tool: &str, habit: Decision) -> String {
    let rights = draft.definition.rights(Bundle::default());
    rights
        .judge(tool, habit, &Subject::default())
        .decision
        .to_string()
}

/// A field with a wide and a narrow value, and its effective value.
type Case = (
    &'static str,
    fn(&mut AgentDraft),
    fn(&mut AgentDraft),
    fn(&AgentDraft) -> String,
);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("tools", |_| {}, |d| d.tools.allow = Some(names(&["read"])),
        |d| format!("{:?}", d.tools.pick(&names(&["read", "write", "shell"])).0)),
    ("tools: deny", |d| d.tools.allow = Some(names(&["*", "shell"])), |d| d.tools.deny = names(&["write"]),
        |d| format!("{:?}", d.tools.pick(&names(&["read", "write", "shell"])).0)),
    ("tools: switches", |d| d.tools.switches = vec![("write".to_owned(), true)],
        |d| d.tools.switches = vec![("write".to_owned(), false)],
        |d| format!("{:?}", d.tools.pick(&names(&["read", "write"])).0)),
    ("tools of servers", |_| {}, |d| d.tools.allow = Some(Vec::new()),
        |d| d.tools.takes_served("x__y", false).to_string()),
    ("gate: deny", |_| {}, |d| d.definition.gate = vec![rule("read", Decision::Deny)],
        |d| judged(d, "read", Decision::Allow)),
    ("gate: ask", |d| d.definition.gate = vec![rule("write", Decision::Allow)],
        |d| d.definition.gate = vec![rule("write", Decision::Ask)], |d| judged(d, "write", Decision::Allow)),
    ("bounds", |_| {}, |d| d.definition.bounds = vec![Layer { agent: "b".to_owned(), rules: vec![rule("*", Decision::Ask)] }],
        |d| judged(d, "write", Decision::Allow)),
    ("write_scope", |_| {}, |d| d.definition.write_scope = Some(WriteScope::None),
        |d| format!("{:?}", d.definition.write_scope)),
    ("write_scope: own", |d| d.definition.write_scope = Some(WriteScope::Workspace),
        |d| d.definition.write_scope = Some(WriteScope::Own), |d| format!("{:?}", d.definition.write_scope)),
    ("mcp_servers", |d| d.definition.mcp_servers = Some(names(&["a", "b"])),
        |d| d.definition.mcp_servers = Some(names(&["a"])), |d| format!("{:?}", d.definition.mcp_servers)),
    ("mcp_servers: none", |d| d.definition.mcp_servers = Some(names(&["a"])),
        |d| d.definition.mcp_servers = Some(Vec::new()), |d| format!("{:?}", d.definition.mcp_servers)),
    ("skills", |_| {}, |d| d.definition.skills = Some(names(&["x-*"])), |d| format!("{:?}", d.definition.skills)),
    ("skills: patterns", |d| d.definition.skills = Some(names(&["*"])),
        |d| d.definition.skills = Some(names(&["x-*", "y"])), |d| format!("{:?}", d.definition.skills)),
    ("max_loops", |d| d.definition.max_loops = 900, |d| d.definition.max_loops = 5,
        |d| d.definition.max_loops.to_string()),
    ("timeout", |_| {}, |d| d.definition.run_timeout_ms = Some(5), |d| format!("{:?}", d.definition.run_timeout_ms)),
    ("max_tokens", |d| d.definition.max_tokens = Some(9), |d| d.definition.max_tokens = Some(5),
        |d| format!("{:?}", d.definition.max_tokens)),
    ("max_spawn_depth", |d| d.definition.max_spawn_depth = Some(5), |d| d.definition.max_spawn_depth = Some(0),
        |d| format!("{:?}", d.definition.max_spawn_depth)),
    ("allow_agents", |d| d.definition.allow_agents = Some(names(&["*"])),
        |d| d.definition.allow_agents = Some(names(&["b"])), |d| format!("{:?}", d.definition.allow())),
    ("allow_agents: nobody", |_| {}, |d| d.definition.allow_agents = Some(Vec::new()),
        |d| format!("{:?}", d.definition.allow())),
    ("linked_agents", |d| d.definition.linked_agents = vec![link("b")], |_| {},
        |d| format!("{:?}", d.definition.linked_agents)),
    ("linked_agents: timeout", |d| d.definition.linked_agents = vec![link("b")],
        |d| d.definition.linked_agents = vec![Link { timeout_ms: Some(5), write_scope: Some(WriteScope::None), ..link("b") }],
        |d| format!("{:?}", d.definition.linked_agents)),
    ("active", |_| {}, |d| d.definition.inactive = true, |d| d.definition.inactive.to_string()),
];

/// Fields without an order of wide and narrow: the more trusted value wins.
#[rustfmt::skip]
const OWNED: &[Case] = &[
    ("model", |d| d.definition.model = Some("a/b".to_owned()), |d| d.definition.model = Some("c/d".to_owned()),
        |d| format!("{:?}", d.definition.model)),
    ("fallback_models", |d| d.definition.fallback_models = Some(names(&["a/b"])),
        |d| d.definition.fallback_models = Some(Vec::new()), |d| format!("{:?}", d.definition.fallback_models)),
    ("provider", |d| { d.definition.provider.insert("seed".to_owned(), json!(1)); },
        |d| { d.definition.provider.insert("seed".to_owned(), json!(2)); }, |d| format!("{:?}", d.definition.provider)),
    ("mode", |d| d.definition.mode = AgentMode::All, |d| d.definition.mode = AgentMode::Subagent,
        |d| format!("{:?}", d.definition.mode)),
    ("strategy", |d| d.definition.strategy = Strategy::Plan, |d| d.definition.strategy = Strategy::React,
        |d| format!("{:?}", d.definition.strategy)),
    ("node", |d| d.definition.node = Some("mac".to_owned()), |d| d.definition.node = Some("pi".to_owned()),
        |d| format!("{:?}", d.definition.node)),
    ("on_uncertain", |d| d.definition.on_uncertain = Some(OnUncertain::Retry),
        |d| d.definition.on_uncertain = Some(OnUncertain::Review), |d| format!("{:?}", d.definition.on_uncertain)),
    ("on_child_failure", |d| d.definition.on_child_failure = Some(OnFailure::Continue),
        |d| d.definition.on_child_failure = Some(OnFailure::Abort), |d| format!("{:?}", d.definition.on_child_failure)),
    ("org", |d| d.definition.org = Some("a".to_owned()), |d| d.definition.org = Some("b".to_owned()),
        |d| format!("{:?}", d.definition.org)),
    ("env", |d| { d.definition.env.insert("A".to_owned(), Some(GivenValue::text("1"))); }, |_| {},
        |d| format!("{:?}", d.definition.env.keys())),
    ("command", |d| d.definition.command = Some(CommandSpec {
        argv: names(&["x"]), stdin: Stdin::None, cwd: None, progress: Progress::None, output_limit: 9,
        speaks: crate::agent::Speaks::Text,
    }), |_| {}, |d| format!("{:?}", d.definition.command)),
];

fn comes_to(written: &[(TrustLevel, AgentDraft)]) -> AgentDraft {
    effective(written, &|_| false).unwrap().0
}

#[test]
fn a_less_trusted_definition_only_narrows_and_another_counts_whole() {
    for (field, wide, narrow, shown) in CASES.iter().chain(OWNED) {
        let (wide, narrow) = (with(*wide), with(*narrow));
        for above in LEVELS {
            for upper in LEVELS {
                let found = comes_to(&[(above, narrow.clone()), (upper, wide.clone())]);
                let expected = match upper < above {
                    true => &narrow,
                    false => &wide,
                };
                let none = Some(Vec::new());
                let mut expected = expected.clone();
                if upper <= TrustLevel::Untrusted && upper >= above {
                    expected.definition.mcp_servers = expected.definition.mcp_servers.or(none);
                }
                assert_eq!(
                    shown(&found),
                    shown(&expected),
                    "{field}: {above:?} below {upper:?}"
                );
            }
        }
    }
    for (field, wide, narrow, shown) in CASES {
        let (wide, narrow) = (with(*wide), with(*narrow));
        for above in LEVELS {
            for upper in LEVELS {
                let found = comes_to(&[(above, wide.clone()), (upper, narrow.clone())]);
                assert_eq!(
                    shown(&found),
                    shown(&narrow),
                    "{field}: {above:?} below {upper:?}"
                );
            }
        }
    }
}

#[test]
fn a_layer_between_lifts_nothing_that_a_more_trusted_one_says() {
    let bound = with(|d| {
        d.definition.gate = vec![rule("shell", Decision::Deny)];
        d.definition.mcp_servers = Some(Vec::new());
        d.tools.allow = Some(names(&["read"]));
    });
    let foreign = (TrustLevel::UntrustedForeign, draft());
    let own = (TrustLevel::Untrusted, draft());
    let found = comes_to(&[(TrustLevel::User, bound.clone()), foreign, own.clone()]);
    assert_eq!(judged(&found, "shell", Decision::Ask), "deny");
    assert_eq!(found.tools.pick(&names(&["read", "write"])).0, ["read"]);
    assert_eq!(found.definition.mcp_servers, Some(Vec::new()));
    // Another file of the same user replaces the first completely, and also narrows the project.
    let other = with(|d| d.definition.gate = vec![rule("read", Decision::Deny)]);
    let found = comes_to(&[(TrustLevel::User, bound), (TrustLevel::User, other), own]);
    assert_eq!(judged(&found, "shell", Decision::Ask), "ask");
    assert_eq!(judged(&found, "read", Decision::Allow), "deny");
}

#[test]
fn what_an_untrusted_file_does_not_say_of_servers_is_none() {
    for (level, expected) in [
        (TrustLevel::UntrustedForeign, Some(Vec::new())),
        (TrustLevel::Untrusted, Some(Vec::new())),
        (TrustLevel::UserForeign, None),
        (TrustLevel::User, None),
    ] {
        assert_eq!(
            comes_to(&[(level, draft())]).definition.mcp_servers,
            expected,
            "{level:?}"
        );
        let named = with(|d| d.definition.mcp_servers = Some(names(&["a"])));
        let found = comes_to(&[(TrustLevel::User, named), (level, draft())]);
        let expected = if level == TrustLevel::UserForeign {
            Some(names(&["a"]))
        } else {
            expected
        };
        assert_eq!(found.definition.mcp_servers, expected, "{level:?}");
    }
}

#[test]
fn whom_an_unset_list_covers_a_stated_one_may_name() {
    let limit = with(|d| d.definition.linked_agents = vec![link("linked")]);
    let own = with(|d| d.definition.allow_agents = Some(names(&["a", "linked", "main", "helper"])));
    let written = [(TrustLevel::User, limit), (TrustLevel::Untrusted, own)];
    let (found, kept) = effective(&written, &|name| name == "main" || name == "linked").unwrap();
    assert_eq!(
        found.definition.allow_agents,
        Some(names(&["a", "linked", "helper"]))
    );
    assert!(kept.contains(&"allow_agents"), "{kept:?}");
}

#[test]
fn rights_differ_where_more_may_be_done_and_not_with_a_prompt() {
    let plain = rights(&draft());
    let prompt = with(|d| {
        d.definition.system_prompt = "other".to_owned();
        d.definition.title = Some("T".to_owned());
        d.definition.description = "other".to_owned();
    });
    assert_eq!(rights(&prompt), plain);
    for (field, wide, narrow, _) in CASES {
        assert_ne!(rights(&with(*wide)), rights(&with(*narrow)), "{field}");
    }
}
