//! The certificate by which the gateway identifies itself: read at start, read again at a reload of
//! the settings and when its files change. A new one that cannot be used does not replace the one
//! in force.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::config::Config;
use crate::contract::finding::{Finding, Health};
use crate::daemon::DaemonFailure;
use crate::tls::{CertificateFacts, ServerIdentity};
use crate::watch::{FolderScan, WatchMode, WatchOptions, Watcher};

/// A certificate that ends within this many days is reported.
const SOON_DAYS: u64 = 30;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// A pair of files is read once both have been unchanged for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Changes that keep coming are read after this long.
const LONGEST: Duration = Duration::from_secs(5);

/// The certificate in force and its files.
pub struct GatewayCertificate {
    certificate: PathBuf,
    /// Unset: the key is in the file of the certificate.
    key: Option<PathBuf>,
    in_force: watch::Sender<Arc<ServerIdentity>>,
    /// Why the files as they are now are not in force.
    problem: Mutex<Option<String>>,
    clock: Clock,
}

impl GatewayCertificate {
    /// Reads the certificate that the settings name; `None` if they name none.
    pub fn open(config: &Config, clock: &Clock) -> Result<Option<Arc<Self>>, DaemonFailure> {
        let Some(certificate) = &config.tls_cert_file else {
            return Ok(None);
        };
        let key = config.tls_key_file.clone();
        let identity = ServerIdentity::read(certificate, key.as_deref()).map_err(|fault| {
            DaemonFailure::Config(format!(
                "gateway.tls_cert_file, gateway.tls_key_file: {fault}. Nothing was started. Make \
                 a new pair with: abide tls new"
            ))
        })?;
        Ok(Some(Arc::new(GatewayCertificate {
            certificate: certificate.clone(),
            key,
            in_force: watch::Sender::new(Arc::new(identity)),
            problem: Mutex::default(),
            clock: clock.clone(),
        })))
    }

    /// The certificate in force, as it changes.
    pub fn identity(&self) -> watch::Receiver<Arc<ServerIdentity>> {
        self.in_force.subscribe()
    }

    /// Facts about the certificate in force.
    pub fn facts(&self) -> CertificateFacts {
        self.in_force.borrow().facts.clone()
    }

    /// Reads the files again. Once this returns `Ok`, new connections use what they contain; on an
    /// error the certificate in force is unchanged.
    pub async fn reload(&self) -> Result<(), String> {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        let reading = move || ServerIdentity::read(&certificate, key.as_deref());
        let read = match tokio::task::spawn_blocking(reading).await {
            Ok(read) => read.map_err(|fault| fault.to_string()),
            Err(fault) => Err(format!("it could not be read: {fault}")),
        };
        let old = self.facts();
        let checked = read.and_then(|new| {
            let invalid = new.facts.invalidity(self.clock.now());
            match invalid.filter(|_| new.facts != old) {
                Some(why) => Err(format!("{}: {why}", self.certificate.display())),
                None => Ok(new),
            }
        });
        match checked {
            Ok(new) => {
                let facts = new.facts.clone();
                self.in_force.send_replace(Arc::new(new));
                *self.problem() = None;
                if facts != old {
                    tracing::info!(
                        fingerprint = %facts.fingerprint,
                        valid_until = %facts.not_after,
                        "the TLS certificate was replaced"
                    );
                }
                Ok(())
            }
            Err(why) => {
                let why = format!(
                    "the TLS certificate was not replaced: {why}. The one in force is unchanged \
                     (SHA-256 {})",
                    old.fingerprint
                );
                let mut problem = self.problem();
                if problem.as_ref() != Some(&why) {
                    tracing::error!("{why}");
                }
                *problem = Some(why.clone());
                Err(why)
            }
        }
    }

    /// Reloads when the files change, until the returned task is dropped.
    pub fn follow(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let options = WatchOptions {
            mode: WatchMode::Events,
            quiet: QUIET,
            longest: LONGEST,
            file: None,
        };
        let own = Arc::clone(self);
        let paths: Vec<PathBuf> = [Some(&self.certificate), self.key.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let look = Arc::new(move || scan(&paths));
        let seen = Some(look().signature);
        let clock = self.clock.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut watcher = Watcher::over(look, seen, Arc::default(), options, clock);
            loop {
                watcher.changed().await;
                // The outcome is logged and kept for the findings.
                let _ = own.reload().await;
            }
        }))
    }

    /// What an operator should know of it.
    pub fn findings(&self) -> Vec<Finding> {
        let facts = self.facts();
        let now = self.clock.now();
        let id = "tls.certificate";
        let (until, print) = (facts.not_after, facts.fingerprint);
        let left = facts.not_after.since(now) / DAY_MS;
        let fix = "make a new one with abide tls new --replace, or have its authority sign one; \
                   clients that have pinned the old one must pin the new one";
        let first = match facts.invalidity(now) {
            Some(why) => Finding::new(
                id,
                Health::Fail,
                format!("clients refuse the TLS certificate: {why}"),
            )
            .fix(fix),
            None if left < SOON_DAYS => Finding::new(
                id,
                Health::Warn,
                format!("the TLS certificate expires in {left} days, at {until}"),
            )
            .fix(fix),
            None => Finding::new(
                id,
                Health::Ok,
                format!("the TLS certificate is valid until {until} (SHA-256 {print})"),
            ),
        };
        let mut findings = vec![first];
        findings.extend(self.problem().as_ref().map(|why| {
            Finding::new("tls.reload", Health::Warn, why.clone())
                .fix("correct the files; they are read again when they change")
        }));
        findings
    }

    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // The value is replaced as a whole.
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the files and where changes of them show: their folders, and those of the files
/// that they link to.
fn scan(paths: &[PathBuf]) -> FolderScan {
    let mut scan = FolderScan::default();
    let mut signature = DefaultHasher::new();
    for path in paths {
        match fs::metadata(path) {
            Ok(about) => {
                let changed = (about.mtime(), about.mtime_nsec());
                (about.dev(), about.ino(), about.len(), about.mode(), changed).hash(&mut signature);
            }
            Err(_) => scan.awaited.push(path.clone()),
        }
        let target = fs::canonicalize(path).ok();
        for folder in [Some(path), target.as_ref()].into_iter().flatten() {
            let folder = folder.parent().unwrap_or(Path::new("/"));
            if let Ok(about) = fs::metadata(folder) {
                scan.folders.insert(folder.to_owned(), about.ino());
            }
        }
    }
    scan.signature = signature.finish();
    scan
}
