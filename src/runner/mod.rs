//! How a run is carried out: asks a provider, calls tools, and judges from the journal what
//! comes next. The registry drives it through `contract::runner`.

#[cfg(test)]
mod driver;
mod models;
mod perform;
mod prompt;
mod turn;

pub use turn::{Options, TurnRunner};
