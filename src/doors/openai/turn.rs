//! The turn that a request starts: which session it works in, and its run.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::input::Conversation;
use super::models::{agent_of, model_of};
use super::{OpenAi, OpenAiError, OpenAiRun, RequestHead};
use crate::doors::api::{Api, ask};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::runs::{GetRun, Turn};
use crate::wire::sessions::GetSession;

/// Key of `metadata` that names the session to continue.
const SESSION: &str = "abide_session";

/// What a request asks for, in either form of the API.
pub(super) struct TurnRequest {
    /// The model as the client wrote it.
    pub(super) model: String,
    pub(super) conversation: Conversation,
    /// Name of the field with the messages, for errors.
    pub(super) field: &'static str,
    /// `metadata` of the request.
    pub(super) metadata: Map<String, Value>,
    /// The session to continue, from the body.
    pub(super) session: Option<String>,
    /// The response to continue after.
    pub(super) previous: Option<String>,
    /// Run in the background.
    pub(super) background: bool,
}

/// What a run's `meta` keeps of its request, for later answers about it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) previous: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) background: bool,
}

/// Name of the field of `meta` with [`Kept`].
const KEPT: &str = "openai";

impl Kept {
    /// What is kept in the `meta` of a run.
    pub(super) fn of(meta: Option<&Value>) -> Kept {
        let kept = meta.and_then(|meta| meta.get(KEPT));
        kept.and_then(|kept| Kept::deserialize(kept).ok())
            .unwrap_or_default()
    }
}

impl<A: Api> OpenAi<A> {
    /// Starts the turn of a request. It is stored once this returns; a repeat with the same
    /// idempotency key returns the same run.
    pub(super) async fn start(
        &self,
        request: TurnRequest,
        head: RequestHead,
    ) -> Result<OpenAiRun, OpenAiError> {
        let agent = agent_of(&request.model)?;
        let field = request.field;
        let named = request.metadata.get(SESSION).and_then(Value::as_str);
        let named = head
            .session
            .or(named.map(str::to_owned))
            .or(request.session);
        let key = head.idempotency_key.map(|key| format!("openai:{key}"));
        let run_id = RunId(self.clock.new_id());
        let (session_key, message) = match (&request.previous, named) {
            (Some(previous), _) => {
                let session = self.session_of(previous).await?;
                (session, request.conversation.latest(field)?)
            }
            (None, Some(named)) => {
                let session = SessionKey::parse(&named).map_err(|error| {
                    OpenAiError::field("session", "invalid_value", error.to_string())
                })?;
                (session, request.conversation.latest(field)?)
            }
            (None, None) => {
                // A repeat must name the same session.
                let name = match &key {
                    Some(key) => blake3::hash(key.as_bytes()).to_hex()[..32].to_owned(),
                    None => run_id.to_string(),
                };
                let session = SessionKey::parse(&format!("openai:{name}"))
                    .expect("a digest and an id are names");
                (session, request.conversation.whole(field)?)
            }
        };
        self.check_agent(&session_key, &agent).await?;
        let kept = Kept {
            metadata: request.metadata,
            previous: request.previous,
            background: request.background,
        };
        let turn = Turn {
            session_key: session_key.clone(),
            message,
            agent: Some(agent),
            run_id: Some(run_id).filter(|_| key.is_none()),
            model: None,
            thinking: None,
            run_timeout: None,
            budget: None,
            env: None,
            idempotency_key: key,
            meta: Some(json!({ KEPT: kept })),
        };
        let accepted = ask(&self.api, &turn).await.map_err(|error| {
            let is_agent = error.message.starts_with("no agent ");
            match error.kind() {
                Some(Kind::NotFound) if is_agent => OpenAiError::no_model(&request.model),
                _ => error.into(),
            }
        })?;
        Ok(OpenAiRun {
            run_id: accepted.run_id,
            session_key: accepted.session_key,
        })
    }

    /// The session of a previous response.
    async fn session_of(&self, previous: &str) -> Result<SessionKey, OpenAiError> {
        let unknown = || {
            let previous = crate::kernel::text::prefix(previous, 80);
            let message = format!("there is no response {previous:?}");
            OpenAiError::field(
                "previous_response_id",
                "previous_response_not_found",
                message,
            )
        };
        let run_id = run_of(previous).ok_or_else(unknown)?;
        match ask(&self.api, &GetRun { run_id }).await {
            Ok(run) => Ok(run.session_key),
            Err(error) if error.kind() == Some(Kind::NotFound) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses to continue a session of another agent: its turns would be that agent's.
    async fn check_agent(&self, session: &SessionKey, agent: &str) -> Result<(), OpenAiError> {
        let session_key = session.clone();
        match ask(&self.api, &GetSession { session_key }).await {
            Ok(found) if found.agent.as_str() != agent => {
                let model = model_of(found.agent.as_str());
                let message = format!("this conversation is with the model {model}");
                Err(OpenAiError::field("model", "model_mismatch", message))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == Some(Kind::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The id of the response that a run answers.
pub(super) fn response_id(run: RunId) -> String {
    format!("resp_{}", run.0.as_simple())
}

/// The run of a response.
pub(super) fn run_of(response: &str) -> Option<RunId> {
    let digits = response.strip_prefix("resp_")?;
    let id = uuid::Uuid::try_parse(digits).ok()?;
    (digits.len() == 32).then_some(RunId(id))
}
