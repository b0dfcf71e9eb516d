//! launchd as a service manager: where its property lists are, and its commands.

use std::path::PathBuf;

use super::manager::{self, InstallScope, ServiceFile, ServiceLog, ServiceManager, ServiceState};
use super::manager::{ask, tell};
use super::plan::ServicePlan;
use super::{paths, plist};
use crate::cli::common::failure::{Failure, exit};

/// Name of the service, and of its file.
const LABEL: &str = "org.abide.daemon";

/// The manager of one user.
pub(super) struct Launchd {
    home: PathBuf,
    /// The domain of this user's services.
    domain: String,
}

impl Launchd {
    /// The manager of this user's login.
    pub(super) fn open(scope: InstallScope) -> Result<Launchd, Failure> {
        if scope == InstallScope::Machine {
            let message = "under launchd abide is a service of one user, which starts at the login. \
                           Nothing was changed";
            return Err(Failure::new(exit::REFUSED, "no_service_manager", message)
                .hint("leave --system out"));
        }
        let launchd = Launchd::unasked()?;
        let domain = ask("launchctl", &["print", &launchd.domain])?;
        match domain.ok {
            true => Ok(launchd),
            false => Err(manager::none(&format!(
                "launchd has no login session of this user ({})",
                domain.err
            ))),
        }
    }

    /// The manager without asking whether it runs, to look at its files.
    pub(super) fn unasked() -> Result<Launchd, Failure> {
        let user = rustix::process::getuid().as_raw();
        Ok(Launchd {
            home: paths::home()?,
            domain: format!("gui/{user}"),
        })
    }

    fn path(&self) -> PathBuf {
        let folder = self.home.join("Library/LaunchAgents");
        folder.join(format!("{LABEL}.plist"))
    }

    fn target(&self) -> String {
        format!("{}/{LABEL}", self.domain)
    }

    fn is_loaded(&self) -> Result<bool, Failure> {
        Ok(ask("launchctl", &["print", &self.target()])?.ok)
    }

    fn load(&self) -> Result<(), Failure> {
        let path = self.path().display().to_string();
        tell("launchctl", &["bootstrap", &self.domain, &path]).map(drop)
    }

    /// Once this returns, the daemon has ended: `bootout` waits for its exit.
    fn unload(&self) -> Result<(), Failure> {
        match self.is_loaded()? {
            true => tell("launchctl", &["bootout", &self.target()]).map(drop),
            false => Ok(()),
        }
    }
}

impl ServiceManager for Launchd {
    fn name(&self) -> &'static str {
        "launchd"
    }

    fn scope(&self) -> InstallScope {
        InstallScope::User
    }

    fn files(&self, plan: &ServicePlan) -> Result<Vec<ServiceFile>, Failure> {
        if !plan.listen.is_empty() {
            return Err(Failure::usage(
                "socket activation is for systemd; omit --socket-activation",
            ));
        }
        Ok(vec![ServiceFile {
            path: self.path(),
            text: plist::agent(&self.home, plan),
        }])
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path()]
    }

    fn recorded(&self, text: &str) -> Option<ServicePlan> {
        plist::recorded(text)
    }

    fn is_shipped(&self, text: &str) -> bool {
        text == plist::shipped(&self.home)
    }

    fn enable(&self, _: bool) -> Result<(), Failure> {
        self.unload()?;
        tell("launchctl", &["enable", &self.target()])?;
        self.load()
    }

    fn restart(&self) -> Result<(), Failure> {
        // Loads the file again, which may have changed.
        self.unload()?;
        self.load()
    }

    fn stop(&self) -> Result<(), Failure> {
        self.unload()
    }

    fn disable(&self) -> Result<(), Failure> {
        self.unload()?;
        tell("launchctl", &["disable", &self.target()]).map(drop)
    }

    fn forget(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn state(&self) -> Result<ServiceState, Failure> {
        let shown = ask("launchctl", &["print", &self.target()])?;
        if !shown.ok {
            return Ok(ServiceState {
                state: "not loaded".to_owned(),
                ..ServiceState::default()
            });
        }
        let value = |name: &str| {
            let pairs = shown
                .out
                .lines()
                .filter_map(|line| line.trim().split_once(" = "));
            let mut values = pairs.filter(|(found, _)| *found == name);
            values.next().map(|(_, value)| value.trim().to_owned())
        };
        let state = value("state").unwrap_or_else(|| "unknown".to_owned());
        let pid = value("pid").and_then(|pid| pid.parse().ok());
        // `(never exited)` before the first end.
        let exit_status = value("last exit code").and_then(|code| code.parse().ok());
        Ok(ServiceState {
            enabled: Some(true),
            running: pid.is_some(),
            // It is started again after every failure, so it never stays failed.
            failed: false,
            state,
            pid,
            exit_status,
            restarts: None,
            listening: None,
        })
    }

    fn log(&self) -> ServiceLog {
        ServiceLog::File(self.home.join("Library/Logs/abide.log"))
    }
}
