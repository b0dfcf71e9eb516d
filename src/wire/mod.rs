//! What clients see: requests, answers and errors of the RPC protocol, used by the gateway,
//! which decodes requests and encodes answers, and by the client, which does the opposite.

pub mod agents;
pub mod approvals;
pub mod audit;
pub mod budget;
pub mod care;
pub mod config;
pub mod decode;
pub mod environment;
pub mod error;
pub mod event_data;
pub mod events;
pub mod gateway;
pub mod input;
pub mod lifecycle;
pub mod memory;
pub mod questions;
pub mod runs;
mod schema;
pub mod servers;
pub mod sessions;
pub mod shapes;
pub mod skills;
pub mod trust;
pub mod usage;

/// The protocol that this version speaks.
pub const PROTOCOL: u32 = 1;
