//! Findings on a daemon's environment: its folder, the disk, the clock, system limits. The daemon
//! checks from inside, `abide doctor` from outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::program;
use crate::clock::Clock;
use crate::config::Config;
use crate::contract::control::{ModelProvider, SurroundingGauges};
use crate::contract::finding::{Finding, Health};
use crate::contract::servers::{ServerState, ServerViews};
use crate::daemon::boot::Boot;
use crate::daemon::listen::{DaemonAddress, Protection};
use crate::daemon::parts::DaemonParts;
use crate::daemon::state;
use crate::file_work;
use crate::process;
use crate::store::repair::findings::bytes;
use crate::watch::Notice;

/// Files that only their owner may access.
const PRIVATE: &[&str] = &[
    "abide.db",
    "abide.db-wal",
    state::TOKEN,
    state::KEY,
    state::GATEWAY_KEY,
    "endpoint.json",
    "abide.lock",
];
/// Free space below this is reported as a warning.
const ROOM: u64 = 1 << 30;
/// Limits on watches: of the system, and of this user namespace.
const WATCH_LIMITS: [&str; 2] = [
    "/proc/sys/fs/inotify/max_user_watches",
    "/proc/sys/user/max_inotify_watches",
];
/// Number of watches that is enough for a few folders of skills.
const WATCHES: u64 = 8192;
/// A file this many seconds in the future shows that the clock was set back.
const AHEAD_S: i64 = 120;

/// Returns the paths that cannot be read now, each with the reason.
pub type Unread = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// What a running daemon checks.
pub struct Surroundings {
    /// The state folder.
    pub folder: PathBuf,
    /// `storage.min_free` in bytes.
    pub min_free: u64,
    /// The daemon's clock.
    pub clock: Clock,
    /// Notices of file watchers, by what they watch.
    pub watchers: Vec<(&'static str, Notice)>,
    /// Unreadable files, by what they are part of.
    pub unread: Vec<(&'static str, Unread)>,
    /// How TCP connections are protected.
    pub protection: Protection,
}

impl Surroundings {
    /// The surroundings of a daemon with these parts.
    pub fn of(
        folder: &Path,
        boot: &Boot,
        parts: &DaemonParts,
        config: &Config,
        address: &DaemonAddress,
    ) -> Surroundings {
        let (registry, library) = (parts.registry.clone(), Arc::clone(&parts.skills));
        Surroundings {
            folder: folder.to_owned(),
            min_free: config.min_free,
            clock: boot.clock.clone(),
            watchers: vec![
                ("agents", parts.agent_files.notice()),
                ("skills", parts.skill_files.notice()),
            ],
            unread: vec![
                ("agents", Box::new(move || registry.catalog().unread())),
                ("skills", Box::new(move || library.unread())),
            ],
            protection: address.protection.clone(),
        }
    }

    /// The messages of findings where behaviour differs from the settings.
    pub fn notices(&self) -> Vec<String> {
        let findings = self.watchers.iter().filter_map(heard_nothing);
        let findings = findings.chain(self.unread.iter().filter_map(cannot_be_read));
        let findings = findings.chain(files_do_not_answer());
        let findings = findings.chain(program::replaced());
        let protection = self.protection.findings().into_iter();
        let findings = findings.chain(protection.filter(|one| one.status != Health::Ok));
        findings.map(|finding| finding.message).collect()
    }

    /// Numbers for the metrics.
    pub fn gauges(&self) -> SurroundingGauges {
        let polling = self
            .watchers
            .iter()
            .filter(|(_, notice)| notice.get().is_some());
        SurroundingGauges {
            free_bytes: crate::store::free(&self.folder),
            polling_watchers: polling.count() as u64,
        }
    }

    /// All findings.
    pub fn look(&self, mend: bool) -> Vec<Finding> {
        let mut findings = look(&self.folder, self.min_free, &self.clock, mend);
        findings.extend(self.watchers.iter().filter_map(heard_nothing));
        findings.extend(self.unread.iter().filter_map(cannot_be_read));
        findings.extend(files_do_not_answer());
        findings.extend(program::replaced());
        findings.extend(self.protection.findings());
        findings
    }
}

/// The findings that need no running daemon. With `mend`, permissions that are too wide are
/// corrected.
pub fn look(folder: &Path, min_free: u64, clock: &Clock, mend: bool) -> Vec<Finding> {
    vec![
        permissions(folder, mend),
        space(folder, min_free),
        clock_runs(folder, clock),
        watches(),
    ]
}

/// The finding on what programs have left in the state folder while no daemon runs.
pub(super) fn programs(folder: &Path) -> Finding {
    let id = "programs.kept";
    let folder = folder.join(state::KEEPERS);
    let found = match process::survey(&folder) {
        Ok(found) => found,
        Err(fault) => {
            let message = format!("{} cannot be read: {fault}", folder.display());
            return Finding::new(id, Health::Warn, message);
        }
    };
    let paths = |paths: &[PathBuf]| -> String {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        paths.join(", ")
    };
    let (mut wrong, mut fixes) = (Vec::new(), Vec::new());
    if !found.newer.is_empty() {
        wrong.push(format!(
            "a newer version keeps programs, which this one leaves alone: {}",
            paths(&found.newer)
        ));
        fixes.push("start the newer version again, which takes the results of its programs");
    }
    if !found.unreadable.is_empty() {
        wrong.push(format!(
            "these name no keeper of a program: {}",
            paths(&found.unreadable)
        ));
        fixes.push("remove what names no keeper if it is not yours");
    }
    let alive = found.kept.iter().filter(|kept| kept.is_alive);
    let runs: Vec<String> = alive.map(|kept| kept.run.to_string()).collect();
    let ended = found.kept.len() - runs.len();
    let mut message = format!("programs that go on without the daemon: {}", runs.len());
    if !runs.is_empty() {
        message.push_str(&format!(", of runs {}", runs.join(", ")));
    }
    if ended > 0 {
        message.push_str(&format!(
            "; ended, with a result for the next start: {ended}"
        ));
    }
    if wrong.is_empty() {
        return Finding::new(id, Health::Ok, message);
    }
    wrong.push(message);
    Finding::new(id, Health::Warn, wrong.join("; ")).fix(fixes.join("; "))
}

fn permissions(folder: &Path, mend: bool) -> Finding {
    let id = "folder.permissions";
    let Ok(about) = fs::metadata(folder) else {
        return Finding::new(
            id,
            Health::Skip,
            format!(
                "{} does not exist yet: the first start creates it",
                folder.display()
            ),
        );
    };
    let own = rustix::process::geteuid();
    if about.uid() != own.as_raw() && !own.is_root() {
        return Finding::new(
            id,
            Health::Fail,
            format!("{} is owned by another user", folder.display()),
        )
        .fix("run as the user who started the daemon, or choose another --state-dir");
    }
    let mut wide = Vec::new();
    let paths = PRIVATE.iter().map(|name| (folder.join(name), 0o600));
    for (path, mode) in std::iter::once((folder.to_owned(), 0o700)).chain(paths) {
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        if about.permissions().mode() & 0o077 == 0 {
            continue;
        }
        let mended = mend && fs::set_permissions(&path, PermissionsExt::from_mode(mode)).is_ok();
        if !mended {
            wide.push(format!("chmod {mode:o} {}", path.display()));
        }
    }
    if wide.is_empty() {
        return Finding::new(id, Health::Ok, "only its owner can access the state folder");
    }
    Finding::new(
        id,
        Health::Fail,
        "other users can access the state folder, which has the token and all transcripts",
    )
    .fix(format!("abide doctor --fix, or: {}", wide.join("; ")))
}

fn space(folder: &Path, min_free: u64) -> Finding {
    let id = "disk.space";
    let existing = folder.ancestors().find(|folder| folder.exists());
    let Some(free) = existing.and_then(crate::store::free) else {
        return Finding::new(
            id,
            Health::Skip,
            "the free disk space could not be determined",
        );
    };
    let message = format!("{} are free on the disk of the state folder", bytes(free));
    if free < min_free {
        Finding::new(
            id,
            Health::Fail,
            format!(
                "{message}; below storage.min_free ({}) no new work is accepted",
                bytes(min_free)
            ),
        )
        .fix("free some space; the daemon continues by itself")
    } else if free < ROOM {
        Finding::new(id, Health::Warn, message).fix("free some space before it runs out")
    } else {
        Finding::new(id, Health::Ok, message)
    }
}

fn clock_runs(folder: &Path, clock: &Clock) -> Finding {
    let id = "clock";
    let now = clock.now().0 / 1000;
    let newest = PRIVATE
        .iter()
        .filter_map(|name| fs::metadata(folder.join(name)).ok())
        .map(|about| about.mtime())
        .max();
    match newest {
        Some(newest) if newest > now + AHEAD_S => Finding::new(
            id,
            Health::Warn,
            format!(
                "files are dated {} s in the future: the clock was set back",
                newest - now
            ),
        )
        .fix("correct the clock; time limits of runs use a monotonic clock and are unaffected"),
        _ => Finding::new(id, Health::Ok, "the clock was not set back"),
    }
}

fn watches() -> Finding {
    let id = "inotify";
    let limit = WATCH_LIMITS.iter().filter_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    });
    let Some(limit) = limit.min() else {
        return Finding::new(id, Health::Skip, "this system has no limit on file watches");
    };
    let message = format!("{limit} files and folders can be watched");
    if limit < WATCHES {
        Finding::new(id, Health::Warn, message)
            .fix("sysctl fs.inotify.max_user_watches=65536, in /etc/sysctl.d to keep it")
    } else {
        Finding::new(id, Health::Ok, message)
    }
}

/// The finding on files that are polled although events are configured.
fn heard_nothing((what, notice): &(&'static str, Notice)) -> Option<Finding> {
    let id = format!("watch.{what}");
    let message = format!("changes of {what} are detected late: {}", notice.get()?);
    Some(Finding::new(&id, Health::Warn, message).fix(format!(
        "raise the limit (sysctl fs.inotify.max_user_watches and max_user_instances; in a \
         container also user.max_inotify_watches and user.max_inotify_instances) and restart; or, \
         on a file system without events, set {what}.watch = \"poll\""
    )))
}

/// The finding on files that exist but cannot be read.
fn cannot_be_read((what, unread): &(&'static str, Unread)) -> Option<Finding> {
    let places = unread();
    let (first, more) = places.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let message = format!(
        "{what}: {first}{more}; the last readable content is in force, and reading is retried"
    );
    let fix = "let the daemon's user read it; for \"Too many open files\" raise its limit of open \
               files";
    Some(Finding::new(&format!("unread.{what}"), Health::Warn, message).fix(fix))
}

/// Findings on threads that wait for unresponsive file systems.
fn files_do_not_answer() -> impl Iterator<Item = Finding> {
    file_work::notices().into_iter().map(|message| {
        Finding::new("files.answer", Health::Warn, message).fix(
            "find the mount that does not respond (findmnt, df), and remount or unmount it; \
             restarting the daemon frees its threads",
        )
    })
}

/// Findings on configured model providers that cannot be used.
pub fn of_providers(providers: &[ModelProvider]) -> Vec<Finding> {
    let findings = providers.iter().filter_map(|provider| {
        let problem = provider.problem.as_ref()?;
        let id = format!("provider.{}", provider.name);
        let message = format!("models of {} cannot be called: {problem}", provider.name);
        Some(Finding::new(&id, Health::Warn, message).fix(format!(
            "correct it under [providers.{}] and run abide config reload; a variable must be \
             set where the daemon is started",
            provider.name
        )))
    });
    findings.collect()
}

/// Findings on hooks that cannot be used.
pub fn of_hooks(problems: &BTreeMap<String, String>) -> Vec<Finding> {
    let findings = problems.iter().map(|(name, why)| {
        let message = format!("the hook {name} refuses every delivery: {why}");
        Finding::new(&format!("hook.{name}"), Health::Warn, message).fix(format!(
            "correct it under [hooks.{name}] and run abide config reload; a variable must be set \
             where the daemon is started"
        ))
    });
    findings.collect()
}

/// Findings on tool servers that have failed or are noisy.
pub fn of_servers(views: &ServerViews) -> Vec<Finding> {
    let findings = views.servers.iter().filter_map(|view| {
        let id = format!("mcp.{}", view.name);
        let name = &view.name;
        match view.state {
            ServerState::Failed => {
                let why = view.last_error.as_deref().unwrap_or("it ended");
                let message = format!("MCP server {name} has failed: {why}");
                Some(Finding::new(&id, Health::Warn, message).fix(format!(
                    "correct it under [mcp.{name}] and run abide config reload; the next call of \
                     one of its tools tries it again"
                )))
            }
            ServerState::Noisy => {
                let message = format!(
                    "MCP server {name} writes non-protocol lines to stdout ({} so far)",
                    view.stray_line_count
                );
                Some(Finding::new(&id, Health::Warn, message).fix(format!(
                    "make it log to stderr; abide mcp {name} shows what it wrote"
                )))
            }
            ServerState::Stopped | ServerState::Starting | ServerState::Ready => None,
        }
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_permissions_are_found_and_mended_on_request_only() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        set(folder.path(), 0o755);
        let token = folder.path().join("token");
        fs::write(&token, "x").unwrap();
        set(&token, 0o644);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let found = permissions(folder.path(), false);
        assert_eq!(found.status, Health::Fail);
        assert!(found.fix.unwrap().contains("chmod 600"));
        assert_eq!((mode(folder.path()), mode(&token)), (0o755, 0o644));
        assert_eq!(permissions(folder.path(), true).status, Health::Ok);
        assert_eq!((mode(folder.path()), mode(&token)), (0o700, 0o600));
    }

    #[test]
    fn a_newer_keeper_does_not_hide_what_names_none() {
        let folder = tempfile::tempdir().unwrap();
        let keepers = folder.path().join(state::KEEPERS);
        let newer = keepers.join("01936f0e-7a11-7c3e-8f2a-5d1f0a9b7c21");
        fs::create_dir_all(&newer).unwrap();
        fs::write(newer.join("keeper"), "{\"version\":2}\n").unwrap();
        fs::create_dir(keepers.join("of-another-program")).unwrap();
        let found = programs(folder.path());
        assert_eq!(found.status, Health::Warn);
        for part in [
            newer.to_str().unwrap(),
            "of-another-program",
            "without the daemon: 0",
        ] {
            assert!(found.message.contains(part), "{part}: {found:?}");
        }
    }

    #[test]
    fn too_little_room_is_a_fault_that_names_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        let found = space(folder.path(), u64::MAX);
        assert_eq!(found.status, Health::Fail);
        assert!(found.message.contains("storage.min_free"), "{found:?}");
        // A folder that does not exist yet is still on some disk.
        let later = folder.path().join("a/b");
        assert_ne!(space(&later, 0).status, Health::Skip);
    }
}
