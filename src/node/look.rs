//! Calls without effects: programs by name, folders, files, and the description of the machine.

use std::path::PathBuf;
use std::time::Duration;

use super::calls::CallsInner;
use super::files::Roots;
use super::folder::GatewayFolder;
use super::offer::machine;
use super::program::{CallFailure, base_environment, which};
use super::run::value;
use crate::config;
use crate::file_work::TOOLS;
use crate::kernel::node::{CallEnd, Description, FailureReason, NodeCall};

impl CallsInner {
    /// Answers a call without effects.
    pub(super) async fn look(&self, call: NodeCall, within: Duration) -> CallEnd {
        let Ok(Ok(_seat)) = tokio::time::timeout(within, self.reads.acquire()).await else {
            return CallEnd::Failed {
                reason: FailureReason::Late,
                message: "the node was busy with other calls for too long".to_owned(),
            };
        };
        let folder = self.folder.clone();
        let looked = TOOLS.run(move |_| look_at(&folder, call)).await;
        match looked {
            Ok(Ok(end)) => end,
            Ok(Err((reason, message))) => CallEnd::Failed { reason, message },
            Err(busy) => CallEnd::Failed {
                reason: FailureReason::Busy,
                message: busy.to_string(),
            },
        }
    }
}

/// Carries out a call that only looks.
fn look_at(folder: &GatewayFolder, call: NodeCall) -> Result<CallEnd, CallFailure> {
    let settings = folder
        .settings()
        .map_err(|why| (FailureReason::Denied, why.to_string()))?;
    let roots = || Roots {
        allowed: settings.roots.clone(),
        denied: own_folders(folder),
    };
    Ok(match call {
        NodeCall::Which { programs } => value(&which(&programs)?),
        NodeCall::List { path } => value(&roots().list(&path)?),
        NodeCall::Read {
            path,
            offset,
            limit,
        } => value(&roots().read(&path, offset, limit)?),
        NodeCall::Describe {} => value(&Description {
            machine: machine(),
            offer: settings.offer(),
            cwd: settings.working_folder().display().to_string(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }),
        NodeCall::Run(_) => {
            let message = "a program is not run this way".to_owned();
            return Err((FailureReason::Invalid, message));
        }
    })
}

/// The folders of abide on this machine: configuration with keys, and the state of a daemon.
fn own_folders(folder: &GatewayFolder) -> Vec<PathBuf> {
    let state = base_environment()
        .get("HOME")
        .map(|home| PathBuf::from(home).join(".local/state/abide"));
    let all = std::iter::once(folder.path().to_owned())
        .chain(config::folder())
        .chain(state);
    all.collect()
}
