//! The integration tests: one binary, a module per capability.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets something unexpected has failed"
)]

mod architecture;
mod cli;
mod cli_live;
mod home;
mod house;
mod licences;
