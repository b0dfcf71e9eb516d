//! Executes runs: calls providers and tools, and decides from the journal what comes next. The
//! registry drives it through `contract::runner`.

mod acp;
mod calls;
mod command;
mod compact;
mod delegating;
mod dispatch;
#[cfg(test)]
mod driver;
mod findings;
mod memory;
mod models;
mod perform;
mod plan;
mod prompt;
mod rights;
mod turn;
mod window;

pub use acp::OutsideRunner;
pub use command::CommandRunner;
pub use dispatch::Runners;
pub use turn::{RunnerOptions, TurnRunner};
