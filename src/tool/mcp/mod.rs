//! The client of tool servers (MCP): programs that are talked with over their pipes, and servers
//! behind an address. The daemon makes [`Servers`] from the settings; the catalogue calls tools
//! through it.
//!
//! There is one process for each table under `[mcp]`, whoever calls it: its command, environment
//! and folder come from that table alone, and nothing of a run reaches it but the arguments of a
//! call. Where a table says `scope = "run"`, that process only tells which tools there are, and
//! each run that calls one has its own, in its environment.

mod connection;
mod ending;
mod flood;
mod handshake;
mod http;
mod life;
mod listing;
mod names;
mod noise;
mod own;
mod pipes;
mod result;
mod schema;
mod server;
mod servers;
mod wire;

pub use servers::{Options, Servers};
