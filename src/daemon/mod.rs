//! The daemon's story from start to stop: the only place where the parts are put together.
//! The command line calls [`serve`].

mod check;
mod endpoint;
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
mod untouched;

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
use lock::Lock;
use phase::Process;
use settings::{Followers, InForce};
use signals::Signals;
use supervisor::Supervisor;
use surroundings::Surroundings;
use untouched::AtStart;

/// How the daemon is started.
pub struct Options {
    /// Where it keeps its state.
    pub state_dir: PathBuf,
    /// Where its settings come from, for a reload.
    pub source: Source,
    /// The settings as they were read from there.
    pub loaded: Loaded,
    /// Called once it is ready, with what clients need to know.
    pub on_ready: Box<dyn FnOnce(&Ready) + Send>,
}

/// A daemon that is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// What stands in `endpoint.json`.
    pub endpoint: Endpoint,
    /// Where the token is.
    pub token_file: PathBuf,
    /// The model where nothing else is named.
    pub model: String,
    /// The names of the agents.
    pub agents: Vec<String>,
    /// Open runs that were found.
    pub restored: usize,
    /// Those of them that were in the middle of a turn.
    pub resumed: usize,
}

/// How the daemon has ended: in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// For good.
    Stopped,
    /// To be started again by whoever supervises it.
    Restart,
    /// To be started again by whoever called [`serve`]: nobody supervises it.
    StartAgain,
}

/// The versions of this program and of the SQLite library in it, for `--version`.
pub fn versions() -> String {
    format!(
        "abide {} (SQLite {}, store schema {})",
        env!("CARGO_PKG_VERSION"),
        crate::store::library_version(),
        crate::store::SCHEMA,
    )
}

/// Runs the daemon until it is told to stop. On return everything that was accepted is in
/// the store, and the write-ahead file is empty.
pub fn serve(options: Options) -> Result<Ending, Failure> {
    crate::failpoint::configure_from_env().map_err(Failure::Config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("abide")
        .build()
        .map_err(|fault| Failure::System("no threads could be started".to_owned(), fault))?;
    // Behind a pointer: the whole of the daemon's life is compiled into `block_on` once.
    let life: Pin<Box<dyn Future<Output = _>>> = Box::pin(run(options));
    let ended = runtime.block_on(life);
    // A thread that waits for a file system that does not answer is not waited for.
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

async fn run(options: Options) -> Result<Ending, Failure> {
    let untouched = AtStart::note().map_err(|why| {
        Failure::System(
            "there is no chance to be had".to_owned(),
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
            "few files may be opened: many tools at once may run out of them; raise the hard \
             limit (ulimit -H -n, LimitNOFILE=)"
        );
    }
    Processes::adopt_orphans();
    let mut signals = Signals::catch()?;
    let hangups = signals::hangups()?;
    let supervisor = Supervisor::from_env()?;
    // Nothing is touched before it is certain that nobody else works here.
    let folder = folder::prepare(&options.state_dir)?;
    folder::check_files(&folder)?;
    folder::close_files(&folder);
    let lock = Arc::new(Mutex::new(lock::take(&folder, boot, pid, started_at)?));
    let address = config.listen;
    let listener = bind(address, Endpoint::read(&folder), &clock).await?;
    let local = listener
        .local_addr()
        .map_err(|fault| Failure::System(format!("{address} gives no address"), fault))?;
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
    let told: Arc<OnceLock<Registry>> = Arc::default();
    let workers = parts::workers(
        &folder,
        (socket_path.as_deref(), descriptors.clone()),
        &clock,
        &config,
        &opened.store,
        Arc::clone(&delegate),
        {
            let told = Arc::clone(&told);
            Arc::new(move |name, seen| {
                // Runs ask providers only once it is there.
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

    told.get_or_init(|| registry.clone());
    // Runs start later than this, so no tool finds the place empty.
    delegate.get_or_init(|| Arc::new(registry.clone()));

    // Accepting begins before the rows are restored, so that clients are told how far it is
    // instead of being refused; every call answers `unavailable` until then.
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
    let clean = AbortOnDropHandle::new(tokio::spawn(async move { programs.keep_clean().await }));
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
        // What only reads is answered while the rest waits for room.
        () = registry.lacks_room() => None,
        () = registry.hurried() => return Ok(Ending::Stopped),
        never = supervisor.tell_progress(progress) => match never {},
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
        async move { supervisor.tell_life(|| registry.answers()).await }
    });
    let restored = match at_once {
        Some(restored) => restored,
        None => {
            tracing::error!(
                url = %endpoint.url,
                "the disk is full: calls that only read are answered, and the rest waits for room"
            );
            supervisor.full();
            tokio::select! {
                restored = &mut restoring => restored.map_err(unreadable)?,
                // Rows that wait must not keep the process.
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
        // Without one of these the daemon would accept and never act, or act and never
        // answer: better to end and let the next start recover.
        served = &mut doors => return Err(Failure::doors_ended(served)),
        _ = writer_ended => return Err(Failure::store("its writer ended")),
    };
    locked(&lock).ending();
    drop(notifying);
    // A reading under way is told of before the store closes.
    stop_watching.cancel();
    let watched = async { watching.await.is_ok() && keeping.await.is_ok() };
    if tokio::time::timeout(LAST_LOOK, watched).await != Ok(true) {
        tracing::error!("files were not watched any more; the next start reads them");
    }
    life.abort();
    reloads.abort();
    shutdown.cancel();
    // Calls in flight have been answered or are refused by now; nobody is waited for longer.
    let _ = tokio::time::timeout(LAST_ANSWERS, doors).await;
    drop(findable);
    Endpoint::remove(&folder);
    drop(socket);
    if tokio::task::spawn_blocking(move || threads.close())
        .await
        .is_err()
    {
        tracing::error!("the store did not close in order; the next start recovers it");
    }
    drop((locking, lock, clean));
    if let Some(descriptors) = descriptors {
        descriptors.put_back();
    }
    Ok(match then {
        Then::Restart if supervisor.is_there() => Ending::Restart,
        Then::Restart => Ending::StartAgain,
        Then::Stop | Then::Resume => Ending::Stopped,
    })
}

/// Local clients find the daemon, or will as soon as there is room on a full disk: what is
/// returned sees to that until it is dropped.
fn make_findable(
    endpoint: &Endpoint,
    folder: &Path,
) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    match endpoint.write(folder) {
        Err(Failure::NoRoom(path)) => {
            tracing::warn!(
                path = %path.display(),
                "the disk is full: clients find the daemon by its socket and address alone"
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

/// With fewer open files the tools of a full set of lanes may run out of them.
const FEW_FILES: u64 = 512;
/// What found a full disk is tried again after this long.
const ROOM_AGAIN: Duration = Duration::from_secs(1);
/// How often the lock of the state folder is looked at.
const KEEP_LOCK: Duration = Duration::from_secs(1);
/// How long a last look at the files of agents and skills may take.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// How long threads may take to end that wait for a disk.
const LAST_THREADS: Duration = Duration::from_secs(1);
/// How long clients may take to read their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Sees to it that the folder stays this process's own. Where another one has taken it, this one
/// ends at once: two of them would do everything twice.
async fn keep_lock(lock: Arc<Mutex<Lock>>) {
    let mut ticks = tokio::time::interval(KEEP_LOCK);
    loop {
        ticks.tick().await;
        match locked(&lock).keep() {
            Ok(()) => {}
            Err(failure @ Failure::Held { .. }) => parts::end_now(&failure),
            // The lock is held, only its file could not be looked at.
            Err(failure) => tracing::error!(%failure, "the lock file could not be looked at"),
        }
    }
}

fn locked(lock: &Mutex<Lock>) -> MutexGuard<'_, Lock> {
    // A lock whose file could not be made anew is tried again at the next tick.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens at `address`. Where the process before has listened there and left no clean end, it
/// may still be ending: that is waited for. `left` is what that process has left behind.
async fn bind(
    address: SocketAddr,
    left: Option<Endpoint>,
    clock: &Clock,
) -> Result<TcpListener, Failure> {
    let was_ours = left.and_then(|left| left.address()) == Some(address);
    let patience = if was_ours { lock::GOING } else { lock::STAYING };
    let began = clock.monotonic();
    loop {
        let fault = match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(fault) => fault,
        };
        return Err(match fault.kind() {
            std::io::ErrorKind::AddrInUse if clock.monotonic() - began < patience => {
                tokio::time::sleep(lock::LOOK).await;
                continue;
            }
            std::io::ErrorKind::AddrInUse => Failure::AddressTaken(address),
            std::io::ErrorKind::PermissionDenied => {
                Failure::NotPermitted(format!("{address} cannot be listened on"), fault)
            }
            _ => Failure::System(format!("{address} cannot be listened on"), fault),
        });
    }
}
