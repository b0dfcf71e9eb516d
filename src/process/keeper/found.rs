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
use crate::file_work::sync_folder;
use crate::kernel::ids::{RunId, StepId};
use crate::process::launch::own_program;
use crate::process::table::{self, ProcessIdentity};

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
    /// The steps whose keepers are of a newer version. They are left alone: neither ended nor removed.
    newer: HashMap<StepId, NewerKeeper>,
}

/// The version of a keeper's files, and the keeper if it was alive when it was found.
type NewerKeeper = (u32, Option<ProcessIdentity>);

/// A keeper and its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperUse {
    /// The run of the program.
    pub run: RunId,
    /// The keeper; `None` until it is started, and if it was dead when it was found.
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
            tracing::warn!(path = %path.display(), "this names no keeper of a program; it is left alone");
        }
        for (step, (version, _)) in &found.newer {
            tracing::warn!(%step, version, "this program has a keeper of a newer abide; both are left alone");
        }
        Ok(Keepers {
            own,
            uses: Mutex::new(found.uses),
            newer: found.newer,
            options,
        })
    }

    /// True if an earlier process has started programs that may still run.
    pub(in crate::process) fn has_started(&self) -> bool {
        !self.uses().is_empty() || !self.newer.is_empty()
    }

    /// The version of the files of this step's keeper, if it is newer than this program.
    pub(super) fn newer(&self, step: StepId) -> Option<u32> {
        self.newer.get(&step).map(|(version, _)| *version)
    }

    /// The steps whose keepers are of a newer version.
    pub(in crate::process) fn all_newer(&self) -> Vec<StepId> {
        let mut steps: Vec<StepId> = self.newer.keys().copied().collect();
        steps.sort_unstable();
        steps
    }

    /// The keepers of newer versions that were alive when they were found. No file is read again: an
    /// error would make a living one look dead, which is then ended.
    pub(in crate::process) fn newer_keepers(&self) -> HashSet<ProcessIdentity> {
        self.newer
            .values()
            .filter_map(|(_, keeper)| *keeper)
            .collect()
    }

    pub(super) fn folder(&self, step: StepId) -> KeeperFolder {
        KeeperFolder::at(self.options.folder.join(step.0.to_string()))
    }

    /// Once this returns, there is an empty folder for the step, which has not begun. What an earlier
    /// attempt has left is removed, unless a newer version has written it: that is an error.
    pub(in crate::process) fn prepare(&self, run: RunId, step: StepId) -> io::Result<()> {
        if let Some(removed) = self.take_away(step)? {
            // Otherwise a loss of power could bring the old folder back in place of the new one: it
            // says that nothing was launched, and the program would begin twice.
            sync_folder(&self.options.folder)?;
            discard(&removed);
        }
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

    /// Renames the folder of the step, so that it is gone at once; returns its new path. A folder of
    /// a newer version is an error.
    pub(in crate::process) fn take_away(&self, step: StepId) -> io::Result<Option<PathBuf>> {
        let folder = self.folder(step);
        if let Some(version) = self.newer(step) {
            return Err(io::Error::other(is_newer(version, &folder)));
        }
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

/// The message that a keeper of a newer version has this folder.
pub(super) fn is_newer(version: u32, folder: &KeeperFolder) -> String {
    format!(
        "its keeper is of a newer abide (version {version} of its files), which this one cannot \
         follow; {} was left alone",
        folder.path().display()
    )
}

/// What a folder of keepers contains.
#[derive(Default)]
struct Found {
    uses: HashMap<StepId, KeeperUse>,
    /// The keepers that are newer than this program.
    newer: HashMap<StepId, NewerKeeper>,
    /// Folders whose removal was interrupted.
    removed: Vec<PathBuf>,
    /// What names no keeper, or cannot be examined.
    unreadable: Vec<PathBuf>,
}

/// Reads a folder of keepers, and changes nothing. What has vanished meanwhile is left out. A record
/// that cannot be read is an error: its keeper may be alive, and would be ended as unknown.
fn scan(folder: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
            found.removed.push(path);
            continue;
        }
        let step = name.to_str().and_then(|name| name.parse().ok());
        let Some(step) = step.map(StepId) else {
            found.unreadable.push(path);
            continue;
        };
        match fs::metadata(&path) {
            Ok(about) if about.is_dir() => {}
            Ok(_) => {
                found.unreadable.push(path);
                continue;
            }
            // It was removed after it was listed. A link to nothing is still there.
            Err(fault) if fault.kind() == ErrorKind::NotFound && !path.is_symlink() => continue,
            Err(fault) => {
                tracing::warn!(%fault, path = %path.display(), "this entry in the folder of keepers cannot be examined");
                found.unreadable.push(path);
                continue;
            }
        }
        let folder = KeeperFolder::at(path.clone());
        let record = match folder.keeper() {
            // Of another user, whose processes this one cannot end either.
            Err(fault) if fault.kind() == ErrorKind::PermissionDenied => {
                found.unreadable.push(path);
                continue;
            }
            record => record.map_err(|fault| at(&path, &fault))?,
        };
        let known = match record {
            // A folder can be copied, or renamed by hand.
            Stored::Record(record) if record.step != step => {
                found.unreadable.push(path);
                continue;
            }
            Stored::Record(record) => KeeperUse {
                run: record.run,
                // The record of a copied folder names a keeper that works in another one.
                keeper: folder
                    .is_held_by(record.keeper.pid)
                    .map_err(|fault| at(&path, &fault))?
                    .then_some(record.keeper),
                is_detached: false,
            },
            Stored::Newer(version) => {
                let holder = folder.holder().map_err(|fault| at(&path, &fault))?;
                // 0 stands for a process in another pid namespace.
                let pid = holder.filter(|pid| *pid != 0);
                let keeper = pid.and_then(table::one).map(|row| row.id);
                found.newer.insert(step, (version, keeper));
                continue;
            }
            Stored::Nothing => match folder.run().map_err(|fault| at(&path, &fault))? {
                Some(run) => KeeperUse {
                    run,
                    keeper: None,
                    is_detached: false,
                },
                // It was not stored that the step begins.
                None => {
                    found.removed.push(path);
                    continue;
                }
            },
        };
        found.uses.insert(step, known);
    }
    Ok(found)
}

/// The same error with the path that it is about.
fn at(path: &Path, fault: &io::Error) -> io::Error {
    io::Error::new(fault.kind(), format!("{}: {fault}", path.display()))
}

/// What a folder of keepers contains, for people.
#[derive(Debug, Default)]
pub struct KeptPrograms {
    /// The programs.
    pub kept: Vec<KeptStep>,
    /// The folders of programs whose keepers are of a newer version.
    pub newer: Vec<PathBuf>,
    /// The paths that name no keeper.
    pub unreadable: Vec<PathBuf>,
}

/// The programs in a folder of keepers. Changes nothing; a folder that does not exist has none.
pub fn survey(folder: &Path) -> io::Result<KeptPrograms> {
    let found = match scan(folder) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(KeptPrograms::default()),
        found => found?,
    };
    let path = |step: StepId| folder.join(step.0.to_string());
    let kept = found.uses.into_iter().map(|(step, known)| KeptStep {
        run: known.run,
        step,
        is_alive: KeeperFolder::at(path(step)).is_alive().unwrap_or(true),
    });
    Ok(KeptPrograms {
        kept: kept.collect(),
        newer: found.newer.into_keys().map(path).collect(),
        unreadable: found.unreadable,
    })
}
