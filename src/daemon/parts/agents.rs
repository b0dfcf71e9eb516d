//! The files of agents: their folders, and the loop that reloads them when they change.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::{LONGEST_BURST, UNREAD_AGAIN, config_folder};
use crate::clock::Clock;
use crate::config::{Config, FileWatch};
use crate::registry::{Registry, ReloadReason};
use crate::watch::{self, Watcher};

/// The folder of this user's agent files.
pub fn files() -> Option<PathBuf> {
    config_folder().map(|folder| folder.join("agents"))
}

/// The folder of this user's agent files for Claude Code.
pub fn personal_files() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let folder = home.join(".claude/agents");
    folder.is_absolute().then_some(folder)
}

/// The watcher of the agent files.
pub fn watcher(clock: &Clock, config: &Config) -> Watcher {
    let folders = files().into_iter().chain(personal_files()).collect();
    let options = watch::WatchOptions {
        mode: match config.agents_watch {
            FileWatch::Events => watch::WatchMode::Events,
            FileWatch::Poll => watch::WatchMode::Poll(config.agents_poll_each),
            FileWatch::Off => watch::WatchMode::Off,
        },
        quiet: config.agents_debounce,
        longest: LONGEST_BURST.max(config.agents_debounce),
        file: None,
    };
    Watcher::new(folders, options, clock.clone())
}

/// Reloads the agents at start, whenever their files change, and repeatedly while some cannot be
/// read, until `stop`. A reload in progress is finished.
pub async fn keep(registry: Registry, mut files: Watcher, stop: CancellationToken) {
    let mut reason = ReloadReason::Start;
    let heard = files.heard();
    loop {
        let mut changed = std::pin::pin!(files.changed());
        loop {
            if let Err(fault) = registry.reload_agents(reason).await {
                tracing::error!(%fault, "the agents could not be reloaded; the previous ones stay in force");
            }
            reason = ReloadReason::Watch;
            let unread = !registry.catalog().unread().is_empty();
            tokio::select! {
                () = &mut changed => break,
                () = tokio::time::sleep(UNREAD_AGAIN), if unread => heard.notify_one(),
                () = stop.cancelled() => return,
            }
        }
    }
}
