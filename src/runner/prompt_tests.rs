//! Tests of the model's view of a transcript.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::super::driver::{Driver, run_id};
use super::super::turn::RunnerOptions;
use super::*;
use crate::kernel::session::message::AnswerFinding;

fn driver() -> Driver {
    Driver::new(
        &PathBuf::from("/w"),
        "offline/search",
        None,
        RunnerOptions::default(),
    )
}

fn call(id: &str) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "grep".to_owned(),
        arguments: Value::Null,
    }
}

fn result(id: &str) -> Block {
    Block::ToolResult {
        tool_call_id: id.to_owned(),
        text: format!("result of {id}"),
        is_error: false,
    }
}

fn text(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
    }
}

impl Driver {
    fn of_run(&mut self, run: u128) -> &mut Self {
        self.view.run.id = run_id(run);
        self
    }

    fn answer(&mut self, blocks: Vec<Block>) -> i64 {
        self.push(MessageKind::Text, Role::Assistant, blocks)
    }

    fn tool(&mut self, id: &str) -> i64 {
        self.push(MessageKind::ToolResult, Role::Tool, vec![result(id)])
    }
}

fn seqs(messages: &[Arc<Message>]) -> Vec<i64> {
    messages.iter().map(|message| message.seq).collect()
}

#[test]
fn a_request_ends_with_an_answer_only_where_its_provider_has_paused() {
    let ends_with = |blocks: Vec<Block>| {
        let mut driver = driver();
        driver.say("task");
        driver.answer(blocks);
        let messages = to_be_answered(conversation(&driver.view, None));
        messages.last().unwrap().role
    };
    assert_eq!(ends_with(vec![text("done")]), Role::System);
    let paused = Block::Note {
        note: AnswerFinding::Paused,
    };
    assert_eq!(ends_with(vec![text("half"), paused]), Role::Assistant);
    // A call is followed by its result, and the latest input comes last.
    assert_eq!(ends_with(vec![call("a")]), Role::Tool);
    let mut driver = driver();
    driver.answer(vec![text("done")]);
    driver.say("more");
    let said = conversation(&driver.view, None);
    assert_eq!(seqs(&to_be_answered(said.clone())), seqs(&said));
}

#[test]
fn results_stand_in_call_order_and_people_only_entries_are_left_out() {
    let mut driver = driver();
    driver.say("task");
    driver.answer(vec![call("a"), call("b")]);
    driver.tool("b");
    driver.push(
        MessageKind::RestartNotice,
        Role::System,
        vec![text("restarted")],
    );
    driver.tool("a");
    driver.answer(vec![text(" ")]);
    let seen = conversation(&driver.view, None);
    assert_eq!(seqs(&seen), [1, 2, 5, 3]);
}

#[test]
fn only_what_the_step_saw_is_shown() {
    let mut driver = driver();
    driver.say("task");
    driver.answer(vec![text("answer")]);
    driver.announce("late");
    assert_eq!(seqs(&conversation(&driver.view, Some(1))), [1]);
    assert_eq!(seqs(&conversation(&driver.view, Some(3))), [1, 2, 3]);
}

#[test]
fn a_call_whose_run_ended_before_its_result_gets_one_that_says_so() {
    let mut driver = driver();
    driver.of_run(1).say("first");
    driver.answer(vec![call("a"), call("b")]);
    driver.tool("b");
    driver.of_run(2).say("second");
    let seen = conversation(&driver.view, None);
    assert_eq!(seqs(&seen), [1, 2, 2, 3, 4]);
    assert!(format!("{:?}", seen[2].content).contains(NO_RESULT));
}

/// Pinned tools, from their JSON without parameters.
fn tools(list: &[&str]) -> PinnedTools {
    let tools = list.iter().map(|text| {
        let mut tool: serde_json::Value = serde_json::from_str(text).unwrap();
        tool["description"] = "".into();
        tool["parameters"] = serde_json::json!({});
        serde_json::from_str(&tool.to_string()).unwrap()
    });
    PinnedTools {
        tools: tools.collect(),
        tokens: 0,
    }
}

#[test]
fn the_system_prompt_names_the_nodes_of_the_tools() {
    let driver = driver();
    let definition = super::super::turn::pinned_agent(&driver.view).unwrap();
    let prompt = |list: &[&str]| {
        let tools = tools(list);
        system(&definition, &driver.view, Path::new("/w"), &tools, 1).unwrap()
    };
    let plain = prompt(&[r#"{"name": "read"}"#]);
    assert!(!plain.contains("node"), "{plain}");
    let with_nodes = prompt(&[r#"{"name": "node_run", "nodes": ["mac (macos): node_run"]}"#]);
    assert!(
        with_nodes.contains("\n  - mac (macos): node_run\n"),
        "{with_nodes}"
    );
    assert!(with_nodes.contains("access the folder /w"), "{with_nodes}");
    let there = prompt(&[
        r#"{"name": "shell", "on": "mac"}"#,
        r#"{"name": "todo"}"#,
        r#"{"name": "read", "on": "mac"}"#,
    ]);
    assert!(
        there.contains("node mac, another machine. Your tools shell, read work"),
        "{there}"
    );
    assert!(!there.contains("/w"), "{there}");
}

#[test]
fn the_system_prompt_holds_the_agents_and_the_facts() {
    let mut driver = driver();
    let definition = super::super::turn::pinned_agent(&driver.view).unwrap();
    let spawned = system(&definition, &driver.view, Path::new("/w"), &tools(&[]), 1).unwrap();
    assert!(spawned.starts_with(&definition.system_prompt));
    for fact in ["agent explore", "/w", "only your last text", "is data"] {
        assert!(spawned.contains(fact), "{fact}: {spawned}");
    }
    driver.view.skills = Some(r#"{"prompt": "<available_skills>", "skills": []}"#.into());
    let skilled = system(&definition, &driver.view, Path::new("/w"), &tools(&[]), 1).unwrap();
    let list = skilled.find("<available_skills>").unwrap();
    assert!(definition.system_prompt.len() <= list && list < skilled.find("---").unwrap());
    driver.view.skills = Some("broken".into());
    assert!(system(&definition, &driver.view, Path::new("/w"), &tools(&[]), 1).is_err());
    driver.view.skills = None;
    driver.view.run.origin = RunOrigin::Wake;
    assert!(
        system(&definition, &driver.view, Path::new("/w"), &tools(&[]), 1)
            .unwrap()
            .contains("NO_REPLY")
    );
}

/// One event of a generated session.
#[derive(Clone, Debug)]
enum Happening {
    Said(u128),
    Announced,
    Restarted,
    Answered { run: u128, calls: Vec<u8> },
    Resulted { run: u128, call: u8 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (1u128..4).prop_map(Happening::Said),
        Just(Happening::Announced),
        Just(Happening::Restarted),
        (1u128..4, prop::collection::vec(0u8..4, 0..4))
            .prop_map(|(run, calls)| Happening::Answered { run, calls }),
        (1u128..4, 0u8..4).prop_map(|(run, call)| Happening::Resulted { run, call }),
    ]
}

proptest! {
    /// After any history, each call is followed by its one result, and no result is without its
    /// call: otherwise a provider refuses the whole conversation.
    #[test]
    fn no_call_stands_without_its_result(
        happenings in prop::collection::vec(happening(), 0..24), seen in 0i64..26
    ) {
        let mut driver = driver();
        for happening in happenings {
            match happening {
                Happening::Said(run) => { driver.of_run(run).say("text"); }
                Happening::Announced => { driver.announce("ended"); }
                Happening::Restarted => {
                    driver.push(MessageKind::RestartNotice, Role::System, vec![text("x")]);
                }
                Happening::Answered { run, calls } => {
                    let blocks = calls.iter().map(|id| call(&id.to_string())).collect();
                    driver.of_run(run).answer(blocks);
                }
                Happening::Resulted { run, call } => {
                    driver.of_run(run).tool(&call.to_string());
                }
            }
        }
        driver.of_run(1);
        let mut owed: Vec<String> = Vec::new();
        for message in conversation(&driver.view, Some(seen)) {
            prop_assert!(message.seq <= seen);
            prop_assert_ne!(message.kind, MessageKind::RestartNotice);
            if message.kind == MessageKind::ToolResult {
                prop_assert!(!owed.is_empty(), "a result alone");
                prop_assert_eq!(message.tool_call.clone(), Some(owed.remove(0)));
                continue;
            }
            prop_assert!(owed.is_empty(), "a call without its result");
            owed.extend(message.content.iter().filter_map(|block| match block {
                Block::ToolCall { id, .. } => Some(id.clone()),
                _ => None,
            }));
        }
        prop_assert!(owed.is_empty(), "a call without its result");
    }
}
