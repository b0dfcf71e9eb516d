//! `abide service install`: writes the unit, starts the service, and waits until its daemon answers.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::drift::InstalledUnit;
use super::manager::{self, InstallScope, ServiceFile, ServiceManager};
use super::plan::{HardeningProfile, PlannedService, ServiceChoices};
use super::{ScopeArgs, came_up, paths, refuse_other_daemon};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ask};
use crate::cli::link;
use crate::cli::link::discover::Where;
use crate::cli::output::print;
use crate::cli::output::text::clean;

/// Install the daemon as a service, and start it
///
/// Shows what it records: the program, folders that are not the default ones, PATH, and settings from
/// variables. Returns once the daemon answers. Again after an upgrade, it writes the unit of that
/// version, keeps what was chosen before and says so, and restarts the service; open runs continue.
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
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    socket_activation: Option<bool>,

    /// How strictly the machine-wide service is confined [default: standard]
    #[arg(long, value_enum, requires = "system")]
    hardening: Option<HardeningProfile>,

    /// Keep nothing of what the installed service was installed with
    #[arg(long)]
    fresh: bool,

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
        let unasked = manager::unasked(scope)?;
        let planned = self.plan(&*unasked, common)?;
        if self.print {
            return show_files(&*unasked, &planned, common);
        }
        let manager = manager::find(scope)?;
        let files = manager.files(&planned.plan)?;
        let place = Where::folder(&planned.state);
        refuse_other_daemon(&*manager, &planned.state).await?;
        if !common.json {
            print::note(&clean(&summary(&*manager, &planned, &files)));
        }
        if !self.yes && !common.json && ask::can_ask() && !ask::agrees("Install it? [y/N] ")? {
            print::note("nothing was changed");
            return Ok(0);
        }
        let lingers = self.lingering(&*manager, common)?;
        let before = match manager.state()?.running {
            true => link::answering(&place).await,
            false => None,
        };
        let before = before.map(|status| status.boot_id);
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
                "kept": planned.kept,
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

    /// What is to be installed, in place of what the manager has.
    fn plan(
        &self,
        manager: &dyn ServiceManager,
        common: &Common,
    ) -> Result<PlannedService, Failure> {
        let scope = manager.scope();
        let unit = InstalledUnit::find(manager).filter(|unit| !unit.is_of_package);
        let unrecorded = unit.as_ref().filter(|unit| unit.plan.is_none());
        let unrecorded = unrecorded.map(|unit| unit.path.clone());
        let before = unit.and_then(|unit| unit.plan).filter(|_| !self.fresh);
        let choices = ServiceChoices {
            hardening: self.hardening,
            with_sockets: self.socket_activation,
        };
        let mut planned = PlannedService::here(scope, common, choices, before)?;
        planned.remarks.extend(unrecorded.map(|path| {
            format!(
                "{} has no record of abide service install: it is replaced, and nothing of it is kept",
                path.display()
            )
        }));
        if scope == InstallScope::Machine
            && let Some(why) = paths::closed_to_machine(&planned.plan.program)
        {
            if !self.print {
                return Err(closed_program(&why, &planned.plan.program));
            }
            planned.remarks.push(why);
        }
        Ok(planned)
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

/// The failure for a program that the user of the machine-wide service cannot start.
fn closed_program(why: &str, program: &Path) -> Failure {
    let message = format!("the machine-wide service could not start: {why}. Nothing was changed");
    Failure::new(exit::REFUSED, "closed_program", message)
        .hint(format!(
            "install the program for all users, and the service from there: install -m 755 {} \
             /usr/local/bin/abide && /usr/local/bin/abide service install --system",
            program.display()
        ))
        .hint("or install the service of your user: leave --system out")
}

/// Prints the files of this service manager.
fn show_files(
    manager: &dyn ServiceManager,
    planned: &PlannedService,
    common: &Common,
) -> Result<u8, Failure> {
    let files = manager.files(&planned.plan)?;
    if common.json {
        let files: Vec<_> = files
            .iter()
            .map(|file| json!({ "path": file.path, "text": file.text }))
            .collect();
        print::object(&json!({
            "files": files,
            "plan": planned.plan,
            "kept": planned.kept,
            "remarks": planned.remarks,
        }))?;
        return Ok(0);
    }
    for file in &files {
        print::note(&format!("{}:", file.path.display()));
        print::answer(file.text.trim_end())?;
    }
    for kept in &planned.kept {
        print::note(&clean(&format!("kept from the installed service: {kept}")));
    }
    for remark in &planned.remarks {
        print::note(&format!("note: {}", clean(remark)));
    }
    Ok(0)
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
            .kept
            .iter()
            .map(|kept| format!("  kept     {kept}, as installed before (--fresh keeps nothing)")),
    );
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
