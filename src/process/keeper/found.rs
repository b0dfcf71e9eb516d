//! All keepers of a daemon, those that earlier processes have started included: which there are,
//! which run they work for, and the removal of their folders.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folder::{KeeperFolder, Stored};
use crate::clock::Clock;
use crate::contract::processes::KeptStep;
use crate::failpoint;
use crate::kernel::ids::{RunId, StepId};
use crate::process::launch::own_program;
use crate::process::table::ProcessIdentity;

/// The beginning of the name of a folder that is being removed.
const REMOVED: &str = ".removed-";

/// Where and how programs are kept.
#[derive(Clone)]
pub struct KeeperOptions {
    /// The folder with one folder for each kept program.
    pub folder: PathBuf,
    /// The file that a living daemon has locked; keepers look at it.
    pub daemon_lock: PathBuf,
    /// How long programs go on without a daemon.
    pub orphan_max: Duration,
    /// The key from which the keys for output are derived.
    pub key: [u8; 32],
}

/// All keepers.
pub struct Keepers {
    pub(super) options: KeeperOptions,
    /// The file of this program, which keepers execute.
    pub(super) own: PathBuf,
    uses: Mutex<HashMap<StepId, KeeperUse>>,
}

/// A keeper and its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperUse {
    /// The run of the program.
    pub run: RunId,
    /// The keeper; `None` until it is started.
    pub keeper: Option<ProcessIdentity>,
    /// Its program has ended and left processes in the background, which it watches over.
    pub is_detached: bool,
}

impl fmt::Debug for Keepers {
    /// Prints the folder alone: the options have a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keepers")
            .field(&self.options.folder)
            .finish()
    }
}

impl Keepers {
    /// Finds the keepers of earlier processes. Removes what is left of folders whose removal was
    /// interrupted.
    pub fn open(options: KeeperOptions) -> io::Result<Keepers> {
        let folder = &options.folder;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made?;
        let own = failpoint::own_program()
            .or_else(own_program)
            .ok_or_else(|| {
                io::Error::new(ErrorKind::NotFound, "the file of this program is unknown")
            })?;
        let found = scan(folder)?;
        for path in &found.removed {
            discard(path);
        }
        for path in &found.unreadable {
            tracing::warn!(path = %path.display(), "this names no keeper of this version; it is left alone");
        }
        Ok(Keepers {
            own,
            uses: Mutex::new(found.uses),
            options,
        })
    }

    pub(super) fn folder(&self, step: StepId) -> KeeperFolder {
        KeeperFolder::at(self.options.folder.join(step.0.to_string()))
    }

    /// Once this returns, there is an empty folder for the step, which has not begun. What an earlier
    /// attempt has left is removed.
    pub(in crate::process) fn prepare(&self, run: RunId, step: StepId) -> io::Result<()> {
        self.remove(step)?;
        let known = KeeperUse {
            run,
            keeper: None,
            is_detached: false,
        };
        self.note(step, known);
        self.folder(step).make(run)
    }

    /// Notes that this process follows a keeper.
    pub(super) fn note(&self, step: StepId, known: KeeperUse) {
        self.uses().insert(step, known);
    }

    /// The keepers of this run, those whose end was not seen included.
    pub(in crate::process) fn of_run(&self, run: RunId) -> HashSet<ProcessIdentity> {
        let uses = self.uses();
        let own = uses.values().filter(|known| known.run == run);
        own.filter_map(|known| known.keeper).collect()
    }

    /// All kept programs, and whether their keepers are alive.
    pub(in crate::process) fn all(&self) -> Vec<KeptStep> {
        let uses = self.uses().clone();
        let kept = uses.into_iter().map(|(step, known)| KeptStep {
            run: known.run,
            step,
            is_alive: self.is_alive(step),
        });
        kept.collect()
    }

    /// The living keepers of these steps.
    pub(in crate::process) fn alive(&self, steps: &HashSet<StepId>) -> HashSet<ProcessIdentity> {
        let uses = self.uses().clone();
        let own = uses.into_iter().filter(|(step, _)| steps.contains(step));
        own.filter(|(step, _)| self.is_alive(*step))
            .filter_map(|(_, known)| known.keeper)
            .collect()
    }

    /// The run and keeper of each kept program.
    pub(in crate::process) fn uses(&self) -> MutexGuard<'_, HashMap<StepId, KeeperUse>> {
        // Each change is one insertion or removal.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the keeper of this step is alive, or cannot be examined.
    pub(in crate::process) fn is_alive(&self, step: StepId) -> bool {
        self.folder(step).is_alive().unwrap_or(true)
    }

    /// Once this returns, there is no folder for the step, so its program can be started anew.
    pub(super) fn remove(&self, step: StepId) -> io::Result<()> {
        if let Some(removed) = self.take_away(step)? {
            discard(&removed);
        }
        Ok(())
    }

    /// Renames the folder of the step, so that it is gone at once; returns its new path.
    pub(in crate::process) fn take_away(&self, step: StepId) -> io::Result<Option<PathBuf>> {
        let folder = self.folder(step);
        let name = format!("{REMOVED}{}", Clock::system().new_id());
        let new = self.options.folder.join(name);
        let renamed = fs::rename(folder.path(), &new);
        self.uses().remove(&step);
        match renamed {
            Ok(()) => Ok(Some(new)),
            Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// Removes a folder that was taken away; its name is free already.
pub(in crate::process) fn discard(removed: &Path) {
    if let Err(fault) = fs::remove_dir_all(removed) {
        tracing::warn!(%fault, path = %removed.display(), "the folder of an ended program could not be removed; the next start tries again");
    }
}

/// What a folder of keepers contains.
struct Found {
    uses: HashMap<StepId, KeeperUse>,
    /// Folders whose removal was interrupted.
    removed: Vec<PathBuf>,
    /// What names no keeper, or one of a newer version.
    unreadable: Vec<PathBuf>,
}

/// Reads a folder of keepers, and changes nothing.
fn scan(folder: &Path) -> io::Result<Found> {
    let mut found = Found {
        uses: HashMap::new(),
        removed: Vec::new(),
        unreadable: Vec::new(),
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let step = name.to_str().and_then(|name| name.parse().ok());
        if name.as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
            found.removed.push(path);
            continue;
        }
        let folder = KeeperFolder::at(path.clone());
        match (step.map(StepId), folder.keeper()) {
            (Some(step), Ok(Stored::Record(record))) => {
                let known = KeeperUse {
                    run: record.run,
                    keeper: Some(record.keeper),
                    is_detached: false,
                };
                found.uses.insert(step, known);
            }
            (Some(step), Ok(Stored::Nothing)) => match folder.run() {
                Some(run) => {
                    let known = KeeperUse {
                        run,
                        keeper: None,
                        is_detached: false,
                    };
                    found.uses.insert(step, known);
                }
                // It was not stored that the step begins.
                None => found.removed.push(path),
            },
            _ => found.unreadable.push(path),
        }
    }
    Ok(found)
}

/// The programs in a folder of keepers, and the paths in it that name none. Changes nothing; for a
/// folder that does not exist, both are empty.
pub fn survey(folder: &Path) -> io::Result<(Vec<KeptStep>, Vec<PathBuf>)> {
    let found = match scan(folder) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(Default::default()),
        found => found?,
    };
    let kept = found.uses.into_iter().map(|(step, known)| KeptStep {
        run: known.run,
        step,
        is_alive: KeeperFolder::at(folder.join(step.0.to_string()))
            .is_alive()
            .unwrap_or(true),
    });
    Ok((kept.collect(), found.unreadable))
}
