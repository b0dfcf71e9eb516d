//! A connection to a server: the greeting, its tools, and calls, which end at once where the
//! connection does.

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
use super::listing::{List, list};
use super::result::told;
use super::wire::Wire;
use crate::kernel::text::preview;
use crate::tool::ToolOutput;

/// The most of a server's own words in an error.
const SAID: usize = 1000;

/// What a server may tell its client. What it may ask of one is declined: nobody here answers
/// for a model or a person.
#[derive(Clone)]
pub(super) struct Listener {
    changed: watch::Sender<()>,
    progress: watch::Sender<()>,
    revision: ProtocolVersion,
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
        let mut config = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("abide", env!("CARGO_PKG_VERSION")),
        );
        config.protocol_version = self.revision.clone();
        config
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
    /// Greets the server. With the connection comes the greeting that would have done at once.
    pub(super) async fn open(
        wire: Wire,
        handshake: Handshake,
    ) -> Result<(Connection, Handshake), String> {
        let listener = Listener {
            changed: watch::channel(()).0,
            progress: watch::channel(()).0,
            revision: handshake.revision(),
        };
        let was_silent = wire.silence();
        let opened = listener
            .clone()
            .serve_with_lifecycle(wire, handshake.mode());
        let client = opened.await.map_err(|fault| greeting(&fault))?;
        let connection = Connection {
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

    /// The revision of the protocol that both speak.
    pub(super) fn protocol(&self) -> Option<String> {
        let about = self.client.peer().peer_info();
        about.map(|about| about.protocol_version.to_string())
    }

    /// Every tool that it has, within bounds.
    pub(super) async fn tools(&self) -> Result<List, String> {
        let has_tools = self.client.peer().peer_info();
        if has_tools.is_some_and(|about| about.capabilities.tools.is_none()) {
            return Ok(List::default());
        }
        let listed = list(self.client.peer()).await;
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
            has_lost: false,
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
    has_lost: bool,
}

impl Changes {
    /// Resolves once they may have changed; for ever pending where nobody would tell. May be
    /// dropped and asked again.
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
                    // More came at once than was taken: something of it may have been a change.
                    Ok(None) | Err(_) => {
                        self.subscription = None;
                        self.has_lost = true;
                        return;
                    }
                },
            }
        }
    }

    /// The subscription ended, and another one is needed to be told of more.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }
}

fn greeting(fault: &ClientInitializeError) -> String {
    let words = match fault {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => causes(fallback.as_ref()),
        // What stands around it names types of our libraries.
        ClientInitializeError::TransportError { error, .. } => causes(error.error.as_ref()),
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
        ServiceError::TransportSend(fault) => causes(fault.error.as_ref()),
        fault => causes(fault),
    }
}

/// What is said of a fault and of what caused it, each thing once.
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
        // What a layer says of the next is said by that.
        let is_layer = at < last && said.contains(&*words[at + 1]);
        let is_new = !told.iter().any(|known| known.contains(&**said));
        if !is_layer && is_new {
            told.push(said);
        }
    }
    preview(&told.join(": "), SAID)
}
