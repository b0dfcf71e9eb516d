//! The client of tool servers (MCP): programs that it talks to over pipes, and servers at a URL.
//! The daemon creates [`Servers`] from the settings; the catalogue calls tools through it.
//!
//! Each table under `[mcp]` has one process for all callers: its command, environment and folder
//! come from that table alone, and a run passes it only the arguments of a call. With `scope =
//! "run"` that process only lists the tools, and each run that calls one gets a process of its own,
//! in the run's environment. Servers that a client gives to a session are in no table; they are
//! started for each run of that session alone.

mod connection;
mod exit;
mod flood;
mod handshake;
mod http;
mod lifecycle;
mod listing;
mod names;
mod per_run;
mod pipes;
mod result;
mod schema;
mod server;
mod servers;
mod session;
mod stray_lines;
mod wire;

pub use servers::{McpOptions, McpServers};
