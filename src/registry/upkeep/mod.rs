//! Work without a caller: recovery at the start, timers, retention, the end of the daemon.

pub(crate) mod backups;
pub(crate) mod compare;
pub(crate) mod damage;
pub(crate) mod drain;
pub(crate) mod providers;
pub(crate) mod restore;
pub(crate) mod run_cleanup;
pub(crate) mod stuck;
pub(crate) mod sweeps;
pub(crate) mod timers;
