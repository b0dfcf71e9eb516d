//! `/v1/responses`: a response is a run, so it can be read again, also after a restart.

use futures_util::StreamExt;
use futures_util::stream;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{created, failure};
use super::follow::{Piece, pieces, whole_text};
use super::guard::DisconnectGuard;
use super::input::{Conversation, InputMessage, decoded};
use super::models::model_of;
use super::turn::{Kept, TurnRequest, response_id, run_of};
use super::{OpenAi, OpenAiAnswer, OpenAiError, OpenAiReply, OpenAiRun, RequestHead, SseEvent};
use crate::doors::api::{Api, ask};
use crate::kernel::fault::Kind;
use crate::wire::lifecycle::CancelRun;
use crate::wire::runs::GetRun;
use crate::wire::shapes::Run;

/// A request. Fields that are not named, such as `temperature`, have no meaning for an agent.
#[derive(Deserialize)]
struct ResponseRequest {
    model: String,
    input: Input,
    instructions: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    background: bool,
    previous_response_id: Option<String>,
    conversation: Option<ConversationName>,
    metadata: Option<Map<String, Value>>,
    tools: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<InputMessage>),
}

/// The conversation to continue: the key of a session.
#[derive(Deserialize)]
#[serde(untagged)]
enum ConversationName {
    Id(String),
    Object { id: String },
}

impl<A: Api> OpenAi<A> {
    /// `POST /v1/responses`.
    pub(crate) async fn respond(
        &self,
        body: Bytes,
        head: RequestHead,
    ) -> Result<OpenAiAnswer, OpenAiError> {
        let request: ResponseRequest = decoded(body)?;
        if request.tools.is_some_and(|tools| !tools.is_empty()) {
            let message = "tools is not supported: agents use their own tools";
            return Err(OpenAiError::field(
                "tools",
                "unsupported_parameter",
                message,
            ));
        }
        let mut conversation = match request.input {
            Input::Text(text) => Conversation::of(text),
            Input::Items(items) => Conversation::read("input", items)?,
        };
        conversation.instruct(request.instructions);
        let turn = TurnRequest {
            model: request.model,
            conversation,
            field: "input",
            metadata: request.metadata.unwrap_or_default(),
            session: request.conversation.map(|name| match name {
                ConversationName::Id(id) | ConversationName::Object { id } => id,
            }),
            previous: request.previous_response_id,
            background: request.background,
        };
        let is_keyed = head.idempotency_key.is_some();
        let run = self.start(turn, head).await?;
        let guard = (!request.background).then(|| self.guard(&run));
        let answer = match (request.stream, guard) {
            (true, guard) => self.response_stream(run, guard).await,
            (false, guard) => self.response_to(run, guard).await,
        };
        answer.map_err(|error| error.after_start(is_keyed))
    }

    /// The response to a request: as it is now, or with a guard once the run has ended.
    async fn response_to(
        &self,
        run: OpenAiRun,
        guard: Option<DisconnectGuard<A>>,
    ) -> Result<OpenAiAnswer, OpenAiError> {
        if let Some(guard) = guard {
            self.answered(&run, guard).await?;
        }
        self.present(run).await.map(OpenAiAnswer::Whole)
    }

    /// `GET /v1/responses/ID`: the response as it is now.
    pub(crate) async fn response(&self, id: &str) -> Result<OpenAiReply, OpenAiError> {
        let run = self.run_of_response(id).await?;
        self.present(run).await
    }

    /// `GET /v1/responses/ID?stream=true`: the events of the response, from the first.
    pub(crate) async fn response_again(&self, id: &str) -> Result<OpenAiAnswer, OpenAiError> {
        let run = self.run_of_response(id).await?;
        self.response_stream(run, None).await
    }

    /// `POST /v1/responses/ID/cancel`.
    pub(crate) async fn cancel_response(&self, id: &str) -> Result<OpenAiReply, OpenAiError> {
        let run = self.run_of_response(id).await?;
        let cancel = CancelRun {
            run_id: run.run_id,
            reason: Some("the client has cancelled the response".to_owned()),
        };
        ask(&self.api, &cancel).await?;
        self.present(run).await
    }

    async fn run_of_response(&self, id: &str) -> Result<OpenAiRun, OpenAiError> {
        let unknown = || {
            let id = crate::kernel::text::prefix(id, 80);
            OpenAiError {
                status: 404,
                ..OpenAiError::field("id", "not_found", format!("there is no response {id:?}"))
            }
        };
        let run_id = run_of(id).ok_or_else(unknown)?;
        match ask(&self.api, &GetRun { run_id }).await {
            Ok(run) => Ok(OpenAiRun {
                run_id,
                session_key: run.session_key,
            }),
            Err(error) if error.kind() == Some(Kind::NotFound) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// The response as it is now.
    async fn present(&self, run: OpenAiRun) -> Result<OpenAiReply, OpenAiError> {
        let run_id = run.run_id;
        let now = ask(&self.api, &GetRun { run_id }).await?;
        let mut output = Vec::new();
        if !now.is_open() {
            let answered = self.read(&run, now.clone()).await?;
            if let Some(reasoning) = answered.reasoning {
                output.push(reasoning_item(&now, &reasoning));
            }
            output.push(message_item(&now, ended_status(&now), Some(&answered.text)));
        }
        Ok(OpenAiReply {
            body: response(&now, output),
            run: Some(run),
        })
    }

    async fn response_stream(
        &self,
        run: OpenAiRun,
        guard: Option<DisconnectGuard<A>>,
    ) -> Result<OpenAiAnswer, OpenAiError> {
        let run_id = run.run_id;
        let started = ask(&self.api, &GetRun { run_id }).await?;
        let mut writer = ResponseEvents {
            run: started,
            api: self.api.clone(),
            of: run.clone(),
            shows_reasoning: self.shows_reasoning(),
            sequence: 0,
            reasoning: None,
            message: None,
        };
        let first = stream::iter(writer.begin());
        let pieces = pieces(self.api.clone(), run.clone());
        let state = (pieces, writer, guard);
        let rest = stream::unfold(state, async |(mut pieces, mut writer, mut guard)| {
            let piece = pieces.next().await?;
            if let (Piece::Ended(_) | Piece::Lost(_), Some(guard)) = (&piece, &mut guard) {
                guard.disarm();
            }
            let events = writer.take(piece).await;
            Some((stream::iter(events), (pieces, writer, guard)))
        });
        let events = first.chain(rest.flatten());
        Ok(OpenAiAnswer::Stream(run, events.boxed()))
    }
}

/// The status of the message of a run that has ended.
fn ended_status(run: &Run) -> &'static str {
    match run.state.as_ref() {
        "ok" => "completed",
        _ => "incomplete",
    }
}

/// A response with this output.
fn response(run: &Run, output: Vec<Value>) -> Value {
    let kept = Kept::of(run.meta.as_ref());
    let status = match run.state.as_ref() {
        "ok" => "completed",
        "queued" => "queued",
        "cancelled" => "cancelled",
        "running" | "paused" | "settling" => "in_progress",
        _ => "failed",
    };
    let error = failure(run).filter(|_| status == "failed");
    let usage = (!run.is_open()).then(|| {
        json!({
            "input_tokens": run.usage.input_tokens,
            "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": run.usage.output_tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": run.usage.input_tokens.saturating_add(run.usage.output_tokens),
        })
    });
    json!({
        "id": response_id(run.run_id),
        "object": "response",
        "created_at": created(run),
        "status": status,
        "background": kept.background,
        "error": error.map(|error| json!({ "code": "server_error", "message": error.message })),
        "incomplete_details": null,
        "instructions": null,
        "metadata": kept.metadata,
        "model": model_of(run.agent.as_str()),
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": kept.previous,
        "conversation": { "id": run.session_key },
        "temperature": null,
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "usage": usage,
    })
}

fn message_id(run: &Run) -> String {
    format!("msg_{}", run.run_id.0.as_simple())
}

fn reasoning_id(run: &Run) -> String {
    format!("rs_{}", run.run_id.0.as_simple())
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn message_item(run: &Run, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(text_part).into_iter().collect();
    json!({
        "type": "message",
        "id": message_id(run),
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn reasoning_item(run: &Run, text: &str) -> Value {
    json!({
        "type": "reasoning",
        "id": reasoning_id(run),
        "summary": [{ "type": "summary_text", "text": text }],
    })
}

/// An item of the output that is being written.
struct OpenItem {
    place: usize,
    text: String,
}

/// Writes the events of one stream.
struct ResponseEvents<A> {
    run: Run,
    api: A,
    of: OpenAiRun,
    shows_reasoning: bool,
    sequence: u64,
    reasoning: Option<OpenItem>,
    message: Option<OpenItem>,
}

impl<A: Api> ResponseEvents<A> {
    fn event(&mut self, name: &str, mut data: Value) -> SseEvent {
        data["type"] = name.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        SseEvent {
            name: Some(name.to_owned()),
            data: data.to_string(),
        }
    }

    fn begin(&mut self) -> Vec<SseEvent> {
        let mut started = self.run.clone();
        // A response that is read again begins in the same way.
        started.state = "running".into();
        let response = response(&started, Vec::new());
        ["response.created", "response.in_progress"]
            .map(|name| self.event(name, json!({ "response": response })))
            .into()
    }

    async fn take(&mut self, piece: Piece) -> Vec<SseEvent> {
        match piece {
            Piece::Text(text) => self.text(&text),
            Piece::Reasoning(text) if self.shows_reasoning => self.reason(&text),
            Piece::Reasoning(_) => Vec::new(),
            Piece::Lost(error) => {
                let data = json!({
                    "code": error.code, "message": error.message, "param": error.param,
                });
                vec![self.event("error", data)]
            }
            Piece::Ended(run) => {
                self.run = *run;
                self.end().await
            }
        }
    }

    /// The place of the next item.
    fn next_place(&self) -> usize {
        usize::from(self.reasoning.is_some()) + usize::from(self.message.is_some())
    }

    fn text(&mut self, text: &str) -> Vec<SseEvent> {
        let mut events = Vec::new();
        let id = message_id(&self.run);
        if self.message.is_none() {
            let place = self.next_place();
            let item = message_item(&self.run, "in_progress", None);
            let added = json!({ "output_index": place, "item": item });
            events.push(self.event("response.output_item.added", added));
            let part = json!({
                "item_id": id, "output_index": place, "content_index": 0, "part": text_part(""),
            });
            events.push(self.event("response.content_part.added", part));
            self.message = Some(OpenItem {
                place,
                text: String::new(),
            });
        }
        if let Some(open) = self.message.as_mut().filter(|_| !text.is_empty()) {
            open.text.push_str(text);
            let delta = json!({
                "item_id": id, "output_index": open.place, "content_index": 0,
                "delta": text, "logprobs": [],
            });
            events.push(self.event("response.output_text.delta", delta));
        }
        events
    }

    fn reason(&mut self, text: &str) -> Vec<SseEvent> {
        let mut events = Vec::new();
        let id = reasoning_id(&self.run);
        if self.reasoning.is_none() {
            let place = self.next_place();
            let item = json!({ "type": "reasoning", "id": id, "summary": [] });
            let added = json!({ "output_index": place, "item": item });
            events.push(self.event("response.output_item.added", added));
            let part = json!({
                "item_id": id, "output_index": place, "summary_index": 0,
                "part": { "type": "summary_text", "text": "" },
            });
            events.push(self.event("response.reasoning_summary_part.added", part));
            self.reasoning = Some(OpenItem {
                place,
                text: String::new(),
            });
        }
        if let Some(open) = &mut self.reasoning {
            open.text.push_str(text);
            let delta = json!({
                "item_id": id, "output_index": open.place, "summary_index": 0, "delta": text,
            });
            events.push(self.event("response.reasoning_summary_text.delta", delta));
        }
        events
    }

    /// Closes the open items and ends the stream.
    async fn end(&mut self) -> Vec<SseEvent> {
        // An answer without a text is an answer, too.
        let mut events = self.text("");
        let mut output = Vec::new();
        if let Some(open) = self.reasoning.take() {
            let item = reasoning_item(&self.run, &open.text);
            let at = json!({
                "item_id": reasoning_id(&self.run), "output_index": open.place, "summary_index": 0,
            });
            let mut done = at.clone();
            done["text"] = open.text.as_str().into();
            events.push(self.event("response.reasoning_summary_text.done", done));
            let mut part = at;
            part["part"] = json!({ "type": "summary_text", "text": open.text });
            events.push(self.event("response.reasoning_summary_part.done", part));
            let closed = json!({ "output_index": open.place, "item": item });
            events.push(self.event("response.output_item.done", closed));
            output.push((open.place, item));
        }
        if let Some(open) = self.message.take() {
            // What is stored is the answer, also where the stream had an interrupted attempt.
            let text = match whole_text(&self.api, &self.of).await {
                Ok(text) => text,
                Err(error) => {
                    let run = self.of.run_id;
                    tracing::warn!(%run, code = error.code, "the stored answer cannot be read; the stream ends with what it has sent");
                    open.text
                }
            };
            let item = message_item(&self.run, ended_status(&self.run), Some(&text));
            let at = json!({
                "item_id": message_id(&self.run), "output_index": open.place, "content_index": 0,
            });
            let mut done = at.clone();
            done["text"] = text.as_str().into();
            done["logprobs"] = json!([]);
            events.push(self.event("response.output_text.done", done));
            let mut part = at;
            part["part"] = text_part(&text);
            events.push(self.event("response.content_part.done", part));
            let closed = json!({ "output_index": open.place, "item": item });
            events.push(self.event("response.output_item.done", closed));
            output.push((open.place, item));
        }
        output.sort_by_key(|(place, _)| *place);
        let output = output.into_iter().map(|(_, item)| item).collect();
        let name = match self.run.state.as_ref() {
            "ok" => "response.completed",
            "cancelled" => "response.incomplete",
            _ => "response.failed",
        };
        let response = response(&self.run, output);
        events.push(self.event(name, json!({ "response": response })));
        events
    }
}
