//! The Agent Client Protocol, version 1, for editors: their requests on standard input become calls
//! of the daemon's methods, and the daemon's events become updates on standard output. The command
//! `abide acp` calls [`serve`].
//!
//! A session of an editor is a session of the daemon: its id is the session's key. This process keeps
//! nothing that a kill could lose; a restart of the daemon is bridged by subscriptions that resume
//! from their cursors.
//!
//! `crate::acp_protocol` has the messages; `editor` dispatches requests; `sessions`, `options`, `turns` and
//! `permissions` answer them; `follow` turns the events of one session into updates, `children` those of
//! its subagents in the background.

mod calls;
mod children;
mod commands;
mod editor;
mod follow;
mod history;
mod link;
mod options;
mod permissions;
mod pipe;
mod prompt;
mod questions;
mod refusal;
mod servers;
mod sessions;
mod stream;
mod subagents;
mod titles;
mod turns;
mod watch;

pub use self::editor::serve;
pub use self::link::{Connect, Connecting, Unreachable};

/// Options of the command line.
#[derive(Clone, Debug, Default)]
pub struct AcpOptions {
    /// Agent of new sessions; the default agent if unset.
    pub agent: Option<String>,
}
