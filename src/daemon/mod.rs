//! The daemon from start to stop: the only place where its parts are put together. The command line
//! calls [`serve`]; [`run`] tells the steps in their order.

mod boot;
mod clients;
mod control;
mod doctor;
mod failure;
mod listen;
mod notifications;
mod parts;
mod restore;
mod signals;
mod state;
mod supervisor;
mod work;

use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

pub use crate::gateway::openrpc;
pub use doctor::{offline, ollama};
pub use failure::DaemonFailure;
pub use parts::AgentCheck;
pub use parts::agents::files as agent_files;
pub use state::Endpoint;

use self::boot::Boot;
use self::clients::Clients;
use self::control::{InForce, Process};
use self::doctor::surroundings::Surroundings;
use self::listen::DaemonAddress;
use self::parts::{Basis, DaemonParts, options};
use self::restore::RestoreOutcome;
use self::state::secrets::{self, Token};
use self::state::{Published, StateFolder};
use self::work::Work;
use crate::config::{Config, Loaded, SettingsSource};
use crate::contract::control::Then;
use crate::registry::Restored;
use crate::store::{OpenOptions, OpenedStore, Store};
use crate::version::version;

/// Time limit for threads that wait for a disk.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// How the daemon is started.
pub struct DaemonOptions {
    /// The state folder.
    pub state_dir: PathBuf,
    /// The sources of the settings, for reloads.
    pub source: SettingsSource,
    /// The settings as read from there.
    pub loaded: Loaded,
    /// Called once the daemon is ready, with what clients need to know.
    pub on_ready: Box<dyn FnOnce(&Ready) + Send>,
}

/// Facts about a daemon that is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The contents of `endpoint.json`.
    pub endpoint: Endpoint,
    /// The path of the token file.
    pub token_file: PathBuf,
    /// The default model.
    pub model: String,
    /// The names of the agents.
    pub agents: Vec<String>,
    /// Number of open runs that were restored.
    pub restored: usize,
    /// Number of restored runs that were in the middle of a turn.
    pub resumed: usize,
}

impl Ready {
    /// Facts about a daemon that is starting; none of its runs is restored yet.
    fn of(
        boot: &Boot,
        address: &DaemonAddress,
        token: &Token,
        parts: &DaemonParts,
        config: &Config,
    ) -> Ready {
        Ready {
            endpoint: Endpoint {
                version: version().to_owned(),
                protocol: 1,
                pid: boot.pid,
                boot_id: boot.id,
                url: address.url.clone(),
                socket: address.socket.clone(),
                certificate: address.certificate().map(|own| own.facts().fingerprint),
                started_at: boot.started_at,
            },
            token_file: token.path.clone(),
            model: config.model.clone(),
            agents: parts.agent_names.clone(),
            restored: 0,
            resumed: 0,
        }
    }

    /// Once this returns, the log and the caller of [`serve`] know that the daemon is ready.
    fn announce(mut self, restored: &Restored, on_ready: Box<dyn FnOnce(&Ready) + Send>) {
        tracing::info!(
            url = %self.endpoint.url,
            boot = %self.endpoint.boot_id,
            unclean = restored.unclean,
            open = restored.open,
            resumed = restored.resumed,
            closed = restored.closed,
            "ready"
        );
        (self.restored, self.resumed) = (restored.open, restored.resumed);
        on_ready(&self);
    }
}

/// How a clean stop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The daemon stays stopped.
    Stopped,
    /// The supervisor starts it again.
    Restart,
    /// The caller of [`serve`] starts it again, since there is no supervisor.
    StartAgain,
}

/// The versions of this program and of its SQLite library, for `--version`.
pub fn versions() -> String {
    format!(
        "abide {} (SQLite {}, store schema {})",
        version(),
        crate::store::library_version(),
        crate::store::SCHEMA,
    )
}

/// Runs the daemon until it is stopped. On return everything that was accepted is in the store, and
/// the write-ahead log is empty.
pub fn serve(options: DaemonOptions) -> Result<Ending, DaemonFailure> {
    crate::failpoint::configure_from_env().map_err(DaemonFailure::Config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("abide")
        .build()
        .map_err(|fault| DaemonFailure::System("no threads could be started".to_owned(), fault))?;
    // Boxed, so that the large future is compiled into `block_on` only once.
    let watchdog: Pin<Box<dyn Future<Output = _>>> = Box::pin(run(options));
    let ended = runtime.block_on(watchdog);
    // Threads blocked on an unresponsive file system are not waited for.
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

/// Starts the daemon, waits for its end, and stops it.
async fn run(options: DaemonOptions) -> Result<Ending, DaemonFailure> {
    let config = options.loaded.config.clone();
    let (boot, signals) = Boot::begin(&config)?;
    let supervisor = &boot.supervisor;
    // Nothing is changed before the lock proves that no other daemon uses this folder.
    let folder = StateFolder::claim(&options.state_dir, &boot)?;
    let (listeners, address) = listen::open(&folder.path, &config, &boot.clock).await?;
    let token = secrets::token(&folder.path)?;
    let seal = secrets::seal(&folder.path)?;
    let gateway_key = secrets::gateway_key(&folder.path)?;
    let opened = open_store(&folder.path, &boot, &config)?;
    let (threads, mut writer_ended) = (opened.threads, opened.writer_ended);
    let basis = Basis {
        folder: &folder.path,
        boot: &boot,
        address: &address,
        seal,
        gateway_key,
        store: opened.store,
        effects: opened.effects,
    };
    let (parts, followers) = DaemonParts::assemble(basis, &config)?;
    let following = address.certificate().map(|own| own.follow());
    let registry = parts.registry.clone();
    let process = Arc::new(Process::new(
        registry.clone(),
        supervisor.clone(),
        InForce::new(options.source, options.loaded, followers),
        Surroundings::of(&folder.path, &boot, &parts, &config, &address),
    ));
    let reaping = parts.reap_orphans();
    let reloading = signals.handle(&process);
    let ready = Ready::of(&boot, &address, &token, &parts, &config);
    let mut clients = Clients::accept(listeners, &address, token, &boot, &parts, &process, &config);

    let mut restoring = pin!(registry.restore(boot.pid));
    let mut outcome = restore::with_room(restoring.as_mut(), &registry, supervisor).await?;
    if let RestoreOutcome::Stopped = outcome {
        return Ok(Ending::Stopped);
    }
    process.ready();
    let certificate = address.certificate();
    let identity = certificate.map(|own| own.identity());
    let published = Published::new(&ready.endpoint, &folder.path, identity)?;
    let watchdog = supervisor.start_watchdog(&registry);
    if let RestoreOutcome::NoRoom = outcome {
        tracing::error!(
            url = %address.url,
            "the disk is full: read-only calls are answered, other work waits for free space"
        );
        supervisor.full();
        let waited = restore::without_room(restoring, &registry, &mut clients, &mut writer_ended);
        outcome = waited.await?;
    }
    let RestoreOutcome::Restored(restored) = outcome else {
        return Ok(Ending::Stopped);
    };
    let open_runs = restored.open;
    ready.announce(&restored, options.on_ready);
    let mut work = Work::begin(parts, restored.effects);
    supervisor.ready(open_runs);

    let then = until_the_end(&mut work, &mut clients, writer_ended).await?;
    folder.mark_as_ending();
    work.end().await;
    drop((watchdog, reloading, following));
    clients.leave().await;
    drop(published);
    drop(address);
    if tokio::task::spawn_blocking(|| threads.close())
        .await
        .is_err()
    {
        tracing::error!("the store was not closed cleanly; the next start recovers it");
    }
    drop((folder, reaping));
    if let Some(descriptors) = &boot.descriptors {
        descriptors.put_back();
    }
    Ok(match then {
        Then::Restart if supervisor.is_present() => Ending::Restart,
        Then::Restart => Ending::StartAgain,
        Then::Stop | Then::Resume => Ending::Stopped,
    })
}

/// Once this returns, the store is open and up to date, and repaired if it was damaged.
fn open_store(folder: &Path, boot: &Boot, config: &Config) -> Result<OpenedStore, DaemonFailure> {
    boot.supervisor.opening();
    let mut opened = Store::open(OpenOptions {
        folder: folder.to_owned(),
        clock: boot.clock.clone(),
        settings: options::of_store(config),
        on_fatal: Box::new(|why| end_now(&DaemonFailure::Store(why))),
    })?;
    opened.store.room().keep_free(config.min_free);
    if let Some(after) = config.check_after {
        opened.threads.check_after(&opened.store, after)?;
    }
    Ok(opened)
}

/// Returns how the daemon continues once it has drained. Fails if it would accept work and never
/// execute it, or execute it and never answer: it is better to end and let the next start recover.
async fn until_the_end(
    work: &mut Work,
    clients: &mut Clients,
    writer_ended: oneshot::Receiver<()>,
) -> Result<Then, DaemonFailure> {
    tokio::select! {
        worked = &mut work.service => {
            worked.map_err(|fault| DaemonFailure::loop_ended("registry", Err(fault)))
        }
        served = &mut clients.serving => Err(DaemonFailure::doors_ended(served)),
        _ = writer_ended => Err(DaemonFailure::store("its writer ended")),
    }
}

/// Ends the process: after a commit that cannot be trusted, or when another process has taken the
/// state folder. Nothing may continue, since only a fresh start can tell what is on disk.
#[expect(
    clippy::disallowed_methods,
    reason = "destructors would write on, and nothing after a failed sync can be trusted"
)]
fn end_now(failure: &DaemonFailure) {
    tracing::error!("{failure}");
    std::process::exit(i32::from(failure.exit_code()));
}
