//! The integration tests: one binary, a module per capability.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets something unexpected has failed"
)]

mod accidents;
mod agents;
mod announces;
mod api;
mod approvals;
mod architecture;
mod backups;
mod called;
mod cancels;
mod clears;
mod cli;
mod cli_agents;
mod cli_events;
mod cli_lifecycle;
mod cli_live;
mod completions;
mod damage;
mod delegations;
mod deletes;
mod disk;
mod doctor;
mod drains;
mod environment;
mod events;
mod examples;
mod harness;
mod home;
mod house;
mod invariants;
mod kills;
mod licences;
mod limits;
mod mcp;
mod memory;
mod messages;
mod migrations;
mod openrpc;
mod ops;
mod outputs;
mod paging;
mod panics;
mod pictures;
mod planned;
mod policies;
mod processes;
mod programs;
mod providers;
mod questions;
mod random_kills;
mod restart;
mod reviews;
mod scenarios;
mod schemas;
mod sends;
mod service;
mod session_tools;
mod setup;
mod skills;
mod sleeps;
mod sockets;
mod starts;
mod stdio;
mod steers;
mod storage;
mod sweeps;
mod terminal;
mod traces;
mod usage;
mod waits;
mod watches;
