//! Starts programs with an exact environment, their own session, bounded output and a time limit,
//! and ends them with all their descendants. Tools and runners start programs only here.
//!
//! A program of a step runs under a keeper, which goes on while the daemon is down; all others, and the
//! programs of outside agents, are children of the daemon and end with it.
//!
//! A program belongs to a step of a run, to a call of a gateway to this node, or it is a service: a
//! program that the daemon started for itself and talks to over pipes. Descendants are found by parent and session, and, where a
//! process has left both, by the marks in its environment ([`RUN_ID`], [`STEP_ID`], [`SERVICE_ID`],
//! [`STATE_DIR`]). After a restart the marks identify the processes that the previous daemon
//! process left running.

mod attended;
mod call;
mod capture;
mod cleanup;
mod inherited;
mod keeper;
mod launch;
mod lines;
mod marks;
mod oom;
mod origin;
mod program;
mod reap;
mod running;
mod service;
mod stream;
mod table;
mod tree;

pub use attended::AttendedProgram;
pub use capture::Captured;
pub use inherited::close_inherited;
pub use keeper::{KeeperOptions, Keepers, ProgramFault, ProgramStep, kept, survey};
pub use launch::{Descriptors, launched};
pub use lines::{LINE_LIMIT, LineBuffer, TooLong};
pub use marks::{CALL_ID, NODE_DIR, RUN_ID, SERVICE_ID, SOCKET, STATE_DIR, STEP_ID};
pub use program::{ExitReason, Finished, Program, ProgramInput, find, signal_name};
pub use running::{ProcessOptions, Processes};
pub use service::{Service, ServiceEnd};
pub use table::{ProcessIdentity, is_ending};
pub use tree::LONGEST_GRACE;
