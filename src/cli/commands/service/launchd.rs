//! launchd as a service manager: where its property lists are, and its commands.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::manager::{self, InstallScope, ServiceFile, ServiceLog, ServiceManager, ServiceState};
use super::manager::{ask, tell};
use super::plan::ServicePlan;
use super::{paths, plist};
use crate::cli::common::failure::{Failure, exit};
use crate::clock::Clock;

/// Name of the service, and of its file.
const LABEL: &str = "org.abide.daemon";

/// What launchctl exits with while launchd still removes an earlier process: EIO, EALREADY.
const PASSING: [i32; 2] = [5, 37];
/// What `bootout` exits with if it does not wait for the end: EINPROGRESS.
const IN_PROGRESS: i32 = 36;
/// Pauses between the attempts to load the service: 6.3 s in all.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
];
/// How long a stop may take: the property list gives the daemon 90 s.
const DRAIN: Duration = Duration::from_secs(100);
/// Polling interval of a stop.
const LOOK: Duration = Duration::from_millis(100);

/// The manager of one user.
pub(super) struct Launchd {
    home: PathBuf,
    /// The domain of this user's services.
    domain: String,
}

impl Launchd {
    /// The manager of this user's login.
    pub(super) fn open(scope: InstallScope) -> Result<Launchd, Failure> {
        let launchd = Launchd::unasked(scope)?;
        let domain = ask("launchctl", &["print", &launchd.domain])?;
        match domain.ok {
            true => Ok(launchd),
            false => Err(manager::none(&format!(
                "launchd has no login session of this user ({})",
                domain.err
            ))),
        }
    }

    /// The manager without asking whether it runs, to look at its files. There is none for the machine: a
    /// daemon of launchd would be root, and its agents with it.
    pub(super) fn unasked(scope: InstallScope) -> Result<Launchd, Failure> {
        if scope == InstallScope::Machine {
            let message = "abide has no machine-wide service for launchd, only one of a user, which \
                           starts at the login. Nothing was changed";
            return Err(Failure::new(exit::REFUSED, "no_service_manager", message)
                .hint("install the service of your user: leave --system out"));
        }
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

    /// Once this returns, launchd has the service. It refuses one whose earlier process it is still
    /// removing, which takes a moment.
    fn load(&self) -> Result<(), Failure> {
        let path = self.path().display().to_string();
        let arguments = ["bootstrap", &*self.domain, &*path];
        let mut pauses = PAUSES.into_iter();
        loop {
            let output = ask("launchctl", &arguments)?;
            if output.ok {
                return Ok(());
            }
            let is_passing = output.code.is_some_and(|code| PASSING.contains(&code));
            match pauses.next().filter(|_| is_passing) {
                Some(pause) => thread::sleep(pause),
                None => return Err(manager::refused("launchctl", &arguments, &output)),
            }
        }
    }

    /// Once this returns, launchd does not have the service, and its daemon has ended. `bootout` may
    /// return before that.
    fn unload(&self) -> Result<(), Failure> {
        if !self.is_loaded()? {
            return Ok(());
        }
        let target = self.target();
        let arguments = ["bootout", &*target];
        let output = ask("launchctl", &arguments)?;
        let clock = Clock::system();
        let began = clock.monotonic();
        while self.is_loaded()? {
            if !output.ok && output.code != Some(IN_PROGRESS) {
                return Err(manager::refused("launchctl", &arguments, &output));
            }
            if clock.monotonic() - began > DRAIN {
                let message = format!(
                    "launchd is still stopping {target} after {} s. Nothing else was changed",
                    DRAIN.as_secs()
                );
                return Err(Failure::new(exit::NOT_ENDED, "not_ended", message).hint(
                    "repeat the command when abide service status says that it has stopped",
                ));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// The exit status in the text of launchctl: `78`, `78: EX_CONFIG`; `None` for `(never exited)`.
fn exit_status(text: &str) -> Option<u8> {
    let number = text.split(|ch: char| !ch.is_ascii_digit()).next()?;
    number.parse().ok()
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
        let exit_status = value("last exit code").and_then(|text| exit_status(&text));
        // It is started again after every failure, and these would only repeat.
        let is_final = |code| [exit::HELD, exit::PERMISSION, exit::CONFIG].contains(&code);
        Ok(ServiceState {
            enabled: Some(true),
            running: pid.is_some(),
            failed: pid.is_none() && exit_status.is_some_and(is_final),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_read_in_each_form_of_launchctl() {
        for (text, expected) in [
            ("0", Some(0)),
            ("78: EX_CONFIG", Some(78)),
            ("75 (EX_TEMPFAIL)", Some(75)),
            ("(never exited)", None),
            ("999", None),
        ] {
            assert_eq!(exit_status(text), expected, "{text}");
        }
    }
}
