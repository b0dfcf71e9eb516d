//! The extension `io.modelcontextprotocol/tasks`: a run as a task, for hosts that declare it. The
//! task's id is the run's id, so a task outlives the connection and the daemon as its run does.
//! Questions of the run are input that the task requires.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, InputRequest,
    InputRequests, JsonObject, Task, TaskPayload, TaskStatus, UpdateTaskParams,
};
use serde_json::{Value, json};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::output::{RunOutput, needs};
use crate::doors::mcp::protocol_error;
use crate::doors::mcp::spawn::{Spawn, SpawnOutput};
use crate::doors::mcp::tool::{McpTool, decoded, refused};
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::wire::error::WireError;
use crate::wire::lifecycle::CancelRun;
use crate::wire::questions::AnswerQuestion;
use crate::wire::runs::GetRun;
use crate::wire::shapes::{OpenQuestion, Run};

/// How often a host is asked to look at a task, in milliseconds.
const POLL_MS: u64 = 2000;
/// Field of the form that asks for the answer to a question.
const ANSWER: &str = "answer";

/// Spawns a run as a task. Refusals are ordinary results.
pub(super) async fn create<A: Api>(
    arguments: JsonObject,
    call: &McpCall<A>,
) -> Result<CallToolResponse, ErrorData> {
    let spawned = async { decoded::<Spawn>(arguments)?.run(call).await }.await;
    let run_id = match spawned {
        Ok(spawned) => spawned.run_id,
        Err(error) => return Ok(refused(error).into()),
    };
    let run = ask(&call.api, &GetRun { run_id }).await;
    let task = task(&run.map_err(protocol_error)?);
    Ok(CreateTaskResult::new(task).into())
}

/// The present state of a task.
pub(super) async fn get(api: &impl Api, id: &str) -> Result<GetTaskResult, ErrorData> {
    let run = run(api, id).await.map_err(protocol_error)?;
    let task = task(&run);
    let payload = payload(run).map_err(protocol_error)?;
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Passes answers to the questions of a run. A form that a person declined answers nothing, so the
/// question stays open for others.
pub(super) async fn update(api: &impl Api, request: UpdateTaskParams) -> Result<(), ErrorData> {
    let run = run(api, &request.task_id).await.map_err(protocol_error)?;
    for (key, response) in request.input_responses {
        let question = run.questions.iter().find(|one| one.id.to_string() == key);
        let Some(question) = question else {
            let message = format!("the task has no open input request {key}");
            return Err(ErrorData::invalid_params(message, None));
        };
        let content = response.get("content").and_then(|form| form.get(ANSWER));
        let accepted = response.get("action").and_then(Value::as_str) == Some("accept");
        let Some(text) = content.and_then(Value::as_str).filter(|_| accepted) else {
            continue;
        };
        let answer = AnswerQuestion {
            id: question.id,
            text: Some(text.to_owned()),
            choice: None,
        };
        ask(api, &answer).await.map_err(protocol_error)?;
    }
    Ok(())
}

/// Cancels the run of a task.
pub(super) async fn cancel(api: &impl Api, id: &str) -> Result<(), ErrorData> {
    let run_id = run_id(id).map_err(protocol_error)?;
    let request = CancelRun {
        run_id,
        reason: Some("the task was cancelled".to_owned()),
    };
    let cancelled = ask(api, &request).await;
    cancelled.map(drop).map_err(protocol_error)
}

async fn run(api: &impl Api, id: &str) -> Result<Run, WireError> {
    let run_id = run_id(id)?;
    ask(api, &GetRun { run_id }).await
}

fn run_id(id: &str) -> Result<RunId, WireError> {
    let id = crate::kernel::text::prefix(id, 80);
    id.parse()
        .map_err(|_| Fault::params("taskId", format!("there is no task {id:?}")).into())
}

fn task(run: &Run) -> Task {
    let status = match run.state.as_ref() {
        "cancelled" => TaskStatus::Cancelled,
        _ if run.is_open() && !run.questions.is_empty() => TaskStatus::InputRequired,
        _ if run.is_open() => TaskStatus::Working,
        _ => TaskStatus::Completed,
    };
    let (created, changed) = (run.created_at.to_string(), run.last_activity_at.to_string());
    let task =
        Task::new(run.run_id.to_string(), status, created, changed).with_poll_interval_ms(POLL_MS);
    match needs(run).first() {
        Some(need) if !status.is_terminal() => task.with_status_message(format!("needs {need}")),
        _ => task,
    }
}

fn payload(run: Run) -> Result<TaskPayload, WireError> {
    Ok(match task(&run).status {
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        TaskStatus::InputRequired => TaskPayload::InputRequired {
            input_requests: input_requests(&run.questions)?,
        },
        TaskStatus::Completed => TaskPayload::Completed {
            result: object(serde_json::to_value(result(run)?).map_err(Fault::internal)?),
        },
        _ => TaskPayload::Working,
    })
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// The answer to the call of `spawn`, now that the run has ended.
fn result(run: Run) -> Result<CallToolResult, WireError> {
    let (model, warnings) = (run.model.clone(), run.warnings.clone());
    let (agent, session_key) = (run.agent.clone(), run.session_key.clone());
    let run = RunOutput::from(run);
    let is_ok = run.status == "ok";
    let output = SpawnOutput {
        run_id: run.run_id,
        session_key,
        status: run.status,
        agent: agent.into(),
        model,
        warnings,
        result: run.result,
        error: run.error,
    };
    let output = serde_json::to_value(&output).map_err(Fault::internal)?;
    Ok(match is_ok {
        true => CallToolResult::structured(output),
        false => CallToolResult::structured_error(output),
    })
}

/// A form for each open question, by the question's id.
fn input_requests(questions: &[OpenQuestion]) -> Result<InputRequests, WireError> {
    let mut requests = InputRequests::new();
    for question in questions {
        let mut field = json!({ "type": "string", "title": "Answer" });
        if !question.choices.is_empty() {
            let choices = question.choices.join(", ");
            field["description"] = format!("Proposed: {choices}").into();
        }
        let form = json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": question.text,
                "requestedSchema": {
                    "type": "object",
                    "properties": { ANSWER: field },
                    "required": [ANSWER],
                },
            },
        });
        let request: InputRequest = serde_json::from_value(form).map_err(Fault::internal)?;
        requests.insert(question.id.to_string(), request);
    }
    Ok(requests)
}
