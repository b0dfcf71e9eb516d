//! The command line: one file per command. Commands talk to a daemon only through the client;
//! `main.rs` calls [`main`].

mod args;
pub(crate) mod asking;
mod chat;
pub(crate) mod commands;
pub(crate) mod common;
mod demo;
mod help;
mod link;
mod live;
mod manual;
pub(crate) mod output;
mod setup;
mod top;

pub use args::main;
