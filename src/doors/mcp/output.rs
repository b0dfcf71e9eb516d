//! A run in the results of tools: what a model needs to know about it, and no more.

use schemars::JsonSchema;
use serde::Serialize;

use crate::kernel::ids::{AgentId, RunId, SessionKey};
use crate::kernel::run::RunError;
use crate::kernel::time::Timestamp;
use crate::wire::runs::WaitedRun;
use crate::wire::shapes::{Run, Word};

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunOutput {
    /// Id of the run.
    pub(super) run_id: RunId,
    /// `pending` while it is open, then `ok`, `error`, `timeout`, `cancelled` or `interrupted`;
    /// `not_found` or `expired` if there is no such run.
    pub(super) status: Word,
    /// `queued`, `running`, `paused` or `settling` while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Word>,
    /// Session the run works in; send messages to it with the tool `send`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_key: Option<SessionKey>,
    /// Agent that executes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<AgentId>,
    /// Label given when it was spawned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    /// Start of its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// Its present or last step: `model`, or the name of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    /// What a person has to decide before it continues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) needs: Vec<String>,
    /// When it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<Timestamp>,
    /// Its final text; the tool `result` returns all of a truncated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<String>,
    /// True if `result` is truncated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub(super) result_truncated: bool,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunError>,
}

impl From<Run> for RunOutput {
    fn from(run: Run) -> Self {
        let needs = needs(&run);
        let is_open = run.is_open();
        let (status, state) = match is_open {
            true => ("pending".into(), Some(run.state)),
            false => (run.state, None),
        };
        RunOutput {
            run_id: run.run_id,
            status,
            state,
            session_key: Some(run.session_key),
            agent: Some(run.agent),
            label: run.label,
            title: Some(run.title).filter(|title| !title.is_empty()),
            step: run.step.filter(|_| is_open).map(|step| step.what),
            needs,
            created_at: Some(run.created_at),
            ended_at: run.ended_at,
            result: run.result,
            result_truncated: run.result_truncated,
            error: run.error,
        }
    }
}

impl From<WaitedRun> for RunOutput {
    fn from(waited: WaitedRun) -> Self {
        match waited {
            WaitedRun::Known { run, .. } => RunOutput::from(*run),
            WaitedRun::Unknown { status, run_id } => RunOutput {
                run_id,
                status,
                state: None,
                session_key: None,
                agent: None,
                label: None,
                title: None,
                step: None,
                needs: Vec::new(),
                created_at: None,
                ended_at: None,
                result: None,
                result_truncated: false,
                error: None,
            },
        }
    }
}

/// What a person has to decide, with the command for it.
pub(super) fn needs(run: &Run) -> Vec<String> {
    let run_id = run.run_id;
    let questions = run.questions.iter().map(|question| {
        let text = &question.text;
        format!("an answer to: {text} (a person runs: abide answer)")
    });
    let approvals = run.approvals.iter().map(|approval| {
        let tool = &approval.tool;
        format!("an approval of {tool} (a person runs: abide approvals)")
    });
    let reviews = run.reviews.iter().map(|review| {
        let tool = &review.tool;
        format!("a decision whether {tool} happened (a person runs: abide review {run_id})")
    });
    let values = run.env.iter().filter(|name| name.missing.is_some());
    let values = values.map(|value| {
        let name = &value.name;
        format!("the value of {name} (a person runs: abide env {run_id})")
    });
    questions
        .chain(approvals)
        .chain(reviews)
        .chain(values)
        .collect()
}
