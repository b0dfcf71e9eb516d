//! Delegation that is waited for: a run carries out one call of a tool of another run, which
//! holds still meanwhile. What its caller is told in the end is made here, from the child's
//! rows alone, so that it is the same after any restart. The store writes it in the transaction
//! of the child's end.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ids::AgentId;
use super::run::{Run, RunState};
use super::step::{Step, StepKind, StepState};
use super::text;
use super::text_enum::text_enum;
use super::waiting::RESULT_LIMIT;

/// A child's tools are shown up to this many, the last ones.
pub const MOST_CALLS: usize = 100;

text_enum! {
    /// Which tool of its caller a child carries out, and so what its caller gets to see of it.
    Face {
        /// `task`: its tools are shown while it works.
        Task = "task",
        /// `subagent_<agent>`: nothing is seen of it but its result.
        Sealed = "subagent",
        /// `call_<agent>`: it works in its caller's session, in its caller's turn.
        Called = "call",
        /// `delegate`, by a plan: its tools are shown as its own.
        Planned = "plan",
    }
}

text_enum! {
    /// How much of what a called agent says its caller's stream shows while it says it.
    Stream {
        /// Its text, gathered.
        Aggregated = "aggregated",
        /// Its text, as it comes.
        Direct = "direct",
        /// None of it before it is over.
        None = "none",
    }
}

impl Stream {
    /// A piece of its text is shown so long after the one before it at the earliest, milliseconds.
    pub fn pause_ms(self) -> Option<u64> {
        match self {
            Stream::Aggregated => Some(PARTIAL_EACH_MS),
            Stream::Direct => Some(0),
            Stream::None => None,
        }
    }
}

/// See [`Stream::pause_ms`].
const PARTIAL_EACH_MS: u64 = 250;
/// The most characters of a result that are shown.
const PREVIEW: usize = 500;
/// But not later than when so many bytes have come.
pub const PARTIAL_BYTES: usize = 2048;
/// The most errors that are named as causes of one.
const MOST_CAUSES: usize = 5;

/// An agent in texts: its id, and its name where people call it by another.
pub fn named(agent: &AgentId, name: &str) -> String {
    match agent.as_str() == name {
        true => format!("agent {agent}"),
        false => format!("agent {agent} ({name})"),
    }
}

/// The call of a tool that a run carries out for the run above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// Which tool.
    pub face: Face,
    /// The step of the run above that waits.
    pub step: u32,
    /// The model's name for the call.
    pub call: String,
    /// How much of it is shown while it comes, if it is called.
    pub stream: Option<Stream>,
    /// What people called its agent when the call was made: the title, or the id where there was
    /// none.
    pub agent_name: String,
}

impl Delegated {
    /// What went wrong with `child`, which carries out this call, and with whom.
    fn failure(&self, child: &Run, ended: &str) -> String {
        let who = named(&child.agent, &self.agent_name);
        match &child.error {
            Some(error) => format!("{who}: {}", error.message),
            None => format!("{who}: {ended}"),
        }
    }
}

text_enum! {
    /// How far a tool of a child has come.
    CallStatus {
        /// At work.
        Running = "running",
        /// It has its outcome.
        Completed = "completed",
        /// It failed, or nobody knows.
        Error = "error",
    }
}

impl CallStatus {
    /// Of a step.
    pub fn of(step: &Step) -> Self {
        match step.state {
            StepState::Intended | StepState::Started => CallStatus::Running,
            StepState::Done => CallStatus::Completed,
            StepState::Failed | StepState::Uncertain => CallStatus::Error,
        }
    }
}

/// A tool that a child has called, as its caller is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCall {
    /// The child's name for the call.
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// How far it has come.
    pub status: CallStatus,
    /// What it was called with, on one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The tools that a child has called, in order; the last [`MOST_CALLS`] of them.
pub fn calls(steps: &[Step]) -> Vec<ChildCall> {
    let calls = steps.iter().filter(|step| step.kind == StepKind::Tool);
    let mut calls: Vec<ChildCall> = calls
        .map(|step| ChildCall {
            id: step.tool_call.clone().unwrap_or_default(),
            tool: step.tool.clone().unwrap_or_default(),
            status: CallStatus::of(step),
            title: step.params_summary.clone(),
        })
        .collect();
    let more = calls.len().saturating_sub(MOST_CALLS);
    calls.drain(..more);
    calls
}

/// What the caller of an ended child is told, as JSON, and whether the call failed. `steps` are
/// the child's; a sealed one shows none of them. A sealed failure is a result like any other:
/// nothing of it reaches the host but that its subagent is not available.
pub fn outcome(
    delegated: &Delegated,
    child: &Run,
    supervisor: &AgentId,
    steps: &[Step],
) -> (String, bool) {
    let RunState::Ended(outcome) = child.state else {
        return (
            json!({ "status": "pending", "runId": child.id }).to_string(),
            false,
        );
    };
    let well = child.error.is_none() && child.result.is_some();
    let whole = child.result.as_deref().unwrap_or_default();
    let shown = text::prefix(whole, RESULT_LIMIT);
    let error = delegated.failure(child, &format!("it ended {outcome} without a text"));
    let mut told = match delegated.face {
        Face::Task => json!({
            "success": well,
            "output": if well { shown } else { &error },
            "metadata": {
                "agentName": delegated.agent_name,
                "sessionId": child.session_key,
                "summary": calls(steps),
            },
        }),
        Face::Sealed | Face::Called | Face::Planned if well => json!({ "result": shown }),
        Face::Sealed | Face::Called | Face::Planned => json!({}),
    };
    // In front, where it is seen of what is cut.
    if !well {
        told["unavailable"] = true.into();
        told["kind"] = child
            .error
            .as_ref()
            .map_or(outcome.as_str(), |error| &error.kind)
            .into();
        told["error"] = error.into();
    }
    told["runId"] = json!(child.id);
    told["sessionKey"] = json!(child.session_key);
    told["agentId"] = json!(child.agent);
    told["agentName"] = json!(delegated.agent_name);
    told["subagent"] = json!(child.agent);
    told["supervisor"] = json!(supervisor);
    if !well && !whole.is_empty() {
        told["saidBefore"] = shown.into();
    }
    if shown.len() < whole.len() {
        told["truncated"] = true.into();
        told["note"] = format!("the text was cut; runs.get {} has all of it", child.id).into();
    }
    told["last"] = true.into();
    (told.to_string(), !well && delegated.face != Face::Sealed)
}

/// What the caller of an agent is told that is not called now, as things stand with it: of which
/// kind that is, and why.
pub fn held_back(
    face: Face,
    (agent, name): (&AgentId, &str),
    supervisor: &AgentId,
    kind: &str,
    why: &str,
) -> Value {
    let mut told = json!({
        "agentId": agent,
        "agentName": name,
        "subagent": agent,
        "supervisor": supervisor,
        "unavailable": true,
        "kind": kind,
        "error": why,
    });
    if face == Face::Task {
        told["success"] = false.into();
        told["output"] = why.into();
    }
    told["last"] = true.into();
    told
}

/// What the caller's stream shows of the end of a called child: whether it went well, and the
/// data. `steps` are the child's.
pub fn called_end(delegated: &Delegated, child: &Run, steps: &[Step]) -> (bool, Value) {
    let mut told = json!({
        "agent": child.agent,
        "agentName": delegated.agent_name,
        "toolCallId": delegated.call,
        "childRunId": child.id,
        "usage": child.usage,
        "durationMs": child.ended_at.map_or(0, |ended| ended.since(child.created_at)),
    });
    match (&child.error, &child.result) {
        (None, Some(text)) => {
            told["text"] = text::prefix(text, RESULT_LIMIT).into();
            (true, told)
        }
        _ => {
            let ended = format!("it ended {}", child.state.as_str());
            told["error"] = delegated.failure(child, &ended).into();
            let failed = steps.iter().rev().filter_map(|step| step.error.as_deref());
            told["cause"] = failed.take(MOST_CAUSES).collect();
            (false, told)
        }
    }
}

/// What the stream of a planner shows of the end of who it has delegated to.
pub fn planned_end(delegated: &Delegated, child: &Run) -> Value {
    let well = child.error.is_none() && child.result.is_some();
    let mut told = json!({
        "subAgentId": child.agent,
        "subAgentName": delegated.agent_name,
        "toolCallId": delegated.call,
        "childRunId": child.id,
        "success": well,
    });
    match &child.result {
        Some(text) if well => {
            told["resultPreview"] = text::prefix_chars(text, PREVIEW).into();
        }
        _ => {
            let ended = format!("it ended {}", child.state.as_str());
            told["error"] = delegated.failure(child, &ended).into();
        }
    }
    told
}

/// The `source` of an event that tells of a step of this agent.
pub fn source(agent: &AgentId) -> String {
    format!("subagent:{agent}")
}

/// What the caller's stream shows of a step of a child that works for `call`: `None` for the
/// outcome of a model call, which is shown by what comes of it.
pub fn progress(call: &str, child: &Run, step: &Step) -> Option<Value> {
    let is_open = step.state.is_open();
    let progress = match (step.kind, is_open) {
        (StepKind::Tool, true) => "tool_start",
        (StepKind::Tool, false) => "tool_complete",
        (_, true) => "thinking",
        (_, false) => return None,
    };
    let mut shown = json!({ "type": progress, "status": CallStatus::of(step) });
    if step.kind == StepKind::Tool {
        shown["subToolCallId"] = json!(step.tool_call);
        shown["toolName"] = json!(step.tool);
        shown["paramsSummary"] = json!(step.params_summary);
        if !is_open {
            shown["resultSummary"] = json!(step.result_summary);
            shown["error"] = json!(step.error);
        }
    }
    Some(json!({ "toolCallId": call, "childRunId": child.id, "progress": shown }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event::{Owed, RunEvent};
    use crate::kernel::machine::apply;
    use crate::kernel::run::{AnnouncePolicy, RunError};
    use crate::kernel::sample::queued;
    use crate::kernel::time::Moment;

    fn delegated(face: Face) -> Delegated {
        Delegated {
            face,
            step: 2,
            call: "c1".to_owned(),
            stream: None,
            agent_name: "The Explorer".to_owned(),
        }
    }

    fn ended(event: RunEvent) -> Run {
        let run = queued(AnnouncePolicy::None);
        let run = apply(&run, RunEvent::Started, Moment::default())
            .unwrap()
            .run;
        apply(&run, event, Moment::default()).unwrap().run
    }

    fn said(text: &str) -> Run {
        ended(RunEvent::TurnEnded {
            text: Some(text.to_owned()),
            owed: Owed::default(),
        })
    }

    fn told(face: Face, child: &Run, steps: &[Step]) -> (Value, bool) {
        let host = AgentId::parse("host").unwrap();
        let (text, failed) = outcome(&delegated(face), child, &host, steps);
        (serde_json::from_str(&text).unwrap(), failed)
    }

    fn step(state: StepState) -> Step {
        Step {
            id: crate::kernel::ids::StepId(uuid::Uuid::from_u128(9)),
            run: queued(AnnouncePolicy::None).id,
            seq: 2,
            kind: StepKind::Tool,
            tool: Some("grep".to_owned()),
            tool_call: Some("k1".to_owned()),
            asked_by: None,
            effect: crate::kernel::step::Effect::Read,
            state,
            input: Value::Null,
            seen_up_to: None,
            message_seq: None,
            params_summary: Some("pattern: x".to_owned()),
            result_summary: None,
            error: None,
            attempts: 1,
            started_at: Default::default(),
            ended_at: None,
            waits: None,
            used: None,
        }
    }

    #[test]
    fn a_task_is_told_with_the_tools_that_it_used() {
        let steps = [step(StepState::Done), step(StepState::Failed)];
        let (told, failed) = told(Face::Task, &said("found it"), &steps);
        assert!(!failed);
        assert_eq!(told["success"], true);
        assert_eq!(told["output"], "found it");
        assert_eq!(
            told["metadata"]["summary"],
            json!([
                { "id": "k1", "tool": "grep", "status": "completed", "title": "pattern: x" },
                { "id": "k1", "tool": "grep", "status": "error", "title": "pattern: x" },
            ])
        );
        assert_eq!(told["last"], true);
        assert_eq!(told["supervisor"], "host");
        assert!(told.get("unavailable").is_none());
    }

    #[test]
    fn a4_results_errors_and_events_name_the_agent_beside_its_id() {
        let failed = ended(RunEvent::Failed(RunError::new("provider", "no answer")));
        let who = format!("agent {} (The Explorer): ", failed.agent);
        for face in Face::ALL {
            let (well, _) = told(*face, &said("found it"), &[]);
            assert_eq!(well["agentName"], "The Explorer", "{face}");
            assert_eq!(well["agentId"], failed.agent.as_str(), "{face}");
            let (failed, _) = told(*face, &failed, &[]);
            assert_eq!(failed["error"], format!("{who}no answer"), "{face}");
            // Of a cancelled one there is no error of its own.
            let cancelled = Run {
                error: None,
                state: RunState::Ended(crate::kernel::run::Outcome::Cancelled),
                ..ended(RunEvent::TimedOut)
            };
            let (cancelled, _) = told(*face, &cancelled, &[]);
            let text = cancelled["error"].as_str().unwrap();
            assert!(
                text.starts_with(&who) && text.contains("cancelled"),
                "{text}"
            );
        }
        let task = told(Face::Task, &said("found it"), &[]).0;
        assert_eq!(task["metadata"]["agentName"], "The Explorer");
        let planned = planned_end(&delegated(Face::Planned), &failed);
        assert_eq!(planned["subAgentName"], "The Explorer");
        assert_eq!(planned["error"], format!("{who}no answer"));
        let (_, called) = called_end(&delegated(Face::Called), &failed, &[]);
        assert_eq!(called["agentName"], "The Explorer");
        assert_eq!(called["error"], format!("{who}no answer"));
        assert_eq!(
            named(&failed.agent, failed.agent.as_str()),
            format!("agent {}", failed.agent)
        );
    }

    #[test]
    fn c2_a_failure_of_a_sealed_child_is_a_result_that_says_unavailable() {
        let child = ended(RunEvent::Failed(RunError::new(
            "provider",
            "no answer came",
        )));
        let (sealed, failed) = told(Face::Sealed, &child, &[step(StepState::Done)]);
        assert!(!failed, "nothing fails in the host");
        assert_eq!(sealed["unavailable"], true);
        assert_eq!(sealed["kind"], "provider");
        let error = format!("agent {} (The Explorer): no answer came", child.agent);
        assert_eq!(sealed["error"], error);
        assert!(sealed.get("metadata").is_none(), "it is sealed: {sealed}");
        let (task, failed) = told(Face::Task, &child, &[]);
        assert!(failed);
        assert_eq!(task["success"], false);
        assert_eq!(task["output"], error);
        let (timeout, _) = told(Face::Sealed, &ended(RunEvent::TimedOut), &[]);
        assert_eq!(timeout["kind"], "run_timeout");
    }

    #[test]
    fn a_long_text_is_cut_and_says_where_the_whole_is() {
        let (told, _) = told(Face::Sealed, &said(&"ä".repeat(RESULT_LIMIT)), &[]);
        assert_eq!(told["result"].as_str().unwrap().len(), RESULT_LIMIT);
        assert_eq!(told["truncated"], true);
        assert!(told["note"].as_str().unwrap().contains("runs.get"));
    }

    #[test]
    fn progress_is_shown_at_intent_and_outcome_of_tools_and_once_a_model_call() {
        let child = queued(AnnouncePolicy::None);
        let shown =
            |step: &Step| progress("c1", &child, step).map(|shown| shown["progress"].clone());
        let begun = shown(&step(StepState::Intended)).unwrap();
        assert_eq!(
            (&begun["type"], &begun["status"]),
            (&json!("tool_start"), &json!("running"))
        );
        let done = shown(&step(StepState::Failed)).unwrap();
        assert_eq!(
            (&done["type"], &done["status"]),
            (&json!("tool_complete"), &json!("error"))
        );
        let model = |state| Step {
            kind: StepKind::Model,
            ..step(state)
        };
        assert_eq!(
            shown(&model(StepState::Intended)).unwrap()["type"],
            "thinking"
        );
        assert_eq!(shown(&model(StepState::Done)), None);
    }
}
