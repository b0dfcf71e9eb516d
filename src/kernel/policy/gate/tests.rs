//! Tests of rules, layers and bundles.

use proptest::prelude::*;

use super::*;

fn says(tool: &str, pattern: Option<&str>, decision: Decision) -> Rule {
    Rule {
        tool: tool.to_owned(),
        pattern: pattern.map(str::to_owned),
        node: None,
        decision,
    }
}

fn about(things: &[&str]) -> Subject {
    Subject {
        things: things
            .iter()
            .map(|one| CallTarget::Named(vec![(*one).to_owned()]))
            .collect(),
        ..Subject::default()
    }
}

fn judge(rules: &[Rule], tool: &str, subject: &Subject) -> Decision {
    let rights = Rights::new("a", rules, WriteScope::Workspace, Bundle::default());
    rights.judge(tool, Decision::Ask, subject).decision
}

#[test]
fn the_last_rule_that_fits_counts_and_an_exact_name_goes_before_a_pattern() {
    use Decision::{Allow, Ask, Deny};
    let rules = [
        says("shell", Some("*"), Deny),
        says("shell", Some("git *"), Allow),
        says("shell", Some("git push*"), Ask),
        says("mcp_*", None, Ask),
        says("mcp_files_*", None, Deny),
        says("mcp_files_read", None, Allow),
        says("*", Some("*secret*"), Deny),
    ];
    for (tool, things, expected) in [
        ("shell", "git status", Allow),
        ("shell", "git push origin", Ask),
        ("shell", "rm x", Deny),
        ("mcp_web_get", "{}", Ask),
        ("mcp_files_write", "{}", Deny),
        ("mcp_files_read", "{}", Allow),
        ("read", "notes.txt", Ask),
        ("read", "my/secret/file", Deny),
    ] {
        assert_eq!(
            judge(&rules, tool, &about(&[things])),
            expected,
            "{tool} {things}"
        );
    }
}

#[test]
fn allow_must_fit_everything_and_the_others_anything() {
    let allow = [says("shell", Some("git *"), Decision::Allow)];
    assert_eq!(
        judge(&allow, "shell", &about(&["git a", "git b"])),
        Decision::Allow
    );
    assert_eq!(
        judge(&allow, "shell", &about(&["git a", "rm b"])),
        Decision::Ask
    );
    // A call without named things is not allowed by a rule with a pattern.
    assert_eq!(judge(&allow, "shell", &about(&[])), Decision::Ask);
    let mut unknown = about(&["git a"]);
    unknown.things.push(CallTarget::Unknown);
    assert_eq!(judge(&allow, "shell", &unknown), Decision::Ask);
    // Each thing may be allowed by a different rule.
    let both = [
        allow[0].clone(),
        says("shell", Some("ls*"), Decision::Allow),
    ];
    assert_eq!(
        judge(&both, "shell", &about(&["git a", "ls"])),
        Decision::Allow
    );
    let deny = [says("shell", Some("rm *"), Decision::Deny)];
    assert_eq!(
        judge(&deny, "shell", &about(&["git a", "rm b"])),
        Decision::Deny
    );
}

#[test]
fn c5_a_bundle_only_narrows_where_may_be_written() {
    let writes = |scopes: &[WriteScope]| {
        let mut bundle = Bundle::default();
        for scope in scopes {
            bundle = Rights::new("kid", &[], *scope, bundle).bundle();
        }
        bundle.writes
    };
    use WriteScope::{None, Own, Workspace};
    let below = |folder: &str| Writes::Below(folder.to_owned());
    assert_eq!(writes(&[Workspace, Workspace]), Writes::Anywhere);
    assert_eq!(writes(&[Own]), below("subagents/kid"));
    assert_eq!(writes(&[Own, Workspace]), below("subagents/kid"));
    assert_eq!(writes(&[Own, Own]), below("subagents/kid/subagents/kid"));
    assert_eq!(writes(&[None, Workspace]), Writes::Nowhere);
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let tool = prop::sample::select(vec!["shell", "write", "*", "w*"]);
    let pattern = prop::sample::select(vec![None, Some("*"), Some("a*"), Some("*b")]);
    let decision = prop::sample::select(Decision::ALL);
    let one = (tool, pattern, decision)
        .prop_map(|(tool, pattern, decision)| says(tool, pattern, decision));
    prop::collection::vec(one, 0..4)
}

proptest! {
    /// Whatever a child's own definition contains, and however many agents are in between: no
    /// written rule of an ancestor is ever weakened.
    #[test]
    fn g10_11_a_child_never_does_what_a_rule_above_it_forbids(
        family in prop::collection::vec(rules(), 1..4),
        tool in prop::sample::select(vec!["shell", "write"]),
        things in prop::collection::vec("[ab]{1,2}", 1..3),
        habit in prop::sample::select(Decision::ALL),
    ) {
        let things: Vec<&str> = things.iter().map(String::as_str).collect();
        let subject = about(&things);
        let mut bundle = Bundle::default();
        let mut strictest = 0;
        for (at, own) in family.iter().enumerate() {
            let name = format!("agent-{at}");
            let rights = Rights::new(&name, own, WriteScope::Workspace, bundle);
            let rank = rights.judge(tool, habit, &subject).decision.rank();
            prop_assert!(rank >= strictest);
            if let Some((written, _)) = judged(own, tool, &subject, None) {
                strictest = strictest.max(written.rank());
            }
            bundle = rights.bundle();
        }
        // A stored bundle is read back unchanged.
        let text = serde_json::to_string(&bundle).unwrap();
        prop_assert_eq!(serde_json::from_str::<Bundle>(&text).unwrap(), bundle);
    }
}

#[test]
fn what_may_be_forbidden_is_asked_for() {
    use Decision::{Allow, Ask, Deny};
    let rules = [
        says("read", Some("*"), Allow),
        says("read", Some("secrets/*"), Deny),
        says("grep", Some("*"), Allow),
        says("grep", Some("secrets/*"), Deny),
        says("grep", Some("docs*"), Allow),
    ];
    let unknown = Subject {
        things: vec![CallTarget::Unknown],
        ..Subject::default()
    };
    assert_eq!(judge(&rules, "read", &unknown), Ask);
    for (folder, expected) in [
        (".", Ask),
        ("secrets", Ask),
        ("secrets/deep", Deny),
        ("src", Allow),
        // A later rule overrides the one before it.
        ("docs", Allow),
    ] {
        let subject = Subject {
            things: vec![CallTarget::Folder(vec![folder.to_owned()])],
            ..Subject::default()
        };
        assert_eq!(judge(&rules, "grep", &subject), expected, "{folder}");
    }
}

#[test]
fn a_rule_for_nodes_narrows_on_these_alone_also_from_an_ancestor() {
    let on = |nodes: &str, decision| Rule {
        node: Some(nodes.to_owned()),
        ..says("node_run", None, decision)
    };
    let rules = [on("*", Decision::Deny), on("mac*", Decision::Allow)];
    assert!(!is_closed(&rules, "node_run"), "one node is allowed");
    assert!(!is_closed(&rules[..1], "node_run"), "no node is named yet");
    let parent = Rights::new("lead", &rules, WriteScope::Workspace, Bundle::default());
    let own = [says("node_run", None, Decision::Allow)];
    let child = Rights::new("child", &own, WriteScope::Workspace, parent.bundle());
    for (node, expected) in [
        (Some("mac-1"), Decision::Allow),
        (Some("build"), Decision::Deny),
        (None, Decision::Allow),
    ] {
        let subject = about(&["make"]).on_node(node);
        let verdict = child.judge("node_run", Decision::Ask, &subject);
        assert_eq!(verdict.decision, expected, "{node:?}: {}", verdict.why);
    }
    let build = about(&["make"]).on_node(Some("build"));
    let why = child.judge("node_run", Decision::Ask, &build).why;
    assert!(why.contains("node_run on node *: deny"), "{why}");
    assert!(parent.looks_at_arguments());
}
