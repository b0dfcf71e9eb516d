//! Keepers: small processes that run the programs of steps, so that a program goes on while the
//! daemon is down. The daemon starts one keeper for each program and follows it through files; the
//! next daemon process follows it again.
//!
//! `folder` has the files that both sides use, `serve` is the keeper process and `watching` its work,
//! `follow` is the daemon's side of one program, and `found` knows all of them, those of earlier
//! processes included.

mod changes;
mod exit;
mod folder;
mod follow;
mod found;
mod reading;
mod sealed;
mod serve;
mod streams;
mod watching;

pub use follow::{ProgramFault, ProgramStep};
pub(super) use found::discard;
pub use found::{KeeperOptions, Keepers, survey};
pub use serve::kept;
