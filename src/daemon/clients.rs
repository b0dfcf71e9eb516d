//! The clients of the daemon: accepted from before the rows are restored until the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::boot::Boot;
use super::control::Process;
use super::listen::DaemonAddress;
use super::parts::DaemonParts;
use super::state::secrets::Token;
use crate::config::Config;
use crate::contract::control::Control;
use crate::contract::processes::ProcessTracker as _;
use crate::gateway::{self, Listeners};
use crate::process::Descriptors;
use crate::registry::Principal;

/// Time limit for clients to read their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Accepts and serves clients.
pub struct Clients {
    /// Ends only after [`Clients::leave`], or if no connection can be accepted any more.
    pub serving: JoinHandle<io::Result<()>>,
    shutdown: CancellationToken,
}

impl Clients {
    /// Clients are accepted once this returns. Their calls answer `unavailable` until the rows are
    /// restored, so that they see the progress instead of a refused connection.
    pub fn accept(
        listeners: Listeners,
        address: &DaemonAddress,
        token: Token,
        boot: &Boot,
        parts: &DaemonParts,
        process: &Arc<Process>,
        config: &Config,
    ) -> Clients {
        let programs = parts.programs.clone();
        let state = gateway::GatewayParts {
            registry: parts.registry.clone(),
            control: Arc::clone(process) as Arc<dyn Control>,
            clock: boot.clock.clone(),
            token: token.text,
            principal: Principal::owner(),
            token_file: token.path,
            origins: Arc::new(move |pid| programs.origin(pid)),
            boot: boot.id,
            started_at: boot.started_at,
            url: address.url.clone(),
            socket: address.socket.clone(),
            servers: parts.servers.seen(),
            nodes: parts.nodes.clone(),
            webhooks: parts.webhook_board.clone(),
            names: parts.names.clone(),
            openai: parts.openai.clone(),
            hooks: parts.hooks.clone(),
            limits: gateway::ClientLimits {
                connections: gateway::Connections::within(Descriptors::limit()),
                write_timeout: config.write_timeout,
                ..gateway::ClientLimits::default()
            },
        };
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(gateway::serve(listeners, state, shutdown.clone()));
        Clients { serving, shutdown }
    }

    /// Once this returns, calls in progress have been answered or refused; slow readers get no more
    /// time.
    pub async fn leave(self) {
        self.shutdown.cancel();
        let _ = tokio::time::timeout(LAST_ANSWERS, self.serving).await;
    }
}
