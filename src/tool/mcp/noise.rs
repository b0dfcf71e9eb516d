//! Lines that a server writes where only messages belong: counted, the latest kept, and never a
//! reason to stop listening. Called by `server`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::server::Server;
use crate::contract::servers::ServerState;

/// A server that writes so many of them is marked as noisy.
const NOISY: u64 = 20;
/// So many of the latest are kept.
const KEPT: usize = 5;

/// Of one life of a server.
#[derive(Default)]
pub(super) struct Noise(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    count: u64,
    latest: VecDeque<String>,
}

impl Noise {
    /// Another life begins.
    pub(super) fn forget(&self) {
        *self.lock() = Lines::default();
    }

    /// Are there so many that people should know?
    pub(super) fn is_much(&self) -> bool {
        self.lock().count >= NOISY
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// It wrote a line that is no message.
    pub(super) fn heard(&self, line: String) {
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
            tracing::warn!(server = %self.name, "a tool server writes much that is no message");
        }
        // One that never stops is not to keep everybody busy who looks.
        if count > NOISY && !count.is_power_of_two() {
            return;
        }
        self.show(|view| {
            view.noise = count;
            view.noise_lines = lines;
            if count >= NOISY && view.state == ServerState::Ready {
                view.state = ServerState::Noisy;
            }
        });
    }
}
