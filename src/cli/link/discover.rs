//! Resolves which daemon to use and with which token: flags, then environment, then the default
//! state folder. Used by every command that talks to a daemon, and by those that start one.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::common::failure::{Failure, exit};
use crate::client::GatewayUrl;
use crate::daemon::{Endpoint, offline};
use crate::process::RUN_ID;
use crate::tls::Fingerprint;

/// Flags that select the daemon.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Which daemon")]
pub(crate) struct Where {
    /// URL of the daemon: http://127.0.0.1:7777, https://host:7777
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["state_dir", "socket"])]
    url: Option<String>,

    /// Its Unix socket, which needs no token
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Its state folder [default: ~/.local/state/abide]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// File with the token [default: the one in its state folder]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Its certificate by SHA-256 fingerprint, for https://
    #[arg(long, global = true, value_name = "SHA256")]
    pin: Option<Fingerprint>,
}

/// A daemon that may be running.
#[derive(Clone, Debug)]
pub(crate) struct DaemonTarget {
    /// Ways to reach it, best first; never empty.
    pub(crate) ways: Vec<Transport>,
    /// The endpoint file that the daemon wrote; `None` if it was found by its address alone.
    pub(crate) endpoint: Option<Endpoint>,
}

impl DaemonTarget {
    /// True if it is known to run on this machine.
    pub(crate) fn is_here(&self) -> bool {
        let local = |way: &Transport| matches!(way, Transport::Socket { .. });
        self.endpoint.is_some() || self.ways.iter().any(local)
    }
}

/// A transport to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Its Unix socket. The daemon identifies the peer by its user, and accepts a user's decisions
    /// from callers that present the token.
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Token file, if one is known; it may be missing.
        token_file: Option<PathBuf>,
    },
    /// Its HTTP address.
    Tcp {
        /// Base URL, `http://host:port` or `https://host:port`.
        url: String,
        /// Token file, read only when this transport is used.
        token_file: PathBuf,
        /// The certificate that it must show; `None`: see [`super::trust`].
        pin: Option<Fingerprint>,
    },
}

impl Where {
    /// Selects the daemon of this state folder only.
    pub(crate) fn folder(folder: &Path) -> Self {
        Where {
            state_dir: Some(folder.to_owned()),
            ..Where::default()
        }
    }

    /// The effective state folder.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.state_dir {
            return std::path::absolute(folder)
                .map_err(|error| Failure::local(folder.display(), error));
        }
        if let Some(folder) = variable("ABIDE_STATE_DIR") {
            return std::path::absolute(&folder).map_err(|error| Failure::local(folder, error));
        }
        // The XDG specification says that relative paths are to be ignored.
        let state = variable("XDG_STATE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::home_dir().map(|home| home.join(".local/state")));
        match state {
            Some(state) => Ok(state.join("abide")),
            None => Err(Failure::usage("the home folder for the state is unknown")
                .hint("name a folder: --state-dir DIR or ABIDE_STATE_DIR")),
        }
    }

    /// True if a flag or a variable selects the state folder.
    pub(crate) fn names_folder(&self) -> bool {
        self.state_dir.is_some() || variable("ABIDE_STATE_DIR").is_some()
    }

    /// The state folder that a flag selects.
    pub(crate) fn folder_of_flag(&self) -> Option<&Path> {
        self.state_dir.as_deref()
    }

    /// State folder of a daemon in this process. A service manager may have created one for it
    /// (`STATE_DIRECTORY`); clients ignore that variable, because a client may be a service of its
    /// own.
    pub(crate) fn state_dir_to_serve(&self) -> Result<PathBuf, Failure> {
        let named = self.names_folder();
        // Of several folders the first is for state.
        let given = variable("STATE_DIRECTORY")
            .and_then(|list| list.split(':').next().map(PathBuf::from))
            .filter(|folder| folder.is_absolute());
        match given {
            Some(folder) if !named => Ok(folder),
            _ => self.state_dir(),
        }
    }

    /// The daemon that flags and environment select. Its endpoint file may be stale: only a request
    /// shows whether the daemon still answers.
    pub(crate) fn target(&self) -> Result<DaemonTarget, Failure> {
        let folder = self.state_dir()?;
        // A flag overrides every variable, even one for another transport.
        if let Some(socket) = &self.socket {
            return self.at_socket(socket, &folder);
        }
        if let Some(url) = &self.url {
            return self.at_address(url, &folder);
        }
        if self.state_dir.is_some() {
            return self.in_folder(&folder);
        }
        let url = variable("ABIDE_URL");
        match (variable("ABIDE_SOCKET"), url) {
            (Some(socket), Some(url)) => {
                let mut target = self.at_socket(Path::new(&socket), &folder)?;
                // An invalid address matters only if the socket fails.
                if let Ok(other) = self.at_address(&url, &folder) {
                    target.ways.truncate(1);
                    target.ways.extend(other.ways);
                }
                Ok(target)
            }
            (Some(socket), None) => self.at_socket(Path::new(&socket), &folder),
            (None, Some(url)) => self.at_address(&url, &folder),
            (None, None) => self.in_folder(&folder),
        }
    }

    /// The socket by which a service manager starts the daemon of the state folder, if nothing else was
    /// named.
    pub(crate) fn activating_socket(&self) -> Option<PathBuf> {
        let is_named = self.socket.is_some() || self.url.is_some();
        let by_variable = self.state_dir.is_none()
            && (variable("ABIDE_SOCKET").is_some() || variable("ABIDE_URL").is_some());
        if is_named || by_variable {
            return None;
        }
        offline::activating_socket(&self.state_dir().ok()?)
    }

    /// True if a daemon may be running although it does not answer. False if no process runs for
    /// its folder, or if nothing listens on a local socket.
    pub(crate) fn may_be_there(&self) -> bool {
        match self.target() {
            Ok(target) => target.endpoint.is_some() || !target.is_here(),
            Err(failure) => failure.kind != NO_DAEMON,
        }
    }

    /// State folder of the selected daemon if it was stopped gracefully or never ran; a killed
    /// daemon leaves its endpoint file.
    pub(crate) fn stopped(&self) -> Option<PathBuf> {
        let missing = self.target().err()?;
        let folder = self.state_dir().ok()?;
        let is_stopped = missing.kind == NO_DAEMON && matches!(endpoint(&folder), Ok(None));
        is_stopped.then_some(folder)
    }

    /// Socket that a new daemon shall listen on, if one was given.
    pub(crate) fn socket_to_listen(&self) -> Result<Option<PathBuf>, Failure> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| Failure::local(path.display(), error))
        };
        self.socket.as_ref().map(absolute).transpose()
    }

    /// Usage error for a command to which an address means nothing.
    pub(crate) fn refuse_address(&self, command: &str, instead: &str) -> Result<(), Failure> {
        match &self.url {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!(
                "{command} takes {instead}, not --url"
            ))),
        }
    }

    /// Usage error for a command that starts its own daemon.
    pub(crate) fn refuse_all(&self, command: &str) -> Result<(), Failure> {
        let named = [
            ("--url", self.url.is_some()),
            ("--socket", self.socket.is_some()),
            ("--state-dir", self.state_dir.is_some()),
            ("--token-file", self.token_file.is_some()),
            ("--pin", self.pin.is_some()),
        ];
        match named.iter().find(|(_, is_named)| *is_named) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::usage(format!(
                "{command} uses its own daemon and folder; omit {flag}"
            ))),
        }
    }

    fn in_folder(&self, folder: &Path) -> Result<DaemonTarget, Failure> {
        let endpoint = match endpoint(folder)? {
            Some(endpoint) if process_exists(endpoint.pid) => endpoint,
            Some(endpoint) => return Err(gone(folder, &endpoint)),
            None => return Err(no_daemon(folder)),
        };
        let named = self.named_token();
        let mut ways = Vec::new();
        // A caller that names a token wants to be identified by it and not by its user.
        if let (Some(socket), None) = (&endpoint.socket, &named) {
            ways.push(Transport::Socket {
                path: PathBuf::from(socket),
                token_file: Some(folder.join("token")),
            });
        }
        if ways.is_empty() || !is_of_run() {
            ways.push(Transport::Tcp {
                url: endpoint.url.clone(),
                token_file: named.unwrap_or_else(|| folder.join("token")),
                pin: self.pin()?.or(endpoint.certificate),
            });
        }
        Ok(DaemonTarget {
            ways,
            endpoint: Some(endpoint),
        })
    }

    fn at_socket(&self, socket: &Path, folder: &Path) -> Result<DaemonTarget, Failure> {
        let socket =
            std::path::absolute(socket).map_err(|error| Failure::local(socket.display(), error))?;
        // The folder's endpoint counts only if it names this socket.
        let endpoint = endpoint(folder)
            .ok()
            .flatten()
            .filter(|endpoint| endpoint.socket.as_deref().map(Path::new) == Some(&socket));
        let pin = self.pin()?;
        let may_follow = !is_of_run() || self.named_token().is_some();
        let other = endpoint.as_ref().filter(|_| may_follow);
        let other = other.map(|endpoint| Transport::Tcp {
            url: endpoint.url.clone(),
            token_file: self.named_token().unwrap_or_else(|| folder.join("token")),
            pin: pin.or(endpoint.certificate),
        });
        // A socket in its state folder has that folder's token next to it.
        let beside = || socket.parent().map(|folder| folder.join("token"));
        let token_file = match (self.named_token(), &endpoint) {
            (Some(named), _) => Some(named),
            (None, Some(_)) => Some(folder.join("token")),
            (None, None) => beside(),
        };
        let mut ways = vec![Transport::Socket {
            path: socket,
            token_file,
        }];
        ways.extend(other);
        Ok(DaemonTarget { ways, endpoint })
    }

    fn at_address(&self, url: &str, folder: &Path) -> Result<DaemonTarget, Failure> {
        let url = url.trim_end_matches('/').to_owned();
        let address = GatewayUrl::parse(&url).map_err(|error| Failure::usage(error.to_string()))?;
        let pin = self.pin()?;
        if pin.is_some() && !address.tls {
            return Err(Failure::usage(format!(
                "{url} shows no certificate to compare with --pin"
            ))
            .hint("begin the URL with https://, or leave --pin out"));
        }
        let endpoint = endpoint(folder)?.filter(|endpoint| endpoint.url == url);
        // The folder's token is sent only to the folder's own daemon.
        let token_file = match (self.named_token(), &endpoint) {
            (Some(file), _) => file,
            (None, Some(_)) => folder.join("token"),
            (None, None) => {
                return Err(Failure::new(
                    exit::AUTH,
                    "unauthorized",
                    format!("no token is known for {url}"),
                )
                .hint("name it: --token-file FILE or ABIDE_TOKEN_FILE"));
            }
        };
        Ok(DaemonTarget {
            ways: vec![Transport::Tcp {
                url,
                token_file,
                pin: pin.or(endpoint.as_ref().and_then(|endpoint| endpoint.certificate)),
            }],
            endpoint,
        })
    }

    /// The fingerprint that flag or environment name.
    fn pin(&self) -> Result<Option<Fingerprint>, Failure> {
        let named = || {
            let text = variable("ABIDE_PIN")?;
            let parsed = text.parse();
            Some(parsed.map_err(|error| Failure::usage(format!("ABIDE_PIN: {error}"))))
        };
        match self.pin {
            Some(pin) => Ok(Some(pin)),
            None => named().transpose(),
        }
    }

    fn named_token(&self) -> Option<PathBuf> {
        self.token_file
            .clone()
            .or_else(|| variable("ABIDE_TOKEN_FILE").map(PathBuf::from))
    }
}

/// True in a program of a run. Over the socket it has the rights of its run; with the token of the state
/// folder it would have those of the owner, so it sends that token over TCP only where there is no socket
/// or the token was named.
fn is_of_run() -> bool {
    variable(RUN_ID).is_some()
}

/// Reads the endpoint file of `folder`; `None` if no daemon has been ready there.
pub(crate) fn endpoint(folder: &Path) -> Result<Option<Endpoint>, Failure> {
    let path = folder.join("endpoint.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::local(path.display(), error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Failure::local(path.display(), error)
            .hint("it was written by another version; name the daemon with --url instead")
    })
}

/// True if a process with this id is running. An ended process that its parent has not reaped yet
/// counts as gone.
pub(crate) fn process_exists(pid: u32) -> bool {
    let number = i32::try_from(pid).ok();
    let Some(number) = number.and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    // A permission error means that it exists.
    rustix::process::test_kill_process(number) != Err(rustix::io::Errno::SRCH) && !is_zombie(pid)
}

/// Is the file at this path the program of this process?
pub(crate) fn same_program(path: &str) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let own = env::current_exe().and_then(|own| file(&own));
    own.is_ok_and(|own| file(Path::new(path)).is_ok_and(|found| found == own))
}

/// Detects zombies on Linux; elsewhere ended processes are assumed to be reaped at once.
fn is_zombie(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The program's name is in parentheses and may contain any character, parentheses included.
    let first_ended = stat
        .rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    // Other threads may still be ending; until then the process holds its locks.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    first_ended && threads <= 1
}

/// Failure kind if no daemon runs on a folder.
pub(crate) const NO_DAEMON: &str = "no_daemon";

/// Failure if no daemon runs on `folder`.
pub(crate) fn no_daemon(folder: &Path) -> Failure {
    Failure::new(
        exit::NO_DAEMON,
        NO_DAEMON,
        format!("no daemon runs on {}", folder.display()),
    )
    .hint(start_command(folder))
}

fn gone(folder: &Path, endpoint: &Endpoint) -> Failure {
    Failure::new(
        exit::NO_DAEMON,
        NO_DAEMON,
        format!(
            "the daemon on {} (process {}) was killed or crashed; all accepted work is kept",
            folder.display(),
            endpoint.pid
        ),
    )
    .hint(format!(
        "its runs resume when you {}",
        start_command(folder)
    ))
}

/// How to start a daemon on `folder`, as a sentence with the command.
pub(crate) fn start_command(folder: &Path) -> String {
    let named = Where::default()
        .state_dir()
        .is_ok_and(|usual| usual == folder);
    if named {
        "start it: abide serve --detach".to_owned()
    } else {
        format!(
            "start it: abide serve --detach --state-dir {}",
            folder.display()
        )
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
