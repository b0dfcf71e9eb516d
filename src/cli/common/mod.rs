//! What several commands share: names that a user types, failures, exit codes, signals.

pub(crate) mod budget;
pub(crate) mod failure;
pub(crate) mod ids;
pub(crate) mod origin;
pub(crate) mod signals;
pub(crate) mod turn;
pub(crate) mod under_way;
