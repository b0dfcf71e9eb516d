//! What a damaged store needs: checks, quarantine, salvage.

pub(crate) mod check;
pub(crate) mod consistency;
pub mod findings;
pub(crate) mod health;
pub(crate) mod noticed;
pub(crate) mod outline;
pub(crate) mod redo;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod tables;
