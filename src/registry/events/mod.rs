//! The ordered event log and its live fan-out. The RPC layer subscribes here. A subscription is a
//! cursor into the log, not a queue, so a slow reader costs no memory.
//!
//! ```text
//! commit ─▶ tail (one reader) ─▶ feed: the newest events, shared ─▶ readers that keep up
//!                                  log in the store               ─▶ readers that lag
//! ```

mod feed;
mod filter;
mod partial;
mod shown;
mod subscription;

pub(super) use feed::{Feed, tail};
pub(super) use partial::Partials;

pub use crate::store::tables::events::{Event as StoredEvent, LogPart};
pub use feed::LogEvent;
pub use filter::{EventFilter, KindPattern};
pub use partial::{TextEvent, TextUpdate};
pub use shown::shown;
pub use subscription::{LiveSnapshot, Subscribe, Subscription, SubscriptionItem};
