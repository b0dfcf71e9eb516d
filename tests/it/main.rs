//! The integration tests: one binary, a module per capability.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets something unexpected has failed"
)]

mod announces;
mod api;
mod architecture;
mod cli;
mod cli_live;
mod damage;
mod drains;
mod events;
mod examples;
mod harness;
mod home;
mod house;
mod invariants;
mod kills;
mod licences;
mod limits;
mod messages;
mod openrpc;
mod ops;
mod paging;
mod panics;
mod random_kills;
mod restart;
mod scenarios;
mod schemas;
mod service;
mod sockets;
mod starts;
mod stdio;
mod storage;
mod waits;
