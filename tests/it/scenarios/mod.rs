//! The scenarios of the kill tests: each drives a real daemon through its real socket and asserts
//! the results. It is written once, as if there were no kills. One file per area.

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
mod nodes;
mod processes;
mod providers;
mod runs;
mod skills;
mod stops;
mod tokens;
mod tools;

use std::pin::Pin;

use crate::harness::{Caller, Place};

type Play<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A sequence of calls, and the daemon that it needs.
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// Creates a fresh folder for it.
    pub(crate) place: fn() -> Place,
    /// Runs the scenario. It ends when everything that it started has ended.
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
        nodes::SCENARIOS,
        skills::SCENARIOS,
        stops::SCENARIOS,
        tokens::SCENARIOS,
        tools::SCENARIOS,
        processes::SCENARIOS,
        providers::SCENARIOS,
    ];
    areas.into_iter().flatten().collect()
}
