//! The client of tool servers (MCP): programs that are talked with over their pipes, and servers
//! behind an address. The daemon makes [`Servers`] from the settings; the catalogue calls tools
//! through it.
//!
//! There is one process for each table under `[mcp]`, whoever calls it: its command, environment
//! and folder come from that table alone, and nothing of a run reaches it but the arguments of a
//! call.

mod connection;
mod ending;
mod http;
mod names;
mod pipes;
mod result;
mod server;
mod servers;

pub use servers::{Options, Servers};
