//! Verifies the chosen model through the daemon, and makes it the default.

use serde_json::{Value, json};

use super::ModelChoice;
use super::found::ModelSources;
use crate::cli::commands::config::ConfigFile;
use crate::cli::commands::{serve, spawn};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids;
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::follow::{self, CtrlC, FollowOutcome, Task};
use crate::cli::output::text::short;
use crate::clock::Clock;
use crate::config::SettingEdit;
use crate::kernel::ids::RunId;
use crate::kernel::run::AnnouncePolicy;
use crate::wire::config::{ReloadConfig, Reloaded};
use crate::wire::gateway::GetStatus;
use crate::wire::input::RunTimeout;
use crate::wire::lifecycle::CancelRun;
use crate::wire::sessions::{Spawn, Spawned};
use crate::wire::shapes::{Run, Step};

/// The task for the model.
const TASK: &str =
    "Call the tool `list` once on the folder `.`. Then answer in one line what it contains.";
/// Time limit of that task in milliseconds; a model on this machine may have to be loaded first.
const LIMIT_MS: u64 = 300_000;

/// Once this returns `Ok`, the model has called a tool, and the file has its provider and makes it
/// the default.
pub(super) async fn prove(
    link: DaemonLink,
    common: &Common,
    file: &mut ConfigFile,
    found: &ModelSources,
    choice: &ModelChoice,
    interrupt: &mut CtrlC,
) -> Result<Value, Failure> {
    let (name, provider) = (&choice.name, choice.provider.as_str());
    let config = serve::settings(None)?.config;
    let fields = found.fields(&config, provider).into_iter();
    let fields = fields
        .map(|(field, value)| {
            (
                vec!["providers", provider, field],
                SettingEdit::text(&value),
            )
        })
        .collect();
    let taken = |_: &str| Ok::<_, Failure>(());
    if file.change(&fields, taken)?.1 {
        reload(&link).await?;
    }
    let status = link.ask(&GetStatus {}).await?;
    let failure = |message: String| Failure::new(exit::FAILED, "setup", message);
    let mut providers = status.providers.iter();
    let Some(known) = providers.find(|known| known.name == provider) else {
        return Err(failure(format!("the daemon has no provider {provider}"))
            .hint("see its effective settings: abide config show"));
    };
    if let Some(problem) = &known.problem {
        return Err(failure(format!("the daemon cannot use {provider}: {problem}")).hint(
            "the variable must be set where the daemon is started; from a shell that has it: abide \
             stop && abide serve --detach, then run this again",
        ));
    }
    let run = run_task(link, common, name, interrupt).await?;
    let link = DaemonLink::open(&common.place).await?;
    let steps = follow::steps(&link, run.run_id).await?;
    let is_call = |step: &&Step| step.tool.is_some() && step.state == "done";
    let calls = steps.iter().filter(is_call).count();
    if run.state != "ok" || calls == 0 {
        let message = match &run.error {
            Some(error) => format!("{name}: {}", error.message),
            None if run.state == "ok" => {
                format!("{name} answered without calling a tool, so agents cannot work with it")
            }
            None => format!("the run of {name} ended {}", run.state),
        };
        let journal = format!("see its steps: abide logs {}", short(run.run_id));
        return Err(failure(message).hint(journal));
    }
    let model = (vec!["defaults", "model"], SettingEdit::text(name));
    file.change(&vec![model], taken)?;
    let reloaded = reload(&link).await?;
    Ok(json!({
        "model": name,
        "file": file.path().display().to_string(),
        "runId": run.run_id,
        "toolCalls": calls,
        "needsRestart": reloaded.needs_restart,
    }))
}

async fn reload(link: &DaemonLink) -> Result<Reloaded, Failure> {
    link.ask(&ReloadConfig {}).await
}

/// Runs a small task of a read-only agent with the model.
async fn run_task(
    link: DaemonLink,
    common: &Common,
    model: &str,
    interrupt: &mut CtrlC,
) -> Result<Run, Failure> {
    let id = RunId(Clock::system().new_id());
    let request = Spawn {
        task: TASK.to_owned(),
        run_id: Some(id),
        idempotency_key: Some(id.to_string()),
        agent: Some("explore".to_owned()),
        label: Some("setup".to_owned()),
        model: Some(model.to_owned()),
        run_timeout: Some(RunTimeout(LIMIT_MS)),
        announce: Some(AnnouncePolicy::None),
        ..Spawn::default()
    };
    let raw = spawn::send(&link, common, &request).await?;
    let spawned: Spawned = link::read(&raw)?;
    let runs = [spawned.run_id];
    let task = Task {
        ids: &runs,
        any: false,
        timeout: None,
        show: !common.json,
        json: common.json,
        person: None,
        conversation: None,
    };
    let end = follow::follow(link, &common.place, task, interrupt).await?;
    let link = DaemonLink::open(&common.place).await?;
    if !matches!(end, FollowOutcome::Done(_)) {
        let reason = None;
        link.raw(&CancelRun { run_id: id, reason }).await?;
        let message = "the check was aborted, and its run is cancelled";
        let code = exit::of_run("cancelled", false);
        return Err(Failure::new(code, "setup", message));
    }
    ids::details(&link, id).await
}

/// The file is restored and the daemon was asked to reload it once this returns; the failure
/// reports both.
pub(super) async fn undo(common: &Common, file: &mut ConfigFile, failure: Failure) -> Failure {
    let kept = file.put_back();
    let again = async {
        let link = DaemonLink::open(&common.place).await?;
        reload(&link).await
    };
    let failure = failure.hint(format!("{kept}; the default model is unchanged"));
    match again.await {
        Ok(_) => failure,
        Err(_) => failure.hint("the daemon could not reload it; run: abide config reload"),
    }
}
