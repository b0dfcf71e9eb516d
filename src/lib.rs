//! A durable session daemon with a persistent subagent registry.
//!
//! The modules, in the order of a request: [`gateway`] translates the wire protocol into calls of
//! the [`registry`], which writes the decisions of the [`kernel`] through the [`store`]. The
//! registry has a [`runner`] execute the steps of a run with the responses of a [`provider`], the
//! [`tool`]s of an [`agent`] and the available [`skill`]s, or with an external program. Both start
//! programs through [`process`]. `doors` translates other protocols into the API. [`daemon`] assembles the
//! parts; [`webhooks`] send events to other programs; [`cli`] is the command line, and [`acp`] speaks with editors for it.

pub use abide_kernel::kernel;

pub mod acp;
mod acp_protocol;
pub mod agent;
pub mod cli;
pub mod client;
pub mod clock;
pub mod command;
pub mod config;
pub mod contract;
pub mod daemon;
mod doors;
pub mod failpoint;
pub mod file_work;
pub mod front_matter;
pub mod gateway;
pub mod node;
pub mod outbound;
pub mod process;
pub mod provider;
pub mod registry;
pub mod runner;
pub mod skill;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod tool;
pub mod version;
pub mod watch;
pub mod webhooks;
pub mod wire;
