//! `abide acp`: an agent for editors, by the Agent Client Protocol on standard input and output.

use clap::Args;

use crate::acp::{self, AcpOptions, Connect, Connecting, Unreachable};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::discover::Where;
use crate::cli::link::{DaemonLink, start};
use crate::cli::output::text::clean;

/// Serve an editor by the Agent Client Protocol
///
/// An editor starts this command and talks to it on standard input and output. Its sessions are
/// sessions of the daemon, which is started if none is running: a turn goes on when the editor is
/// closed, and after a restart of either. Continue it with session/load in the editor, or with abide
/// chat. docs/editors.md has the settings of editors.
#[derive(Debug, Args)]
#[command(after_help = "abide acp
abide acp --agent build --no-start")]
pub(crate) struct AcpArgs {
    /// Agent of new sessions [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
}

impl AcpArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let connector = EditorLink {
            place: common.place.clone(),
            may_start: !self.no_start,
        };
        let options = AcpOptions { agent: self.agent };
        acp::serve(connector, options)
            .await
            .map_err(|error| Failure::local("standard input and output", error))?;
        Ok(0)
    }
}

/// Opens connections for the editor.
struct EditorLink {
    place: Where,
    may_start: bool,
}

impl Connect for EditorLink {
    fn connect(&self, is_first: bool) -> Connecting<'_> {
        Box::pin(async move {
            if is_first && self.may_start {
                self.start().await.map_err(unreachable)?;
            }
            let link = DaemonLink::open(&self.place).await.map_err(unreachable)?;
            Ok(link.into_client())
        })
    }
}

impl EditorLink {
    /// A daemon is running once this returns, possibly that of a concurrent start.
    async fn start(&self) -> Result<(), Failure> {
        let Err(failure) = start::if_none(&self.place).await else {
            return Ok(());
        };
        let state = self.place.state_dir()?;
        match start::concurrent_daemon(&state, &failure).await {
            Some(_) => Ok(()),
            None => Err(failure),
        }
    }
}

fn unreachable(failure: Failure) -> Unreachable {
    Unreachable {
        is_absent: failure.code == exit::NO_DAEMON,
        is_unauthorized: failure.code == exit::AUTH,
        message: clean(&failure.to_string()),
    }
}
