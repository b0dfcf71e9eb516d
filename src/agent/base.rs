//! All definitions except those of projects, as last read, and the trust in projects. The catalog
//! reads this at its start and at each reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agents::AgentCatalogOptions;
use super::fields::AgentDraft;
use super::folder::{self, AgentFile, Dialect};
use super::health::Dependencies;
use super::last_read;
use super::merge::TrustLevel;
use super::presets::{outside_presets, presets};
use super::raw::{DefinitionFormat, LoadError};
use super::set::{DefinitionSource, LayeredDefinition, Layers, shown};
use super::view::{AvailableModels, Set};
use crate::contract::catalog::CatalogScope;
use crate::contract::rows::{StoredAgent, TrustedProject};
use crate::kernel::fault::Fault;
use crate::kernel::scope::OWNER_ORG;

/// The result of the last read of all definitions except those of projects.
pub(super) struct Base {
    /// Incremented by each read; cached sets of an older generation are rebuilt.
    pub(super) generation: u64,
    /// By tenant; see [`Base::of`].
    pub(super) sets: BTreeMap<String, OrgBase>,
    /// For tenants without their own definitions.
    pub(super) shared: OrgBase,
    pub(super) trusted: Vec<TrustedProject>,
    /// The user's files as last read, used when a later read fails.
    files: [Vec<AgentFile>; 2],
    /// The places that could not be read, each with the reason.
    pub(super) unread: Vec<String>,
    /// The state of the user's files before they were read; `None` if it could not be determined.
    pub(super) state: Option<u64>,
}

#[derive(Clone)]
pub(super) struct OrgBase {
    pub(super) layers: Layers,
    pub(super) set: Arc<Set>,
}

impl Base {
    pub(super) fn of(&self, org: &str) -> &OrgBase {
        self.sets.get(org).unwrap_or(&self.shared)
    }
}

/// The trust in a project.
pub(super) enum ProjectTrust {
    Given,
    Never,
    /// The project has changed since it was trusted.
    Lost,
}

impl ProjectTrust {
    /// Why an agent of the project in `folder` that needs trust for `needs` cannot be used; `None`
    /// if it can.
    pub(super) fn refusal(&self, folder: &Path, needs: &[&str]) -> Option<String> {
        if needs.is_empty() {
            return None;
        }
        let needs = needs.join(", ");
        let folder = folder.display();
        match self {
            ProjectTrust::Given => None,
            ProjectTrust::Never => Some(format!(
                "it uses {needs}, and project {folder} is not trusted (review it, then run: abide \
                 trust {folder})"
            )),
            ProjectTrust::Lost => Some(format!(
                "it uses {needs}, and project {folder} has changed since it was trusted (review \
                 it again, then run: abide trust {folder})"
            )),
        }
    }
}

impl Base {
    pub(super) fn trust_in(&self, org: &str, folder: &Path, hash: &str) -> ProjectTrust {
        let folder = shown(folder);
        let known = self
            .trusted
            .iter()
            .find(|one| one.org == org && one.folder == folder);
        match known {
            Some(known) if known.hash == hash => ProjectTrust::Given,
            Some(_) => ProjectTrust::Lost,
            None => ProjectTrust::Never,
        }
    }
}

/// True if the definition applies to this tenant or to all tenants.
pub(super) fn is_of(candidate: &LayeredDefinition, org: &str) -> bool {
    let named = candidate.draft.definition.org.as_deref();
    named.is_none_or(|named| named == org)
}

pub(super) fn read_base(
    options: &AgentCatalogOptions,
    models: &AvailableModels,
    generation: u64,
    before: Option<&Base>,
) -> Result<Base, Fault> {
    // Taken before reading, so that the next check detects a later change.
    let state = user_files(options);
    let servers = Arc::clone(&options.servers.borrow());
    let ground = Dependencies {
        models,
        tools: &options.tools,
        servers: &servers,
        skills: options.skills.as_deref(),
        place: SOMEWHERE,
    };
    let rows = options.rows.as_ref();
    let stored = rows.map_or(Ok(Vec::new()), |rows| rows.stored_agents())?;
    let trusted = rows.map_or(Ok(Vec::new()), |rows| rows.trusted_projects())?;
    let read = |folder: &Option<PathBuf>, dialect| {
        let found = folder
            .as_deref()
            .map(|folder| folder::read(folder, dialect, None));
        found.unwrap_or_default()
    };
    let mut unread = Vec::new();
    let mut keep = |now, at: usize| {
        let before = before.map_or(&[][..], |before| before.files[at].as_slice());
        let (found, reasons) = last_read::keep(now, before);
        unread.extend(reasons);
        found
    };
    let files = [
        keep(read(&options.personal, Dialect::Claude), 0),
        keep(read(&options.config, Dialect::Own), 1),
    ];
    let mut orgs: BTreeSet<String> = options.orgs.iter().cloned().collect();
    orgs.extend(stored.iter().map(|agent| agent.org.clone()));
    for found in files.iter().flatten() {
        let draft = found.outcome.as_ref().ok();
        orgs.extend(draft.and_then(|draft| draft.definition.org.clone()));
    }
    let sources = DefinitionSources {
        ground,
        stored: &stored,
        files: &files,
    };
    // Most tenants have no definitions of their own and share one prepared set.
    let shared = sources.of_org(None);
    let sets = orgs.iter().map(|org| match sources.has_own(org) {
        true => (org.clone(), sources.of_org(Some(org))),
        false => (org.clone(), shared.clone()),
    });
    Ok(Base {
        generation,
        sets: sets.collect(),
        shared: shared.clone(),
        trusted,
        files,
        unread,
        state,
    })
}

/// The default folder of the owner's tenant.
pub(super) const SOMEWHERE: CatalogScope<'static> = CatalogScope {
    org: OWNER_ORG,
    cwd: None,
};

/// The definitions of all tenants: the stored ones, and those of the user's files.
struct DefinitionSources<'a> {
    ground: Dependencies<'a>,
    stored: &'a [StoredAgent],
    /// Files of the foreign dialect, then own files.
    files: &'a [Vec<AgentFile>; 2],
}

impl DefinitionSources<'_> {
    /// The agents of a tenant; `None`: those that belong to no tenant alone.
    fn of_org(&self, org: Option<&str>) -> OrgBase {
        let (found, off) = outside_presets(&self.ground.models.programs);
        let mut layers = Layers::presets([presets(), found].concat());
        layers.off = off;
        self.add_stored(&mut layers, org);
        let levels = [TrustLevel::UserForeign, TrustLevel::User];
        for (found, level) in self.files.iter().zip(levels) {
            let mut found = found.clone();
            found.retain(|one| {
                let named = one.outcome.as_ref().ok();
                let named = named.and_then(|draft| draft.definition.org.as_deref());
                named.is_none_or(|named| Some(named) == org)
            });
            layers.add_files(DefinitionSource::Config, level, found);
        }
        OrgBase {
            set: {
                let org = org.unwrap_or(SOMEWHERE.org);
                let place = CatalogScope { org, cwd: None };
                let ground = Dependencies {
                    place,
                    ..self.ground
                };
                Arc::new(Set::new(&layers, ground))
            },
            layers,
        }
    }

    fn add_stored(&self, layers: &mut Layers, org: Option<&str>) {
        let mut own = Vec::new();
        let stored = self.stored.iter();
        for agent in stored.filter(|agent| Some(agent.org.as_str()) == org) {
            match parse_stored(&agent.format, &agent.name, &agent.text) {
                Ok(draft) => own.push(LayeredDefinition {
                    source: DefinitionSource::Stored,
                    level: TrustLevel::User,
                    file: None,
                    revision: Some(agent.revision),
                    stored_at: Some(agent.created_at),
                    draft,
                    untrusted: None,
                    replaced_by_broken: None,
                }),
                Err(broken) => {
                    let reason = format!("stored agent {}: {broken}", agent.name);
                    layers.reject(DefinitionSource::Stored, None, &LoadError::whole(reason));
                }
            }
        }
        layers.add(own);
    }

    /// True if a definition belongs to this tenant alone.
    fn has_own(&self, org: &str) -> bool {
        let found = self.files.iter().flatten();
        let mut drafts = found.filter_map(|found| found.outcome.as_ref().ok());
        self.stored.iter().any(|agent| agent.org == org)
            || drafts.any(|draft| draft.definition.org.as_deref() == Some(org))
    }
}

/// A hash of the user's own files by name, size and time; `None` if they cannot be read.
pub(super) fn user_files(options: &AgentCatalogOptions) -> Option<u64> {
    let folders = [&options.personal, &options.config];
    let folders: Vec<PathBuf> = folders.into_iter().flatten().cloned().collect();
    crate::watch::readable_signature(&folders).ok()
}

pub(super) fn parse_stored(format: &str, name: &str, text: &str) -> Result<AgentDraft, LoadError> {
    let format = DefinitionFormat::parse(format).ok_or_else(|| {
        LoadError::whole(format!(
            "{format:?} is not a format; use markdown, toml or json"
        ))
    })?;
    folder::parse(Dialect::Own, format, name, text.as_bytes())
}
