//! A cache of the agents found around working folders. An entry is rechecked after [`FRESH`], and
//! rebuilt only if the files changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::view::Set;
use crate::clock::Clock;

/// How long an entry is valid without a check; as fast as the detection in watched folders.
const FRESH: Duration = Duration::from_millis(250);
/// The maximum number of folders; beyond it, the one checked longest ago is evicted.
const FOLDERS: usize = 256;

/// The project of a folder and a hash of its files.
pub(super) type FolderState = (Option<PathBuf>, u64);

/// The cache of checked folders.
pub(super) struct FolderCache {
    clock: Clock,
    known: HashMap<(String, PathBuf), CachedFolder>,
}

struct CachedFolder {
    looked: Duration,
    generation: u64,
    state: FolderState,
    /// `None` = no project: the agents of the tenant apply.
    set: Option<Arc<Set>>,
}

impl FolderCache {
    pub(super) fn new(clock: Clock) -> Self {
        FolderCache {
            clock,
            known: HashMap::new(),
        }
    }

    /// The entry for `cwd`, if it was checked recently and for this generation.
    pub(super) fn fresh(&self, org: &str, cwd: &Path, generation: u64) -> Option<Option<Arc<Set>>> {
        let known = self.known.get(&(org.to_owned(), cwd.to_owned()))?;
        let age = self.clock.monotonic().saturating_sub(known.looked);
        (known.generation == generation && age < FRESH).then(|| known.set.clone())
    }

    /// The entry for `cwd`, if its state is unchanged; this counts as a check.
    pub(super) fn unchanged(
        &mut self,
        org: &str,
        cwd: &Path,
        generation: u64,
        state: &FolderState,
    ) -> Option<Option<Arc<Set>>> {
        let now = self.clock.monotonic();
        let known = self.known.get_mut(&(org.to_owned(), cwd.to_owned()))?;
        if known.generation != generation || known.state != *state {
            return None;
        }
        known.looked = now;
        Some(known.set.clone())
    }

    /// Drops all entries.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Stores an entry.
    pub(super) fn keep(
        &mut self,
        org: &str,
        cwd: &Path,
        generation: u64,
        state: FolderState,
        set: Option<Arc<Set>>,
    ) {
        if self.known.len() >= FOLDERS {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.looked);
            if let Some(place) = oldest.map(|(place, _)| place.clone()) {
                self.known.remove(&place);
            }
        }
        let known = CachedFolder {
            looked: self.clock.monotonic(),
            generation,
            state,
            set,
        };
        self.known.insert((org.to_owned(), cwd.to_owned()), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::time::Timestamp;

    #[test]
    fn a_look_counts_for_a_moment_and_folders_are_bounded() {
        let clock = Clock::test(Timestamp(0));
        let mut nearby = FolderCache::new(clock.clone());
        let cwd = Path::new("/work");
        let state = (None, 7);
        nearby.keep("default", cwd, 1, state.clone(), None);
        assert!(nearby.fresh("default", cwd, 1).is_some());
        assert!(nearby.fresh("default", cwd, 2).is_none());
        assert!(nearby.fresh("other", cwd, 1).is_none());
        clock.advance(FRESH);
        assert!(nearby.fresh("default", cwd, 1).is_none());
        assert!(nearby.unchanged("default", cwd, 1, &(None, 8)).is_none());
        assert!(nearby.unchanged("default", cwd, 1, &state).is_some());
        assert!(nearby.fresh("default", cwd, 1).is_some());
        for number in 0..2 * FOLDERS {
            clock.advance(Duration::from_millis(1));
            let folder = PathBuf::from(format!("/work/{number}"));
            nearby.keep("default", &folder, 1, state.clone(), None);
        }
        assert_eq!(nearby.known.len(), FOLDERS);
    }
}
