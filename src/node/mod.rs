//! A node: this machine as the second machine of a gateway. It connects outbound, offers commands,
//! decides by its own allow-list which programs it runs, and answers for each call until the
//! gateway has stored the result. The command line (`abide node …`) calls it.
//!
//! Each gateway has a folder of its own with key, token, settings, allow-list and journal
//! ([`folder`]). [`pairing`] admits the machine once; [`service`] keeps a link open for each
//! gateway; [`calls`] carries out what arrives on it.

pub mod allow;
mod calls;
mod error;
mod files;
pub mod folder;
mod identity;
mod journal;
mod link;
mod live;
mod look;
mod manager;
mod offer;
pub mod pairing;
mod program;
mod question;
mod run;
pub mod service;
mod settings;
mod socket;

pub use error::NodeError;
pub use question::{AskOperator, TerminalAnswer};
pub use settings::{NodeSettings, PinnedGateway};
