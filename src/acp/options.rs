//! The choices of a session: its agent (a mode), its model and its thinking level.

use serde_json::Value;

use super::editor::Editor;
use crate::acp_protocol::answer::{ConfigOption, ConfigOptionSet, ConfigValue, Done, Mode, Modes};
use crate::acp_protocol::request::{SetConfigOption, SetMode};
use crate::acp_protocol::{Answered, RpcError};
use crate::kernel::run::thinking::Thinking;
use crate::wire::agents::{Audience, ListAgents};
use crate::wire::gateway::GetStatus;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::lifecycle::PatchSession;
use crate::wire::shapes::Session;

/// Id of the choice of a model.
const MODEL: &str = "model";
/// Id of the choice of a thinking level.
const THINKING: &str = "thinking";
/// Value for "as the agent's definition says".
const DEFAULT: &str = "default";

/// What can be chosen in a session.
pub(super) struct Choices {
    pub(super) modes: Modes,
    pub(super) config: Vec<ConfigOption>,
}

impl Editor {
    /// The choices of this session, with the present values.
    pub(super) async fn choices(&self, session: &Session) -> Answered<Choices> {
        let request = ListAgents {
            audience: Some(Audience::People),
            limit: PageSize(PAGE_LIMIT),
            cwd: session.cwd.clone(),
            ..ListAgents::default()
        };
        let agents = self.link.call(&request).await?.agents;
        let current = session.agent.to_string();
        let may_own = |agent: &crate::wire::agents::Agent| {
            agent.name == current || (agent.active && agent.health.ok && agent.mode != "subagent")
        };
        let mut modes: Vec<Mode> = agents
            .into_iter()
            .filter(may_own)
            .map(|agent| Mode {
                name: agent.title.unwrap_or_else(|| agent.name.clone()),
                id: agent.name,
                description: agent.description,
            })
            .collect();
        if !modes.iter().any(|mode| mode.id == current) {
            modes.push(Mode {
                id: current.clone(),
                name: current.clone(),
                description: "The agent of this session".to_owned(),
            });
        }
        Ok(Choices {
            modes: Modes {
                current_mode_id: current,
                available_modes: modes,
            },
            config: self.config(session).await?,
        })
    }

    /// Model and thinking level.
    pub(super) async fn config(&self, session: &Session) -> Answered<Vec<ConfigOption>> {
        let status = self.link.call(&GetStatus {}).await?;
        let models = status.providers.into_iter().flat_map(|of| of.models);
        // `name/*` stands for any model of a provider, which no list can have.
        let models: Vec<String> = models.filter(|model| !model.ends_with("/*")).collect();
        let levels = Thinking::ALL.iter().map(|level| level.as_str().to_owned());
        Ok(vec![
            select(
                MODEL,
                "Model",
                "Model of the next turns",
                "model",
                session.model.as_deref(),
                models,
            ),
            select(
                THINKING,
                "Thinking",
                "How much the model thinks before it answers",
                "thought_level",
                session.thinking.as_deref(),
                levels.collect(),
            ),
        ])
    }

    /// Another agent answers in the session from the next turn on.
    pub(super) async fn set_mode(&self, params: SetMode) -> Answered<Done> {
        let session = self.session(&params.session_id)?;
        let request = PatchSession {
            agent: Some(params.mode_id),
            ..PatchSession::unchanged(session.key.clone())
        };
        self.link.call(&request).await?;
        Ok(Done::default())
    }

    /// The session has another model or thinking level from the next turn on.
    pub(super) async fn set_config_option(
        &self,
        params: SetConfigOption,
    ) -> Answered<ConfigOptionSet> {
        let session = self.session(&params.session_id)?;
        let Value::String(value) = params.value else {
            return Err(RpcError::params(
                "value: one of the listed values is expected",
            ));
        };
        let value = Some(value).filter(|value| value != DEFAULT);
        let mut request = PatchSession::unchanged(session.key.clone());
        match params.config_id.as_str() {
            MODEL => request.model = Some(value),
            THINKING => {
                let level = value.as_deref().map(|text| {
                    Thinking::parse(text).ok_or_else(|| {
                        RpcError::params("value: one of the listed thinking levels is expected")
                    })
                });
                request.thinking = Some(level.transpose()?);
            }
            _ => {
                return Err(RpcError::params(format!(
                    "configId: {MODEL} or {THINKING} is expected"
                )));
            }
        }
        let session = self.link.call(&request).await?;
        Ok(ConfigOptionSet {
            config_options: self.config(&session).await?,
        })
    }
}

fn select(
    id: &'static str,
    name: &'static str,
    description: &'static str,
    category: &'static str,
    current: Option<&str>,
    values: Vec<String>,
) -> ConfigOption {
    let current = current.unwrap_or(DEFAULT).to_owned();
    let is_listed = current == DEFAULT || values.contains(&current);
    let other = (!is_listed).then(|| current.clone());
    let options = [DEFAULT.to_owned()].into_iter().chain(values).chain(other);
    ConfigOption {
        id,
        name,
        description,
        category,
        r#type: "select",
        current_value: current,
        options: options
            .map(|value| ConfigValue {
                name: value.clone(),
                value,
            })
            .collect(),
    }
}
