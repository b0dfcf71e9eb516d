//! Programs of runs that go on while no daemon runs, for the status, metrics and doctor.

use crate::contract::finding::{Finding, Health};
use crate::contract::processes::KeptStep;
use crate::kernel::fault::Fault;
use crate::registry::Registry;
use crate::store::tables::runs;

impl Registry {
    /// The programs that have keepers; those that have ended and whose results are being stored
    /// included.
    pub fn programs(&self) -> Vec<KeptStep> {
        self.inner.processes.kept()
    }

    /// The finding about programs: each must belong to an open run.
    pub(crate) async fn examine_programs(&self) -> Result<Finding, Fault> {
        let id = "programs.kept";
        let kept = self.programs();
        let alive: Vec<KeptStep> = kept.into_iter().filter(|kept| kept.is_alive).collect();
        let count = alive.len();
        let strays = self.inner.store.read(move |tx| {
            let mut strays = Vec::new();
            for kept in alive {
                let run = runs::get(tx, kept.run)?;
                if run.is_none_or(|run| run.state.is_terminal()) {
                    strays.push(kept.run.to_string());
                }
            }
            Ok(strays)
        });
        let strays = strays.await?;
        if strays.is_empty() {
            let message = format!("{count} programs of open runs go on if the daemon ends");
            return Ok(Finding::new(id, Health::Ok, message));
        }
        let message = format!(
            "programs of runs that have ended still run: {}",
            strays.join(", ")
        );
        let fix = "if this stays so, restart the daemon: its start ends them";
        Ok(Finding::new(id, Health::Warn, message).fix(fix))
    }
}
