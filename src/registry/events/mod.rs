//! The ordered event log and its live fan-out, for the doors. A subscription is a cursor into
//! the log and never a queue: however slowly somebody reads, nothing piles up for them.
//!
//! ```text
//! commit ─▶ tail (one reader) ─▶ feed: the newest events, shared ─▶ who keeps up
//!                                  log in the store               ─▶ who is behind
//! ```

mod feed;
mod filter;
mod partial;
mod subscription;

pub(super) use feed::{Feed, tail};
pub(super) use partial::Partials;

pub use crate::store::events::Event as StoredEvent;
pub use feed::LogEvent;
pub use filter::{EventFilter, KindPattern};
pub use partial::{Said, TextEvent};
pub use subscription::{Item, Snapshot, Subscribe, Subscription};
