//! The tables: their rows, and the queries over them. A file is one table, or a family of them.
//! [`table`] is how a table is declared, [`columns`] how values are stored.

pub mod audit;
pub mod blobs;
pub(crate) mod boots;
pub mod bundles;
pub(crate) mod columns;
pub mod definitions;
pub mod environment;
pub mod events;
pub mod expired;
pub(crate) mod filter;
pub mod gauges;
pub(crate) mod idempotency;
pub mod memories;
pub(crate) mod memory_words;
pub mod messages;
pub mod nodes;
pub mod outbox;
pub mod outputs;
pub mod pins;
pub mod quarantine;
pub mod read;
pub mod requests;
pub mod runs;
pub mod sends;
pub mod session_marks;
pub mod session_servers;
pub mod sessions;
pub mod skills;
pub mod steers;
pub mod steps;
pub(crate) mod table;
pub mod tokens;
pub mod transcripts;
pub mod usage;
pub mod waits;
pub mod webhooks;

pub use definitions::{agents, servers, trust};
pub use nodes::invites;
pub use requests::{approvals, questions, remembered};
pub use session_marks::{clearings, purges, stops};
pub use webhooks::dead as dead_letters;

#[cfg(test)]
mod tests;
