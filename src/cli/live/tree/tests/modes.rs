//! Delegation modes besides `task`: agents that are called into a session, and those that a plan
//! delegates to; while they work, when they are done, and when they have failed.

use super::*;

const TASK: &str = "message: Look at the change";

/// The child run that executes the host's step in this mode has made two calls and makes a third.
fn at_work(tree: &mut RunTree, mode: &str) {
    tree.take(
        child(mode, json!({ "agent": "reviewer" })),
        Some(Vec::new()),
    );
    tree.hear(&done(CHILD, 1, "glob", "pattern: src/*.rs", "31 files"));
    tree.hear(&done(CHILD, 2, "grep", "pattern: unwrap", "2 matches"));
    let reads = json!({ "paramsSummary": "path: src/main.rs" });
    tree.hear(&moved(CHILD, 3, "read", reads));
}

/// Ends the child run with this state; its row is read after that.
fn ended(tree: &mut RunTree, mode: &str, state: &str, more: Value) {
    tree.hear(&done(CHILD, 3, "read", "path: src/main.rs", "40 lines"));
    let steps = tree.find(CHILD.parse().unwrap()).unwrap().steps.clone();
    let mut row = json!({
        "agent": "reviewer", "state": state, "endedAt": LOOKED_AT, "toolCalls": 3,
    });
    merge(&mut row, more);
    tree.take(child(mode, row), Some(steps));
}

fn about_call(kind: &str, more: Value) -> Event {
    let mut data = json!({ "agent": "reviewer", "toolCallId": "c2", "childRunId": CHILD });
    merge(&mut data, more);
    event(kind, HOST, data)
}

fn failure() -> Value {
    let error = json!({ "kind": "provider", "message": "the model's server answered 500" });
    json!({ "error": error })
}

#[test]
fn e6_a_called_agent_shows_its_calls_while_it_works() {
    let mut tree = host("call_reviewer", TASK);
    tree.hear(&about_call(
        "sub_agent.call_start",
        json!({ "argsSummary": "Look" }),
    ));
    assert_eq!(tree.unread(), [CHILD.parse().unwrap()].into());
    at_work(&mut tree, "call");
    let words = json!({ "offset": 0, "text": "Two places", "at": BEGAN, "tokensSoFar": 3 });
    let before = plain(&tree.draw(&look(80)));
    tree.hear(&about_call("sub_agent.partial", words));
    assert_eq!(
        plain(&tree.draw(&look(80))),
        before,
        "its words are its own"
    );
    seen("called", &tree);
}

#[test]
fn e6_a_called_agent_that_is_done_has_its_answer_below_its_calls() {
    let mut tree = host("call_reviewer", TASK);
    at_work(&mut tree, "call");
    let text = json!({ "text": "Two places may panic.", "usage": {}, "durationMs": 3210 });
    tree.hear(&about_call("sub_agent.complete", text));
    ended(
        &mut tree,
        "call",
        "ok",
        json!({ "result": "Two places may panic." }),
    );
    tree.hear(&done(HOST, 2, "call_reviewer", TASK, "{\"result\":\"Two"));
    seen("called_done", &tree);
}

#[test]
fn e6_a_called_agent_that_has_failed_shows_why_at_its_call() {
    let mut tree = host("call_reviewer", TASK);
    at_work(&mut tree, "call");
    let error = json!({
        "error": "the model's server answered 500", "cause": ["500"], "usage": {}, "durationMs": 9,
    });
    tree.hear(&about_call("sub_agent.error", error));
    ended(&mut tree, "call", "error", failure());
    let failed = json!({
        "state": "failed", "paramsSummary": TASK, "error": "{\"unavailable\":true",
    });
    tree.hear(&moved(HOST, 2, "call_reviewer", failed));
    seen("called_failed", &tree);
}

/// A plan that delegates: `agent` and `task` are the arguments of the call.
fn planner() -> RunTree {
    let mut tree = host("delegate", "agent: reviewer, task: Look at the change");
    let start = json!({
        "subAgentId": "reviewer", "subAgentName": "reviewer", "toolCallId": "c2",
        "childRunId": CHILD, "task": "Look at the change",
    });
    tree.hear(&event("delegation.start", HOST, start));
    at_work(&mut tree, "plan");
    // The planner's stream repeats the events of its child run's tools.
    let mirrored = json!({ "source": "subagent:reviewer", "state": "done" });
    tree.hear(&moved(HOST, 7, "grep", mirrored));
    tree
}

#[test]
fn e6_whom_a_plan_has_do_it_shows_each_of_its_calls_once() {
    let tree = planner();
    let drawn = plain(&tree.draw(&look(80))).join("\n");
    assert_eq!(drawn.matches("grep").count(), 1, "{drawn}");
    seen("planned", &tree);
}

#[test]
fn e6_whom_a_plan_has_had_do_it_has_what_it_came_to_below_its_calls() {
    let mut tree = planner();
    ended(
        &mut tree,
        "plan",
        "ok",
        json!({ "result": "Two places may panic." }),
    );
    tree.hear(&done(
        HOST,
        2,
        "delegate",
        "agent: reviewer",
        "{\"result\":\"Two",
    ));
    seen("planned_done", &tree);

    let mut tree = planner();
    ended(
        &mut tree,
        "plan",
        "timeout",
        json!({ "error": { "kind": "run_timeout", "message": "it took longer than 2m" } }),
    );
    let failed = json!({ "state": "failed", "paramsSummary": "agent: reviewer", "error": "{}" });
    tree.hear(&moved(HOST, 2, "delegate", failed));
    seen("planned_failed", &tree);
}
