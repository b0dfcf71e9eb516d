//! `/v1/models`: agents as models, `abide/NAME`.

use serde_json::{Value, json};

use super::{OpenAi, OpenAiError, OpenAiReply};
use crate::doors::api::{Api, ask};
use crate::wire::agents::{Agent, Audience, ListAgents};
use crate::wire::input::{PAGE_LIMIT, PageSize};

/// What the name of each model begins with.
const PREFIX: &str = "abide/";

/// The agent that a model names.
pub(super) fn agent_of(model: &str) -> Result<String, OpenAiError> {
    let name = model.strip_prefix(PREFIX).unwrap_or(model).trim();
    match crate::kernel::ids::is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(OpenAiError::no_model(model)),
    }
}

/// The model that is this agent.
pub(super) fn model_of(agent: &str) -> String {
    format!("{PREFIX}{agent}")
}

impl<A: Api> OpenAi<A> {
    /// `GET /v1/models`.
    pub(crate) async fn models(&self) -> Result<OpenAiReply, OpenAiError> {
        let agents = self.agents().await?;
        let data: Vec<Value> = agents.iter().map(shown).collect();
        Ok(OpenAiReply {
            body: json!({ "object": "list", "data": data }),
            run: None,
        })
    }

    /// `GET /v1/models/NAME`.
    pub(crate) async fn model(&self, name: &str) -> Result<OpenAiReply, OpenAiError> {
        let agent = agent_of(name)?;
        let agents = self.agents().await?;
        let found = agents.iter().find(|one| one.name == agent);
        let found = found.ok_or_else(|| OpenAiError::no_model(name))?;
        Ok(OpenAiReply {
            body: shown(found),
            run: None,
        })
    }

    async fn agents(&self) -> Result<Vec<Agent>, OpenAiError> {
        let mut request = ListAgents {
            audience: Some(Audience::People),
            limit: PageSize(PAGE_LIMIT),
            ..ListAgents::default()
        };
        let mut agents = Vec::new();
        loop {
            let page = ask(&self.api, &request).await?;
            // A subagent owns no session, so it holds no conversation.
            let talks = |agent: &Agent| agent.active && agent.mode != "subagent";
            agents.extend(page.agents.into_iter().filter(talks));
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                return Ok(agents);
            }
        }
    }
}

fn shown(agent: &Agent) -> Value {
    json!({
        "id": model_of(&agent.name),
        "object": "model",
        "created": 0,
        "owned_by": "abide",
        "description": agent.description,
    })
}
