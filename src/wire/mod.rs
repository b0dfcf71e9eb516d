//! Types of the RPC protocol: requests, results, events and errors. The gateway decodes requests
//! and encodes results; the client does the opposite.

pub mod agents;
pub mod approvals;
pub mod audit;
pub mod budget;
pub mod config;
pub mod decode;
pub mod environment;
pub mod error;
pub mod events;
pub mod gateway;
pub mod input;
pub mod lifecycle;
pub mod maintenance;
pub mod memory;
pub mod method;
pub mod methods;
pub mod node_link;
pub mod nodes;
pub mod questions;
pub mod runs;
mod schema;
pub mod servers;
pub mod session_servers;
pub mod sessions;
pub mod shapes;
pub mod skills;
pub mod tokens;
pub mod trust;
pub mod usage;
pub mod webhooks;

/// Version number of the protocol that this build speaks, as negotiated in `gateway.hello`.
pub const PROTOCOL: u32 = 1;
