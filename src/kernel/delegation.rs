//! Synchronous delegation: a child run carries out one tool call of its caller, which is paused
//! meanwhile. The result for the caller is built here from the child's rows alone, so that it is
//! the same after any restart. The store writes it in the transaction that ends the child.

pub mod announce;
pub mod breaker;
pub mod called;
pub mod pack;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event::{
    DelegationComplete, EventData, Progress, SubAgentComplete, SubAgentError, ToolProgress,
};
use super::ids::AgentId;
use super::run::{Run, RunState};
use super::text;
use crate::kernel::run::step::{Step, StepKind, StepState};
use crate::kernel::run::waiting::RESULT_LIMIT;
use crate::kernel::text::text_enum::text_enum;

/// Maximum number of a child's tool calls that are shown; the last ones.
pub const MOST_CALLS: usize = 100;

text_enum! {
    /// The tool of the caller that a child carries out, which decides how much of the child the
    /// caller sees.
    DelegationMode {
        /// `task`: the child's tool calls are shown while it works.
        Task = "task",
        /// `subagent_<agent>`: only the result is visible.
        Sealed = "subagent",
        /// `call_<agent>`: it works in its caller's session and turn.
        Called = "call",
        /// `delegate`, from a plan: its tool calls are shown as its own.
        Planned = "plan",
    }
}

text_enum! {
    /// How a called agent's text is streamed to its caller while it is generated.
    Stream {
        /// Text in batches.
        Aggregated = "aggregated",
        /// Text as it arrives.
        Direct = "direct",
        /// No text before the call has ended.
        None = "none",
    }
}

impl Stream {
    /// Minimum time between two streamed pieces of text, in milliseconds; `None`: nothing is
    /// streamed.
    pub fn pause_ms(self) -> Option<u64> {
        match self {
            Stream::Aggregated => Some(PARTIAL_EACH_MS),
            Stream::Direct => Some(0),
            Stream::None => None,
        }
    }
}

/// Minimum time between two batches with [`Stream::Aggregated`], in milliseconds.
const PARTIAL_EACH_MS: u64 = 250;
/// Maximum characters of a result preview.
const PREVIEW: usize = 500;
/// Number of buffered bytes at which a piece is streamed before its time.
pub const PARTIAL_BYTES: usize = 2048;
/// Maximum number of step errors that are listed as causes of a failure.
const MOST_CAUSES: usize = 5;

/// An agent for messages: its id, followed by its display name where that differs.
pub fn named(agent: &AgentId, name: &str) -> String {
    match agent.as_str() == name {
        true => format!("agent {agent}"),
        false => format!("agent {agent} ({name})"),
    }
}

/// The tool call that a run carries out for its parent run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// The kind of delegation tool.
    pub mode: DelegationMode,
    /// The number of the parent run's step that waits.
    pub step: u32,
    /// The model's id for the call.
    pub call: String,
    /// How its text is streamed; `None` unless it is a called agent.
    pub stream: Option<Stream>,
    /// The agent's display name at the time of the call: its title, or its id if it had none.
    pub agent_name: String,
}

impl Delegated {
    /// The failure of `child`, which carries out this call, with its agent's name.
    fn failure(&self, child: &Run, ended: &str) -> String {
        let who = named(&child.agent, &self.agent_name);
        match &child.error {
            Some(error) => format!("{who}: {}", error.message),
            None => format!("{who}: {ended}"),
        }
    }
}

text_enum! {
    /// The progress of a child's tool call.
    CallStatus {
        /// It has no outcome yet.
        Running = "running",
        /// It succeeded.
        Completed = "completed",
        /// It failed, or its outcome is unknown.
        Error = "error",
    }
}

impl CallStatus {
    /// The status of a step.
    pub fn of(step: &Step) -> Self {
        match step.state {
            StepState::Intended | StepState::Started => CallStatus::Running,
            StepState::Done => CallStatus::Completed,
            StepState::Failed | StepState::Uncertain => CallStatus::Error,
        }
    }
}

/// A child's tool call, as shown to its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCall {
    /// The child model's id for the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Its progress.
    pub status: CallStatus,
    /// Its arguments on one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The tool calls among a child's steps in order, limited to the last [`MOST_CALLS`].
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

/// The result of an ended child for its caller, as JSON, and whether the call failed. `steps` are
/// the child's; a sealed child shows none of them. A sealed failure is a normal result: the host
/// only learns that its subagent is unavailable.
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
    let error = delegated.failure(child, &format!("it ended {outcome} without a final text"));
    let mut result = match delegated.mode {
        DelegationMode::Task => json!({
            "success": well,
            "output": if well { shown } else { &error },
            "metadata": {
                "agentName": delegated.agent_name,
                "sessionId": child.session_key,
                "summary": calls(steps),
            },
        }),
        DelegationMode::Sealed | DelegationMode::Called | DelegationMode::Planned if well => {
            json!({ "result": shown })
        }
        DelegationMode::Sealed | DelegationMode::Called | DelegationMode::Planned => json!({}),
    };
    // First, so that it survives when the result is cut.
    if !well {
        result["unavailable"] = true.into();
        result["kind"] = child
            .error
            .as_ref()
            .map_or(outcome.as_str(), |error| &error.kind)
            .into();
        result["error"] = error.into();
    }
    result["runId"] = json!(child.id);
    result["sessionKey"] = json!(child.session_key);
    result["agentId"] = json!(child.agent);
    result["agentName"] = json!(delegated.agent_name);
    result["subagent"] = json!(child.agent);
    result["supervisor"] = json!(supervisor);
    if !well && !whole.is_empty() {
        result["saidBefore"] = shown.into();
    }
    if shown.len() < whole.len() {
        result["truncated"] = true.into();
        result["note"] = format!(
            "the text was truncated; runs.get {} has all of it",
            child.id
        )
        .into();
    }
    result["last"] = true.into();
    (
        result.to_string(),
        !well && delegated.mode != DelegationMode::Sealed,
    )
}

/// The result for the caller of an agent that is not called now: the kind of the reason, and why.
pub fn unavailable_result(
    mode: DelegationMode,
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
    if mode == DelegationMode::Task {
        told["success"] = false.into();
        told["output"] = why.into();
    }
    told["last"] = true.into();
    told
}

/// The event of the end of a called child for its caller's stream: that it answered, or failed.
/// `steps` are the child's.
pub fn called_end(delegated: &Delegated, child: &Run, steps: &[Step]) -> EventData {
    let agent = child.agent.clone();
    let agent_name = delegated.agent_name.clone();
    let tool_call_id = delegated.call.clone();
    let usage = child.usage;
    let ended = child.ended_at;
    let duration_ms = ended.map_or(0, |ended| ended.since(child.created_at));
    if let (None, Some(text)) = (&child.error, &child.result) {
        return EventData::SubAgentComplete(SubAgentComplete {
            agent,
            agent_name,
            tool_call_id,
            child_run_id: child.id,
            text: text::prefix(text, RESULT_LIMIT).to_owned(),
            usage,
            duration_ms,
        });
    }
    let failed = steps.iter().rev().filter_map(|step| step.error.clone());
    EventData::SubAgentError(SubAgentError {
        agent,
        agent_name,
        tool_call_id,
        child_run_id: child.id,
        error: delegated.failure(child, &format!("it ended {}", child.state.as_str())),
        cause: failed.take(MOST_CAUSES).collect(),
        usage,
        duration_ms,
    })
}

/// The event data of the end of a delegated child for its planner's stream.
pub fn planned_end(delegated: &Delegated, child: &Run) -> DelegationComplete {
    let result = child.result.as_ref().filter(|_| child.error.is_none());
    let failure = || delegated.failure(child, &format!("it ended {}", child.state.as_str()));
    DelegationComplete {
        sub_agent_id: child.agent.clone(),
        sub_agent_name: delegated.agent_name.clone(),
        tool_call_id: delegated.call.clone(),
        child_run_id: child.id,
        success: result.is_some(),
        result_preview: result.map(|text| text::prefix_chars(text, PREVIEW).to_owned()),
        error: result.is_none().then(failure),
    }
}

/// The `source` of events about steps of this agent.
pub fn source(agent: &AgentId) -> String {
    format!("subagent:{agent}")
}

/// The event data of a child's step for its caller's stream, under the caller's call id `call`.
/// `None` for the outcome of a model call, which shows in what follows from it.
pub fn progress(call: &str, child: &Run, step: &Step) -> Option<ToolProgress> {
    let is_open = step.state.is_open();
    let shown = match (step.kind, is_open) {
        (StepKind::Tool, true) => "tool_start",
        (StepKind::Tool, false) => "tool_complete",
        (_, true) => "thinking",
        (_, false) => return None,
    };
    let is_tool = step.kind == StepKind::Tool;
    let is_over = is_tool && !is_open;
    Some(ToolProgress {
        tool_call_id: call.to_owned(),
        child_run_id: child.id,
        progress: Progress {
            r#type: shown.into(),
            status: CallStatus::of(step).as_str().into(),
            sub_tool_call_id: is_tool.then(|| step.shown_call()),
            tool_name: is_tool.then(|| step.tool.clone()),
            params_summary: is_tool.then(|| step.params_summary.clone()),
            result_summary: is_over.then(|| step.result_summary.clone()),
            error: is_over.then(|| step.error.clone()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run::event::{Pending, RunEvent};
    use crate::kernel::run::machine::apply;
    use crate::kernel::run::{AnnouncePolicy, RunError};
    use crate::kernel::sample::queued;
    use crate::kernel::time::Moment;

    fn delegated(mode: DelegationMode) -> Delegated {
        Delegated {
            mode,
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
            owed: Pending::default(),
        })
    }

    fn told(mode: DelegationMode, child: &Run, steps: &[Step]) -> (Value, bool) {
        let host = AgentId::parse("host").unwrap();
        let (text, failed) = outcome(&delegated(mode), child, &host, steps);
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
            effect: crate::kernel::run::step::EffectClass::Read,
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
        let (told, failed) = told(DelegationMode::Task, &said("found it"), &steps);
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
        for mode in DelegationMode::ALL {
            let (well, _) = told(*mode, &said("found it"), &[]);
            assert_eq!(well["agentName"], "The Explorer", "{mode}");
            assert_eq!(well["agentId"], failed.agent.as_str(), "{mode}");
            let (failed, _) = told(*mode, &failed, &[]);
            assert_eq!(failed["error"], format!("{who}no answer"), "{mode}");
            // A cancelled run has no error of its own.
            let cancelled = Run {
                error: None,
                state: RunState::Ended(crate::kernel::run::Outcome::Cancelled),
                ..ended(RunEvent::TimedOut)
            };
            let (cancelled, _) = told(*mode, &cancelled, &[]);
            let text = cancelled["error"].as_str().unwrap();
            assert!(
                text.starts_with(&who) && text.contains("cancelled"),
                "{text}"
            );
        }
        let task = told(DelegationMode::Task, &said("found it"), &[]).0;
        assert_eq!(task["metadata"]["agentName"], "The Explorer");
        let planned = planned_end(&delegated(DelegationMode::Planned), &failed);
        assert_eq!(planned.sub_agent_name, "The Explorer");
        assert_eq!(planned.error, Some(format!("{who}no answer")));
        let called = called_end(&delegated(DelegationMode::Called), &failed, &[]);
        let EventData::SubAgentError(called) = called else {
            panic!("{called:?}");
        };
        assert_eq!(called.agent_name, "The Explorer");
        assert_eq!(called.error, format!("{who}no answer"));
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
        let (sealed, failed) = told(DelegationMode::Sealed, &child, &[step(StepState::Done)]);
        assert!(!failed, "nothing fails in the host");
        assert_eq!(sealed["unavailable"], true);
        assert_eq!(sealed["kind"], "provider");
        let error = format!("agent {} (The Explorer): no answer came", child.agent);
        assert_eq!(sealed["error"], error);
        assert!(sealed.get("metadata").is_none(), "it is sealed: {sealed}");
        let (task, failed) = told(DelegationMode::Task, &child, &[]);
        assert!(failed);
        assert_eq!(task["success"], false);
        assert_eq!(task["output"], error);
        let (timeout, _) = told(DelegationMode::Sealed, &ended(RunEvent::TimedOut), &[]);
        assert_eq!(timeout["kind"], "run_timeout");
    }

    #[test]
    fn a_long_text_is_cut_and_says_where_the_whole_is() {
        let (told, _) = told(
            DelegationMode::Sealed,
            &said(&"ä".repeat(RESULT_LIMIT)),
            &[],
        );
        assert_eq!(told["result"].as_str().unwrap().len(), RESULT_LIMIT);
        assert_eq!(told["truncated"], true);
        assert!(told["note"].as_str().unwrap().contains("runs.get"));
    }

    #[test]
    fn progress_is_shown_at_intent_and_outcome_of_tools_and_once_a_model_call() {
        let child = queued(AnnouncePolicy::None);
        let shown = |step: &Step| progress("c1", &child, step).map(|shown| shown.progress);
        let begun = shown(&step(StepState::Intended)).unwrap();
        assert_eq!((&*begun.r#type, &*begun.status), ("tool_start", "running"));
        let done = shown(&step(StepState::Failed)).unwrap();
        assert_eq!((&*done.r#type, &*done.status), ("tool_complete", "error"));
        let model = |state| Step {
            kind: StepKind::Model,
            ..step(state)
        };
        assert_eq!(
            shown(&model(StepState::Intended)).unwrap().r#type,
            "thinking"
        );
        assert_eq!(shown(&model(StepState::Done)), None);
    }
}
