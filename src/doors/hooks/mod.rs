//! Inbound hooks: a delivery of another service starts a run, or a turn in a session, whose task
//! is made from its body by the template of its table. The gateway serves them at `/hooks/NAME`.
//!
//! Nothing is kept here: the id of a delivery is the idempotency key of its run, which is stored
//! before the delivery is answered.

mod check;
mod error;
mod fill;
mod payload;

use http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::error::HookError;
use crate::config::{HookCheck, HookTable};
use crate::doors::api::{Api, ask};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::secret::Secret;
use crate::kernel::time::Timestamp;
use crate::wire::runs::Turn;
use crate::wire::sessions::Spawn;

/// Header with the kind of a delivery of GitHub.
const GITHUB_EVENT: &str = "x-github-event";

/// A hook of the settings.
#[derive(Clone)]
pub(crate) struct Hook {
    /// The name of its table.
    pub(crate) name: String,
    /// Its settings.
    pub(crate) table: HookTable,
}

/// A delivery as it was sent.
pub(crate) struct Delivery<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// What a delivery has done.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Delivered {
    /// A run is stored; a repeat names the same one.
    #[serde(rename_all = "camelCase")]
    Run {
        run_id: RunId,
        session_key: SessionKey,
    },
    /// It only tests the connection: nothing was started.
    Ping { status: &'static str },
}

impl Hook {
    /// Refuses a body in a form that this hook does not read, before the body is read.
    pub(crate) fn check_form(&self, headers: &HeaderMap) -> Result<(), HookError> {
        payload::form(self.table.check, headers).map(|_| ())
    }

    /// True if the sender of the delivery has the secret. `now` decides about the age of a signature
    /// that has a time.
    pub(crate) fn is_genuine(
        &self,
        secret: &Secret,
        delivery: &Delivery<'_>,
        now: Timestamp,
    ) -> bool {
        let check = self.table.check;
        check.is_some_and(|check| check::is_genuine(check, secret.expose(), delivery, now))
    }

    /// Starts the run of a delivery that is genuine. The run is stored once this returns; a repeat
    /// of the delivery returns the same run.
    pub(crate) async fn start(
        &self,
        api: &impl Api,
        delivery: &Delivery<'_>,
    ) -> Result<Delivered, HookError> {
        if self.is_ping(delivery.headers) {
            return Ok(Delivered::Ping { status: "pong" });
        }
        let body = payload::json(self.table.check, delivery)?;
        let values = fill::Values {
            headers: delivery.headers,
            body: &body,
        };
        let id = self.delivery_id(delivery.headers)?;
        let task = self.table.task.as_ref();
        let task = task.ok_or_else(|| HookError::misconfigured("task is missing"))?;
        let task = fill::task(task, &values, &self.name)?;
        let meta = json!({ "hook": { "name": self.name, "delivery": id } });
        match &self.table.session {
            None => self.spawn(api, task, id, meta).await,
            Some(session) => {
                let session = fill::session(session, &values)?;
                self.turn(api, session, task, id, meta).await
            }
        }
    }

    async fn spawn(
        &self,
        api: &impl Api,
        task: String,
        id: Option<String>,
        meta: Value,
    ) -> Result<Delivered, HookError> {
        let spawn = Spawn {
            task,
            agent: self.table.agent.clone(),
            label: Some(format!("hook:{}", self.name)),
            idempotency_key: id,
            meta: Some(meta),
            ..Spawn::default()
        };
        let spawned = ask(api, &spawn).await?;
        self.log(spawned.run_id, &spawned.warnings);
        Ok(Delivered::Run {
            run_id: spawned.run_id,
            session_key: spawned.child_session_key,
        })
    }

    async fn turn(
        &self,
        api: &impl Api,
        session_key: SessionKey,
        message: String,
        id: Option<String>,
        meta: Value,
    ) -> Result<Delivered, HookError> {
        let turn = Turn {
            session_key,
            message,
            agent: self.table.agent.clone(),
            run_id: None,
            model: None,
            thinking: None,
            run_timeout: None,
            budget: None,
            env: None,
            idempotency_key: id,
            meta: Some(meta),
        };
        let accepted = ask(api, &turn).await?;
        self.log(accepted.run_id, &accepted.warnings);
        Ok(Delivered::Run {
            run_id: accepted.run_id,
            session_key: accepted.session_key,
        })
    }

    /// GitHub sends one when a hook is created, to test the connection.
    fn is_ping(&self, headers: &HeaderMap) -> bool {
        self.table.check == Some(HookCheck::Github)
            && headers.get(GITHUB_EVENT).is_some_and(|kind| kind == "ping")
    }

    /// The id of a delivery; `None` if its sender gives none and the settings do not require one.
    fn delivery_id(&self, headers: &HeaderMap) -> Result<Option<String>, HookError> {
        let name = self.table.delivery_header();
        let id = headers.get(name).and_then(|value| value.to_str().ok());
        match id.map(str::trim).filter(|id| !id.is_empty()) {
            Some(id) => Ok(Some(id.to_owned())),
            None if self.table.idempotency_header.is_none() => Ok(None),
            None => Err(HookError::unfit(
                name,
                format!("the header {name}, the id of a delivery, is missing"),
            )),
        }
    }

    /// Warnings are for the operator; the sender can do nothing about them.
    fn log(&self, run: RunId, warnings: &[String]) {
        for warning in warnings {
            tracing::warn!(hook = self.name, %run, warning, "the run of a hook has a warning");
        }
    }
}
