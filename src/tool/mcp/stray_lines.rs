//! Lines on a server's output that are no messages. They are counted and the latest are kept; they
//! never end the connection. Called by `server`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::server::McpServer;
use crate::contract::servers::ServerState;

/// The number of such lines that marks a server as noisy.
const NOISY: u64 = 20;
/// The maximum number of latest lines kept.
const KEPT: usize = 5;

/// The lines since the last start of a server.
#[derive(Default)]
pub(super) struct StrayLines(Mutex<LatestLines>);

#[derive(Default)]
struct LatestLines {
    count: u64,
    latest: VecDeque<String>,
}

impl StrayLines {
    /// Resets the count for a new start.
    pub(super) fn forget(&self) {
        *self.lock() = LatestLines::default();
    }

    /// True if the count reaches [`NOISY`].
    pub(super) fn is_much(&self) -> bool {
        self.lock().count >= NOISY
    }

    fn lock(&self) -> MutexGuard<'_, LatestLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl McpServer {
    /// Records a line that is no message.
    pub(super) fn record_stray_line(&self, line: String) {
        let (count, lines) = {
            let mut noise = self.noise.lock();
            noise.count += 1;
            noise.latest.push_back(self.without_secrets(&line));
            if noise.latest.len() > KEPT {
                noise.latest.pop_front();
            }
            (
                noise.count,
                noise.latest.iter().cloned().collect::<Vec<_>>(),
            )
        };
        if count == NOISY {
            tracing::warn!(server = %self.name, "a tool server writes many lines that are not messages");
        }
        // Later updates are throttled, so that an endless stream does not keep observers busy.
        if count > NOISY && !count.is_power_of_two() {
            return;
        }
        self.show(|view| {
            view.stray_line_count = count;
            view.stray_lines = lines;
            if count >= NOISY && view.state == ServerState::Ready {
                view.state = ServerState::Noisy;
            }
        });
    }
}
