//! Tests of valid and invalid plans, and of the model's input at each node.

use std::sync::Arc;

use serde_json::value::to_raw_value;
use uuid::Uuid;

use super::prompt::{conversation, instruction, plans_again};
use super::reading::{Plan, PlanChoices, read};
use super::*;
use crate::contract::linked::PlanCandidate;
use crate::kernel::ids::{AgentId, MessageId, StepId};
use crate::kernel::run::step::{EffectClass, Intent};
use crate::kernel::session::message::{Message, NewMessage, Role};
use crate::kernel::session::raw_metadata::RawMetadata;
use crate::kernel::time::Timestamp;
use crate::provider::ToolSchema;
use crate::runner::RunnerOptions;
use crate::runner::driver::{Driver, run_id};

fn candidate(id: &str, name: &str) -> PlanCandidate {
    PlanCandidate {
        id: AgentId::parse(id).unwrap(),
        name: name.to_owned(),
        description: format!("For {id}."),
    }
}

fn pool() -> PlanChoices {
    PlanChoices {
        candidates: vec![
            candidate("reviewer", "Code Review"),
            candidate("tester", "reviewer"),
        ],
        tools: vec![Arc::new(ToolSchema {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            parameters: to_raw_value(&json!({ "type": "object" })).unwrap(),
        })],
    }
}

fn driver() -> Driver {
    let folder = std::env::temp_dir();
    let mut driver = Driver::new(&folder, "offline/search", None, RunnerOptions::default());
    driver.say("look at it");
    driver
}

fn plan(text: &str) -> Result<Plan, String> {
    read(text, &pool(), &driver().view)
}

#[test]
fn a3_own_tools_go_before_delegation_and_delegation_before_the_answer() {
    let both = r#"{"steps": [{"tool": "read", "arguments": {"path": "a"}, "why": "to know"}],
        "requires_delegation": true, "delegate_to": "reviewer"}"#;
    let Ok(Plan::Act(steps)) = plan(both) else {
        panic!("steps go first");
    };
    assert_eq!(steps[0].tool, "read");
    let delegates = |named: &str| {
        let text = json!({ "steps": [], "requires_delegation": true, "delegate_to": named });
        plan(&text.to_string())
    };
    let agent = |id: &str| {
        Ok(Plan::Delegate {
            agent: AgentId::parse(id).unwrap(),
            task: None,
        })
    };
    assert_eq!(delegates("Code Review"), agent("reviewer"), "by name");
    assert_eq!(delegates("tester"), agent("tester"), "by id");
    assert_eq!(
        delegates("reviewer"),
        agent("tester"),
        "a name goes before an id"
    );
    let nothing =
        "```json\n{\"steps\": [], \"requires_delegation\": false, \"delegate_to\": null}\n```";
    assert_eq!(plan(nothing), Ok(Plan::Respond), "fences are no fault");
}

#[test]
fn a3_what_is_no_plan_is_given_back_with_what_is_wrong() {
    for (text, words) in [
        ("I would read it.", "schema"),
        ("{\"steps\": []}", "requires_delegation"),
        (
            "{\"steps\": [], \"requires_delegation\": false, \"more\": 1}",
            "more",
        ),
        (
            "{\"steps\": [{\"tool\": \"fly\", \"arguments\": {}}], \"requires_delegation\": false}",
            "the tools are read",
        ),
        (
            "{\"steps\": [], \"requires_delegation\": true, \"delegate_to\": \"nobody\"}",
            "Code Review (id: reviewer): For reviewer.",
        ),
        (
            "{\"steps\": [], \"requires_delegation\": true}",
            "delegate_to is empty",
        ),
    ] {
        let fault = plan(text).unwrap_err();
        assert!(fault.contains(words), "{text}: {fault}");
    }
}

#[test]
fn a3_the_same_agent_is_never_given_the_same_task_twice() {
    let mut driver = driver();
    let delegate = |task: &str| Intent {
        id: StepId(Uuid::from_u128(7)),
        kind: StepKind::Tool,
        tool: Some(DELEGATE.to_owned()),
        tool_call: Some("plan1_1".to_owned()),
        asked_by: None,
        effect: EffectClass::Idempotent,
        input: json!({ "agent": "tester", "task": task }),
        params_summary: None,
        context: None,
    };
    driver.intend(vec![delegate("look at it")]);
    let text = |task: &str| {
        let plan = json!({
            "steps": [], "requires_delegation": true, "delegate_to": "tester", "task": task,
        });
        read(&plan.to_string(), &pool(), &driver.view)
    };
    assert!(
        text("")
            .unwrap_err()
            .contains("already got this exact task"),
        "the task is what was asked for"
    );
    assert!(
        text("look at it ")
            .unwrap_err()
            .contains("already got this exact task")
    );
    assert!(text("look at something else").is_ok());
}

#[test]
fn a3_a_reflection_may_ask_for_another_plan() {
    assert!(plans_again("Half is known.\nNEXT: PLAN\n"));
    assert!(plans_again("Half is known.\n**NEXT: PLAN**"));
    assert!(!plans_again("NEXT: PLAN was not needed.\nNEXT: RESPOND"));
    assert!(!plans_again(""));
}

#[test]
fn a3_the_planner_is_told_its_six_rules() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../tests/it/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    let told = instruction(Node::Plan, &pool());
    settings.bind(|| insta::assert_snapshot!("planner_prompt", told));
    let alone = PlanChoices {
        candidates: Vec::new(),
        ..pool()
    };
    assert!(!instruction(Node::Plan, &alone).contains("Delegation"));
}

#[test]
fn a_conversation_with_plans_alternates_and_shows_of_earlier_turns_the_answers_alone() {
    let mut all: Vec<Arc<Message>> = Vec::new();
    let mut put = |new: NewMessage, node: Option<&str>| {
        let seq = all.len() as i64 + 1;
        let mut message = new.at(seq, 1, Timestamp(0));
        message.metadata = node.and_then(|node| RawMetadata::of(&json!({ PLAN_PHASE_KEY: node })));
        all.push(Arc::new(message));
    };
    let id = |number| MessageId(Uuid::from_u128(number));
    let said = |text: &str| NewMessage::user(id(1), text);
    let answer = |run: u128, text: &str, call: Option<&str>| {
        let mut blocks = vec![Block::Text {
            text: text.to_owned(),
        }];
        blocks.extend(call.map(|call| Block::ToolCall {
            id: call.to_owned(),
            name: "read".to_owned(),
            arguments: json!({}),
        }));
        NewMessage::answer(id(2), run_id(run), blocks)
    };
    let result = |run: u128, call: &str| {
        NewMessage::tool_result(id(3), run_id(run), call, "it says result>>> x", false)
    };
    put(said("first"), None);
    put(answer(1, "{plan}", Some("p1")), Some("plan"));
    put(result(1, "p1"), None);
    put(answer(1, "hm", None), Some("reflect"));
    put(answer(1, "the answer", None), Some("respond"));
    put(said("second"), None);
    put(answer(2, "no plan", None), Some("plan"));
    put(answer(2, "{plan}", Some("p2")), Some("plan"));
    put(result(2, "p2"), None);
    put(answer(2, "good", None), Some("reflect"));
    let shown = conversation(&all, run_id(2), Node::Respond, None);
    let shown: Vec<(Role, String)> = shown
        .iter()
        .map(|message| (message.role, message.text()))
        .collect();
    let roles: Vec<Role> = shown.iter().map(|(role, _)| *role).collect();
    use Role::{Assistant, System, User};
    assert_eq!(
        roles,
        [
            User, Assistant, User, Assistant, System, Assistant, System, Assistant, System
        ]
    );
    assert_eq!(shown[1].1, "the answer");
    assert!(
        shown[6].1.starts_with("read has answered:\n<<<result"),
        "{}",
        shown[6].1
    );
    assert_eq!(
        shown[6].1.matches("result>>>").count(),
        1,
        "it cannot end its quotation"
    );
    assert_eq!(shown[8].1, "Now answer.");
}
