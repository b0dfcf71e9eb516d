//! A node: the real program as the second machine, and a gateway that the test plays itself, so
//! that it can lose frames, repeat calls and lie.

mod asks;
mod calls;
mod fixture;
mod kills;
mod links;
mod pairing;
mod real;
