//! The daemon from start to stop: the only place where its parts are put together. The command line
//! calls [`serve`].

mod check;
mod endpoint;
mod environment_check;
mod failure;
mod folder;
mod key;
mod local;
mod lock;
mod notifications;
pub mod offline;
pub mod ollama;
mod parts;
mod phase;
mod program;
mod settings;
mod signals;
mod skills;
mod started;
mod supervisor;
mod surroundings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use check::AgentCheck;
pub use endpoint::Endpoint;
pub use failure::Failure;
pub use parts::agent_files;

use crate::clock::Clock;
use crate::config::{Loaded, Source};
use crate::contract::control::{Control, Then};
use crate::contract::delegate::DelegateSlot;
use crate::gateway;
use crate::kernel::fault::Fault;
use crate::kernel::ids::BootId;
use crate::process::{Descriptors, Processes};
use crate::registry::{Principal, Registry};
use crate::store::Store;
use crate::telemetry::metrics::metrics;
use environment_check::EnvironmentSnapshot;
use lock::Lock;
use phase::Process;
use settings::{Followers, InForce};
use signals::Signals;
use supervisor::Supervisor;
use surroundings::Surroundings;

/// How the daemon is started.
pub struct Options {
    /// The state folder.
    pub state_dir: PathBuf,
    /// The sources of the settings, for reloads.
    pub source: Source,
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
        env!("CARGO_PKG_VERSION"),
        crate::store::library_version(),
        crate::store::SCHEMA,
    )
}

/// Runs the daemon until it is stopped. On return everything that was accepted is in the store, and
/// the write-ahead log is empty.
pub fn serve(options: Options) -> Result<Ending, Failure> {
    crate::failpoint::configure_from_env().map_err(Failure::Config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("abide")
        .build()
        .map_err(|fault| Failure::System("no threads could be started".to_owned(), fault))?;
    // Boxed, so that the large future is compiled into `block_on` only once.
    let watchdog: Pin<Box<dyn Future<Output = _>>> = Box::pin(run(options));
    let ended = runtime.block_on(watchdog);
    // Threads blocked on an unresponsive file system are not waited for.
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

async fn run(options: Options) -> Result<Ending, Failure> {
    let untouched = EnvironmentSnapshot::note().map_err(|why| {
        Failure::System(
            "the system gave no random bytes".to_owned(),
            std::io::Error::other(why),
        )
    })?;
    let clock = Clock::system();
    let boot = BootId(clock.new_id());
    let started_at = clock.now();
    metrics().started(started_at);
    let pid = std::process::id();
    let config = options.loaded.config.clone();

    if let Some(endpoint) = &config.otlp_endpoint {
        let refused = |why| Failure::Config(format!("telemetry.otlp_endpoint: {why}"));
        crate::telemetry::trace_to(endpoint).map_err(refused)?;
    }
    let descriptors = Descriptors::raise();
    if Descriptors::limit() < FEW_FILES {
        tracing::warn!(
            files = Descriptors::limit(),
            "the limit on open files is low: many concurrent tools may exceed it; raise the hard \
             limit (ulimit -H -n, LimitNOFILE=)"
        );
    }
    Processes::adopt_orphans();
    let mut signals = Signals::catch()?;
    let hangups = signals::hangups()?;
    let supervisor = Supervisor::from_env()?;
    // Change nothing until the lock proves that no other daemon uses this folder.
    let folder = folder::prepare(&options.state_dir)?;
    folder::check_files(&folder)?;
    folder::close_files(&folder);
    let lock = Arc::new(Mutex::new(lock::take(&folder, boot, pid, started_at)?));
    let address = config.listen;
    let listener = bind(address, Endpoint::read(&folder), &clock).await?;
    let local = listener.local_addr().map_err(|fault| {
        Failure::System(
            format!("the local address of {address} could not be read"),
            fault,
        )
    })?;
    let url = format!("http://{local}");
    let (unix, socket) = local::listen(&folder, config.socket.as_deref(), &clock)
        .await?
        .unzip();
    let socket_path = socket
        .as_ref()
        .and_then(|socket| socket.path().to_str())
        .map(str::to_owned);
    let token = folder::token(&folder)?;
    let seal = key::seal(&folder)?;

    supervisor.opening();
    let opened = Store::open(parts::store_options(&folder, &clock, &config))?;
    opened.store.room().keep_free(config.min_free);
    let mut threads = opened.threads;
    if let Some(after) = config.check_after {
        threads.check_after(&opened.store, after)?;
    }
    let mut writer_ended = opened.writer_ended;
    let delegate = DelegateSlot::default();
    let registry_slot: Arc<OnceLock<Registry>> = Arc::default();
    let workers = parts::workers(
        &folder,
        (socket_path.as_deref(), descriptors.clone()),
        &clock,
        &config,
        &opened.store,
        Arc::clone(&delegate),
        {
            let told = Arc::clone(&registry_slot);
            Arc::new(move |name, seen| {
                // Runs call providers only after it is set.
                if let Some(registry) = told.get() {
                    registry.provider_changed(name, seen);
                }
            })
        },
    )?;
    let skills = workers.skills;
    let library = Arc::clone(&skills.library);
    let programs = workers.programs.clone();
    let processes = Arc::clone(&workers.processes);
    let servers = workers.servers.clone();
    let agent_files = parts::watcher(&clock, &config);
    let store = opened.store.clone();
    let drain_timeout = supervisor.drain_timeout(config.drain_timeout);
    let (registry, service) = Registry::new(crate::registry::Parts {
        store: opened.store,
        effects: opened.effects,
        clock: clock.clone(),
        catalog: workers.catalog,
        skills: skills.library,
        runner: workers.runner,
        processes: workers.processes,
        environment: workers.environment.clone(),
        seal,
        options: parts::registry_options(&config, drain_timeout),
        boot,
    });

    registry_slot.get_or_init(|| registry.clone());
    // Runs start later than this, so no tool finds the slot empty.
    delegate.get_or_init(|| Arc::new(registry.clone()));

    // Clients are accepted before the rows are restored, so that they see the progress instead of a
    // refused connection. Every call answers `unavailable` until then.
    let (names, followed) = watch::channel(parts::names(&config));
    let (notifications, notified) = watch::channel(notifications::Settings::of(&config));
    let notifier = notifications::Notifier {
        processes: programs.clone(),
        environment: parts::desktop_environment(&config),
        folder: folder.clone(),
        clock: clock.clone(),
    };
    let owner = Principal {
        org: parts::ORG.to_owned(),
        user: "admin".to_owned(),
        run: None,
        with_token: false,
    };
    let followers = Followers {
        store,
        notifications,
        registry: registry.clone(),
        drain_timeout,
        names,
        runner: workers.times,
        providers: Arc::clone(&workers.providers),
        models: workers.models,
        servers: servers.clone(),
        skills: skills.settings,
        folder: folder.clone(),
        environment: workers.environment,
        clock: clock.clone(),
    };
    let in_force = InForce::new(options.source, options.loaded, followers);
    let process = Arc::new(Process::new(
        registry.clone(),
        supervisor.clone(),
        in_force,
        Surroundings {
            folder: folder.clone(),
            min_free: config.min_free,
            clock: clock.clone(),
            watchers: vec![
                ("agents", agent_files.notice()),
                ("skills", skills.watcher.notice()),
            ],
            unread: vec![
                ("agents", {
                    let registry = registry.clone();
                    Box::new(move || registry.catalog().unread())
                }),
                ("skills", {
                    let library = Arc::clone(&library);
                    Box::new(move || library.unread())
                }),
            ],
            untouched,
        },
    ));
    let clean = AbortOnDropHandle::new(tokio::spawn(async move { programs.reap_orphans().await }));
    let locking = AbortOnDropHandle::new(tokio::spawn(keep_lock(Arc::clone(&lock))));
    let reloads = tokio::spawn(signals::reload_at_hangups(hangups, Arc::clone(&process)));
    tokio::spawn({
        let process = Arc::clone(&process);
        async move {
            loop {
                signals.next().await;
                process.terminate();
            }
        }
    });
    let shutdown = CancellationToken::new();
    let mut doors = tokio::spawn(gateway::serve(
        gateway::Listeners {
            tcp: listener,
            unix,
        },
        gateway::State {
            registry: registry.clone(),
            control: Arc::clone(&process) as Arc<dyn Control>,
            clock: clock.clone(),
            token: token.text,
            principal: owner.clone(),
            token_file: token.path.clone(),
            origins: Arc::new(move |pid| processes.origin(pid)),
            boot,
            started_at,
            url: url.clone(),
            socket: socket_path.clone(),
            servers: servers.seen(),
            names: followed,
            limits: gateway::Limits {
                connections: gateway::Connections::within(Descriptors::limit()),
                write_timeout: config.write_timeout,
                ..gateway::Limits::default()
            },
        },
        shutdown.clone(),
    ));
    let progress = || registry.restore_progress();
    let mut restoring = std::pin::pin!(registry.restore(pid));
    let unreadable = |fault: Fault| Failure::store(&fault.to_string());
    let at_once = tokio::select! {
        restored = &mut restoring => Some(restored.map_err(unreadable)?),
        // Read-only calls are answered while the rest waits for disk space.
        () = registry.lacks_room() => None,
        () = registry.hurried() => return Ok(Ending::Stopped),
        never = supervisor.report_progress(progress) => match never {},
    };
    let endpoint = Endpoint {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: 1,
        pid,
        boot_id: boot,
        url,
        socket: socket_path,
        started_at,
    };
    process.ready();
    let findable = make_findable(&endpoint, &folder)?;
    let life = tokio::spawn({
        let (registry, supervisor) = (registry.clone(), supervisor.clone());
        async move { supervisor.send_watchdog(|| registry.answers()).await }
    });
    let restored = match at_once {
        Some(restored) => restored,
        None => {
            tracing::error!(
                url = %endpoint.url,
                "the disk is full: read-only calls are answered, other work waits for free space"
            );
            supervisor.full();
            tokio::select! {
                restored = &mut restoring => restored.map_err(unreadable)?,
                // Rows that wait for disk space must not block a stop.
                () = registry.ending() => {
                    drop(findable);
                    Endpoint::remove(&folder);
                    return Ok(Ending::Stopped);
                }
                served = &mut doors => return Err(Failure::doors_ended(served)),
                _ = &mut writer_ended => return Err(Failure::store("its writer ended")),
            }
        }
    };
    tracing::info!(
        url = %endpoint.url,
        %boot,
        unclean = restored.unclean,
        open = restored.open,
        resumed = restored.resumed,
        closed = restored.closed,
        "ready"
    );
    (options.on_ready)(&Ready {
        endpoint,
        token_file: token.path,
        model: config.model.clone(),
        agents: workers.names,
        restored: restored.open,
        resumed: restored.resumed,
    });
    servers.start();
    let mut working = tokio::spawn(service.run(restored.effects));
    let notifying = AbortOnDropHandle::new(tokio::spawn(notifications::keep(
        registry.clone(),
        owner,
        notifier,
        notified,
    )));
    let stop_watching = CancellationToken::new();
    let watching = tokio::spawn(parts::keep_agents(
        registry.clone(),
        agent_files,
        stop_watching.clone(),
    ));
    let keeping = tokio::spawn(skills::keep(
        registry.clone(),
        library,
        skills.watcher,
        stop_watching.clone(),
    ));

    supervisor.ready(restored.open);
    let then = tokio::select! {
        worked = &mut working => {
            worked.map_err(|fault| Failure::loop_ended("registry", Err(fault)))?
        }
        // Without one of these the daemon would accept work and never execute it, or execute it and
        // never answer. It is better to end and let the next start recover.
        served = &mut doors => return Err(Failure::doors_ended(served)),
        _ = writer_ended => return Err(Failure::store("its writer ended")),
    };
    locked(&lock).ending();
    drop(notifying);
    // A reload in progress is recorded before the store closes.
    stop_watching.cancel();
    let watched = async { watching.await.is_ok() && keeping.await.is_ok() };
    if tokio::time::timeout(LAST_LOOK, watched).await != Ok(true) {
        tracing::error!(
            "the last reload of agents and skills did not finish; the next start reads them"
        );
    }
    life.abort();
    reloads.abort();
    shutdown.cancel();
    // Calls in progress have been answered or refused by now; slow readers get no more time.
    let _ = tokio::time::timeout(LAST_ANSWERS, doors).await;
    drop(findable);
    Endpoint::remove(&folder);
    drop(socket);
    if tokio::task::spawn_blocking(move || threads.close())
        .await
        .is_err()
    {
        tracing::error!("the store was not closed cleanly; the next start recovers it");
    }
    drop((locking, lock, clean));
    if let Some(descriptors) = descriptors {
        descriptors.put_back();
    }
    Ok(match then {
        Then::Restart if supervisor.is_present() => Ending::Restart,
        Then::Restart => Ending::StartAgain,
        Then::Stop | Then::Resume => Ending::Stopped,
    })
}

/// Once this returns, local clients find the daemon, or will as soon as a full disk has space: the
/// returned task retries until it is dropped.
fn make_findable(
    endpoint: &Endpoint,
    folder: &Path,
) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    match endpoint.write(folder) {
        Err(Failure::NoRoom(path)) => {
            tracing::warn!(
                path = %path.display(),
                "the disk is full: no endpoint.json; clients need the socket path or address"
            );
            let (endpoint, folder) = (endpoint.clone(), folder.to_owned());
            let writing = async move {
                while endpoint.write(&folder).is_err() {
                    tokio::time::sleep(ROOM_AGAIN).await;
                }
            };
            Ok(Some(AbortOnDropHandle::new(tokio::spawn(writing))))
        }
        written => written.map(|()| None),
    }
}

/// Below this limit on open files the tools of a full set of lanes may run out of them.
const FEW_FILES: u64 = 512;
/// Retry interval after a full disk.
const ROOM_AGAIN: Duration = Duration::from_secs(1);
/// How often the lock of the state folder is checked.
const KEEP_LOCK: Duration = Duration::from_secs(1);
/// Time limit for the last reload of agents and skills.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// Time limit for threads that wait for a disk.
const LAST_THREADS: Duration = Duration::from_secs(1);
/// Time limit for clients to read their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Keeps the lock of the state folder. If another process has taken it, this one exits now: two
/// daemons would do all work twice.
async fn keep_lock(lock: Arc<Mutex<Lock>>) {
    let mut ticks = tokio::time::interval(KEEP_LOCK);
    loop {
        ticks.tick().await;
        match locked(&lock).keep() {
            Ok(()) => {}
            Err(failure @ Failure::Held { .. }) => parts::end_now(&failure),
            // The lock is held; only its file could not be checked.
            Err(failure) => tracing::error!(%failure, "the lock file could not be checked"),
        }
    }
}

fn locked(lock: &Mutex<Lock>) -> MutexGuard<'_, Lock> {
    // A lock file that could not be recreated is retried at the next tick.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens at `address`. Waits while the address is in use, longer if `left`, the endpoint of the
/// previous process, names the same address: that process may still be ending.
async fn bind(
    address: SocketAddr,
    left: Option<Endpoint>,
    clock: &Clock,
) -> Result<TcpListener, Failure> {
    let was_ours = left.and_then(|left| left.address()) == Some(address);
    let timeout = if was_ours {
        lock::ENDING_TIMEOUT
    } else {
        lock::HOLDER_TIMEOUT
    };
    let began = clock.monotonic();
    loop {
        let fault = match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(fault) => fault,
        };
        return Err(match fault.kind() {
            std::io::ErrorKind::AddrInUse if clock.monotonic() - began < timeout => {
                tokio::time::sleep(lock::RETRY_INTERVAL).await;
                continue;
            }
            std::io::ErrorKind::AddrInUse => Failure::AddressTaken(address),
            std::io::ErrorKind::PermissionDenied => {
                Failure::NotPermitted(format!("cannot listen on {address}"), fault)
            }
            _ => Failure::System(format!("cannot listen on {address}"), fault),
        });
    }
}
