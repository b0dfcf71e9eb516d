//! systemd as a service manager: where its units are, and its commands.

use std::env;
use std::path::{Path, PathBuf};

use super::manager::{self, InstallScope, ServiceFile, ServiceLog, ServiceManager, ServiceState};
use super::manager::{ask, tell};
use super::plan::ServicePlan;
use super::{paths, unit};
use crate::cli::common::failure::{Failure, exit};

/// The unit of the daemon.
const SERVICE: &str = "abide.service";
/// The unit of its sockets.
const SOCKET: &str = "abide.socket";
/// States of a manager that does its work.
const AT_WORK: [&str; 5] = [
    "running",
    "degraded",
    "starting",
    "initializing",
    "maintenance",
];

/// The manager of one scope.
pub(super) struct Systemd {
    scope: InstallScope,
    folder: PathBuf,
}

impl Systemd {
    /// The manager, if it runs and this user may command it.
    pub(super) fn open(scope: InstallScope) -> Result<Systemd, Failure> {
        let systemd = Systemd::unasked(scope)?;
        let found = systemd.ask(&["is-system-running"])?;
        if !AT_WORK.contains(&&*found.out) {
            let why = match (&*found.out, &*found.err) {
                ("", "") => "systemd does not answer".to_owned(),
                (state, "") => format!("systemd is {state}"),
                (_, said) => format!("systemctl says: {said}"),
            };
            return Err(manager::none(&why));
        }
        if scope == InstallScope::Machine && !rustix::process::geteuid().is_root() {
            let message = "only root may change services of the machine. Nothing was changed";
            return Err(Failure::new(exit::PERMISSION, "not_permitted", message)
                .hint("use sudo, or the service of your user: leave --system out"));
        }
        Ok(systemd)
    }

    /// The manager without asking whether it runs, to look at its files.
    pub(super) fn unasked(scope: InstallScope) -> Result<Systemd, Failure> {
        let folder = match scope {
            InstallScope::Machine => PathBuf::from("/etc/systemd/system"),
            InstallScope::User => {
                let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
                let config = match config.filter(|folder| folder.is_absolute()) {
                    Some(folder) => folder,
                    None => paths::home()?.join(".config"),
                };
                config.join("systemd/user")
            }
        };
        Ok(Systemd { scope, folder })
    }

    fn arguments<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        let scope = (self.scope == InstallScope::User).then_some("--user");
        scope.into_iter().chain(arguments.iter().copied()).collect()
    }

    fn ask(&self, arguments: &[&str]) -> Result<manager::ToolOutput, Failure> {
        ask("systemctl", &self.arguments(arguments))
    }

    fn tell(&self, arguments: &[&str]) -> Result<(), Failure> {
        tell("systemctl", &self.arguments(arguments)).map(drop)
    }

    /// The properties of a unit.
    fn properties(&self, unit: &str, names: &str) -> Result<Vec<(String, String)>, Failure> {
        let shown = self.ask(&["show", unit, "--property", names])?;
        let pairs = shown.out.lines().filter_map(|line| line.split_once('='));
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// The folders where packages put units, in systemd's order (systemd.unit(5)).
    fn folders_of_packages(&self) -> Vec<PathBuf> {
        let usual =
            |kind: &str| ["/usr/local/lib", "/usr/lib", "/lib"].map(|lib| format!("{lib}/{kind}"));
        if self.scope == InstallScope::Machine {
            return usual("systemd/system").map(PathBuf::from).to_vec();
        }
        // The XDG specification says that an empty variable means as much as none.
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let own = paths::home().map(|home| home.join(".local/share"));
        let own = variable("XDG_DATA_HOME").map(PathBuf::from).or(own.ok());
        let data = variable("XDG_DATA_DIRS");
        let data = data.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
        let data = own
            .into_iter()
            .chain(env::split_paths(&data).collect::<Vec<_>>());
        let data = data.filter(|folder| folder.is_absolute());
        std::iter::once(PathBuf::from("/etc/systemd/user"))
            .chain(data.map(|folder| folder.join("systemd/user")))
            .chain(usual("systemd/user").map(PathBuf::from))
            .collect()
    }

    fn has_socket(&self) -> bool {
        let folders = self.folders_of_packages().into_iter();
        let mut folders = std::iter::once(self.folder.clone()).chain(folders);
        folders.any(|folder| folder.join(SOCKET).exists())
    }

    /// Whether the socket unit is enabled and whether it listens; `None` if there is none.
    fn socket(&self) -> Result<Option<(bool, bool)>, Failure> {
        if !self.has_socket() {
            return Ok(None);
        }
        let found = self.properties(SOCKET, "ActiveState,UnitFileState")?;
        let has = |name: &str, start: &str| {
            let mut found = found.iter();
            found.any(|(found, value)| found == name && value.starts_with(start))
        };
        Ok(Some((
            has("UnitFileState", "enabled"),
            has("ActiveState", "active"),
        )))
    }

    /// Starts a new process, also of a unit that has failed too often to be started by itself.
    fn begin(&self) -> Result<(), Failure> {
        for unit in [SERVICE, SOCKET] {
            // An unknown unit, or one that has not failed, is no matter.
            self.ask(&["reset-failed", unit])?;
        }
        // Returns at once: whether the daemon came up is seen by asking it.
        self.tell(&["restart", "--no-block", SERVICE])
    }

    fn user(&self) -> String {
        rustix::process::getuid().as_raw().to_string()
    }
}

impl ServiceManager for Systemd {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn scope(&self) -> InstallScope {
        self.scope
    }

    fn files(&self, plan: &ServicePlan) -> Result<Vec<ServiceFile>, Failure> {
        let service = ServiceFile {
            path: self.folder.join(SERVICE),
            text: unit::service(self.scope, plan),
        };
        let socket = unit::socket(self.scope, plan).map(|text| ServiceFile {
            path: self.folder.join(SOCKET),
            text,
        });
        Ok(std::iter::once(service).chain(socket).collect())
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.folder.join(SERVICE), self.folder.join(SOCKET)]
    }

    fn paths_of_packages(&self) -> Vec<PathBuf> {
        let folders = self.folders_of_packages().into_iter();
        folders.map(|folder| folder.join(SERVICE)).collect()
    }

    fn recorded(&self, text: &str) -> Option<ServicePlan> {
        unit::recorded(text)
    }

    fn is_shipped(&self, text: &str) -> bool {
        unit::is_shipped(self.scope, text)
    }

    fn enable(&self, with_sockets: bool) -> Result<(), Failure> {
        self.tell(&["daemon-reload"])?;
        let units = if with_sockets {
            &[SOCKET, SERVICE][..]
        } else {
            &[SERVICE]
        };
        for unit in units {
            self.tell(&["enable", unit])?;
        }
        if with_sockets {
            // A daemon that listens by itself has the address that the socket unit needs.
            self.tell(&["stop", SERVICE])?;
            self.tell(&["restart", SOCKET])?;
        }
        self.begin()
    }

    fn restart(&self) -> Result<(), Failure> {
        self.tell(&["daemon-reload"])?;
        if let Some((true, false)) = self.socket()? {
            // After a stop. A daemon that listens by itself has the address that the socket unit needs.
            self.tell(&["stop", SERVICE])?;
            self.ask(&["reset-failed", SOCKET])?;
            self.tell(&["start", SOCKET])?;
        }
        self.begin()
    }

    fn stop(&self) -> Result<(), Failure> {
        if self.has_socket() {
            // A connection would start it again.
            self.tell(&["stop", SOCKET])?;
        }
        self.tell(&["stop", SERVICE])
    }

    fn disable(&self) -> Result<(), Failure> {
        if self.has_socket() {
            self.tell(&["disable", "--now", SOCKET])?;
        }
        self.tell(&["disable", "--now", SERVICE])
    }

    fn retire(&self, path: &Path) -> Result<(), Failure> {
        let unit = path.file_name().unwrap_or_default().to_string_lossy();
        self.tell(&["disable", "--now", &unit])
    }

    fn forget(&self) -> Result<(), Failure> {
        self.tell(&["daemon-reload"])?;
        // A failed unit would be listed for ever; an unknown one is no matter.
        self.ask(&["reset-failed", SERVICE]).map(drop)
    }

    fn state(&self) -> Result<ServiceState, Failure> {
        let names = "ActiveState,SubState,MainPID,ExecMainStatus,NRestarts,UnitFileState";
        let mut state = ServiceState::default();
        let mut words = (String::new(), String::new());
        for (name, value) in self.properties(SERVICE, names)? {
            match &*name {
                "ActiveState" => words.0 = value,
                "SubState" => words.1 = value,
                "MainPID" => state.pid = value.parse().ok().filter(|pid| *pid != 0),
                "ExecMainStatus" => state.exit_status = value.parse().ok(),
                "NRestarts" => state.restarts = value.parse().ok(),
                "UnitFileState" if !value.is_empty() => {
                    state.enabled = Some(value.starts_with("enabled"));
                }
                _ => {}
            }
        }
        state.running = matches!(&*words.0, "active" | "activating" | "reloading");
        state.failed = words.0 == "failed";
        state.state = format!("{} ({})", words.0, words.1);
        let socket = self.socket()?;
        state.listening = socket
            .filter(|(is_enabled, is_active)| *is_enabled || *is_active)
            .map(|(_, is_active)| is_active);
        Ok(state)
    }

    fn lingers(&self) -> Option<bool> {
        if self.scope == InstallScope::Machine {
            return None;
        }
        let user = self.user();
        let arguments = ["show-user", &user, "--property=Linger", "--value"];
        match &*ask("loginctl", &arguments).ok()?.out {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }

    fn linger(&self) -> Result<(), Failure> {
        tell("loginctl", &["enable-linger", &self.user()]).map(drop)
    }

    fn log(&self) -> ServiceLog {
        let mut arguments: Vec<String> = Vec::new();
        arguments.extend((self.scope == InstallScope::User).then(|| "--user".to_owned()));
        arguments.extend(["--unit", SERVICE].map(str::to_owned));
        ServiceLog::Journal(arguments)
    }
}
