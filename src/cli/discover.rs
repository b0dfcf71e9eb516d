//! Where the daemon is and which token opens it: flags, then environment, then the default
//! state folder. Used by every command that talks to a daemon, and by those that start one.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::failure::{Failure, exit};
use crate::daemon::Endpoint;

/// The flags by which any command finds its daemon.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Which daemon")]
pub(crate) struct Where {
    /// Its address, such as http://127.0.0.1:7777
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["state_dir", "socket"])]
    url: Option<String>,

    /// Its Unix socket, which needs no token
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Its state folder [default: ~/.local/state/abide]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// The token [default: the one in its state folder]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A daemon that may be there.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// How to reach it, the best way first; at least one.
    pub(crate) ways: Vec<Way>,
    /// What the daemon wrote about itself; `None` if it was found by its address alone.
    pub(crate) endpoint: Option<Endpoint>,
}

impl Target {
    /// Is it known to be a process of this machine?
    pub(crate) fn is_here(&self) -> bool {
        let local = |way: &Way| matches!(way, Way::Socket { .. });
        self.endpoint.is_some() || self.ways.iter().any(local)
    }
}

/// A way to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its Unix socket: the daemon sees who connects, and takes a person's decisions from
    /// callers that show the token.
    Socket {
        /// Where it is.
        path: PathBuf,
        /// The file with the token, if one is known; it may be missing.
        token_file: Option<PathBuf>,
    },
    /// Its address.
    Tcp {
        /// `http://host:port`.
        url: String,
        /// The file with the token, read only when this way is taken.
        token_file: PathBuf,
    },
}

impl Where {
    /// Looks for a daemon below this state folder only.
    pub(crate) fn folder(folder: &Path) -> Self {
        Where {
            state_dir: Some(folder.to_owned()),
            ..Where::default()
        }
    }

    /// The state folder in force.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.state_dir {
            return std::path::absolute(folder)
                .map_err(|error| Failure::local(folder.display(), error));
        }
        if let Some(folder) = variable("ABIDE_STATE_DIR") {
            return std::path::absolute(&folder).map_err(|error| Failure::local(folder, error));
        }
        // The specification of these folders says that a relative path is to be ignored.
        let state = variable("XDG_STATE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| env::home_dir().map(|home| home.join(".local/state")));
        match state {
            Some(state) => Ok(state.join("abide")),
            None => Err(
                Failure::usage("there is no home folder to keep the state in")
                    .hint("name a folder: --state-dir DIR or ABIDE_STATE_DIR"),
            ),
        }
    }

    /// The state folder of a daemon that runs in this process. A service manager may have made
    /// one for it; that folder says nothing to a client, which may be a service of its own.
    pub(crate) fn state_dir_to_serve(&self) -> Result<PathBuf, Failure> {
        let named = self.state_dir.is_some() || variable("ABIDE_STATE_DIR").is_some();
        // Of several the first is meant for state.
        let given = variable("STATE_DIRECTORY")
            .and_then(|list| list.split(':').next().map(PathBuf::from))
            .filter(|folder| folder.is_absolute());
        match given {
            Some(folder) if !named => Ok(folder),
            _ => self.state_dir(),
        }
    }

    /// The daemon that these flags and the environment name. It was there when it wrote its
    /// endpoint; whether it still answers is found out by asking.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let folder = self.state_dir()?;
        // A flag goes before any variable, also before one of another name.
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
                // An address that cannot be used matters only where the socket is lost.
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

    /// Can there be a daemon although none answers? Not where no process of it runs on its folder,
    /// or nothing listens at a socket of this machine.
    pub(crate) fn may_be_there(&self) -> bool {
        match self.target() {
            Ok(target) => target.endpoint.is_some() || !target.is_here(),
            Err(failure) => failure.kind != NO_DAEMON,
        }
    }

    /// The folder of the daemon that these flags and the environment name by its folder, where it
    /// was stopped in an orderly way or has never run: one that was killed leaves its endpoint.
    pub(crate) fn stopped(&self) -> Option<PathBuf> {
        let missing = self.target().err()?;
        let folder = self.state_dir().ok()?;
        let is_stopped = missing.kind == NO_DAEMON && matches!(endpoint(&folder), Ok(None));
        is_stopped.then_some(folder)
    }

    /// Where a daemon that is started shall have its socket, if that was said.
    pub(crate) fn socket_to_listen(&self) -> Result<Option<PathBuf>, Failure> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| Failure::local(path.display(), error))
        };
        self.socket.as_ref().map(absolute).transpose()
    }

    /// For a command that an address means nothing to.
    pub(crate) fn refuse_address(&self, command: &str, instead: &str) -> Result<(), Failure> {
        match &self.url {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!(
                "{command} takes {instead}, not --url"
            ))),
        }
    }

    /// For a command that has a daemon of its own.
    pub(crate) fn refuse_all(&self, command: &str) -> Result<(), Failure> {
        let named = [
            ("--url", self.url.is_some()),
            ("--socket", self.socket.is_some()),
            ("--state-dir", self.state_dir.is_some()),
            ("--token-file", self.token_file.is_some()),
        ];
        match named.iter().find(|(_, is_named)| *is_named) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::usage(format!(
                "{command} has a daemon and a folder of its own; leave {flag} away"
            ))),
        }
    }

    fn in_folder(&self, folder: &Path) -> Result<Target, Failure> {
        let endpoint = match endpoint(folder)? {
            Some(endpoint) if process_exists(endpoint.pid) => endpoint,
            Some(endpoint) => return Err(gone(folder, &endpoint)),
            None => return Err(no_daemon(folder)),
        };
        let named = self.named_token();
        let mut ways = Vec::new();
        // Whoever names a token wants to be seen with it and not by the user's own rights.
        if let (Some(socket), None) = (&endpoint.socket, &named) {
            ways.push(Way::Socket {
                path: PathBuf::from(socket),
                token_file: Some(folder.join("token")),
            });
        }
        ways.push(Way::Tcp {
            url: endpoint.url.clone(),
            token_file: named.unwrap_or_else(|| folder.join("token")),
        });
        Ok(Target {
            ways,
            endpoint: Some(endpoint),
        })
    }

    fn at_socket(&self, socket: &Path, folder: &Path) -> Result<Target, Failure> {
        let socket =
            std::path::absolute(socket).map_err(|error| Failure::local(socket.display(), error))?;
        // The folder's daemon is this one only if it says so.
        let endpoint = endpoint(folder)
            .ok()
            .flatten()
            .filter(|endpoint| endpoint.socket.as_deref().map(Path::new) == Some(&socket));
        let other = endpoint.as_ref().map(|endpoint| Way::Tcp {
            url: endpoint.url.clone(),
            token_file: self.named_token().unwrap_or_else(|| folder.join("token")),
        });
        // Beside a socket that is in its state folder is the token of that folder.
        let beside = || socket.parent().map(|folder| folder.join("token"));
        let token_file = match (self.named_token(), &endpoint) {
            (Some(named), _) => Some(named),
            (None, Some(_)) => Some(folder.join("token")),
            (None, None) => beside(),
        };
        let mut ways = vec![Way::Socket {
            path: socket,
            token_file,
        }];
        ways.extend(other);
        Ok(Target { ways, endpoint })
    }

    fn at_address(&self, url: &str, folder: &Path) -> Result<Target, Failure> {
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") {
            return Err(Failure::usage(format!(
                "{url} is no address of a daemon: it must begin with http://"
            )));
        }
        let endpoint = endpoint(folder)?.filter(|endpoint| endpoint.url == url);
        // The folder's token is for the folder's daemon and is shown to no other address.
        let token_file = match (self.named_token(), &endpoint) {
            (Some(file), _) => file,
            (None, Some(_)) => folder.join("token"),
            (None, None) => {
                return Err(Failure::new(
                    exit::AUTH,
                    "unauthorized",
                    format!("there is no token for {url}"),
                )
                .hint("name it: --token-file FILE or ABIDE_TOKEN_FILE"));
            }
        };
        Ok(Target {
            ways: vec![Way::Tcp { url, token_file }],
            endpoint,
        })
    }

    fn named_token(&self) -> Option<PathBuf> {
        self.token_file
            .clone()
            .or_else(|| variable("ABIDE_TOKEN_FILE").map(PathBuf::from))
    }
}

/// What the daemon of `folder` wrote about itself; `None` if none has been ready there.
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

/// Does a process of this number run? One that has ended counts as gone although whoever
/// started it has not taken note yet.
pub(crate) fn process_exists(pid: u32) -> bool {
    let number = i32::try_from(pid).ok();
    let Some(number) = number.and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    // Not being allowed to signal it means that it exists.
    rustix::process::test_kill_process(number) != Err(rustix::io::Errno::SRCH) && !is_zombie(pid)
}

/// Linux tells; elsewhere an ended process is taken note of at once.
fn is_zombie(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The program's name stands in parentheses and may hold anything, also parentheses.
    let first_ended = stat
        .rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    // Other threads may still be ending, and till then the locks of the process are held.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    first_ended && threads <= 1
}

/// The kind of a failure where no daemon runs on a folder.
pub(crate) const NO_DAEMON: &str = "no_daemon";

/// Nothing answers for `folder`.
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
            "the daemon on {} (process {}) is gone without a stop; what it was told is kept",
            folder.display(),
            endpoint.pid
        ),
    )
    .hint(format!("its runs go on when you {}", start_command(folder)))
}

/// How to start a daemon on `folder`, as a sentence with the command to type.
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
