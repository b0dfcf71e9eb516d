//! `abide node`: this machine as a node of a gateway on another machine.

mod allow;
mod list;
mod pair;
mod run;
mod terminal;

use clap::{Args, Subcommand};

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::kernel::node::RefusalReason;
use crate::node::NodeError;

/// Run this machine as a node of a gateway on another machine
///
/// A node connects to the gateway, runs programs for it that the allow-list of this machine permits,
/// and reads files below the offered folders. The gateway's side is: abide nodes.
#[derive(Debug, Args)]
#[command(after_help = "abide node pair --gateway ws://gateway.lan:7777
abide node run
abide node allow check -- git push")]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    what: NodeCliCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCliCommand {
    Pair(pair::PairArgs),
    Run(run::NodeRun),
    List(list::NodeList),
    Forget(list::Forget),
    Allow(allow::AllowArgs),
}

impl NodeArgs {
    /// True for the command that runs until it is stopped, and creates its own runtime.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self.what, NodeCliCommand::Run(_))
    }

    /// Serves gateways until the node is stopped.
    pub(crate) fn serve(self, common: &Common) -> Result<u8, Failure> {
        match self.what {
            NodeCliCommand::Run(command) => {
                common.place.refuse_address("node run", "--gateway")?;
                command.run()
            }
            _ => Err(Failure::usage("this command does not serve a gateway")),
        }
    }

    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("node", "--gateway")?;
        match self.what {
            NodeCliCommand::Pair(command) => command.run(common).await,
            NodeCliCommand::Run(command) => command.run(),
            NodeCliCommand::List(command) => command.run(common),
            NodeCliCommand::Forget(command) => command.run(common).await,
            NodeCliCommand::Allow(command) => command.run(common),
        }
    }
}

/// The failure for an error of the node, with what to do.
fn failure(error: &NodeError) -> Failure {
    let failure = Failure::new(error.exit_code(), error.kind(), error.to_string());
    match error {
        NodeError::Paired { gateway, .. } => failure.hint(format!(
            "serve it: abide node run --gateway {gateway}; to offer more or get a new token, \
             pair with --again"
        )),
        NodeError::NotFound(_) => failure.hint("list gateways: abide node list"),
        NodeError::KeyChanged { .. } => failure.hint(
            "ask the gateway's operator for its fingerprint; if the new key is right, remove the old \
             one with abide node forget NAME and pair again",
        ),
        NodeError::Untrusted(_) => failure.hint("nothing was sent to it"),
        NodeError::Unauthorized { .. } => failure.hint(
            "pair again: abide node pair --gateway URL --again; or remove it: abide node forget NAME",
        ),
        NodeError::Refused { reason, .. } => match reason {
            RefusalReason::Removed => failure.hint(
                "pair again: abide node pair --gateway URL --again; or remove it: abide node forget \
                 NAME",
            ),
            RefusalReason::Expired | RefusalReason::InvalidCode => {
                failure.hint("a setup code works once and for ten minutes; abide nodes invite on the gateway makes a new one")
            }
            RefusalReason::Replaced => failure.hint(
                "another process connects with the key of this machine; find it before you start this \
                 one again",
            ),
            _ => failure,
        },
        _ => failure,
    }
}
