//! A durable session daemon with a persistent subagent registry.
//!
//! The rooms, in the order in which a request flows: [`gateway`] translates the wire into
//! calls of the [`registry`], which writes through the [`store`] what the [`kernel`] decides,
//! and has the steps of a run carried out by a [`runner`] with a [`provider`]'s answers, the
//! [`tool`]s of an [`agent`] and the [`skill`]s around it, or by a program of its own; both start
//! programs through [`process`]. [`daemon`] puts the parts together; [`cli`] is what a person
//! types.

pub use abide_kernel::kernel;

pub mod agent;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod contract;
pub mod daemon;
pub mod failpoint;
pub mod file_work;
pub mod front_matter;
pub mod gateway;
pub mod outbound;
pub mod process;
pub mod provider;
pub mod registry;
pub mod runner;
pub mod skill;
pub mod store;
pub mod telemetry;
pub mod tool;
pub mod watch;
pub mod wire;
