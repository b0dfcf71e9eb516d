//! Agents for the RPC layer: lists, stored definitions, reloads, and trust in projects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;

use crate::command::{DeleteAgent, NoteAgents, PutAgent, RevokeTrust, TrustProject};
use crate::contract::catalog::{
    AgentListing, AgentSummary, CatalogScope, Covers, Definition, Overrides, Resolved, ToolSet,
};
use crate::contract::rows::TrustedProject;
use crate::contract::servers::ServedTool;
use crate::file_work::DEFINITIONS;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{Principal, Registry, RegistryInner};
use crate::store::tables::{agents, trust};

use crate::store::write::Command;

/// Why the agents are reloaded; recorded in the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadReason {
    /// Daemon start: files may have changed while it was down.
    Start,
    /// A watched file has changed.
    Watch,
    /// A client requested it.
    Manual,
    /// A stored definition or a trust row has changed.
    Stored,
}

impl ReloadReason {
    /// The word used in events.
    pub fn as_str(self) -> &'static str {
        match self {
            ReloadReason::Start => "start",
            ReloadReason::Watch => "watch",
            ReloadReason::Manual => "manual",
            ReloadReason::Stored => "stored",
        }
    }
}

/// A trusted project with its present content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustView {
    /// The stored trust row.
    pub project: TrustedProject,
    /// What trust would cover now, or the reason why that could not be determined.
    pub now: Result<Covers, String>,
}

impl Registry {
    /// The agents that are effective for work in `folder`.
    pub async fn agents(
        &self,
        who: &Principal,
        folder: Option<String>,
    ) -> Result<AgentListing, Fault> {
        let listed = self.inner.in_catalog(&who.org, folder, |inner, place| {
            Ok(inner.catalog.list(place))
        });
        listed.await
    }

    /// One agent as it is effective for work in `folder`.
    pub async fn agent(
        &self,
        who: &Principal,
        folder: Option<String>,
        name: String,
    ) -> Result<AgentSummary, Fault> {
        let found = self
            .inner
            .in_catalog(&who.org, folder, move |inner, place| {
                inner.catalog.get(place, &name)
            });
        found.await
    }

    /// The resolved tool set of an agent for work in `folder`, in a session whose servers have these
    /// tools.
    pub async fn tools(
        &self,
        who: &Principal,
        folder: Option<String>,
        name: String,
        served: Vec<ServedTool>,
    ) -> Result<ToolSet, Fault> {
        let found = self
            .inner
            .in_catalog(&who.org, folder, move |inner, place| {
                inner.catalog.tools(place, &name, &served)
            });
        found.await
    }

    /// Once this returns, a new agent is stored and can be spawned. A name that is taken by another
    /// definition is a `conflict`.
    pub async fn create_agent(
        &self,
        who: &Principal,
        definition: Definition,
    ) -> Result<AgentSummary, Fault> {
        self.put_agent(who, definition, true, None).await
    }

    /// Once this returns, the stored agent has the new definition and new runs use it.
    pub async fn update_agent(
        &self,
        who: &Principal,
        name: String,
        definition: Definition,
        if_revision: Option<i64>,
    ) -> Result<AgentSummary, Fault> {
        self.inner.catalog.stored_only(&who.org, &name)?;
        let definition = Definition {
            name: Some(name.clone()),
            ..definition
        };
        let found = self.inner.catalog.check(&who.org, &definition)?;
        if found.as_str() != name {
            let message = format!("the definition names agent {found}, not {name}");
            return Err(Fault::params("definition", message)
                .hint("agents cannot be renamed; create another one with agents.create"));
        }
        self.put_agent(who, definition, false, if_revision).await
    }

    async fn put_agent(
        &self,
        who: &Principal,
        definition: Definition,
        new: bool,
        if_revision: Option<i64>,
    ) -> Result<AgentSummary, Fault> {
        let name = self.inner.catalog.check(&who.org, &definition)?;
        let command = PutAgent {
            org: who.org.clone(),
            name: name.to_string(),
            format: definition.format,
            text: definition.text,
            new,
            if_revision,
        };
        self.inner.store.submit(command).await?;
        self.reload_agents(ReloadReason::Stored).await?;
        self.agent(who, None, name.into()).await
    }

    /// Once this returns, the stored agent is deleted; returns whether this call deleted it. Open
    /// runs keep their pins.
    pub async fn delete_agent(
        &self,
        who: &Principal,
        name: String,
        if_revision: Option<i64>,
    ) -> Result<bool, Fault> {
        self.inner.catalog.stored_only(&who.org, &name)?;
        let command = DeleteAgent {
            org: who.org.clone(),
            name,
            if_revision,
        };
        self.removed(command).await
    }

    /// Once this returns, agent files and rows are reloaded and in effect, and the event log has
    /// the differences.
    pub async fn reload_agents(&self, reason: ReloadReason) -> Result<(), Fault> {
        reload(&self.inner, reason).await
    }

    /// Once this returns, the project in `folder` is trusted with its present content.
    pub async fn trust(
        &self,
        who: &Principal,
        folder: String,
    ) -> Result<(TrustedProject, Covers), Fault> {
        let covers = self.covers(folder).await?;
        let command = TrustProject {
            org: who.org.clone(),
            user: who.user.clone(),
            folder: covers.folder.clone(),
            hash: covers.hash.clone(),
        };
        let project = self.inner.store.submit(command).await?;
        self.reload_agents(ReloadReason::Stored).await?;
        Ok((project, covers))
    }

    /// The trusted projects, sorted by folder, each with its present content.
    pub async fn trusted(&self, who: &Principal) -> Result<Vec<TrustView>, Fault> {
        let org = who.org.clone();
        let rows = self.inner.store.read(|tx| trust::every(tx)).await?;
        let mut views = Vec::new();
        for project in rows.into_iter().filter(|row| row.org == org) {
            let now = self.covers(project.folder.clone()).await;
            views.push(TrustView {
                project,
                now: now.map_err(|fault| fault.message),
            });
        }
        Ok(views)
    }

    /// Once this returns, the project is not trusted; returns whether it was. The folder may no
    /// longer exist.
    pub async fn revoke_trust(&self, who: &Principal, folder: String) -> Result<bool, Fault> {
        let whole = std::path::Path::new(&folder).canonicalize().ok();
        let whole = whole.and_then(|whole| whole.to_str().map(str::to_owned));
        let command = RevokeTrust {
            org: who.org.clone(),
            folder: whole.unwrap_or(folder),
        };
        self.removed(command).await
    }

    async fn removed<C: Command<Reply = bool>>(&self, command: C) -> Result<bool, Fault> {
        let removed = self.inner.store.submit(command).await?;
        self.reload_agents(ReloadReason::Stored).await?;
        Ok(removed)
    }

    async fn covers(&self, folder: String) -> Result<Covers, Fault> {
        let inner = Arc::clone(&self.inner);
        off_thread(move || inner.catalog.covers(&folder)).await
    }
}

impl RegistryInner {
    /// Resolves what a run pins of agent `name` (the default agent if unset) for work in `folder`.
    /// Before it returns `NotFound` it reads the files again, because a change notice for a file
    /// just saved takes a moment.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        org: &str,
        folder: Option<&str>,
        name: Option<&str>,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        match self.resolve_known(org, folder, name, overrides).await {
            Err(fault) if fault.kind == Kind::NotFound => {
                look_again(self).await?;
                self.resolve_known(org, folder, name, overrides).await
            }
            known => known,
        }
    }

    async fn resolve_known(
        self: &Arc<Self>,
        org: &str,
        folder: Option<&str>,
        name: Option<&str>,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        let place = CatalogScope { org, cwd: folder };
        if self.catalog.is_ready(place) && self.skills.is_ready(place) {
            return self.resolve_now(place, name, overrides);
        }
        let org = org.to_owned();
        let folder = folder.map(str::to_owned);
        let inner = Arc::clone(self);
        let name = name.map(str::to_owned);
        let model = overrides.model.map(str::to_owned);
        let thinking = overrides.thinking;
        let given = overrides.given.to_vec();
        let served = overrides.served.to_vec();
        off_thread(move || {
            let place = CatalogScope {
                org: &org,
                cwd: folder.as_deref(),
            };
            let overrides = Overrides {
                model: model.as_deref(),
                thinking,
                given: &given,
                served: &served,
            };
            inner.resolve_now(place, name.as_deref(), overrides)
        })
        .await
    }

    fn resolve_now(
        &self,
        place: CatalogScope<'_>,
        name: Option<&str>,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        let resolved = match name {
            Some(name) => self.catalog.resolve(place, name, overrides),
            None => {
                let default = self.catalog.default_agent();
                self.catalog.resolve(place, default.as_str(), overrides)
            }
        };
        let resolved = self.with_skills(place, resolved?, overrides.given);
        Ok(self.with_environment(resolved))
    }

    /// Queries the catalog for a place. Before it returns `NotFound` it reads the files again.
    pub(crate) async fn in_catalog<T: Send + 'static>(
        self: &Arc<Self>,
        org: &str,
        folder: Option<String>,
        ask: impl Fn(&RegistryInner, CatalogScope<'_>) -> Result<T, Fault> + Clone + Send + 'static,
    ) -> Result<T, Fault> {
        match self.ask_catalog(org, folder.clone(), ask.clone()).await {
            Err(fault) if fault.kind == Kind::NotFound => {
                look_again(self).await?;
                self.ask_catalog(org, folder, ask).await
            }
            known => known,
        }
    }

    /// Queries the catalog, on a blocking thread if the query must read the disk.
    async fn ask_catalog<T: Send + 'static>(
        self: &Arc<Self>,
        org: &str,
        folder: Option<String>,
        ask: impl FnOnce(&RegistryInner, CatalogScope<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let place = CatalogScope {
            org,
            cwd: folder.as_deref(),
        };
        if self.catalog.is_ready(place) {
            return ask(self, place);
        }
        let inner = Arc::clone(self);
        let org = org.to_owned();
        off_thread(move || {
            let place = CatalogScope {
                org: &org,
                cwd: folder.as_deref(),
            };
            ask(&inner, place)
        })
        .await
    }
}

/// Reloads the files if they changed since the last reload: a change notice for a file just saved
/// takes a moment.
async fn look_again(inner: &Arc<RegistryInner>) -> Result<(), Fault> {
    let looking = Arc::clone(inner);
    if !off_thread(move || Ok(looking.catalog.is_outdated())).await? {
        return Ok(());
    }
    let alone = inner.reloading.lock().await;
    // If several callers see the new file, only the first one reads it.
    let looking = Arc::clone(inner);
    if !off_thread(move || Ok(looking.catalog.is_outdated())).await? {
        return Ok(());
    }
    reload_alone(inner, ReloadReason::Watch, &alone).await
}

/// As [`Registry::reload_agents`], for the service loop.
pub(crate) async fn reload(inner: &Arc<RegistryInner>, reason: ReloadReason) -> Result<(), Fault> {
    // Serialized: a slow reload must not overwrite the result of a later one.
    let alone = inner.reloading.lock().await;
    reload_alone(inner, reason, &alone).await
}

async fn reload_alone(
    inner: &Arc<RegistryInner>,
    reason: ReloadReason,
    _alone: &MutexGuard<'_, ()>,
) -> Result<(), Fault> {
    let reading = Arc::clone(inner);
    off_thread(move || reading.catalog.reload()).await?;
    let built_in = inner.catalog.built_in();
    for (org, now) in inner.catalog.sets() {
        let noted = inner.store.read_now(|tx| agents::noted(tx, &org))?;
        let known = noted.as_ref().map_or(&built_in, |noted| &noted.agents);
        if *known == now {
            continue;
        }
        let command = NoteAgents {
            org,
            now,
            built_in: built_in.clone(),
            reason: reason.as_str().to_owned(),
        };
        inner.store.submit_waiting(command).await?;
    }
    Ok(())
}

/// Time limit of a request for reading agent and skill files.
const FILES_LIMIT: Duration = Duration::from_secs(30);

/// Runs work that may block on the disk, on threads reserved for definition files, within
/// [`FILES_LIMIT`].
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let work = DEFINITIONS.run(move |_| catch_unwind(AssertUnwindSafe(work)));
    match tokio::time::timeout(FILES_LIMIT, work).await {
        Ok(Ok(Ok(done))) => done,
        Ok(Ok(Err(_))) => Err(Fault::internal("reading agents or skills panicked")),
        Ok(Err(busy)) => Err(Fault::new(Kind::Busy, busy.to_string())),
        Err(_) => Err(Fault::new(
            Kind::Unavailable,
            format!(
                "the files of agents and skills could not be read within {FILES_LIMIT:?}: a file \
                 system may not be responding. Nothing was done"
            ),
        )
        .hint("run abide doctor")),
    }
}
