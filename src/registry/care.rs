//! Care for the store: backups, and what the doctor finds.

use std::path::PathBuf;

use super::Registry;
use crate::contract::finding::Finding;
use crate::kernel::fault::Fault;
use crate::store::{Backup, findings};

pub use crate::store::SalvageReport;

impl Registry {
    /// Copies the whole store, as of one moment, into a new file, and checks the copy.
    pub async fn backup(&self, to: Option<PathBuf>) -> Result<Backup, Fault> {
        self.inner.store.backup(to).await
    }

    /// What was saved of a damaged store, until somebody has seen to it.
    pub fn salvaged(&self) -> Result<Option<SalvageReport>, Fault> {
        self.inner.store.salvaged()
    }

    /// How the store is.
    pub async fn examine(&self) -> Result<Vec<Finding>, Fault> {
        Ok(findings::of(&self.inner.store.health().await?))
    }
}
