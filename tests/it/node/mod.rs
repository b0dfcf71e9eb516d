//! A node: the real program as the second machine, and a gateway that the test plays itself, so
//! that it can lose frames, repeat calls and lie.

mod asks;
mod calls;
mod encrypted;
pub(crate) mod fixture;
mod kills;
mod links;
mod namespaces;
pub(crate) mod paired;
mod pairing;
mod real;
