//! `/v1/chat/completions`.

use futures_util::StreamExt;
use futures_util::stream;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Answered, chat_usage, created, failure};
use super::follow::{Piece, pieces};
use super::guard::DisconnectGuard;
use super::input::{Conversation, InputMessage, decoded};
use super::models::model_of;
use super::turn::TurnRequest;
use super::{OpenAi, OpenAiAnswer, OpenAiError, OpenAiReply, OpenAiRun, RequestHead, SseEvent};
use crate::doors::api::{Api, ask};
use crate::wire::runs::GetRun;
use crate::wire::shapes::Run;

/// A request. Fields that are not named, such as `temperature`, have no meaning for an agent.
#[derive(Deserialize)]
struct ChatRequest {
    model: String,
    messages: Vec<InputMessage>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    metadata: Option<Map<String, Value>>,
    n: Option<u64>,
    tools: Option<Vec<Value>>,
    functions: Option<Vec<Value>>,
    response_format: Option<ResponseFormat>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

impl ChatRequest {
    fn check(&self) -> Result<(), OpenAiError> {
        let has_any =
            |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let unsupported = |param: &str, why: &str| {
            let message = format!("{param} is not supported: {why}");
            Err(OpenAiError::field(param, "unsupported_parameter", message))
        };
        if has_any(&self.tools) {
            return unsupported("tools", "agents use their own tools");
        }
        if has_any(&self.functions) {
            return unsupported("functions", "agents use their own tools");
        }
        if self.n.is_some_and(|n| n != 1) {
            return unsupported("n", "an agent answers once");
        }
        if self
            .response_format
            .as_ref()
            .is_some_and(|format| format.kind != "text")
        {
            return unsupported("response_format", "an agent answers with text");
        }
        Ok(())
    }
}

impl<A: Api> OpenAi<A> {
    /// `POST /v1/chat/completions`.
    pub(crate) async fn chat(
        &self,
        body: Bytes,
        head: RequestHead,
    ) -> Result<OpenAiAnswer, OpenAiError> {
        let request: ChatRequest = decoded(body)?;
        request.check()?;
        let turn = TurnRequest {
            model: request.model,
            conversation: Conversation::read("messages", request.messages)?,
            field: "messages",
            metadata: request.metadata.unwrap_or_default(),
            session: None,
            previous: None,
            background: false,
        };
        let is_keyed = head.idempotency_key.is_some();
        let run = self.start(turn, head).await?;
        let guard = self.guard(&run);
        if request.stream {
            let with_usage = request
                .stream_options
                .is_some_and(|options| options.include_usage);
            let stream = self.chat_stream(run, with_usage, guard).await;
            return stream.map_err(|error| error.after_start(is_keyed));
        }
        let answered = self.answered(&run, guard).await;
        let answered = answered.map_err(|error| error.after_start(is_keyed))?;
        match failure(&answered.run) {
            Some(failure) => Err(failure),
            None => Ok(OpenAiAnswer::Whole(OpenAiReply {
                body: completion(answered),
                run: Some(run),
            })),
        }
    }

    async fn chat_stream(
        &self,
        run: OpenAiRun,
        with_usage: bool,
        mut guard: DisconnectGuard<A>,
    ) -> Result<OpenAiAnswer, OpenAiError> {
        let run_id = run.run_id;
        let started = ask(&self.api, &GetRun { run_id }).await?;
        let chunks = Chunks::of(&started, with_usage);
        let shows_reasoning = self.shows_reasoning();
        let first = stream::iter([chunks.role()]);
        let pieces = pieces(self.api.clone(), run.clone());
        let rest = pieces.flat_map(move |piece| {
            if matches!(piece, Piece::Ended(_) | Piece::Lost(_)) {
                guard.disarm();
            }
            stream::iter(chunks.of_piece(piece, shows_reasoning))
        });
        Ok(OpenAiAnswer::Stream(run, first.chain(rest).boxed()))
    }
}

fn id_of(run: &Run) -> String {
    format!("chatcmpl-{}", run.run_id)
}

fn completion(answered: Answered) -> Value {
    let Answered {
        run,
        text,
        reasoning,
    } = answered;
    let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
    if let Some(reasoning) = reasoning {
        message["reasoning_content"] = reasoning.into();
    }
    json!({
        "id": id_of(&run),
        "object": "chat.completion",
        "created": created(&run),
        "model": model_of(run.agent.as_str()),
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": chat_usage(run.usage),
        "metadata": { "abide_session": run.session_key },
    })
}

/// Writes the events of one stream.
struct Chunks {
    id: String,
    created: i64,
    model: String,
    with_usage: bool,
}

impl Chunks {
    fn of(run: &Run, with_usage: bool) -> Self {
        Chunks {
            id: id_of(run),
            created: created(run),
            model: model_of(run.agent.as_str()),
            with_usage,
        }
    }

    fn event(&self, choices: Value, usage: Option<Value>) -> SseEvent {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if self.with_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        SseEvent {
            name: None,
            data: chunk.to_string(),
        }
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> SseEvent {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.event(json!([choice]), None)
    }

    fn role(&self) -> SseEvent {
        self.delta(json!({ "role": "assistant", "content": "" }), None)
    }

    fn of_piece(&self, piece: Piece, shows_reasoning: bool) -> Vec<SseEvent> {
        match piece {
            Piece::Text(text) => vec![self.delta(json!({ "content": text }), None)],
            Piece::Reasoning(text) if shows_reasoning => {
                vec![self.delta(json!({ "reasoning_content": text }), None)]
            }
            Piece::Reasoning(_) => Vec::new(),
            Piece::Lost(error) => vec![failed(&error)],
            Piece::Ended(run) => match failure(&run) {
                Some(error) => vec![failed(&error)],
                None => self.end(&run),
            },
        }
    }

    fn end(&self, run: &Run) -> Vec<SseEvent> {
        let mut events = vec![self.delta(json!({}), Some("stop"))];
        if self.with_usage {
            events.push(self.event(json!([]), Some(chat_usage(run.usage))));
        }
        events.push(SseEvent {
            name: None,
            data: "[DONE]".to_owned(),
        });
        events
    }
}

/// The event that ends a stream without an answer.
fn failed(error: &OpenAiError) -> SseEvent {
    SseEvent {
        name: None,
        data: error.body().to_string(),
    }
}
