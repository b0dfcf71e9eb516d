//! Caches the skills of every workspace that was requested. A workspace is scanned again when its
//! cache entry is stale or a watcher reported a change; only changed files are read again. Created
//! once at the daemon's start.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::bundled::bundled;
use super::published::published;
use super::scan::{Looked, Now, SkillFile, look};
use super::sources::{SkillSource, roots};
use super::{RemoteHost, SkillSettings, set};
use crate::clock::Clock;
use crate::contract::catalog::CatalogScope;
use crate::contract::nodes::{NodeView, NodesSlot};
use crate::contract::skills::{PickedSkills, SkillCatalog, SkillListing};
use crate::kernel::node::NodeCommand;

/// How long a scan stays valid for all callers.
const FRESH: Duration = Duration::from_millis(250);
/// Maximum number of repeated scans while a caller waits for changing files to settle.
const LOOKS: usize = 8;
/// Maximum number of cached workspaces; the least recently used one is evicted.
const MAX_WORKSPACES: usize = 128;
/// Maximum number of programs that nodes are asked for.
const MAX_PROGRAMS: usize = 1000;
/// Maximum number of cached picks.
const PICKS: usize = 256;

/// The dependencies of a [`Library`].
pub struct LibraryOptions {
    /// The current settings; may change while the daemon runs.
    pub settings: watch::Receiver<SkillSettings>,
    /// The folder of runs that name none.
    pub workspace: Option<PathBuf>,
    /// The paired nodes, once they are available.
    pub nodes: NodesSlot,
    /// Finds the project folder that contains a folder.
    pub project: fn(&Path) -> Option<PathBuf>,
    /// Notified when there is more to watch.
    pub watch_more: Arc<Notify>,
    /// Clock for cache ages and file times.
    pub clock: Clock,
}

/// The skills of all workspaces; see [`Skills`].
pub struct Library {
    options: LibraryOptions,
    /// The last scan of each root. The lock is held during a scan, so that each root is scanned
    /// only once.
    looked: Mutex<HashMap<PathBuf, Arc<Looked>>>,
    places: Mutex<HashMap<PlaceName, CachedWorkspace>>,
    picks: Mutex<HashMap<PickKey, Arc<PickedSkills>>>,
}

/// A root with its last scan.
type FoundRoot = (SkillSource, Arc<Looked>);

/// A tenant and a folder. The tenant's nodes decide which skills are usable.
type PlaceName = (String, String);

/// Hash of the available skills, the agent's list of names, and the names in its runs' environment.
type PickKey = (String, Option<Vec<String>>, Vec<String>);

struct CachedWorkspace {
    at: Duration,
    roots: Vec<PathBuf>,
    /// Hash of the inputs from which `here` was made.
    made_from: u64,
    here: Arc<SkillListing>,
}

impl Library {
    /// A library that has scanned nothing yet.
    pub fn new(options: LibraryOptions) -> Self {
        Library {
            options,
            looked: Mutex::default(),
            places: Mutex::default(),
            picks: Mutex::default(),
        }
    }

    /// The cache name of a requested place. A folder that is not canonical is not found, and is then
    /// scanned.
    fn cache_name(&self, place: CatalogScope<'_>) -> PlaceName {
        let folder = match (place.cwd, &self.options.workspace) {
            (Some(cwd), _) => cwd.to_owned(),
            (None, Some(workspace)) => workspace.to_string_lossy().into_owned(),
            (None, None) => String::new(),
        };
        (place.org.to_owned(), folder)
    }

    /// The nodes of a tenant on which programs can be run now.
    fn remotes(&self, org: &str) -> Vec<RemoteHost> {
        let nodes = self.options.nodes.get();
        let views = nodes.map(|nodes| nodes.list(org)).unwrap_or_default();
        let runs = |view: &NodeView| view.callable.commands.contains(&NodeCommand::Run);
        let views = views.into_iter().filter(runs);
        views
            .map(|view| RemoteHost {
                name: view.name,
                platform: view.platform,
                bins: view.programs.into_keys().collect(),
            })
            .collect()
    }

    fn folder(&self, cwd: Option<&str>) -> Option<PathBuf> {
        let folder = cwd.map_or_else(|| self.options.workspace.clone(), |cwd| Some(cwd.into()));
        // A workspace has one name, whatever links lead to it.
        folder.map(|folder| folder.canonicalize().unwrap_or(folder))
    }

    /// The skills that the tenant's nodes publish, beside those that were found here.
    fn of_nodes(
        &self,
        org: &str,
        found: &[FoundRoot],
        settings: &SkillSettings,
    ) -> Vec<Arc<SkillFile>> {
        let nodes = self.options.nodes.get();
        let skills = nodes.map(|nodes| nodes.skills(org)).unwrap_or_default();
        if skills.is_empty() {
            return Vec::new();
        }
        let here = found.iter().flat_map(|(_, looked)| &looked.found);
        let here = here.chain(bundled().iter().filter(|_| settings.bundled));
        let names = here.filter_map(|file| Some(file.outcome.as_ref().ok()?.name.clone()));
        published(&skills, names.collect(), settings.limits)
    }

    /// Scans the workspace, unless a recent scan is cached and `fresh` is false.
    fn look_at(&self, org: &str, folder: Option<PathBuf>, fresh: bool) -> Arc<SkillListing> {
        self.look_beside(org, folder, fresh, &mut HashSet::new())
    }

    /// Like [`Library::look_at`], without scanning the roots in `done` again.
    fn look_beside(
        &self,
        org: &str,
        folder: Option<PathBuf>,
        fresh: bool,
        done: &mut HashSet<PathBuf>,
    ) -> Arc<SkillListing> {
        let name = (org.to_owned(), name_of(folder.as_deref()));
        if !fresh && let Some(known) = self.known_here(&name) {
            return known;
        }
        let mut settings = self.options.settings.borrow().clone();
        settings.host.remotes.extend(self.remotes(org));
        let project = folder.as_deref().and_then(self.options.project);
        let roots = roots(&settings, folder.as_deref(), project.as_deref());
        let mut looked = lock(&self.looked);
        // The previous holder of the lock may have scanned it.
        if !fresh && let Some(known) = self.known_here(&name) {
            return known;
        }
        let mut found: Vec<FoundRoot> = Vec::with_capacity(roots.len());
        let mut unsettled = false;
        for root in &roots {
            let before = looked.get(&root.folder);
            let now = match before {
                Some(before) if done.contains(&root.folder) => Arc::clone(before),
                before => look(root, settings.limits, before, self.now(&settings)),
            };
            let known = before.map_or(&[][..], |before| before.unread.as_slice());
            for place in now.unread.iter().filter(|place| !known.contains(place)) {
                tracing::warn!(
                    "skills: {place}; the versions read before stay in use, and it is read again"
                );
            }
            unsettled |= now.unsettled;
            done.insert(root.folder.clone());
            looked.insert(root.folder.clone(), Arc::clone(&now));
            found.push((root.source, now));
        }
        let of_nodes = self.of_nodes(org, &found, &settings);
        let made_from = made_from(&settings, &found, &of_nodes);
        let mut places = lock(&self.places);
        let now = self.options.clock.monotonic();
        let known = places.get_mut(&name);
        let is_new = known.is_none();
        let here = match known {
            Some(place) if place.made_from == made_from => {
                place.at = now;
                Arc::clone(&place.here)
            }
            _ => {
                let here = Arc::new(made(name.clone(), (&found, &of_nodes), &settings));
                let place = CachedWorkspace {
                    at: now,
                    roots: roots.into_iter().map(|root| root.folder).collect(),
                    made_from,
                    here: Arc::clone(&here),
                };
                places.insert(name, place);
                lock(&self.picks).retain(|(.., env), _| env.is_empty());
                here
            }
        };
        if is_new {
            forget_some(&mut places, &mut looked);
        }
        // A changing file is scanned again once it has settled.
        if is_new || unsettled {
            self.options.watch_more.notify_one();
        }
        here
    }

    fn now(&self, settings: &SkillSettings) -> Now {
        Now {
            wall: self.options.clock.now(),
            steady: self.options.clock.monotonic(),
            settle: settings.settle,
        }
    }

    /// Whether a file of this workspace is still changing and therefore not taken over yet.
    fn is_unsettled(&self, name: &PlaceName) -> bool {
        let looked = lock(&self.looked);
        let places = lock(&self.places);
        let place = places.get(name);
        place.is_some_and(|place| {
            let mut roots = place.roots.iter().filter_map(|root| looked.get(root));
            roots.any(|root| root.unsettled)
        })
    }

    fn known_here(&self, name: &PlaceName) -> Option<Arc<SkillListing>> {
        let now = self.options.clock.monotonic();
        let places = lock(&self.places);
        let place = places.get(name)?;
        (now.saturating_sub(place.at) < FRESH).then(|| Arc::clone(&place.here))
    }

    /// What could not be read in the last scans, and why; the versions read before stay in use.
    pub fn unread(&self) -> Vec<String> {
        let looked = lock(&self.looked);
        let mut unread: Vec<String> = looked
            .values()
            .flat_map(|looked| looked.unread.iter().cloned())
            .collect();
        unread.sort_unstable();
        unread
    }

    /// Scans all recently requested workspaces; returns what the watcher has to watch.
    pub fn look(&self) -> crate::watch::FolderScan {
        // Roots shared by several workspaces are scanned once.
        let mut done = HashSet::new();
        let known: Vec<PlaceName> = lock(&self.places).keys().cloned().collect();
        for (org, folder) in known {
            self.look_beside(&org, path_of(&folder), true, &mut done);
        }
        let looked = lock(&self.looked);
        let mut hasher = DefaultHasher::new();
        let mut all = crate::watch::FolderScan::default();
        let ordered: BTreeMap<&PathBuf, &Arc<Looked>> = looked.iter().collect();
        for (folder, looked) in &ordered {
            (folder, looked.signature).hash(&mut hasher);
            all.awaited.extend(looked.awaited.iter().cloned());
        }
        // Collected in one pass: single insertions would compare each folder with many others.
        let folders = ordered.values().flat_map(|looked| looked.folders());
        all.folders = folders.collect();
        all.signature = hasher.finish();
        all
    }
}

impl SkillCatalog for Library {
    fn is_ready(&self, place: CatalogScope<'_>) -> bool {
        self.known_here(&self.cache_name(place)).is_some()
    }

    fn here(&self, place: CatalogScope<'_>, fresh: bool) -> Arc<SkillListing> {
        if !fresh && let Some(known) = self.known_here(&self.cache_name(place)) {
            return known;
        }
        let (org, cwd) = (place.org, place.cwd);
        let here = self.look_at(org, self.folder(cwd), fresh);
        let name = (org.to_owned(), here.workspace.clone());
        // With `fresh`, the caller waits until changing files have settled.
        let settle = self.options.settings.borrow().settle;
        for _ in 0..LOOKS {
            if !fresh || !self.is_unsettled(&name) {
                break;
            }
            std::thread::sleep(settle);
            self.look_at(org, self.folder(cwd), true);
        }
        match fresh {
            true => self.known_here(&name).unwrap_or(here),
            false => here,
        }
    }

    fn pick(
        &self,
        here: &SkillListing,
        names: Option<&[String]>,
        env: &[String],
    ) -> Arc<PickedSkills> {
        // The hash of the usable skills does not cover what skills lack in the environment.
        let place = match env.is_empty() {
            true => here.hash.clone(),
            false => format!("{} {} {}", here.hash, here.org, here.workspace),
        };
        let key = (place, names.map(<[String]>::to_vec), env.to_vec());
        if let Some(known) = lock(&self.picks).get(&key) {
            return Arc::clone(known);
        }
        let limits = self.options.settings.borrow().prompt;
        let picked = Arc::new(set::pick(here, names, env, limits));
        let mut picks = lock(&self.picks);
        if picks.len() >= PICKS {
            picks.clear();
        }
        picks.insert(key, Arc::clone(&picked));
        picked
    }

    fn known(&self, org: &str) -> Vec<String> {
        let places = lock(&self.places);
        let own = places.keys().filter(|(owner, _)| owner == org);
        own.map(|(_, folder)| folder.clone()).collect()
    }

    fn required_programs(&self, org: &str) -> BTreeSet<String> {
        let looked = lock(&self.looked);
        let places = lock(&self.places);
        let own = places.iter().filter(|((owner, _), _)| owner == org);
        let roots = own.flat_map(|(_, place)| &place.roots);
        let files = roots.filter_map(|root| looked.get(root));
        let limits = self.options.settings.borrow().limits;
        let skills = self.options.nodes.get().map(|nodes| nodes.skills(org));
        let of_nodes = published(&skills.unwrap_or_default(), BTreeSet::new(), limits);
        let mut programs = BTreeSet::new();
        let found = files.flat_map(|looked| looked.found.iter());
        for file in found.chain(bundled()).chain(&of_nodes) {
            if let Ok(skill) = &file.outcome {
                let needs = &skill.requires;
                let names = needs.bins.iter().chain(&needs.any_bins);
                programs.extend(names.filter(|name| is_program_name(name)).cloned());
            }
        }
        programs.into_iter().take(MAX_PROGRAMS).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // These are caches: what a panic left incomplete is soon scanned again.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True for the plain name of a program, which a search path can find.
fn is_program_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && !name.contains(['/', '\0'])
}

fn name_of(folder: Option<&Path>) -> String {
    folder.map_or_else(String::new, |folder| folder.to_string_lossy().into_owned())
}

fn path_of(name: &str) -> Option<PathBuf> {
    (!name.is_empty()).then(|| PathBuf::from(name))
}

fn made_from(settings: &SkillSettings, found: &[FoundRoot], of_nodes: &[Arc<SkillFile>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{settings:?}").hash(&mut hasher);
    for file in of_nodes {
        let body = file.outcome.as_ref().map(|skill| &skill.body.hash);
        format!("{:?} {body:?}", file.file).hash(&mut hasher);
    }
    for (source, looked) in found {
        (source, looked.signature).hash(&mut hasher);
        // A program may have been installed or removed, which changes no skill file.
        for found in &looked.found {
            if let Ok(skill) = &found.outcome
                && !(skill.requires.bins.is_empty() && skill.requires.any_bins.is_empty())
            {
                skill.requires.missing(&settings.host).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

fn made(
    name: PlaceName,
    (found, of_nodes): (&[FoundRoot], &[Arc<SkillFile>]),
    settings: &SkillSettings,
) -> SkillListing {
    let mut all: Vec<(SkillSource, &[Arc<SkillFile>])> = found
        .iter()
        .map(|(source, looked)| (*source, looked.found.as_slice()))
        .collect();
    if settings.bundled {
        all.push((SkillSource::Bundled, bundled()));
    }
    all.push((SkillSource::Node, of_nodes));
    // The sort is stable: roots of one source keep their order.
    all.sort_by_key(|(source, _)| *source);
    set::here(name, &all, settings)
}

/// Evicts workspaces above [`PLACES`] and roots that none uses, so that memory and watches stay
/// bounded.
fn forget_some(
    places: &mut HashMap<PlaceName, CachedWorkspace>,
    looked: &mut HashMap<PathBuf, Arc<Looked>>,
) {
    while places.len() > MAX_WORKSPACES {
        let oldest = places.iter().min_by_key(|(_, place)| place.at);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            break;
        };
        places.remove(&name);
    }
    looked.retain(|folder, _| places.values().any(|place| place.roots.contains(folder)));
}
