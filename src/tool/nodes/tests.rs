//! Tests the tools of nodes against a node that the test plays.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::json;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::contract::journal::RunEnvironment;
use crate::contract::nodes::NodeView;
use crate::contract::runner::Admission;
use crate::kernel::node::{CallEnd, FailureReason};
use crate::kernel::policy::gate::{Bundle, Rights, Rule, WriteScope};
use crate::tool::{Call, Catalogue, ToolOptions};

/// Nodes that answer as ordered, and note what they are asked.
#[derive(Default)]
struct PlayedNodes {
    ends: Mutex<VecDeque<NodeEnd>>,
    /// A call waits for a permit before it ends.
    gate: Option<Arc<Semaphore>>,
    calls: Mutex<Vec<(String, String, CallId, NodeCall)>>,
    released: Mutex<Vec<CallId>>,
    dropped: Arc<Mutex<u32>>,
}

/// Counts calls that are dropped before their end.
struct DropCount(Arc<Mutex<u32>>, bool);

impl DropCount {
    fn has_ended(&mut self) {
        self.1 = true;
    }
}

impl Drop for DropCount {
    fn drop(&mut self) {
        if !self.1 {
            *self.0.lock().unwrap() += 1;
        }
    }
}

impl Nodes for PlayedNodes {
    fn list(&self, _: &str) -> Vec<NodeView> {
        Vec::new()
    }

    fn call(
        &self,
        org: &str,
        node: &str,
        id: CallId,
        call: NodeCall,
        _: Arc<dyn NodeOutput>,
    ) -> BoxFuture<'static, NodeEnd> {
        let mut calls = self.calls.lock().unwrap();
        calls.push((org.to_owned(), node.to_owned(), id, call));
        let end = self.ends.lock().unwrap().pop_front().unwrap();
        let (gate, mut count) = (
            self.gate.clone(),
            DropCount(Arc::clone(&self.dropped), false),
        );
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            count.has_ended();
            end
        })
    }

    fn everywhere(&self) -> Vec<(String, NodeView)> {
        Vec::new()
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        tokio::sync::watch::channel(0).1
    }

    fn keep_programs(
        &self,
        _: &str,
        _: &str,
        _: i64,
        _: std::collections::BTreeSet<String>,
        _: BTreeMap<String, String>,
    ) -> BoxFuture<'static, Result<(), crate::kernel::fault::Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn skills(&self, _: &str) -> Vec<(String, Vec<crate::kernel::node::NodeSkill>)> {
        Vec::new()
    }

    fn release(&self, _: &str, _: &str, id: CallId) {
        self.released.lock().unwrap().push(id);
    }
}

struct Stage {
    nodes: Arc<PlayedNodes>,
    catalogue: Catalogue,
}

fn done(value: Value) -> NodeEnd {
    NodeEnd::Answered(CallEnd::Done { value })
}

fn ended(status: i32, stdout: &str) -> NodeEnd {
    done(json!({
        "status": status, "stdout": stdout, "stderr": "", "stdoutBytes": 1, "stderrBytes": 0,
        "ranMs": 5,
    }))
}

fn away() -> NodeEnd {
    NodeEnd::Away("node mac was lost".to_owned())
}

fn site() -> Site {
    Site {
        run: RunId(Uuid::from_u128(1)),
        id: StepId(Uuid::from_u128(2)),
        step: 1,
        attempt: 1,
    }
}

fn rights(rules: &[Rule]) -> Rights {
    Rights::new("a", rules, WriteScope::Workspace, Bundle::default())
}

impl Stage {
    fn new(ends: impl IntoIterator<Item = NodeEnd>, gate: Option<Arc<Semaphore>>) -> Stage {
        let nodes = Arc::new(PlayedNodes {
            ends: Mutex::new(ends.into_iter().collect()),
            gate,
            ..PlayedNodes::default()
        });
        let slot = NodesSlot::default();
        slot.set(Arc::clone(&nodes) as Arc<dyn Nodes>).ok().unwrap();
        let catalogue = Catalogue::new(ToolOptions {
            nodes: slot,
            ..ToolOptions::default()
        });
        Stage { nodes, catalogue }
    }

    fn begin(
        &self,
        name: &str,
        context: NodeContext<'_>,
        arguments: &Value,
    ) -> BoxFuture<'static, Called> {
        let environment = RunEnvironment {
            variables: Environment::default()
                .with("PATH", "/bin")
                .with("REGION", "eu")
                .with("LD_PRELOAD", "/x.so"),
            ..RunEnvironment::default()
        };
        self.catalogue.call(Call {
            site: site(),
            id: "call-1",
            name,
            root: Path::new("/"),
            served: None,
            rights: &rights(&[]),
            environment: &environment,
            arguments,
            links: &[],
            nodes: context,
            program: crate::process::ProgramStep::first(site().run, site().id),
        })
    }

    async fn call(&self, name: &str, context: NodeContext<'_>, arguments: Value) -> Called {
        self.begin(name, context, &arguments).await
    }

    async fn text(&self, name: &str, arguments: Value) -> (String, bool) {
        match self.call(name, context(), arguments).await {
            Called::Done(output) => (output.text, output.is_error),
            other => panic!("{other:?}"),
        }
    }

    async fn admit(&self, name: &str, on: Option<&str>, arguments: Value) -> Admission {
        let rule = |tool: &str, pattern: &str, decision| Rule {
            tool: tool.to_owned(),
            pattern: Some(pattern.to_owned()),
            node: None,
            decision,
        };
        let rules = [
            rule(NODE_RUN, "git status*", Decision::Allow),
            rule(NODE_RUN, "rm *", Decision::Deny),
            rule(NODE_READ, "/etc/**", Decision::Deny),
            rule("read", "/etc/**", Decision::Deny),
            Rule {
                node: Some("mac".to_owned()),
                ..rule(NODE_RUN, "cargo *", Decision::Allow)
            },
            Rule {
                node: Some("mac".to_owned()),
                pattern: None,
                ..rule("shell", "", Decision::Deny)
            },
        ];
        let admitted = self.catalogue.admit(Call {
            site: site(),
            id: "call-1",
            name,
            root: Path::new("/"),
            served: None,
            rights: &rights(&rules),
            environment: &RunEnvironment::default(),
            arguments: &arguments,
            links: &[],
            nodes: NodeContext { on, ..context() },
            program: crate::process::ProgramStep::first(site().run, site().id),
        });
        admitted.await
    }
}

fn context() -> NodeContext<'static> {
    NodeContext {
        org: "acme",
        ..NodeContext::default()
    }
}

fn run() -> Value {
    json!({ "node": "mac", "argv": ["make", "all"], "timeout": 9, "cwd": "/src" })
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_what_the_run_adds_to_its_environment() {
    let stage = Stage::new([ended(0, "built\n")], None);
    let overlay = ["REGION", "LD_PRELOAD", "MISSING"].map(|name| EnvName {
        name: name.to_owned(),
        from: "agent".to_owned(),
    });
    let context = NodeContext {
        overlay: &overlay,
        ..context()
    };
    let called = stage.call(NODE_RUN, context, run()).await;
    let expected = ToolOutput::text("exit status 0\nstdout:\nbuilt");
    assert_eq!(called, Called::Done(expected));
    let calls = stage.nodes.calls.lock().unwrap();
    let (org, node, id, NodeCall::Run(call)) = &calls[0] else {
        panic!("{calls:?}");
    };
    assert_eq!((org.as_str(), node.as_str()), ("acme", "mac"));
    assert_eq!(id.0, site().id.0);
    assert_eq!(call.argv, ["make", "all"]);
    assert_eq!((call.timeout_ms, call.cwd.as_deref()), (9000, Some("/src")));
    // Neither the base of this machine nor what changes how programs load.
    let env: Vec<(&str, &str)> = call
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(env, [("REGION", "eu")]);
}

#[tokio::test]
async fn each_end_has_the_words_of_a_local_command() {
    let stopped = |why: &str| {
        done(json!({
            "stopped": why, "signal": 9, "stdout": "", "stderr": "", "stdoutBytes": 0,
            "stderrBytes": 0, "ranMs": 5,
        }))
    };
    let failed = NodeEnd::Answered(CallEnd::Failed {
        reason: FailureReason::Denied,
        message: "no rule allows it".to_owned(),
    });
    let not_sent = NodeEnd::NotSent("node mac is away; nothing was sent".to_owned());
    let stage = Stage::new([ended(3, ""), stopped("timeout"), failed, not_sent], None);
    for said in [
        "exit status 3",
        "timeout: it had not ended after 9s; it was stopped with everything that it had started",
        "denied: node mac did not carry out the call, nothing was done: no rule allows it",
        "node mac is away; nothing was sent",
    ] {
        assert_eq!(stage.text(NODE_RUN, run()).await, (said.to_owned(), true));
        stage.catalogue.stored(site().id);
    }
    for bad in [
        json!({ "node": "mac", "argv": [] }),
        json!({ "node": "mac", "argv": ["a\0"] }),
    ] {
        let (text, is_error) = stage.text(NODE_RUN, bad).await;
        assert!(is_error && text.starts_with("argv: "), "{text}");
    }
}

#[tokio::test]
async fn files_and_folders_are_shown_and_kept_nowhere() {
    let part = json!({ "text": "ab", "size": 10, "next": 7 });
    let list = json!({
        "entries": [
            { "name": "src", "kind": "folder", "size": 0 },
            { "name": "a.txt", "kind": "file", "size": 3 },
        ],
        "truncated": false,
    });
    let stage = Stage::new([done(part), done(list), away()], None);
    let given = json!({ "node": "mac", "path": "/w/a.txt", "offset": 5, "limit": 2 });
    let (text, _) = stage.text(NODE_READ, given).await;
    assert_eq!(
        text,
        "/w/a.txt: bytes 5-7 of 10\nab\n… more; continue with offset 7"
    );
    let given = json!({ "node": "mac", "path": "/w" });
    let (text, _) = stage.text(NODE_LIST, given.clone()).await;
    assert_eq!(text, "src/\na.txt");
    assert_eq!(stage.nodes.released.lock().unwrap().len(), 2);
    // A look has no effect, so nothing about it is uncertain.
    let (text, is_error) = stage.text(NODE_LIST, given).await;
    assert!(is_error && text.starts_with("node_away: "), "{text}");
}

#[tokio::test]
async fn a_call_is_forgotten_once_its_outcome_is_stored() {
    let stage = Stage::new([ended(0, "")], None);
    stage.text(NODE_RUN, run()).await;
    assert_eq!(stage.nodes.released.lock().unwrap().len(), 0);
    stage.catalogue.stored(site().id);
    assert_eq!(*stage.nodes.released.lock().unwrap(), [CallId(site().id.0)]);
    stage.catalogue.stored(site().id);
    assert_eq!(stage.nodes.released.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_goes_on_without_its_task_and_is_continued() {
    let gate = Arc::new(Semaphore::new(0));
    let stage = Stage::new([ended(0, "")], Some(Arc::clone(&gate)));
    let given = run();
    let mut first = stage.begin(NODE_RUN, context(), &given);
    assert!((&mut first).now_or_never().is_none());
    drop(first);
    assert_eq!(*stage.nodes.dropped.lock().unwrap(), 0);
    gate.add_permits(1);
    let (text, _) = stage.text(NODE_RUN, given).await;
    assert_eq!(text, "exit status 0");
    assert_eq!(stage.nodes.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_end_of_a_run_ends_its_call() {
    let gate = Arc::new(Semaphore::new(0));
    let stage = Stage::new([ended(0, "")], Some(gate));
    let given = run();
    let mut call = stage.begin(NODE_RUN, context(), &given);
    assert!((&mut call).now_or_never().is_none());
    drop(call);
    drop(stage.catalogue.release(RunId(Uuid::from_u128(7))));
    assert_eq!(*stage.nodes.dropped.lock().unwrap(), 0);
    drop(stage.catalogue.release(site().run));
    assert_eq!(*stage.nodes.dropped.lock().unwrap(), 1);
}

#[tokio::test]
async fn what_a_lost_node_has_done_is_uncertain() {
    let lost = NodeEnd::Answered(CallEnd::Uncertain {
        message: "it was killed".to_owned(),
    });
    let not_sent = || NodeEnd::NotSent("node mac is away".to_owned());
    let stage = Stage::new([away(), lost, not_sent(), not_sent()], None);
    let uncertain = |why: &str, is_final| Called::Uncertain {
        why: why.to_owned(),
        is_final,
    };
    let called = stage.call(NODE_RUN, context(), run()).await;
    assert_eq!(called, uncertain("node mac was lost", false));
    // The next attempt asks the node, which may be back.
    let called = stage.call(NODE_RUN, context(), run()).await;
    assert_eq!(called, uncertain("it was killed", true));
    stage.catalogue.stored(site().id);
    let called = stage.call(NODE_RUN, context(), run()).await;
    assert!(matches!(called, Called::Done(output) if output.is_error));
    // An earlier process may have sent the call.
    let context = NodeContext {
        may_have_begun: true,
        ..context()
    };
    let called = stage.call(NODE_RUN, context, run()).await;
    let why = "the daemon was restarted during the call, and now node mac is away";
    assert_eq!(called, uncertain(why, false));
}

#[tokio::test]
async fn the_gate_judges_an_argv_like_a_command_line() {
    let stage = Stage::new([], None);
    let on = |argv: &[&str]| json!({ "node": "mac", "argv": argv });
    let admitted = stage.admit(NODE_RUN, None, on(&["git", "status"])).await;
    assert_eq!(admitted, Admission::Allowed);
    for argv in [
        &["rm", "-r", "x"][..],
        &["nice", "rm", "-r", "x"],
        &["sh", "-c", "true; rm -r x"],
    ] {
        let admitted = stage.admit(NODE_RUN, None, on(argv)).await;
        assert!(
            matches!(admitted, Admission::Refused(_)),
            "{argv:?}: {admitted:?}"
        );
    }
    // An approval covers this node and exactly these arguments.
    let admitted = stage.admit(NODE_RUN, None, on(&["a b", "c"])).await;
    let Admission::NeedsApproval(consent) = admitted else {
        panic!("{admitted:?}");
    };
    assert_eq!(consent.covers, r#"mac: ["a b","c"]"#);
    for path in ["/etc/passwd", "/w/../etc/passwd", "//etc/./passwd"] {
        for (tool, on) in [(NODE_READ, None), ("read", Some("mac"))] {
            let given = match on {
                None => json!({ "node": "mac", "path": path }),
                Some(_) => json!({ "path": path }),
            };
            let admitted = stage.admit(tool, on, given).await;
            assert!(
                matches!(
                    admitted,
                    Admission::Refused(_) | Admission::NeedsApproval(_)
                ),
                "{tool} {path}: {admitted:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_rule_for_one_node_applies_there_alone() {
    let stage = Stage::new([], None);
    let is_refused = |admitted| matches!(admitted, Admission::Refused(_));
    for node in ["mac", "mac-2", "build"] {
        let cargo = json!({ "node": node, "argv": ["cargo", "test"] });
        let admitted = stage.admit(NODE_RUN, None, cargo).await;
        assert_eq!(
            admitted == Admission::Allowed,
            node == "mac",
            "{admitted:?}"
        );
        let shell = json!({ "command": "ls" });
        let admitted = stage.admit("shell", Some(node), shell).await;
        assert_eq!(is_refused(admitted), node == "mac", "{node}");
    }
    // This machine is no node.
    let admitted = stage.admit("shell", None, json!({ "command": "ls" })).await;
    assert!(!is_refused(admitted));
}

#[tokio::test]
async fn the_tools_of_an_agent_on_a_node_work_there() {
    let part = json!({ "text": "ab", "size": 2 });
    let stage = Stage::new([ended(0, ""), done(part)], None);
    let there = NodeContext {
        on: Some("mac"),
        ..context()
    };
    stage
        .call("shell", there, json!({ "command": "ls | wc" }))
        .await;
    let called = stage.call("read", there, json!({ "path": "/w/a" })).await;
    let expected = ToolOutput::text("/w/a: bytes 0-2 of 2\nab");
    assert_eq!(called, Called::Done(expected));
    let calls = stage.nodes.calls.lock().unwrap();
    assert!(calls.iter().all(|(_, node, ..)| node == "mac"));
    let NodeCall::Run(call) = &calls[0].3 else {
        panic!("{calls:?}");
    };
    assert_eq!(call.argv, ["/bin/sh", "-c", "ls | wc"]);
    let catalogue = &stage.catalogue;
    assert_eq!(catalogue.effect("shell", true), Some(EffectClass::Kept));
    assert_eq!(
        catalogue.effect("write", true),
        Some(EffectClass::Idempotent)
    );
    // Its `read` has the arguments of `node_read`.
    let long = json!({ "path": "/w/a", "limit": 100_000 });
    assert_eq!(catalogue.misfit("read", Some("mac"), &long), None);
    assert!(catalogue.misfit("read", None, &long).is_some());
}
