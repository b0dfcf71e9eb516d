//! The forms of the handshake with a server, and which of them is remembered for the next start.
//! Many servers exit, close or stop responding on unknown requests, so each form is tried on a
//! fresh connection. Called by `life`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;
use serde::{Deserialize, Serialize};

/// The first request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Handshake {
    /// `server/discover`; if it is refused, `initialize` on the same connection.
    Discover,
    /// `initialize` with the newest revision that supports it.
    Initialize,
    /// `initialize` with the first revision.
    Oldest,
}

impl Handshake {
    /// All forms, in the order in which they are tried.
    const ALL: [Handshake; 3] = [
        Handshake::Discover,
        Handshake::Initialize,
        Handshake::Oldest,
    ];

    /// The revision in the `initialize` request.
    pub(super) fn revision(self) -> ProtocolVersion {
        match self {
            Handshake::Discover | Handshake::Initialize => ProtocolVersion::V_2025_11_25,
            Handshake::Oldest => ProtocolVersion::V_2024_11_05,
        }
    }

    pub(super) fn mode(self) -> ClientLifecycleMode {
        match self {
            Handshake::Discover => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(self.revision()),
            },
            Handshake::Initialize | Handshake::Oldest => ClientLifecycleMode::Initialize,
        }
    }
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The server was ready.
    Ready,
    /// It was refused, or the connection ended.
    Failed,
    /// There was no answer within the timeout.
    Silent,
    /// It was not started or not completed.
    None,
}

/// The handshake that last made a server ready. Cheap to clone: it is shared with the connections
/// of single runs.
#[derive(Clone, Default)]
pub(super) struct LastHandshake(Arc<Mutex<KnownHandshakes>>);

#[derive(Default)]
struct KnownHandshakes {
    now: Option<Handshake>,
    kept: Option<Handshake>,
}

impl LastHandshake {
    /// The forms to try, in order: the one that is known to work, otherwise all.
    pub(super) fn to_try(&self) -> Vec<Handshake> {
        match self.lock().now {
            Some(known) => vec![known],
            None => Handshake::ALL.to_vec(),
        }
    }

    /// Sets what an earlier daemon process has stored.
    pub(super) fn restore(&self, known: Option<Handshake>) {
        *self.lock() = KnownHandshakes {
            now: known,
            kept: known,
        };
    }

    /// Records that this form made the server ready.
    pub(super) fn works(&self, handshake: Handshake) {
        self.lock().now = Some(handshake);
    }

    /// Forgets the known form after a failure: the server may be another version.
    pub(super) fn forget(&self) {
        self.lock().now = None;
    }

    /// Returns the value to store, and whether it has changed since.
    pub(super) fn to_keep(&self) -> (Option<Handshake>, bool) {
        let mut memory = self.lock();
        let is_news = memory.now != memory.kept;
        memory.kept = memory.now;
        (memory.now, is_news)
    }

    fn lock(&self) -> MutexGuard<'_, KnownHandshakes> {
        // The value is consistent even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if the next form is to be tried after this outcome.
pub(super) fn is_followed(handshake: Handshake, greeting: Greeting) -> bool {
    match greeting {
        Greeting::Failed => handshake != Handshake::Oldest,
        // A server that does not answer a plain `initialize` does not answer at all.
        Greeting::Silent => handshake == Handshake::Discover,
        Greeting::Ready | Greeting::None => false,
    }
}
