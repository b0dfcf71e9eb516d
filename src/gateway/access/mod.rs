//! Who a peer is, what it may call, and how many connections it may hold.

pub(crate) mod auth;
pub(crate) mod connection_limits;
pub(crate) mod forwarded;
pub(crate) mod peer;
pub(crate) mod rights;
