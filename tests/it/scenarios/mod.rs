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
mod editors;
pub(crate) mod environment;
mod hooks;
mod leased;
mod lifecycle;
mod mcp;
mod mcp_server;
mod memory;
mod nodes;
mod openai;
mod outside;
mod processes;
mod providers;
mod runs;
mod skills;
mod stops;
mod tokens;
mod tools;
mod webhooks;

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
        editors::SCENARIOS,
        environment::SCENARIOS,
        hooks::SCENARIOS,
        leased::SCENARIOS,
        lifecycle::SCENARIOS,
        mcp::SCENARIOS,
        mcp_server::SCENARIOS,
        memory::SCENARIOS,
        nodes::SCENARIOS,
        openai::SCENARIOS,
        outside::SCENARIOS,
        skills::SCENARIOS,
        stops::SCENARIOS,
        tokens::SCENARIOS,
        tools::SCENARIOS,
        webhooks::SCENARIOS,
        processes::SCENARIOS,
        providers::SCENARIOS,
    ];
    areas.into_iter().flatten().collect()
}
