//! `abide node run`: serves the gateways that this machine is paired with.

use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure;
use super::terminal::TerminalOperator;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::failpoint;
use crate::node::folder::{GatewayFolder, NodeFolders};
use crate::node::service::NodeService;
use crate::node::{AskOperator, NodeError};
use crate::telemetry;

/// Connect to the gateways and carry out their calls
///
/// It runs in the foreground and connects again without end when a link is lost. It stops on SIGTERM
/// or Ctrl-C: programs are ended, and results are kept for the gateway. What the allow-list asks
/// about is asked here if this is a terminal.
#[derive(Debug, Args)]
#[command(after_help = "abide node run
abide node run --gateway gateway.lan_7777")]
pub(crate) struct NodeRun {
    /// The gateway to serve, by its name in abide node list [default: all]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "all",
        hide_default_value = true
    )]
    gateway: String,
}

impl NodeRun {
    /// Runs until the node is stopped, or a gateway refuses it for good.
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let ended = self.serve();
        match ended {
            // It starts again whatever does not end with 0.
            Err(failure) if is_final(failure.code) && is_under_launchd() => {
                print::note(&format!("abide: {failure}"));
                Ok(0)
            }
            ended => ended,
        }
    }

    fn serve(self) -> Result<u8, Failure> {
        let config = |why| Failure::new(exit::CONFIG, "config", why);
        telemetry::start().map_err(config)?;
        failpoint::configure_from_env().map_err(config)?;
        let folders = self.folders().map_err(|error| failure(&error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::local("the node cannot start", error))?;
        let ended = runtime.block_on(async {
            let stopping = stop_signal()?;
            let operator = TerminalOperator::if_there();
            let service = NodeService {
                folders,
                operator: operator.map(|one| Arc::new(one) as Arc<dyn AskOperator>),
                stopping,
            };
            service.run().await.map_err(|error| failure(&error))
        });
        // Threads that wait for an unresponsive file system do not delay the end.
        runtime.shutdown_background();
        ended.map(|()| 0)
    }

    fn folders(&self) -> Result<Vec<GatewayFolder>, NodeError> {
        let all = NodeFolders::usual()?;
        if self.gateway != "all" {
            return Ok(vec![all.named(&self.gateway)?]);
        }
        let mut paired = Vec::new();
        for folder in all.list()? {
            if folder.token()?.is_some() {
                paired.push(folder);
            }
        }
        match paired.is_empty() {
            true => Err(NodeError::Settings(
                "this machine is not paired with any gateway; pair it: abide node pair --gateway URL"
                    .to_owned(),
            )),
            false => Ok(paired),
        }
    }
}

/// True for exit codes that another start would not change.
fn is_final(code: u8) -> bool {
    matches!(code, exit::REFUSED | exit::AUTH | exit::CONFIG)
}

fn is_under_launchd() -> bool {
    std::env::var_os("ABIDE_SUPERVISOR").is_some_and(|name| name == "launchd")
}

/// Cancelled by SIGTERM or Ctrl-C.
fn stop_signal() -> Result<CancellationToken, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::local("cannot handle signals", error));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let stopping = CancellationToken::new();
    let token = stopping.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: programs are ended, results are kept");
        token.cancel();
    });
    Ok(stopping)
}
