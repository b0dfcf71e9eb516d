//! The calls of the RPC layer, apart from those that create runs.

pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod cancel;
pub(crate) mod gauges;
pub(crate) mod lifecycle;
pub(crate) mod maintenance;
pub(crate) mod memory;
pub(crate) mod outputs;
pub(crate) mod previews;
mod programs;
pub(crate) mod questions;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod session_servers;
pub(crate) mod skills;
pub(crate) mod tokens;
pub(crate) mod usage;
pub(crate) mod view;
pub(crate) mod webhooks;
