//! The OpenAI-compatible API: agents as models, for programs and chat front ends that speak chat
//! completions or responses. The gateway serves it below `/v1`.
//!
//! A request starts a turn of an agent. The turn is stored before anything is answered, and goes on
//! if the client disconnects.

mod answer;
mod chat;
mod error;
mod follow;
mod guard;
mod input;
mod models;
mod responses;
mod turn;

use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) use self::error::OpenAiError;
use crate::clock::Clock;
use crate::config::OpenAiOptions;
use crate::doors::api::Api;
use crate::kernel::ids::{RunId, SessionKey};

/// What the head of a request says beyond its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    /// The session to continue, from the header of that name.
    pub(crate) session: Option<String>,
    /// `Idempotency-Key`.
    pub(crate) idempotency_key: Option<String>,
}

/// The data of one server-sent event: its name, if the API names events, and its JSON.
pub(crate) struct SseEvent {
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

/// An answer to a request.
pub(crate) enum OpenAiAnswer {
    /// A JSON object.
    Whole(OpenAiReply),
    /// Events, which end with the answer.
    Stream(OpenAiRun, BoxStream<'static, SseEvent>),
}

/// A JSON object, and the run that it is about.
pub(crate) struct OpenAiReply {
    pub(crate) body: Value,
    pub(crate) run: Option<OpenAiRun>,
}

/// The run of an answer, for headers of the response.
#[derive(Clone, Debug)]
pub(crate) struct OpenAiRun {
    pub(crate) run_id: RunId,
    pub(crate) session_key: SessionKey,
}

/// The API over `api`.
#[derive(Clone)]
pub(crate) struct OpenAi<A> {
    api: A,
    clock: Clock,
    options: OpenAiOptions,
    /// Cancelled once the daemon stops.
    stopping: CancellationToken,
}

impl<A: Api> OpenAi<A> {
    /// The API whose calls `api` makes.
    pub(crate) fn new(
        api: A,
        clock: Clock,
        options: OpenAiOptions,
        stopping: CancellationToken,
    ) -> Self {
        OpenAi {
            api,
            clock,
            options,
            stopping,
        }
    }
}
