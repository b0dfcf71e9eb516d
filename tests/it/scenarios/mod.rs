//! What the kill tests play through: each scenario drives a real daemon through its real socket
//! and says what must have come out. It is written once, as if nobody ever died. One file an
//! area.

mod agents;
mod approvals;
mod audit;
mod compactions;
mod damage;
mod delegate;
mod delegations;
mod drains;
pub(crate) mod environment;
mod leased;
mod lifecycle;
mod mcp;
mod memory;
mod processes;
mod providers;
mod runs;
mod skills;
mod stops;
mod tools;

use std::pin::Pin;

use crate::harness::{Caller, Place};

type Play<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A course of events, and the daemon that it needs.
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// A fresh folder for it.
    pub(crate) place: fn() -> Place,
    /// Plays it. It ends when everything that it asked for has ended.
    pub(crate) play: for<'a> fn(&'a mut Caller) -> Play<'a>,
}

/// Every scenario.
pub(crate) fn all() -> Vec<&'static Scenario> {
    let areas = [
        runs::SCENARIOS,
        agents::SCENARIOS,
        approvals::SCENARIOS,
        audit::SCENARIOS,
        compactions::SCENARIOS,
        damage::SCENARIOS,
        delegate::SCENARIOS,
        delegations::SCENARIOS,
        drains::SCENARIOS,
        environment::SCENARIOS,
        leased::SCENARIOS,
        lifecycle::SCENARIOS,
        mcp::SCENARIOS,
        memory::SCENARIOS,
        skills::SCENARIOS,
        stops::SCENARIOS,
        tools::SCENARIOS,
        processes::SCENARIOS,
        providers::SCENARIOS,
    ];
    areas.into_iter().flatten().collect()
}
