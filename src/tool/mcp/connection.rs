//! A connection to a server: its two kinds of way, the handshake, and calls, which end at once
//! where the connection does.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, Implementation,
    JsonRpcMessage, ProtocolVersion, RequestId, ServerNotification, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext,
    RunningService, RxJsonRpcMessage, ServiceError, Subscription, TxJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::http::Http;
use super::pipes::Pipes;
use super::result::told;
use crate::contract::BoxFuture;
use crate::kernel::text::preview;
use crate::tool::ToolOutput;

/// The most of a server's own words in an error.
const SAID: usize = 1000;

/// The way to a server.
pub(super) enum Way {
    Pipes(Pipes),
    Http(Box<Http>),
}

/// What goes over the way to a server.
pub(super) struct Wire {
    way: Way,
    late: Late,
}

/// Answers that nobody waits for any more: a server that is slow to start answers the question for
/// the current era after it was greeted in the older one, and that answer would be taken for the
/// one to the greeting.
#[derive(Default)]
struct Late {
    /// The question for the current era.
    probe: Option<RequestId>,
    /// It was given up.
    given_up: Option<RequestId>,
}

impl Wire {
    /// Over this way.
    pub(super) fn over(way: Way) -> Wire {
        Wire {
            way,
            late: Late::default(),
        }
    }
}

impl Late {
    /// Notes which question was asked, and that the greeting gives it up.
    fn note(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(asked) = message else {
            return;
        };
        match &asked.request {
            ClientRequest::DiscoverRequest(_) => self.probe = Some(asked.id.clone()),
            ClientRequest::InitializeRequest(_) => self.given_up = self.probe.take(),
            _ => {}
        }
    }

    /// Does nobody wait for this answer any more?
    fn is(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(refusal) => refusal.id.as_ref(),
            _ => None,
        };
        id.is_some() && id == self.given_up.as_ref()
    }
}

impl Transport<RoleClient> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.late.note(&message);
        let sent: BoxFuture<'static, io::Result<()>> = match &mut self.way {
            Way::Pipes(pipes) => Box::pin(pipes.send(&message)),
            Way::Http(http) => {
                let sent = http.send(message);
                Box::pin(async move { sent.await.map_err(io::Error::other) })
            }
        };
        sent
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match &mut self.way {
                Way::Pipes(pipes) => pipes.receive().await,
                Way::Http(http) => http.receive().await,
            }?;
            if !self.late.is(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        match &mut self.way {
            Way::Pipes(pipes) => {
                pipes.close().await;
                Ok(())
            }
            Way::Http(http) => http.close().await.map_err(io::Error::other),
        }
    }
}

/// What a server may tell its client. What it may ask of one is declined: nobody here answers
/// for a model or a person.
#[derive(Clone)]
pub(super) struct Listener {
    changed: watch::Sender<()>,
    progress: watch::Sender<()>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.send_replace(());
    }

    async fn on_progress(
        &self,
        _: rmcp::model::ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.send_replace(());
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("abide", env!("CARGO_PKG_VERSION")),
        )
    }
}

/// A server that answers. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection {
    client: Arc<RunningService<RoleClient, Listener>>,
    listener: Listener,
    end: Arc<End>,
}

/// The end of a connection, which calls in flight share.
#[derive(Default)]
struct End {
    /// Somebody has found it broken.
    broken: CancellationToken,
    /// It has ended; calls in flight end with it.
    ended: CancellationToken,
    /// Why.
    why: OnceLock<String>,
}

impl Connection {
    /// Greets the server: the current revision of the protocol if it knows it, else the one
    /// before.
    pub(super) async fn open(wire: Wire) -> Result<Connection, String> {
        let listener = Listener {
            changed: watch::channel(()).0,
            progress: watch::channel(()).0,
        };
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let opened = listener.clone().serve_with_lifecycle(wire, lifecycle);
        let client = opened.await.map_err(|fault| greeting(&fault))?;
        Ok(Connection {
            client: Arc::new(client),
            listener,
            end: Arc::default(),
        })
    }

    /// The revision of the protocol that both speak.
    pub(super) fn protocol(&self) -> Option<String> {
        let about = self.client.peer().peer_info();
        about.map(|about| about.protocol_version.to_string())
    }

    /// Every tool that it has.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, String> {
        let has_tools = self.client.peer().peer_info();
        if has_tools.is_some_and(|about| about.capabilities.tools.is_none()) {
            return Ok(Vec::new());
        }
        let listed = self.client.peer().list_all_tools().await;
        listed.map_err(|fault| format!("it does not list its tools: {}", said(&fault)))
    }

    /// Says whenever its tools may have changed.
    pub(super) async fn changes(&self) -> Changes {
        let about = self.client.peer().peer_info();
        let is_new = about
            .as_ref()
            .is_some_and(|about| about.protocol_version >= ProtocolVersion::V_2026_07_28);
        let tells = about
            .and_then(|about| about.capabilities.tools.clone()?.list_changed)
            .unwrap_or_default();
        let mut subscription = None;
        if is_new && tells {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            match self.client.peer().listen(filter).await {
                Ok(open) => subscription = Some(open),
                Err(fault) => tracing::debug!(%fault, "a tool server does not tell of changes"),
            }
        }
        Changes {
            told: self.listener.changed.subscribe(),
            subscription,
        }
    }

    /// Calls a tool. Fails once there was neither an answer nor any progress for `limit`, and at
    /// once where the connection ends. Dropping the future tells the server that nobody waits.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
    ) -> Result<ToolOutput, String> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut progress = self.listener.progress.subscribe();
        let mut answer = std::pin::pin!(self.client.call_tool(params));
        loop {
            tokio::select! {
                answer = &mut answer => {
                    return match answer {
                        Ok(result) => Ok(told(result)),
                        Err(fault) => Err(self.failed(&fault).await),
                    };
                }
                () = self.end.ended.cancelled() => return Err(self.lost()),
                Ok(()) = progress.changed() => {}
                () = tokio::time::sleep(limit) => {
                    let limit = humantime::format_duration(limit);
                    return Err(format!(
                        "there was neither an answer nor progress for {limit} (call_timeout); the \
                         server was told to stop, and whether it has done the work is not known"
                    ));
                }
            }
        }
    }

    async fn failed(&self, fault: &ServiceError) -> String {
        let is_lost = matches!(
            fault,
            ServiceError::TransportClosed | ServiceError::TransportSend(_)
        );
        if !is_lost {
            return said(fault);
        }
        self.end.broken.cancel();
        self.end.ended.cancelled().await;
        self.lost()
    }

    fn lost(&self) -> String {
        let why = self.end.why.get().map_or("it was closed", String::as_str);
        format!(
            "the connection ended during the call ({why}); whether the call took effect is not \
             known. The next call tries to start the server again"
        )
    }

    /// Resolves once somebody has found it broken.
    pub(super) async fn broken(&self) {
        self.end.broken.cancelled().await;
    }

    /// Calls in flight fail with this.
    pub(super) fn close(&self, why: &str) {
        let _ = self.end.why.set(why.to_owned());
        self.end.ended.cancel();
        self.client.cancellation_token().cancel();
    }
}

/// Where a server tells that its tools have changed.
pub(super) struct Changes {
    told: watch::Receiver<()>,
    subscription: Option<Subscription>,
}

impl Changes {
    /// Resolves once they may have changed; for ever pending where nobody would tell.
    pub(super) async fn next(&mut self) {
        loop {
            let Some(subscription) = &mut self.subscription else {
                if self.told.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                return;
            };
            tokio::select! {
                changed = self.told.changed() => {
                    if changed.is_ok() {
                        return;
                    }
                    self.subscription = None;
                }
                told = subscription.next() => match told {
                    Ok(Some(ServerNotification::ToolListChangedNotification(_))) => return,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => self.subscription = None,
                },
            }
        }
    }
}

fn greeting(fault: &ClientInitializeError) -> String {
    let words = match fault {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => causes(fallback.as_ref()),
        fault => causes(fault),
    };
    format!("the handshake failed: {words}")
}

/// A refusal in the server's own words, without what our library says around them.
fn said(fault: &ServiceError) -> String {
    match fault {
        ServiceError::McpError(error) => {
            format!(
                "the server refused it: {} ({})",
                preview(&error.message, SAID),
                error.code.0
            )
        }
        fault => causes(fault),
    }
}

/// What is said of a fault and of all that caused it.
fn causes(fault: &dyn std::error::Error) -> String {
    let mut words = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        next = cause.source();
    }
    preview(&words, SAID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_answer_to_a_question_that_was_given_up_is_passed_over() {
        let mut late = Late::default();
        let asked = |method: &str, id: i64| {
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "a", "version": "1" },
            });
            let text = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            serde_json::from_value(text).unwrap()
        };
        let refusal = |id: i64| {
            let error = json!({ "code": -32601, "message": "no such method" });
            let text = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            serde_json::from_value(text).unwrap()
        };
        late.note(&asked("server/discover", 0));
        assert!(!late.is(&refusal(0)), "it is still waited for");
        late.note(&asked("initialize", 1));
        assert!(late.is(&refusal(0)));
        assert!(!late.is(&refusal(1)));
    }
}
