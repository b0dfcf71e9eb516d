//! A connection to a daemon, with the calls that most tests make.

use abide::client::tls::Trust;
use abide::client::{Client, ClientError, EventSubscription};
use abide::tls::Fingerprint;
use abide::wire::error::WireError;
use serde_json::{Value, json};

use super::eventually;

/// An RPC connection to a daemon.
pub(crate) struct Link {
    client: Client,
}

/// A spawned run or an accepted turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spawned {
    /// The run's id.
    pub(crate) id: String,
    /// The key of its session.
    pub(crate) session: String,
}

impl Spawned {
    /// Reads it from the answer of `sessions.spawn` or `agent.run`.
    pub(crate) fn of(answer: &Value) -> Spawned {
        let key = answer
            .get("childSessionKey")
            .unwrap_or(&answer["sessionKey"]);
        Spawned {
            id: answer["runId"].as_str().unwrap().to_owned(),
            session: key.as_str().unwrap().to_owned(),
        }
    }
}

/// The machine-readable `kind` in an error's data.
pub(crate) fn kind_of(error: &WireError) -> &str {
    error.data["kind"].as_str().unwrap()
}

impl Link {
    /// Connects; `None` if the connection fails.
    pub(super) async fn open(url: &str, pin: Option<Fingerprint>, token: &str) -> Option<Link> {
        let trust = pin.map_or(Trust::System, Trust::Pinned);
        let client = Client::connect_trusting(url, trust, Some(token))
            .await
            .ok()?;
        Some(Link { client })
    }

    /// Connects over TCP with this token; `None` if the connection fails.
    pub(crate) async fn with_token(url: &str, token: &str) -> Option<Link> {
        Link::open(url, None, token).await
    }

    /// Connects over a Unix socket; `None` if the connection fails.
    pub(crate) async fn local(socket: &std::path::Path) -> Option<Link> {
        let client = Client::connect_socket(socket).await.ok()?;
        Some(Link { client })
    }

    /// Makes one call; `Err(None)` means that the link is lost.
    pub(crate) async fn attempt(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<Value, Option<WireError>> {
        match self.client.call(method, params).await {
            Ok(answer) => Ok(answer),
            Err(ClientError::Rpc(error)) => Err(Some(error)),
            Err(ClientError::LinkLost(_) | ClientError::NoDaemon { .. }) => Err(None),
            Err(other) => panic!("{method} {params}: {other}"),
        }
    }

    /// Makes one call that must succeed.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        match self.attempt(method, &params).await {
            Ok(answer) => answer,
            Err(Some(error)) => panic!("{method} {params}: {error} {:?}", error.data),
            Err(None) => panic!("{method} {params}: the link is lost"),
        }
    }

    /// Makes one call that must be refused.
    pub(crate) async fn refused(&self, method: &str, params: Value) -> WireError {
        match self.attempt(method, &params).await {
            Ok(answer) => panic!("{method} {params}: {answer}"),
            Err(Some(error)) => error,
            Err(None) => panic!("{method} {params}: the link is lost"),
        }
    }

    /// Calls `sessions.spawn` for agent explore, unless the parameters name another.
    pub(crate) async fn spawn(&self, params: Value) -> Spawned {
        let params = with_agent(params);
        Spawned::of(&self.call("sessions.spawn", params).await)
    }

    /// Subscribes to events.
    pub(crate) async fn subscribe(&self, params: Value) -> EventSubscription {
        let request = serde_json::from_value(params).unwrap();
        self.client.subscribe(&request).await.unwrap()
    }

    /// Calls `agent.run`.
    pub(crate) async fn turn(&self, session: &str, message: &str) -> Spawned {
        let params = json!({ "sessionKey": session, "message": message });
        Spawned::of(&self.call("agent.run", params).await)
    }

    /// Creates or finds the session with this owner and label; returns its key.
    pub(crate) async fn session(&self, owner: &str, label: &str) -> String {
        let params = json!({ "owner": owner, "label": label });
        let made = self.call("sessions.create", params).await;
        made["session"]["key"].as_str().unwrap().to_owned()
    }

    /// The run as `runs.get` shows it.
    pub(crate) async fn run(&self, id: &str) -> Value {
        self.call("runs.get", json!({ "runId": id })).await
    }

    /// Waits until the run has ended and returns it.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        let params = json!({ "runId": id, "waitTimeout": 240 });
        let waited = self.call("agent.wait", params).await;
        assert_eq!(waited["cause"], "ended", "{waited}");
        waited["runs"][0].clone()
    }

    /// Waits until the run is in this state.
    pub(crate) async fn in_state(&self, id: &str, state: &str) {
        eventually(&format!("run {id} {state}"), async || {
            (self.run(id).await["state"] == state).then_some(())
        })
        .await;
    }

    /// Waits until no run is open and no announce is pending.
    pub(crate) async fn quiet(&self) {
        eventually("quiet", async || {
            is_quiet(&self.call("gateway.status", json!({})).await)
        })
        .await;
    }
}

/// The parameters of a spawn, with the default agent of the tests.
pub(super) fn with_agent(mut params: Value) -> Value {
    let fields = params.as_object_mut().unwrap();
    fields.entry("agent").or_insert_with(|| json!("explore"));
    params
}

/// `Some` if no run is open and no announce is pending.
pub(super) fn is_quiet(status: &Value) -> Option<()> {
    let counts = status["counts"].as_object().unwrap();
    counts.values().all(|count| count == 0).then_some(())
}
