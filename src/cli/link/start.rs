//! Starts a daemon in the background: for `serve --detach`, for commands that need one and find
//! none, and for the demo.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::discover::{self, Where};
use crate::cli::common::ask;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::daemon::{Endpoint, offline};
use crate::kernel::fault::Kind;
use crate::wire::gateway::GetStatus;

/// Name of the log of a background daemon, in its state folder.
pub(crate) const LOG: &str = "abide.log";
/// Polling interval of the new process.
const LOOK: Duration = Duration::from_millis(20);
/// Time after which a note says that the daemon is still starting; also the limit for finding the
/// daemon of a concurrent start.
const SLOW_START_NOTE_AFTER: Duration = Duration::from_secs(5);

/// Part of the error of a start whose state folder another daemon holds.
const HELD: &str = "is in use by another abide";

/// How to start a daemon.
pub(crate) struct StartOptions {
    /// Its state folder.
    pub(crate) state_dir: PathBuf,
    /// Its configuration file; `None` for the default one.
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on; `None` as configured.
    pub(crate) listen: Option<SocketAddr>,
    /// Path of its socket; `None` as configured.
    pub(crate) socket: Option<PathBuf>,
    /// Pass on none of this terminal's `ABIDE_*` variables.
    pub(crate) without_env: bool,
}

/// A background daemon that is ready.
pub(crate) struct StartedDaemon {
    /// The process; the daemon keeps running when this is dropped.
    pub(crate) process: Child,
    /// What the daemon has written about itself.
    pub(crate) endpoint: Endpoint,
}

/// A daemon is running once this returns: the existing one, or a new one in the background.
pub(crate) async fn if_none(place: &Where) -> Result<(), Failure> {
    match DaemonLink::open(place).await {
        Err(failure) if failure.code == exit::NO_DAEMON => usual(place).await.map(drop),
        there => there.map(drop),
    }
}

/// Connects to the daemon for a command that submits work. If none is running and a user is
/// present, one is started and the user gets a note. A script gets the failure, which it can
/// handle.
pub(crate) async fn link(place: &Where, forbidden: bool) -> Result<DaemonLink, Failure> {
    let may = !forbidden && ask::can_ask();
    match DaemonLink::open(place).await {
        Err(failure) if failure.code == exit::NO_DAEMON && may => {
            print::note("no daemon is running; starting one");
            let started = usual(place).await?;
            print::note(&format!(
                "abide is up: process {}, {}; stop it with: abide stop",
                started.pid, started.url
            ));
            DaemonLink::open(place).await
        }
        opened => opened,
    }
}

/// Starts a daemon on the effective state folder with the default configuration.
async fn usual(place: &Where) -> Result<Endpoint, Failure> {
    let plan = StartOptions {
        state_dir: place.state_dir()?,
        config: None,
        listen: None,
        socket: place.socket_to_listen()?,
        without_env: false,
    };
    Ok(start(&plan).await?.endpoint)
}

/// The daemon is ready once this returns; it has a session of its own, so that it outlives this
/// terminal. If it ends first, its own failure and exit code are returned. A process that finds the
/// store damaged exits so that the next one repairs it; that one is started, too.
pub(crate) async fn start(plan: &StartOptions) -> Result<StartedDaemon, Failure> {
    if let Some(note) = empty_store(&plan.state_dir) {
        print::note(&note);
    }
    match start_once(plan).await {
        Err(failure)
            if failure.code == exit::STORE && offline::is_to_be_repaired(&plan.state_dir) =>
        {
            print::note("the store is damaged; restarting to repair it");
            let started = start_once(plan).await?;
            print::note("readable data was kept; see what was lost: abide doctor");
            Ok(started)
        }
        started => started,
    }
}

/// Note for a start that creates a new store where the old one is missing.
pub(crate) fn empty_store(state: &Path) -> Option<String> {
    offline::has_lost_store(state).then(|| {
        let backup = offline::newest_copy(state, None);
        let backup = backup.map_or("FILE".to_owned(), |path| path.display().to_string());
        format!(
            "note: the store of {} is missing; a new, empty one is created.\n\
             To restore a backup: abide stop && abide restore {backup} --force",
            state.display()
        )
    })
}

async fn start_once(plan: &StartOptions) -> Result<StartedDaemon, Failure> {
    let log = plan.state_dir.join(LOG);
    // The log is written before the daemon can check the folder.
    offline::prepare_folder(&plan.state_dir)
        .map_err(|failure| Failure::new(failure.exit_code(), "serve", failure.to_string()))?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(&log)
        .map_err(|error| cannot_write(&log, &error))?;
    let before = file
        .seek(SeekFrom::End(0))
        .map_err(|error| Failure::local(log.display(), error))?;
    let mut process = command(plan)?
        .stdin(Stdio::null())
        .stdout(
            file.try_clone()
                .map_err(|error| Failure::local(log.display(), error))?,
        )
        .stderr(file)
        .spawn()
        .map_err(|error| Failure::local("the daemon cannot be started", error))?;

    let clock = Clock::system();
    let started = clock.monotonic();
    let mut told = false;
    loop {
        let ended = process
            .try_wait()
            .map_err(|error| Failure::local("cannot check the new daemon's process", error))?;
        if let Some(status) = ended {
            return Err(ended_early(&log, before, status.code()));
        }
        if let Some(endpoint) = ready(plan, process.id()).await? {
            return Ok(StartedDaemon { process, endpoint });
        }
        if !told && clock.monotonic() - started > SLOW_START_NOTE_AFTER {
            told = true;
            print::note(&format!("it is still starting; its log: {}", log.display()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The daemon that runs on this folder and is ready.
pub(crate) async fn running(state: &Path) -> Option<Endpoint> {
    let link = DaemonLink::open(&Where::folder(state)).await.ok()?;
    let status = link.ask(&GetStatus {}).await.ok()?;
    let endpoint = link.target.endpoint.clone();
    endpoint.filter(|_| status.phase == "ready")
}

/// After a start that failed because a concurrent one was faster: the daemon of that one.
pub(crate) async fn concurrent_daemon(state: &Path, failure: &Failure) -> Option<Endpoint> {
    let clock = Clock::system();
    let began = clock.monotonic();
    while failure.code == exit::HELD && failure.message.contains(HELD) {
        let found = running(state).await;
        if found.is_some() || clock.monotonic() - began > SLOW_START_NOTE_AFTER {
            return found;
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

fn command(plan: &StartOptions) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::local("the path of this program is unknown", error))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--background");
    command.arg("--state-dir").arg(&plan.state_dir);
    // Otherwise the folder that it was started in could not be removed or unmounted.
    command.current_dir(&plan.state_dir);
    let named = std::env::var_os("ABIDE_CONFIG").filter(|_| !plan.without_env);
    if let Some(config) = plan.config.clone().or(named.map(PathBuf::from)) {
        let config = std::path::absolute(&config)
            .map_err(|error| Failure::local(config.display(), error))?;
        command.arg("--config").arg(config);
    }
    if let Some(listen) = plan.listen {
        command.arg("--listen").arg(listen.to_string());
    }
    if let Some(socket) = &plan.socket {
        command.arg("--socket").arg(socket);
    }
    // The supervisor of this process does not supervise the new one.
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "ABIDE_SUPERVISOR",
        "ABIDE_STOP_TIMEOUT",
    ] {
        command.env_remove(name);
    }
    if plan.without_env {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ABIDE_") {
                command.env_remove(name);
            }
        }
    }
    Ok(command)
}

/// Endpoint of this process; `None` until it is ready.
async fn ready(plan: &StartOptions, pid: u32) -> Result<Option<Endpoint>, Failure> {
    let written = discover::endpoint(&plan.state_dir)?;
    let Some(endpoint) = written.filter(|endpoint| endpoint.pid == pid) else {
        return Ok(None);
    };
    let link = DaemonLink::open(&Where::folder(&plan.state_dir)).await?;
    match link.ask(&GetStatus {}).await {
        Ok(status) => Ok((status.phase == "ready").then_some(endpoint)),
        Err(failure) if failure.kind == Kind::Unavailable.as_str() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn ended_early(log: &Path, before: u64, code: Option<i32>) -> Failure {
    let said = fs::File::open(log).and_then(|mut file| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(before))?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    let said = text::clean(&said.unwrap_or_default());
    // Its error message comes after its log lines.
    let said = said
        .rsplit_once("abide: ")
        .map_or("", |(_, last)| last.trim());
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    let message = if said.is_empty() {
        "the daemon ended during its start without a message".to_owned()
    } else {
        format!("the daemon did not start: {said}")
    };
    Failure::new(code, "not_started", message).hint(format!("its log: {}", log.display()))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        exit::PERMISSION,
        "not_writable",
        format!("{} cannot be written: {error}", path.display()),
    )
    .hint("name a folder that you may write to: --state-dir DIR")
}
