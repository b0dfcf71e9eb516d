//! A connection to a server: handshake, list of tools, and calls, which fail as soon as the
//! connection ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
    ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientServiceExt, NotificationContext, RunningService, ServiceError,
    Subscription,
};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::handshake::Handshake;
use super::listing::{ToolListing, list};
use super::result::to_output;
use super::wire::Wire;
use crate::kernel::text::preview;
use crate::tool::ToolOutput;

/// The maximum number of characters of a server's own text in an error.
const ERROR_LIMIT: usize = 1000;

/// Handles notifications of the server. Requests of the server are declined: it cannot ask a model
/// or the user.
#[derive(Clone)]
pub(super) struct NotificationHandler {
    changed: watch::Sender<()>,
    progress: watch::Sender<()>,
    revision: ProtocolVersion,
}

impl ClientHandler for NotificationHandler {
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
        let mut config = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("abide", env!("CARGO_PKG_VERSION")),
        );
        config.protocol_version = self.revision.clone();
        config
    }
}

/// An established connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct McpConnection {
    client: Arc<RunningService<RoleClient, NotificationHandler>>,
    listener: NotificationHandler,
    end: Arc<EndSignal>,
}

/// The end of a connection, shared with calls in flight.
#[derive(Default)]
struct EndSignal {
    /// Cancelled once a call has found the connection broken.
    broken: CancellationToken,
    /// Cancelled once the connection has ended, which ends calls in flight.
    ended: CancellationToken,
    /// Why it ended.
    why: OnceLock<String>,
}

impl McpConnection {
    /// Performs the handshake. Returns the connection and the form of handshake that would have
    /// succeeded immediately.
    pub(super) async fn open(
        mut wire: Wire,
        handshake: Handshake,
    ) -> Result<(McpConnection, Handshake), String> {
        let listener = NotificationHandler {
            changed: watch::channel(()).0,
            progress: watch::channel(()).0,
            revision: handshake.revision(),
        };
        let was_silent = wire.silence();
        if handshake == Handshake::Discover {
            let probed = wire.probe(listener.get_info()).await;
            probed.map_err(|fault| format!("the handshake failed: {}", causes(&fault)))?;
        }
        let opened = listener
            .clone()
            .serve_with_lifecycle(wire, handshake.mode());
        let client = opened.await.map_err(|fault| greeting(&fault))?;
        let connection = McpConnection {
            client: Arc::new(client),
            listener,
            end: Arc::default(),
        };
        let at_once = match was_silent.load(Ordering::Relaxed) {
            true => Handshake::Initialize,
            false => handshake,
        };
        Ok((connection, at_once))
    }

    /// The negotiated protocol revision.
    pub(super) fn protocol(&self) -> Option<String> {
        let about = self.client.peer().peer_info();
        about.map(|about| about.protocol_version.to_string())
    }

    /// Lists all tools of the server, within limits.
    pub(super) async fn tools(&self) -> Result<ToolListing, String> {
        let has_tools = self.client.peer().peer_info();
        if has_tools.is_some_and(|about| about.capabilities.tools.is_none()) {
            return Ok(ToolListing::default());
        }
        let listed = list(self.client.peer()).await;
        listed.map_err(|fault| format!("listing its tools failed: {}", error_text(&fault)))
    }

    /// Subscribes to changes of the tools.
    pub(super) async fn changes(&self) -> ToolChanges {
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
                Err(fault) => {
                    tracing::debug!(%fault, "a tool server refused the subscription to tool changes")
                }
            }
        }
        ToolChanges {
            list_changed: self.listener.changed.subscribe(),
            has_lost: false,
            subscription,
        }
    }

    /// Calls a tool. Fails after `limit` without an answer or progress, and as soon as the
    /// connection ends. Dropping the future cancels the request at the server.
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
                        Ok(result) => Ok(to_output(result)),
                        Err(fault) => Err(self.failed(&fault).await),
                    };
                }
                () = self.end.ended.cancelled() => return Err(self.lost()),
                Ok(()) = progress.changed() => {}
                () = tokio::time::sleep(limit) => {
                    let limit = humantime::format_duration(limit);
                    return Err(format!(
                        "there was no answer and no progress for {limit} (call_timeout); the \
                         call was cancelled, and it is unknown whether it took effect"
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
            return error_text(fault);
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

    /// Resolves once a call has found the connection broken.
    pub(super) async fn broken(&self) {
        self.end.broken.cancelled().await;
    }

    /// Closes the connection; calls in flight fail with this reason.
    pub(super) fn close(&self, why: &str) {
        let _ = self.end.why.set(why.to_owned());
        self.end.ended.cancel();
        self.client.cancellation_token().cancel();
    }
}

/// The notifications about changed tools.
pub(super) struct ToolChanges {
    list_changed: watch::Receiver<()>,
    subscription: Option<Subscription>,
    has_lost: bool,
}

impl ToolChanges {
    /// Resolves once the tools may have changed; pending forever if no notification can come.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) {
        loop {
            let Some(subscription) = &mut self.subscription else {
                if self.list_changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                return;
            };
            tokio::select! {
                changed = self.list_changed.changed() => {
                    if changed.is_ok() {
                        return;
                    }
                    self.subscription = None;
                }
                told = subscription.next() => match told {
                    Ok(Some(ServerNotification::ToolListChangedNotification(_))) => return,
                    Ok(Some(_)) => {}
                    // Notifications were lost; one of them may have been a change.
                    Ok(None) | Err(_) => {
                        self.subscription = None;
                        self.has_lost = true;
                        return;
                    }
                },
            }
        }
    }

    /// True if the subscription ended and must be renewed.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }
}

fn greeting(fault: &ClientInitializeError) -> String {
    let words = match fault {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => causes(fallback.as_ref()),
        // The wrapping text names types of the libraries.
        ClientInitializeError::TransportError { error, .. } => causes(error.error.as_ref()),
        fault => causes(fault),
    };
    format!("the handshake failed: {words}")
}

/// The refusal in the server's own words, without the library's wrapping text.
fn error_text(fault: &ServiceError) -> String {
    match fault {
        ServiceError::McpError(error) => {
            format!(
                "the server refused the request: {} ({})",
                preview(&error.message, ERROR_LIMIT),
                error.code.0
            )
        }
        ServiceError::TransportSend(fault) => causes(fault.error.as_ref()),
        fault => causes(fault),
    }
}

/// The messages of an error and its causes, without repetitions.
fn causes(fault: &(dyn std::error::Error + 'static)) -> String {
    let mut words = Vec::new();
    let mut next = Some(fault);
    while let Some(cause) = next {
        words.push(cause.to_string());
        next = cause.source();
    }
    let last = words.len().saturating_sub(1);
    let mut told: Vec<&str> = Vec::new();
    for (at, said) in words.iter().enumerate() {
        // The next cause contains the same text.
        let is_layer = at < last && said.contains(&*words[at + 1]);
        let is_new = !told.iter().any(|known| known.contains(&**said));
        if !is_layer && is_new {
            told.push(said);
        }
    }
    preview(&told.join(": "), ERROR_LIMIT)
}
