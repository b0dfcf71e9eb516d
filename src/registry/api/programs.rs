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
        let newer = self.inner.processes.kept_by_newer();
        let (mut wrong, mut fixes) = (Vec::new(), Vec::new());
        if !newer.is_empty() {
            let steps: Vec<String> = newer.iter().map(ToString::to_string).collect();
            wrong.push(format!(
                "a newer version keeps programs, which this one leaves alone: steps {}",
                steps.join(", ")
            ));
            fixes.push("start the newer version again, which takes the results of its programs");
        }
        if !strays.is_empty() {
            wrong.push(format!(
                "programs of runs that have ended still run: {}",
                strays.join(", ")
            ));
            fixes.push("if programs of ended runs stay, restart the daemon: its start ends them");
        }
        if wrong.is_empty() {
            let message = format!("programs that go on without the daemon: {count}");
            return Ok(Finding::new(id, Health::Ok, message));
        }
        Ok(Finding::new(id, Health::Warn, wrong.join("; ")).fix(fixes.join("; ")))
    }
}
