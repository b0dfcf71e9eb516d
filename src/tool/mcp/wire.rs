//! The transport to a server: over pipes or HTTP, with a probe for the current protocol revision,
//! of which any answer but the right one counts as a refusal, and with the rate limit for
//! unsolicited messages. Called by `connection`.
//!
//! The probe is sent here, before the library has the transport: the library abandons its own probe
//! after ten seconds, and a server that starts more slowly would be taken for an older one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientRequest, DiscoverRequest, DiscoverRequestParams,
    ErrorCode, ErrorData, JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::time::Sleep;

use super::flood::Flood;
use super::http::Http;
use super::pipes::Pipes;
use crate::clock::Clock;
use crate::contract::BoxFuture;

/// Replaces an error of the library by its cause, where it only quotes the cause.
fn with_cause(fault: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    type OverHttp = StreamableHttpError<reqwest::Error>;
    let fault: Box<dyn std::error::Error + Send + Sync> = Box::new(fault);
    match fault.downcast::<OverHttp>().map(|fault| *fault) {
        Ok(OverHttp::Client(cause)) => io::Error::other(cause),
        Ok(other) => io::Error::other(other),
        Err(other) => io::Error::other(other),
    }
}

/// The underlying transport.
pub(super) enum Channel {
    Pipes(Pipes),
    Http(Box<Http>),
}

/// The transport with probe and rate limit.
pub(super) struct Wire {
    way: Channel,
    probe: Probe,
    flood: Flood,
    early: Early,
}

/// The outcome of the probe until the library asks for it.
enum Early {
    /// The probe was not sent, or its outcome was passed on.
    Nothing,
    Answer(Box<ServerJsonRpcMessage>),
    /// The connection ended before an answer.
    Ended,
}

impl Early {
    /// True if this message is the library's own probe, which need not be sent: the next received
    /// message is its answer.
    fn answers(&mut self, message: &TxJsonRpcMessage<RoleClient>) -> bool {
        let JsonRpcMessage::Request(asked) = message else {
            return false;
        };
        if !matches!(asked.request, ClientRequest::DiscoverRequest(_)) {
            return false;
        }
        match self {
            Early::Nothing => return false,
            Early::Ended => {}
            Early::Answer(answer) => match &mut **answer {
                JsonRpcMessage::Response(answer) => answer.id = asked.id.clone(),
                JsonRpcMessage::Error(refused) => refused.id = Some(asked.id.clone()),
                _ => {}
            },
        }
        true
    }
}

impl Wire {
    /// Wraps this transport; the probe is abandoned after `patience`.
    pub(super) fn over(way: Channel, patience: Duration, clock: &Clock) -> Wire {
        Wire {
            way,
            probe: Probe::new(patience),
            flood: Flood::new(clock.clone()),
            early: Early::Nothing,
        }
    }

    /// Sends the probe and waits for its answer, its timeout or the end of the connection. Messages
    /// before the answer are dropped: nothing can refer to them before the handshake.
    pub(super) async fn probe(&mut self, client: ClientConfig) -> io::Result<()> {
        let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
        discover
            .extensions
            .insert(RequestMetaObject::with_client_context(
                ProtocolVersion::V_2026_07_28,
                client.client_info,
                client.capabilities,
            ));
        // The first number that the library gives; its own request is not sent.
        let id = RequestId::Number(0);
        let request = ClientRequest::DiscoverRequest(discover);
        self.send(ClientJsonRpcMessage::request(request, id.clone()))
            .await?;
        self.early = loop {
            match self.receive().await {
                None => break Early::Ended,
                Some(message) if !is_unasked(&message) => break Early::Answer(Box::new(message)),
                Some(_) => {}
            }
        };
        Ok(())
    }

    /// A flag that is set once the probe was abandoned without an answer; read it when the server
    /// is ready.
    pub(super) fn silence(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.probe.was_silent)
    }
}

impl Transport<RoleClient> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let is_answered = self.early.answers(&message);
        if !is_answered {
            self.probe.sent(&message);
        }
        let sent: BoxFuture<'static, io::Result<()>> = match &mut self.way {
            _ if is_answered => Box::pin(std::future::ready(Ok(()))),
            Channel::Pipes(pipes) => Box::pin(pipes.send(&message)),
            Channel::Http(http) => {
                let sent = http.send(message);
                Box::pin(async move { sent.await.map_err(with_cause) })
            }
        };
        sent
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Wire {
            way,
            probe,
            flood,
            early,
        } = self;
        match std::mem::replace(early, Early::Nothing) {
            Early::Nothing => {}
            Early::Answer(answer) => return Some(*answer),
            Early::Ended => return None,
        }
        loop {
            flood.wait().await;
            let next = async {
                match &mut *way {
                    Channel::Pipes(pipes) => pipes.receive().await,
                    Channel::Http(http) => http.receive().await,
                }
            };
            let message = match &mut probe.timeout {
                Some(patience) => tokio::select! {
                    message = next => message,
                    () = patience => {
                        if let Some(refusal) = probe.give_up() {
                            return Some(refusal);
                        }
                        continue;
                    }
                },
                None => next.await,
            }?;
            if is_unasked(&message) {
                flood.count();
            }
            if let Some(message) = probe.came(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        match &mut self.way {
            Channel::Pipes(pipes) => {
                pipes.close().await;
                Ok(())
            }
            Channel::Http(http) => http.close().await.map_err(io::Error::other),
        }
    }
}

fn is_unasked(message: &ServerJsonRpcMessage) -> bool {
    let is_answer = matches!(
        message,
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
    );
    !is_answer
}

/// The state of the probe request `server/discover`.
struct Probe {
    limit: Duration,
    /// The request that waits for an answer.
    waiting: Option<RequestId>,
    /// The timeout of that request.
    timeout: Option<Pin<Box<Sleep>>>,
    /// The abandoned request: a late answer would be mistaken for the answer to `initialize`.
    given_up: Option<RequestId>,
    was_silent: Arc<AtomicBool>,
}

impl Probe {
    fn new(limit: Duration) -> Probe {
        Probe {
            limit,
            waiting: None,
            timeout: None,
            given_up: None,
            was_silent: Arc::default(),
        }
    }

    /// Records that the probe was sent, and that `initialize` abandons it.
    fn sent(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(asked) = message else {
            return;
        };
        match &asked.request {
            ClientRequest::DiscoverRequest(_) => {
                self.waiting = Some(asked.id.clone());
                self.timeout = Some(Box::pin(tokio::time::sleep(self.limit)));
            }
            ClientRequest::InitializeRequest(_) => drop(self.give_up()),
            _ => {}
        }
    }

    /// Abandons the probe; returns the refusal that replaces its answer.
    fn give_up(&mut self) -> Option<ServerJsonRpcMessage> {
        self.timeout = None;
        self.given_up = Some(self.waiting.take()?);
        self.was_silent.store(true, Ordering::Relaxed);
        self.given_up.clone().map(|id| refusal(id, "no answer"))
    }

    /// Checks a received message; `None` if it is a late answer to the probe.
    fn came(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let id = match &message {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(refused) => refused.id.as_ref(),
            _ => return Some(message),
        };
        let Some(waiting) = &self.waiting else {
            let is_late = id.is_some() && id == self.given_up.as_ref();
            if is_late && answers_probe(&message) {
                // It is slow, not of the older protocol: the next start waits for it again.
                self.was_silent.store(false, Ordering::Relaxed);
            }
            return (!is_late).then_some(message);
        };
        let is_right = match &message {
            JsonRpcMessage::Response(_) => id == Some(waiting) && answers_probe(&message),
            JsonRpcMessage::Error(refused) => speaks_ours(&refused.error),
            _ => true,
        };
        let message = match is_right {
            true => message,
            // Any other answer means that the server does not know the request.
            false => refusal(waiting.clone(), "server/discover is not known"),
        };
        self.waiting = None;
        self.timeout = None;
        Some(message)
    }
}

fn answers_probe(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        JsonRpcMessage::Response(answer) if matches!(answer.result, ServerResult::DiscoverResult(_))
    )
}

/// True if the server refuses a revision but supports the one that was requested.
fn speaks_ours(error: &ErrorData) -> bool {
    let supported = error.data.as_ref().map(|data| &data["supported"]);
    let ours = ProtocolVersion::V_2026_07_28;
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        && supported
            .and_then(|all| all.as_array())
            .is_some_and(|all| all.iter().any(|one| one == ours.as_str()))
}

fn refusal(id: RequestId, why: &'static str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None);
    JsonRpcMessage::error(error, Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(method: &str, id: i64) -> TxJsonRpcMessage<RoleClient> {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "a", "version": "1" },
        });
        let text = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        serde_json::from_value(text).unwrap()
    }

    fn message(fields: Value) -> ServerJsonRpcMessage {
        let mut text = json!({ "jsonrpc": "2.0" });
        for (name, value) in fields.as_object().unwrap() {
            text[name] = value.clone();
        }
        serde_json::from_value(text).unwrap()
    }

    fn refused(id: Value) -> ServerJsonRpcMessage {
        let error = json!({ "code": -32600, "message": "what?" });
        match id {
            Value::Null => message(json!({ "error": error })),
            id => message(json!({ "id": id, "error": error })),
        }
    }

    #[tokio::test]
    async fn the_answer_to_a_question_that_was_given_up_is_passed_over() {
        let mut probe = Probe::new(Duration::from_secs(1));
        probe.sent(&asked("server/discover", 0));
        probe.sent(&asked("initialize", 1));
        assert!(probe.was_silent.load(Ordering::Relaxed));
        assert!(probe.came(refused(json!(0))).is_none());
        assert!(probe.came(refused(json!(1))).is_some());
    }

    #[tokio::test]
    async fn a_late_answer_to_the_probe_shows_that_the_server_is_only_slow() {
        let mut probe = Probe::new(Duration::from_secs(1));
        probe.sent(&asked("server/discover", 0));
        probe.sent(&asked("initialize", 1));
        let late = message(json!({ "id": 0, "result": {
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
            "serverInfo": { "name": "a", "version": "1" }, "ttlMs": 0, "cacheScope": "private",
        } }));
        assert!(probe.came(late).is_none());
        assert!(!probe.was_silent.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn whatever_is_no_answer_to_the_question_is_a_refusal_of_it() {
        for odd in [
            refused(json!(0)),
            refused(json!(77)),
            refused(Value::Null),
            message(json!({ "id": 0, "result": {} })),
            message(json!({ "id": 0, "result": null })),
            message(json!({ "id": 5, "result": { "tools": [] } })),
        ] {
            let mut probe = Probe::new(Duration::from_secs(1));
            probe.sent(&asked("server/discover", 0));
            let Some(JsonRpcMessage::Error(made)) = probe.came(odd.clone()) else {
                panic!("{odd:?}");
            };
            assert_eq!(made.id, Some(RequestId::Number(0)), "{odd:?}");
            assert_eq!(made.error.code, ErrorCode::METHOD_NOT_FOUND);
            assert!(!probe.was_silent.load(Ordering::Relaxed));
        }
    }

    #[tokio::test]
    async fn a_revision_that_is_ours_may_be_asked_for_again() {
        let mut probe = Probe::new(Duration::from_secs(1));
        probe.sent(&asked("server/discover", 0));
        let error = json!({
            "code": -32022, "message": "another", "data": { "supported": ["2026-07-28"] },
        });
        let came = message(json!({ "id": 0, "error": error }));
        let Some(JsonRpcMessage::Error(passed)) = probe.came(came) else {
            panic!("it is an error");
        };
        assert_eq!(passed.error.code, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
    }
}
