//! How a server is greeted, and what is remembered of that for the next start. Many servers end,
//! close or go silent when they are asked for something that they do not know, so each form of the
//! greeting is tried on a fresh connection. Called by `life`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;
use serde::{Deserialize, Serialize};

/// The first thing that a server is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Handshake {
    /// `server/discover`; where that is refused, `initialize` on the same connection.
    Discover,
    /// `initialize` with the newest revision that has it.
    Initialize,
    /// `initialize` with the first revision.
    Oldest,
}

impl Handshake {
    /// In the order in which they are tried.
    const ALL: [Handshake; 3] = [
        Handshake::Discover,
        Handshake::Initialize,
        Handshake::Oldest,
    ];

    /// The revision that `initialize` names.
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

/// How far a greeting came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The server was ready.
    Ready,
    /// It was refused, or the connection ended.
    Failed,
    /// There was no answer in time.
    Silent,
    /// It was not begun, or not to its end.
    None,
}

/// By which greeting a server became ready last. Cheap to clone: the connections that single runs
/// have to a server share it.
#[derive(Clone, Default)]
pub(super) struct Remembered(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    now: Option<Handshake>,
    kept: Option<Handshake>,
}

impl Remembered {
    /// The greetings to try, in order: one that is known to work, else all.
    pub(super) fn to_try(&self) -> Vec<Handshake> {
        match self.lock().now {
            Some(known) => vec![known],
            None => Handshake::ALL.to_vec(),
        }
    }

    /// As an earlier start of the daemon has kept it.
    pub(super) fn restore(&self, known: Option<Handshake>) {
        *self.lock() = Memory {
            now: known,
            kept: known,
        };
    }

    /// The server became ready by this one.
    pub(super) fn works(&self, handshake: Handshake) {
        self.lock().now = Some(handshake);
    }

    /// What worked before did not work now: the server may be another version.
    pub(super) fn forget(&self) {
        self.lock().now = None;
    }

    /// What is to be kept, and whether that is news.
    pub(super) fn to_keep(&self) -> (Option<Handshake>, bool) {
        let mut memory = self.lock();
        let is_news = memory.now != memory.kept;
        memory.kept = memory.now;
        (memory.now, is_news)
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // A panic leaves a value that is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this greeting is followed by the next one after it came so far.
pub(super) fn is_followed(handshake: Handshake, greeting: Greeting) -> bool {
    match greeting {
        Greeting::Failed => handshake != Handshake::Oldest,
        // Whoever is silent when greeted in the plainest way does not answer at all.
        Greeting::Silent => handshake == Handshake::Discover,
        Greeting::Ready | Greeting::None => false,
    }
}
