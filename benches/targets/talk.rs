//! One WebSocket connection that makes calls one after another, for figures about the effects of a
//! call; [`super::client`] measures the calls themselves.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::Result;
use crate::client::{ServerAddress, Socket, connect};

/// Deadline of every operation, generous enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An open WebSocket connection.
pub struct Talk {
    socket: Socket,
    last_id: u64,
}

impl Talk {
    /// Opens a connection.
    pub async fn open(door: ServerAddress<'_>) -> Result<Self> {
        Ok(Talk {
            socket: connect(door).await?,
            last_id: 0,
        })
    }

    /// Opens a connection that is subscribed to these kinds of events.
    pub async fn listen(door: ServerAddress<'_>, kinds: &[&str]) -> Result<Self> {
        let mut talk = Talk::open(door).await?;
        let params = json!({ "kinds": kinds }).to_string();
        talk.say("events.subscribe", &params).await?;
        // The snapshot comes first; every event after it is delivered.
        while talk.event().await?["kind"] != "snapshot" {}
        Ok(talk)
    }

    /// Sends a call without waiting for its answer and returns the call's id.
    pub async fn say(&mut self, method: &str, params: &str) -> Result<u64> {
        let id = self.put(method, params).await?;
        self.flush().await?;
        Ok(id)
    }

    /// As [`Talk::say`], but the call is buffered until the next [`Talk::flush`].
    pub async fn put(&mut self, method: &str, params: &str) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.socket.feed(Message::text(call)).await?;
        Ok(id)
    }

    /// Sends the buffered calls.
    pub async fn flush(&mut self) -> Result<()> {
        Ok(self.socket.flush().await?)
    }

    /// The result of call `id` and its arrival time. Other messages that arrive meanwhile are
    /// dropped.
    pub async fn answer(&mut self, id: u64) -> Result<(Value, Instant)> {
        loop {
            let (mut message, at) = self.next().await?;
            if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(format!("a call was refused: {error}").into()),
                    None => Ok((message["result"].take(), at)),
                };
            }
        }
    }

    /// Makes a call and reads its result.
    pub async fn call(&mut self, method: &str, params: &str) -> Result<Value> {
        let id = self.say(method, params).await?;
        Ok(self.answer(id).await?.0)
    }

    /// Runs a turn of this session to its end, whose answer is "There it is.".
    pub async fn turn(&mut self, key: &str, message: &str) -> Result<()> {
        let params = json!({ "sessionKey": key, "message": message }).to_string();
        let accepted = self.call("agent.run", &params).await?;
        let params = json!({ "runId": accepted["runId"], "waitTimeout": 60 }).to_string();
        let waited = self.call("agent.wait", &params).await?;
        match waited["runs"][0]["result"] == "There it is." {
            true => Ok(()),
            false => Err(format!("unexpected end of a turn: {waited}").into()),
        }
    }

    /// The next event. An answer that arrives first must not be an error.
    pub async fn event(&mut self) -> Result<Value> {
        loop {
            let (mut message, _) = self.next().await?;
            if let Some(error) = message.get("error") {
                return Err(format!("a call was refused: {error}").into());
            }
            if message["method"] == "events.event" {
                return Ok(message["params"]["result"].take());
            }
        }
    }

    async fn next(&mut self) -> Result<(Value, Instant)> {
        loop {
            let next = tokio::time::timeout(TIMEOUT, self.socket.next());
            let message = next.await.map_err(|_| "nothing came for two minutes")?;
            if let Message::Text(text) = message.ok_or("the server closed a connection")?? {
                let at = Instant::now();
                return Ok((serde_json::from_str(&text)?, at));
            }
        }
    }
}

/// Runs `talking` to its end on this thread.
pub fn run<T>(talking: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(talking)
}
