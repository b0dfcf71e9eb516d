//! Starting programs: an exact environment, a session of their own, bounded output, a time
//! limit, and an end that reaches everything that they have started. Tools and runners start
//! programs here and nowhere else.
//!
//! A program belongs to a step of a run, or it is a service: started by the daemon itself, which
//! talks with it over its pipes for as long as it holds it. What it starts is known by what the system says of
//! its children and its session, and, where a process has left both, by the marks in its
//! environment ([`RUN_ID`], [`STEP_ID`], [`SERVICE_ID`], [`STATE_DIR`]), which also tell a later life of the
//! daemon what an earlier one has left.

mod capture;
mod ends;
mod inherited;
mod launch;
mod linger;
mod marks;
mod oom;
mod origin;
mod program;
mod reap;
mod running;
mod service;
mod table;
mod tree;

pub use capture::Captured;
pub use inherited::close_inherited;
pub use launch::{Descriptors, launched};
pub use marks::{RUN_ID, SERVICE_ID, SOCKET, STATE_DIR, STEP_ID};
pub use program::{Ending, Finished, Input, Program, find, signal_name};
pub use running::{Options, Processes};
pub use service::{Service, ServiceEnd};
pub use table::is_ending;
pub use tree::LONGEST_GRACE;
