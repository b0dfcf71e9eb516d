//! The skills of every place that was asked for: looked at again when a moment has passed or a
//! watcher has heard something, and read again where a file has changed. Made once at the start
//! of the daemon.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::bundled::bundled;
use super::scan::{Found, Looked, Now, look};
use super::sources::{Source, roots};
use super::{Settings, set};
use crate::clock::Clock;
use crate::contract::skills::{PickedSkills, Skills, SkillsHere};

/// So long a look counts, whoever asks for a place.
const FRESH: Duration = Duration::from_millis(250);
/// So often it is looked again whether what changes has become still, for who waits for it.
const LOOKS: usize = 8;
/// So many places are kept; beyond it the one that was asked for least lately goes.
const PLACES: usize = 128;
/// So many picks are kept.
const PICKS: usize = 256;

/// What the library must know.
pub struct Options {
    /// They change with the settings.
    pub settings: watch::Receiver<Settings>,
    /// The folder of runs that name none.
    pub workspace: Option<PathBuf>,
    /// Finds the project around a folder.
    pub project: fn(&Path) -> Option<PathBuf>,
    /// Told when there is more to watch.
    pub more: Arc<Notify>,
    /// Time.
    pub clock: Clock,
}

/// The skills of every place.
pub struct Library {
    options: Options,
    /// What lies at each root; held while disks are looked at, so that each is once.
    looked: Mutex<HashMap<PathBuf, Arc<Looked>>>,
    places: Mutex<HashMap<String, Place>>,
    picks: Mutex<HashMap<PickKey, Arc<PickedSkills>>>,
}

/// The hash of what is there, the agent's list, and what its runs have in their environment.
type PickKey = (String, Option<Vec<String>>, Vec<String>);

struct Place {
    at: Duration,
    roots: Vec<PathBuf>,
    /// Of what `here` was made from.
    made_from: u64,
    here: Arc<SkillsHere>,
}

impl Library {
    /// A library that has looked at nothing yet.
    pub fn new(options: Options) -> Self {
        Library {
            options,
            looked: Mutex::default(),
            places: Mutex::default(),
            picks: Mutex::default(),
        }
    }

    /// The name by which a place is asked for. One that is not its own is not known: the folder
    /// is looked at.
    fn asked_for<'a>(&'a self, cwd: Option<&'a str>) -> Cow<'a, str> {
        match (cwd, &self.options.workspace) {
            (Some(cwd), _) => cwd.into(),
            (None, Some(workspace)) => workspace.to_string_lossy(),
            (None, None) => "".into(),
        }
    }

    fn folder(&self, cwd: Option<&str>) -> Option<PathBuf> {
        let folder = cwd.map_or_else(|| self.options.workspace.clone(), |cwd| Some(cwd.into()));
        // One place has one name, whatever links lead to it.
        folder.map(|folder| folder.canonicalize().unwrap_or(folder))
    }

    /// Looks at the place now, unless somebody did a moment ago.
    fn look_at(&self, folder: Option<PathBuf>, fresh: bool) -> Arc<SkillsHere> {
        self.look_beside(folder, fresh, &mut HashSet::new())
    }

    /// As [`Library::look_at`], where the roots in `done` were just looked at.
    fn look_beside(
        &self,
        folder: Option<PathBuf>,
        fresh: bool,
        done: &mut HashSet<PathBuf>,
    ) -> Arc<SkillsHere> {
        let name = name_of(folder.as_deref());
        if !fresh && let Some(known) = self.known_here(&name) {
            return known;
        }
        let settings = self.options.settings.borrow().clone();
        let project = folder.as_deref().and_then(self.options.project);
        let roots = roots(&settings, folder.as_deref(), project.as_deref());
        let mut looked = lock(&self.looked);
        // Whoever had the lock may have looked.
        if !fresh && let Some(known) = self.known_here(&name) {
            return known;
        }
        let mut found: Vec<(Source, Arc<Looked>)> = Vec::with_capacity(roots.len());
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
                    "skills: {place}; what was read there before counts, and it is looked at again"
                );
            }
            unsettled |= now.unsettled;
            done.insert(root.folder.clone());
            looked.insert(root.folder.clone(), Arc::clone(&now));
            found.push((root.source, now));
        }
        let made_from = made_from(&settings, &found);
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
                let here = Arc::new(made(name.clone(), &found, &settings));
                let place = Place {
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
        // What changes is looked at again once it has been still.
        if is_new || unsettled {
            self.options.more.notify_one();
        }
        here
    }

    fn now(&self, settings: &Settings) -> Now {
        Now {
            wall: self.options.clock.now(),
            steady: self.options.clock.monotonic(),
            settle: settings.settle,
        }
    }

    /// Is something at this place not taken before it is still?
    fn is_unsettled(&self, name: &str) -> bool {
        let looked = lock(&self.looked);
        let places = lock(&self.places);
        let place = places.get(name);
        place.is_some_and(|place| {
            let mut roots = place.roots.iter().filter_map(|root| looked.get(root));
            roots.any(|root| root.unsettled)
        })
    }

    fn known_here(&self, name: &str) -> Option<Arc<SkillsHere>> {
        let now = self.options.clock.monotonic();
        let places = lock(&self.places);
        let place = places.get(name)?;
        (now.saturating_sub(place.at) < FRESH).then(|| Arc::clone(&place.here))
    }

    /// What could not be read at the last look, and why: what was found there before counts.
    pub fn unread(&self) -> Vec<String> {
        let looked = lock(&self.looked);
        let mut unread: Vec<String> = looked
            .values()
            .flat_map(|looked| looked.unread.iter().cloned())
            .collect();
        unread.sort_unstable();
        unread
    }

    /// Looks at every place that was asked for of late.
    pub fn look(&self) -> crate::watch::Looked {
        // Roots that places share are looked at once.
        let mut done = HashSet::new();
        for name in self.known() {
            self.look_beside(path_of(&name), true, &mut done);
        }
        let looked = lock(&self.looked);
        let mut hasher = DefaultHasher::new();
        let mut all = crate::watch::Looked::default();
        let ordered: BTreeMap<&PathBuf, &Arc<Looked>> = looked.iter().collect();
        for (folder, looked) in &ordered {
            (folder, looked.signature).hash(&mut hasher);
            all.awaited.extend(looked.awaited.iter().cloned());
        }
        // Made at once: one by one each would be compared with many.
        let folders = ordered.values().flat_map(|looked| looked.folders());
        all.folders = folders.collect();
        all.signature = hasher.finish();
        all
    }
}

impl Skills for Library {
    fn is_ready(&self, cwd: Option<&str>) -> bool {
        self.known_here(&self.asked_for(cwd)).is_some()
    }

    fn here(&self, cwd: Option<&str>, fresh: bool) -> Arc<SkillsHere> {
        if !fresh && let Some(known) = self.known_here(&self.asked_for(cwd)) {
            return known;
        }
        let here = self.look_at(self.folder(cwd), fresh);
        // Who asks for what is there now waits until it is still.
        let settle = self.options.settings.borrow().settle;
        for _ in 0..LOOKS {
            if !fresh || !self.is_unsettled(&here.workspace) {
                break;
            }
            std::thread::sleep(settle);
            self.look_at(self.folder(cwd), true);
        }
        match fresh {
            true => self.known_here(&here.workspace).unwrap_or(here),
            false => here,
        }
    }

    fn pick(
        &self,
        here: &SkillsHere,
        names: Option<&[String]>,
        env: &[String],
    ) -> Arc<PickedSkills> {
        // What a skill lacks is no part of the hash of what can be used.
        let place = match env.is_empty() {
            true => here.hash.clone(),
            false => format!("{} {}", here.hash, here.workspace),
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

    fn known(&self) -> Vec<String> {
        lock(&self.places).keys().cloned().collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // They are caches: what a panic left in one is looked at again soon.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(folder: Option<&Path>) -> String {
    folder.map_or_else(String::new, |folder| folder.to_string_lossy().into_owned())
}

fn path_of(name: &str) -> Option<PathBuf> {
    (!name.is_empty()).then(|| PathBuf::from(name))
}

fn made_from(settings: &Settings, found: &[(Source, Arc<Looked>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{settings:?}").hash(&mut hasher);
    for (source, looked) in found {
        (source, looked.signature).hash(&mut hasher);
        // A program may have been installed or taken away; no skill's file tells.
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

fn made(name: String, found: &[(Source, Arc<Looked>)], settings: &Settings) -> SkillsHere {
    let mut all: Vec<(Source, &[Arc<Found>])> = found
        .iter()
        .map(|(source, looked)| (*source, looked.found.as_slice()))
        .collect();
    if settings.bundled {
        all.push((Source::Bundled, bundled()));
    }
    // Roots of one source keep their order.
    all.sort_by_key(|(source, _)| *source);
    set::here(name, &all, settings)
}

/// Keeps memory and watches bounded by what is at work.
fn forget_some(places: &mut HashMap<String, Place>, looked: &mut HashMap<PathBuf, Arc<Looked>>) {
    while places.len() > PLACES {
        let oldest = places.iter().min_by_key(|(_, place)| place.at);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            break;
        };
        places.remove(&name);
    }
    looked.retain(|folder, _| places.values().any(|place| place.roots.contains(folder)));
}
