//! Skills: pins them for new runs, lists them for the RPC layer, and records changes.

use std::sync::{Arc, PoisonError};

use super::agents::off_thread;
use crate::command::NoteSkills;
use crate::contract::catalog::{CatalogScope, Resolved};
use crate::contract::delegate::{PinnedText, Site};
use crate::contract::skills::{PickedSkills, SkillListing, SkillPin, SkillSet, SkillsNow};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::SessionKey;
use crate::kernel::policy::pattern;
use crate::kernel::scope::OWNER_ORG;
use crate::registry::{Principal, Registry, RegistryInner};
use crate::store::tables::skills::SkillsNoted;
use crate::store::tables::{blobs, runs, skills};
use crate::wire::skills::RefreshedFolder;

/// Why skills are checked again; recorded in the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillsReason {
    /// Daemon start: they may have changed while it was down.
    Start,
    /// The watcher found a change.
    Watch,
    /// A client requested it.
    Manual,
    /// The settings have changed.
    Config,
    /// Programs of nodes have changed, or nodes have come or gone.
    RemoteNode,
}

impl SkillsReason {
    /// The word used in events.
    pub fn as_str(self) -> &'static str {
        match self {
            SkillsReason::Start => "start",
            SkillsReason::Watch => "watch",
            SkillsReason::Manual => "manual",
            SkillsReason::Config => "config",
            SkillsReason::RemoteNode => "remote-node",
        }
    }
}

/// Maximum number of folders that are checked at a start, the most recently changed ones.
const AGAIN: u32 = 128;
/// Maximum number of recorded folders that a later check covers.
const NOTED: u32 = 1000;

/// The skills of a folder with their version.
#[derive(Clone, Debug)]
pub struct SkillsView {
    /// The skills that are effective in the folder.
    pub here: Arc<SkillListing>,
    /// Their version, which each recorded change increments.
    pub version: i64,
}

impl Registry {
    /// The skills for work in `cwd`, with their version.
    pub async fn skills(&self, who: &Principal, cwd: Option<String>) -> Result<SkillsView, Fault> {
        let here = self.inner.skills_here(&who.org, cwd, false).await?;
        let refreshed = self.inner.note_skills(&who.org, &here, SkillsReason::Watch);
        let version = refreshed.await?.after;
        Ok(SkillsView { here, version })
    }

    /// What a run of `agent` (the default agent if unset) would pin in `cwd`.
    pub async fn skills_of(
        &self,
        who: &Principal,
        cwd: Option<String>,
        agent: Option<String>,
    ) -> Result<(SkillsView, Arc<PickedSkills>), Fault> {
        let view = self.skills(who, cwd.clone()).await?;
        let names = match agent {
            None => None,
            Some(agent) => self.agent(who, cwd, agent).await?.usable_skills(),
        };
        let picked = self.inner.skills.pick(&view.here, names.as_deref(), &[]);
        Ok((view, picked))
    }

    /// Checks the skills of the session's folder or of `cwd`; without either, of every known
    /// folder, the default folder first.
    pub async fn refresh_skills(
        &self,
        who: &Principal,
        session: Option<SessionKey>,
        cwd: Option<String>,
    ) -> Result<Vec<RefreshedFolder>, Fault> {
        let named = session.is_some() || cwd.is_some();
        let cwd = match &session {
            Some(key) => self.session(who, key).await?.session.cwd,
            None => cwd,
        };
        let mut folders = vec![cwd];
        if !named {
            folders.extend(self.inner.skills.known(&who.org).into_iter().map(Some));
        }
        let mut refreshed: Vec<RefreshedFolder> = Vec::new();
        for cwd in folders {
            let here = self.inner.skills_here(&who.org, cwd, true).await?;
            if refreshed
                .iter()
                .all(|done| done.workspace != here.workspace)
            {
                let noted = self
                    .inner
                    .note_skills(&who.org, &here, SkillsReason::Manual);
                refreshed.push(noted.await?);
            }
        }
        Ok(refreshed)
    }

    /// Compares the recorded skills with those on disk. Once this returns, the event log has each
    /// difference; returns whether there is one that agents may not have seen.
    pub async fn skills_changed(&self, reason: SkillsReason) -> Result<bool, Fault> {
        let inner = &self.inner;
        let limit = match reason {
            SkillsReason::Start => AGAIN,
            _ => NOTED,
        };
        let noted = inner
            .store
            .read(move |tx| skills::latest(tx, limit))
            .await?;
        // The watcher has just scanned every known folder; a later change triggers another check.
        let fresh = reason != SkillsReason::Watch;
        // The default folder is watched from its first check on.
        let default = inner
            .skills_here(OWNER_ORG, None, fresh)
            .await?
            .hash
            .clone();
        let mut changed = {
            // The hash is replaced atomically, so a poisoned lock is safe to use.
            let seen = inner.skills_seen.lock();
            let seen = seen.unwrap_or_else(PoisonError::into_inner);
            seen.as_ref().is_some_and(|before| *before != default)
        };
        for SkillsNoted { org, workspace, .. } in noted {
            let is_known = || inner.skills.known(&org).contains(&workspace);
            if reason == SkillsReason::Start || is_known() {
                let here = inner.skills_here(&org, Some(workspace), fresh).await?;
                let noted = inner.note_skills(&org, &here, reason).await?;
                changed |= noted.before.is_some_and(|before| before != noted.after);
            }
        }
        // Set only now, so that a change that could not be recorded is found by the next check.
        let seen = inner.skills_seen.lock();
        *seen.unwrap_or_else(PoisonError::into_inner) = Some(default);
        // At a start the agents are loaded with the present skills.
        Ok(changed && reason != SkillsReason::Start)
    }

    /// The skills that the caller's run has pinned.
    pub(crate) fn pinned_skills(&self, site: Site) -> Result<SkillSet, Fault> {
        let pin = self.inner.store.read_now(|tx| {
            let run = runs::get(tx, site.run)?;
            match run.and_then(|run| run.pins.skills) {
                Some(pinned) => self.inner.pins.get(tx, &pinned.hash).map(Some),
                None => Ok(None),
            }
        })?;
        match pin {
            Some(pin) => serde_json::from_str(pin.json()).map_err(Fault::internal),
            None => Ok(SkillSet::default()),
        }
    }

    /// The body of the skill `name` and its pinned metadata in the caller's run.
    pub(crate) fn pinned_skill(&self, site: Site, name: &str) -> Result<PinnedText, Fault> {
        let set = self.pinned_skills(site)?;
        let names: Vec<&str> = set.skills.iter().map(|skill| skill.name.as_str()).collect();
        let Some(skill) = set.skills.iter().find(|skill| skill.name == name) else {
            let shown = names
                .iter()
                .take(SHOWN)
                .copied()
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!("no skill {name:?} in this run; it has: {shown}");
            return Err(Fault::new(Kind::NotFound, message)
                .hint("Use one of these names. Call the tool without a name to list all skills."));
        };
        let body = self
            .inner
            .store
            .read_now(|tx| blobs::get(tx, &skill.hash))?;
        let body = body.ok_or_else(|| {
            Fault::internal(format!("the pinned text of skill {name} is missing"))
        })?;
        Ok(PinnedText {
            skill: skill.clone(),
            body,
        })
    }
}

/// Maximum number of names in a refusal.
const SHOWN: usize = 50;

impl RegistryInner {
    async fn skills_here(
        self: &Arc<Self>,
        org: &str,
        cwd: Option<String>,
        fresh: bool,
    ) -> Result<Arc<SkillListing>, Fault> {
        let place = CatalogScope {
            org,
            cwd: cwd.as_deref(),
        };
        if !fresh && self.skills.is_ready(place) {
            return Ok(self.skills.here(place, false));
        }
        let (inner, org) = (Arc::clone(self), org.to_owned());
        off_thread(move || {
            let cwd = cwd.as_deref();
            Ok(inner.skills.here(CatalogScope { org: &org, cwd }, fresh))
        })
        .await
    }

    /// Once this returns, these skills are recorded under a version.
    async fn note_skills(
        &self,
        org: &str,
        here: &SkillListing,
        reason: SkillsReason,
    ) -> Result<RefreshedFolder, Fault> {
        let workspace = here.workspace.clone();
        let before = self.store.read_now(|tx| skills::get(tx, org, &workspace))?;
        let refreshed = |after| RefreshedFolder {
            before: before.as_ref().map(|before| before.version),
            workspace: workspace.clone(),
            after,
        };
        if let Some(before) = &before
            && before.hash == here.hash
        {
            return Ok(refreshed(before.version));
        }
        let command = NoteSkills {
            org: org.to_owned(),
            workspace: workspace.clone(),
            hash: here.hash.clone(),
            count: here.usable(),
            reason: reason.as_str(),
        };
        self.store.submit_waiting(command).await.map(refreshed)
    }

    /// The agent as a run pins it, with its skills; `given` are the variable names that the request
    /// adds to the run's environment.
    pub(crate) fn with_skills(
        &self,
        place: CatalogScope<'_>,
        mut resolved: Resolved,
        given: &[String],
    ) -> Resolved {
        let names = resolved.skill_names.as_deref();
        if names.is_some_and(<[String]>::is_empty) {
            return resolved;
        }
        let here = self.skills.here(place, false);
        let own = resolved.env.env.iter();
        let own = own.filter_map(|(name, value)| value.as_ref().map(|_| name));
        let mut env: Vec<String> = own.chain(given).cloned().collect();
        env.sort_unstable();
        env.dedup();
        let picked = self.skills.pick(&here, names, &env);
        for name in &picked.unknown {
            let what = format!(
                "agent {} requests skill {name}, which is missing",
                resolved.id
            );
            resolved.warnings.push(what);
        }
        if let Some(names) = names {
            let named = |name: &str| names.iter().any(|one| pattern::fits(one, name));
            for skill in here.skills.iter().filter(|skill| named(&skill.name)) {
                if let Some(why) = &skill.stale {
                    resolved.warnings.push(format!(
                        "skill {}: {why}; the run uses its previous version",
                        skill.name
                    ));
                }
            }
        }
        if !picked.set.skills.is_empty() {
            resolved.skills = Some(SkillPin::Now(SkillsNow {
                workspace: here.workspace.clone(),
                hash: here.hash.clone(),
                count: here.usable(),
                picked,
            }));
        }
        resolved
    }
}
