//! `abide service install`: writes the unit, starts the service, and waits until its daemon answers.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::came_up;
use super::launchd::Launchd;
use super::manager::{self, InstallScope, ServiceFile, ServiceManager};
use super::plan::{HardeningProfile, PlannedService};
use super::systemd::Systemd;
use super::{ScopeArgs, paths};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ask};
use crate::cli::link::discover::Where;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::daemon::offline;

/// Install the daemon as a service, and start it
///
/// Shows what it records: the program, folders that are not the default ones, PATH, and settings from
/// variables. Returns once the daemon answers. Again after an upgrade, it writes the unit of that
/// version and restarts the service; open runs continue.
#[derive(Debug, Args)]
#[command(after_help = "abide service install
abide service install --print
abide service install --system --hardening strict")]
pub(super) struct InstallArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Print the files and change nothing
    #[arg(long)]
    print: bool,

    /// Have systemd listen, so that connections wait while the daemon starts or restarts
    #[arg(long)]
    socket_activation: bool,

    /// How strictly the machine-wide service is confined
    #[arg(long, value_enum, default_value_t, requires = "system")]
    hardening: HardeningProfile,

    /// Go on after logout, without asking (loginctl enable-linger)
    #[arg(long, conflicts_with = "system")]
    linger: bool,

    /// Do not ask before anything is written
    #[arg(long, short)]
    yes: bool,
}

impl InstallArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let scope = self.scope.scope();
        let planned = PlannedService::here(scope, common, self.hardening, self.socket_activation)?;
        if self.print {
            return self.show_files(&planned, common);
        }
        let manager = manager::find(scope)?;
        let files = manager.files(&planned.plan)?;
        let place = Where::folder(&planned.state);
        refuse_other_daemon(&*manager, &planned.state, &place).await?;
        if !common.json {
            print::note(&clean(&summary(&*manager, &planned, &files)));
        }
        if !self.yes && !common.json && ask::can_ask() && !ask::agrees("Install it? [y/N] ")? {
            print::note("nothing was changed");
            return Ok(0);
        }
        let lingers = self.lingering(&*manager, common)?;
        let before = came_up::answering(&place)
            .await
            .map(|status| status.boot_id);
        for file in &files {
            write(file)?;
        }
        remove_others(&*manager, &files)?;
        manager.enable(!planned.plan.listen.is_empty())?;
        let status = came_up::ready(&*manager, &place, before).await?;
        if common.json {
            print::object(&json!({
                "installed": true,
                "manager": manager.name(),
                "scope": scope.name(),
                "files": files.iter().map(|file| &file.path).collect::<Vec<_>>(),
                "plan": planned.plan,
                "stateDir": planned.state,
                "lingering": lingers,
                "remarks": planned.remarks,
                "daemon": status,
            }))?;
            return Ok(0);
        }
        print::folded(&format!(
            "installed and started: abide {}, process {}, {}",
            status.version, status.pid, status.url
        ))?;
        if lingers == Some(false) {
            print::note(
                "lingering is off, so it ends when you log out; to keep it running: loginctl \
                 enable-linger",
            );
        }
        let flag = scope.flag();
        print::note(&format!(
            "see it: abide service status{flag}; its log: abide service logs{flag}"
        ));
        Ok(0)
    }

    /// Prints the files of the service manager that is here, else those of systemd.
    fn show_files(&self, planned: &PlannedService, common: &Common) -> Result<u8, Failure> {
        let manager: Box<dyn ServiceManager> = match cfg!(target_os = "macos") {
            true => Box::new(Launchd::unasked()?),
            false => Box::new(Systemd::unasked(self.scope.scope())?),
        };
        let files = manager.files(&planned.plan)?;
        if common.json {
            let files: Vec<_> = files
                .iter()
                .map(|file| json!({ "path": file.path, "text": file.text }))
                .collect();
            print::object(&json!({
                "files": files,
                "plan": planned.plan,
                "remarks": planned.remarks,
            }))?;
            return Ok(0);
        }
        for file in &files {
            print::note(&format!("{}:", file.path.display()));
            print::answer(file.text.trim_end())?;
        }
        for remark in &planned.remarks {
            print::note(&format!("note: {}", clean(remark)));
        }
        Ok(0)
    }

    /// Whether the service goes on after logout; `None` if that is no question here. The operator is
    /// asked to switch it on.
    fn lingering(
        &self,
        manager: &dyn ServiceManager,
        common: &Common,
    ) -> Result<Option<bool>, Failure> {
        let found = manager.lingers();
        if found != Some(false) {
            return Ok(found);
        }
        let wanted = self.linger
            || !self.yes
                && !common.json
                && ask::can_ask()
                && ask::agrees("Lingering is off: it would end at logout. Switch it on? [y/N] ")?;
        if wanted {
            manager.linger()?;
        }
        Ok(Some(wanted))
    }
}

/// Fails if a daemon that is not this service runs on the folder: both would fight for it.
async fn refuse_other_daemon(
    manager: &dyn ServiceManager,
    state: &Path,
    place: &Where,
) -> Result<(), Failure> {
    if !offline::is_held(state) || manager.state()?.running {
        return Ok(());
    }
    let process = match came_up::answering(place).await {
        Some(status) => format!(" (process {})", status.pid),
        None => String::new(),
    };
    let message = format!(
        "a daemon that was started by hand runs on {}{process}. Nothing was changed",
        state.display()
    );
    Err(
        Failure::new(exit::REFUSED, "daemon_running", message).hint(format!(
            "stop it, and its runs continue in the service: abide stop && abide service install{}",
            manager.scope().flag()
        )),
    )
}

/// What is about to be installed, as lines.
fn summary(
    manager: &dyn ServiceManager,
    planned: &PlannedService,
    files: &[ServiceFile],
) -> String {
    let plan = &planned.plan;
    let whom = manager.scope().of_whom();
    let mut lines = vec![format!("a service of {} for {whom}:", manager.name())];
    for file in files {
        let what = match file.path.exists() {
            true => "written again",
            false => "new",
        };
        lines.push(format!("  file     {} ({what})", file.path.display()));
    }
    lines.push(format!("  program  {}", plan.program.display()));
    lines.push(format!("  state    {}", planned.state.display()));
    let config = match (&plan.config, manager.scope()) {
        (Some(config), _) => Some(config.clone()),
        (None, InstallScope::Machine) => Some(paths::machine_config()),
        (None, InstallScope::User) => paths::default_config(),
    };
    lines.extend(config.map(|config| format!("  config   {}", config.display())));
    for (name, value) in &plan.environment {
        lines.push(format!("  {name}={value}"));
    }
    for address in &plan.listen {
        lines.push(format!("  listens  {address}"));
    }
    lines.extend(
        planned
            .remarks
            .iter()
            .map(|remark| format!("  note: {remark}")),
    );
    lines.join("\n")
}

/// Once this returns, the file has this text. It is replaced atomically.
fn write(file: &ServiceFile) -> Result<(), Failure> {
    let failed = |fault| Failure::local(file.path.display(), fault);
    if let Some(folder) = file.path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let aside = file.path.with_extension("abide-new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    options
        .open(&aside)
        .and_then(|mut new| {
            new.write_all(file.text.as_bytes())
                .and_then(|()| new.sync_all())
        })
        .and_then(|()| fs::rename(&aside, &file.path))
        .map_err(failed)
}

/// Removes files of an earlier installation that this one does not have.
fn remove_others(manager: &dyn ServiceManager, files: &[ServiceFile]) -> Result<(), Failure> {
    let paths = manager.paths().into_iter();
    let others = paths.filter(|path| files.iter().all(|file| file.path != *path));
    for path in others.filter(|path| path.exists()) {
        manager.retire(&path)?;
        super::uninstall::remove(&path)?;
    }
    Ok(())
}
