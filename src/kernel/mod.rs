//! The domain model: runs, sessions, steps, the run state machine and the policies. Pure: no async,
//! no IO, no clock; time and ids are passed in as values. Every other module may depend on it;
//! it depends on none.

pub mod ages;
pub mod delegation;
pub mod event;
pub mod fault;
pub mod ids;
pub mod memory;
pub mod node;
pub mod policy;
pub mod provider_health;
pub mod question;
pub mod run;
#[doc(hidden)]
pub mod sample;
mod schema;
pub mod scope;
pub mod secret;
pub mod session;
pub mod text;
pub mod time;
pub mod token;
pub mod webhook;
