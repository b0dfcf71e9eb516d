//! What a person types: one file a command. Commands talk to a daemon only through the
//! client; `main.rs` parses and calls [`execute`].

mod agents;
mod answer;
mod args;
mod attach;
mod cancel;
mod change;
mod chat;
mod demo;
mod discover;
mod events;
mod failure;
mod follow;
mod history;
mod ids;
mod inbox;
mod link;
mod logs;
mod print;
mod ps;
mod retry;
mod rpc;
mod run;
mod screen;
mod send;
mod serve;
mod sessions;
mod spawn;
mod start;
mod status;
mod steer;
mod stop;
mod text;
mod tree;
mod trust;
mod untold;
mod view;
mod wait;
mod watch;

pub use args::{Arguments, execute};
