//! Store maintenance: backups and health findings. Called for the admin methods and `doctor`.

use std::path::PathBuf;

use crate::contract::finding::Finding;
use crate::kernel::event::Salvage;
use crate::kernel::fault::Fault;
use crate::registry::Registry;
use crate::registry::upkeep::{backups, stuck};
use crate::store::repair::findings;
use crate::store::{BackupFile, CheckedBackup, newest_in};

impl Registry {
    /// Copies the whole store, as of one point in time, to a new file and verifies the copy.
    pub async fn backup(&self, to: Option<PathBuf>) -> Result<CheckedBackup, Fault> {
        self.inner.store.backup(to).await
    }

    /// The newest backup in the folder of the daemon's own.
    pub fn newest_backup(&self) -> Option<BackupFile> {
        let store = &self.inner.store;
        newest_in(&store.backup_folder(&self.inner.options().backups))
    }

    /// The report of what was salvaged from a damaged store, until an operator acknowledges it.
    pub fn salvaged(&self) -> Result<Option<Salvage>, Fault> {
        self.inner.store.salvaged()
    }

    /// Checks the store's health and returns the findings.
    pub async fn examine(&self) -> Result<Vec<Finding>, Fault> {
        let mut found = findings::of(&self.inner.store.health().await?);
        let policy = &self.inner.options().backups;
        let newest = self.inner.store.newest_backup(policy).await?;
        let now = self.inner.clock.now();
        found.push(backups::finding(policy, newest, now));
        let idle = self
            .inner
            .store
            .read(move |tx| stuck::read(tx, now))
            .await?;
        found.extend(stuck::findings(&idle, now));
        found.push(self.examine_programs().await?);
        found.extend(self.examine_webhooks().await?);
        Ok(found)
    }
}
