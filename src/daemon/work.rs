//! The work of a daemon that is ready: the registry's loop, notifications, and the reloads of files
//! that change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::notifications;
use super::parts::node_programs::NodePrograms;
use super::parts::{DaemonParts, agents, skills};
use crate::contract::commit::CommitEffect;
use crate::contract::control::Then;
use crate::registry::Principal;
use crate::webhooks::{self, WebhookParts};

/// Time limit for the last reload of agents and skills.
const LAST_RELOAD: Duration = Duration::from_secs(2);

/// Time limit for webhooks to store their progress.
const LAST_MESSAGES: Duration = Duration::from_secs(3);

/// The running work.
pub struct Work {
    /// The registry's loop; it ends when the daemon is to stop, and says how that continues.
    pub service: JoinHandle<Then>,
    notifying: AbortOnDropHandle<()>,
    _asking: AbortOnDropHandle<()>,
    webhooks: JoinHandle<()>,
    watching: JoinHandle<()>,
    scanning: JoinHandle<()>,
    stop_watching: CancellationToken,
}

impl Work {
    /// Once this returns, runs are executed, beginning with the `effects` of the restore.
    pub fn begin(parts: DaemonParts, effects: Vec<CommitEffect>) -> Work {
        let registry = parts.registry;
        parts.servers.start();
        let stop = CancellationToken::new();
        let skills_changed = Arc::new(Notify::new());
        let clock = parts.clock.clone();
        let programs = NodePrograms {
            nodes: Arc::new(parts.nodes),
            skills: Arc::clone(&parts.skills) as _,
            registry: registry.clone(),
            clock: parts.clock,
            every: parts.node_programs,
            skills_changed: Arc::clone(&skills_changed),
        };
        Work {
            service: tokio::spawn(parts.service.run(effects)),
            notifying: AbortOnDropHandle::new(tokio::spawn(notifications::keep(
                registry.clone(),
                Principal::owner(),
                parts.notifier,
                parts.notified,
            ))),
            webhooks: tokio::spawn(webhooks::keep(
                WebhookParts {
                    registry: registry.clone(),
                    clock,
                    board: parts.webhook_board,
                },
                parts.webhooks,
                stop.clone(),
            )),
            watching: tokio::spawn(agents::keep(
                registry.clone(),
                parts.agent_files,
                stop.clone(),
            )),
            _asking: AbortOnDropHandle::new(tokio::spawn(programs.keep(stop.clone()))),
            scanning: tokio::spawn(skills::keep(
                registry,
                parts.skills,
                parts.skill_files,
                skills_changed,
                stop.clone(),
            )),
            stop_watching: stop,
        }
    }

    /// Once this returns, nothing more is notified or sent to webhooks, whose progress is stored, and a
    /// reload in progress is recorded, unless it takes too long.
    pub async fn end(self) {
        drop(self.notifying);
        self.stop_watching.cancel();
        if tokio::time::timeout(LAST_MESSAGES, self.webhooks)
            .await
            .is_err()
        {
            tracing::warn!(
                "webhooks did not end in time; what they sent last is sent again at the next start"
            );
        }
        let ended = async { self.watching.await.is_ok() && self.scanning.await.is_ok() };
        if tokio::time::timeout(LAST_RELOAD, ended).await != Ok(true) {
            tracing::error!(
                "the last reload of agents and skills did not finish; the next start reads them"
            );
        }
    }
}
