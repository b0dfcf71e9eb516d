//! Every definition but those of projects, as it was last read, and how far projects are trusted.
//! Read by the catalog at its start and at each reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agents::Options;
use super::fields::Draft;
use super::folder::{self, Dialect, Found};
use super::health::Ground;
use super::kept;
use super::merge::Level;
use super::presets::presets;
use super::raw::{Broken, Format};
use super::set::{Candidate, Layers, Source, shown};
use super::view::{Models, Set};
use crate::contract::rows::TrustedProject;
use crate::kernel::fault::Fault;

/// What was last read of everything but projects.
pub(super) struct Base {
    /// Raised by each reading; what was made of an older one is made anew.
    pub(super) generation: u64,
    /// By tenant; see [`Base::of`].
    pub(super) sets: BTreeMap<String, OrgBase>,
    /// For tenants without anything of their own.
    pub(super) shared: OrgBase,
    pub(super) trusted: Vec<TrustedProject>,
    /// The user's files, for a reading that cannot read them.
    files: [Vec<Found>; 2],
    /// What could not be read, and why.
    pub(super) unread: Vec<String>,
    /// The state of the user's files before they were read; `None`: it could not be told.
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

/// How far a project is trusted.
pub(super) enum Trust {
    Given,
    Never,
    /// It has changed since.
    Lost,
}

impl Trust {
    /// Why an agent of the project in `folder` that needs trust for `needs` cannot be used.
    pub(super) fn refusal(&self, folder: &Path, needs: &[&str]) -> Option<String> {
        if needs.is_empty() {
            return None;
        }
        let needs = needs.join(", ");
        let folder = folder.display();
        match self {
            Trust::Given => None,
            Trust::Never => Some(format!(
                "it states {needs}, and project {folder} is not trusted (look at it, then: abide \
                 trust {folder})"
            )),
            Trust::Lost => Some(format!(
                "it states {needs}, and project {folder} has changed since it was trusted (look \
                 at it again, then: abide trust {folder})"
            )),
        }
    }
}

impl Base {
    pub(super) fn trust_in(&self, org: &str, folder: &Path, hash: &str) -> Trust {
        let folder = shown(folder);
        let known = self
            .trusted
            .iter()
            .find(|one| one.org == org && one.folder == folder);
        match known {
            Some(known) if known.hash == hash => Trust::Given,
            Some(_) => Trust::Lost,
            None => Trust::Never,
        }
    }
}

/// Is the definition of this tenant, or of all?
pub(super) fn is_of(candidate: &Candidate, org: &str) -> bool {
    let named = candidate.draft.definition.org.as_deref();
    named.is_none_or(|named| named == org)
}

pub(super) fn read_base(
    options: &Options,
    models: &Models,
    generation: u64,
    before: Option<&Base>,
) -> Result<Base, Fault> {
    // Before they are read: a change after that is seen by the next look.
    let state = user_files(options);
    let servers = Arc::clone(&options.servers.borrow());
    let ground = Ground {
        models,
        tools: &options.tools,
        servers: &servers,
        skills: options.skills.as_deref(),
        cwd: None,
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
        let (found, reasons) = kept::keep(now, before);
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
    let of_org = |org: Option<&str>| {
        let mut layers = Layers::presets(presets());
        let mut own = Vec::new();
        for agent in stored
            .iter()
            .filter(|agent| Some(agent.org.as_str()) == org)
        {
            match parse_stored(&agent.format, &agent.name, &agent.text) {
                Ok(draft) => own.push(Candidate {
                    source: Source::Stored,
                    level: Level::User,
                    file: None,
                    revision: Some(agent.revision),
                    stored_at: Some(agent.created_at),
                    draft,
                    untrusted: None,
                    replaced_by_broken: None,
                }),
                Err(broken) => {
                    let reason = format!("stored agent {}: {broken}", agent.name);
                    layers.reject(Source::Stored, None, &Broken::whole(reason));
                }
            }
        }
        layers.add(own);
        for (found, level) in files.iter().zip([Level::UserForeign, Level::User]) {
            let mut found = found.clone();
            found.retain(|one| {
                let named = one.outcome.as_ref().ok();
                let named = named.and_then(|draft| draft.definition.org.as_deref());
                named.is_none_or(|named| Some(named) == org)
            });
            layers.add_files(Source::Config, level, found);
        }
        OrgBase {
            set: Arc::new(Set::new(&layers, ground)),
            layers,
        }
    };
    // Most tenants have nothing of their own, and what all have is made ready once.
    let has_own = |org: &String| {
        let found = files.iter().flatten();
        let mut drafts = found.filter_map(|found| found.outcome.as_ref().ok());
        stored.iter().any(|agent| agent.org == *org)
            || drafts.any(|draft| draft.definition.org.as_ref() == Some(org))
    };
    let shared = of_org(None);
    let sets = orgs.iter().map(|org| match has_own(org) {
        true => (org.clone(), of_org(Some(org))),
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

/// The state of the user's own files, by names, sizes and times.
pub(super) fn user_files(options: &Options) -> Option<u64> {
    let folders = [&options.personal, &options.config];
    let folders: Vec<PathBuf> = folders.into_iter().flatten().cloned().collect();
    crate::watch::readable_signature(&folders).ok()
}

pub(super) fn parse_stored(format: &str, name: &str, text: &str) -> Result<Draft, Broken> {
    let format = Format::parse(format)
        .ok_or_else(|| Broken::whole(format!("{format:?} is no format; markdown, toml, json")))?;
    folder::parse(Dialect::Own, format, name, text.as_bytes())
}
