//! `abide setup`: finds model providers, verifies one by a real tool call through the daemon, and
//! only then makes its model the default.

mod found;
mod notifications;
mod provider;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::link::Link;
use crate::cli::commands::config::File;
use crate::cli::commands::{serve, spawn};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::live::follow;
use crate::cli::live::follow::{End, Interrupt, Task};
use crate::cli::output::print;
use crate::cli::output::text::{clean, short};
use crate::clock::Clock;
use crate::config::{Change, Config, Source};
use crate::daemon::ollama;
use crate::kernel::ids::RunId;
use crate::kernel::run::AnnouncePolicy;
use crate::wire::config::{Config as InForce, GetConfig, ReloadConfig, Reloaded};
use crate::wire::gateway::{GetStatus, Status};
use crate::wire::input::RunTimeout;
use crate::wire::lifecycle::CancelRun;
use crate::wire::sessions::{Spawn, Spawned};
use crate::wire::shapes::Run;
use found::Found;

/// The task for the model.
const TASK: &str =
    "Call the tool `list` once on the folder `.`. Then answer in one line what it contains.";
/// Time limit of that task in milliseconds; a model on this machine may have to be loaded first.
const LIMIT_MS: u64 = 300_000;

/// Find a model, verify that it works, and make it the default
///
/// Looks for Ollama ($OLLAMA_HOST or 127.0.0.1:11434) and for keys in this shell, lets you choose,
/// and has the model call one tool through the daemon. The configuration file keeps its comments;
/// it is restored if that call fails. Keys stay in their variables.
#[derive(Debug, Args)]
#[command(after_help = "abide setup
abide setup --check
abide setup --notify
abide setup --provider ollama --model qwen3:8b --yes
abide setup --provider openai --model gpt-5-mini --paid --yes")]
pub(crate) struct Setup {
    /// Provider, such as ollama, openai or anthropic, or one of your own tables
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// Model [default for ollama: the first that calls tools]
    #[arg(long, value_name = "NAME", requires = "provider")]
    model: Option<String>,

    /// Accept a provider that may cost money without being asked
    #[arg(long)]
    paid: bool,

    /// Do not prompt
    #[arg(long)]
    yes: bool,

    /// Only set up desktop notifications by the daemon for runs that need you or have ended
    #[arg(long, conflicts_with_all = ["model", "paid", "provider", "check"])]
    notify: bool,

    /// Only print what was found; needs no daemon and changes nothing
    #[arg(long, conflicts_with_all = ["model", "yes", "paid", "provider"])]
    check: bool,
}

/// The chosen provider and model.
struct Choice {
    provider: String,
    model: String,
}

impl Choice {
    fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

impl Setup {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("setup", "--state-dir")?;
        if self.notify {
            return notifications::set_up(common, self.asks(common)).await;
        }
        let config = serve::settings(None)?.config;
        let found = Found::look(&config).await;
        if self.check {
            match common.json {
                true => print::object(&found)?,
                false => found.show()?,
            }
            return Ok(0);
        }
        let asks = self.asks(common);
        let choice = self.choose(&found, &config, asks)?;
        self.confirm(&choice, &config, asks)?;
        let mut interrupt = Interrupt::new()?;
        let link = Link::open(&common.place)
            .await
            .map_err(|failure| failure.hint("nothing was changed; then run abide setup again"))?;
        let mut file = File::open(&file_of(&link).await?)?;
        match prove(link, common, &mut file, &found, &choice, &mut interrupt).await {
            Ok(done) => {
                match common.json {
                    true => print::object(&done)?,
                    false => print::answer(&clean(&format!(
                        "{} called a tool and is now the default ({})",
                        choice.name(),
                        file.path().display()
                    )))?,
                }
                if asks && config.notify_command.is_empty() && notifications::found().is_some() {
                    return notifications::set_up(common, asks).await;
                }
                Ok(0)
            }
            Err(failure) => Err(undo(common, &mut file, failure).await),
        }
    }

    /// True if a user is present and may be prompted.
    fn asks(&self, common: &Common) -> bool {
        !self.yes && !common.json && io::stdin().is_terminal()
    }

    fn choose(&self, found: &Found, config: &Config, asks: bool) -> Result<Choice, Failure> {
        let usual = || {
            let models = found.ollama.models.iter();
            let mut usable = models.filter(|model| model.tools != Some(false));
            usable.next().map(|model| model.name.clone())
        };
        let (provider, model) = match (&self.provider, &self.model) {
            (Some(provider), Some(model)) => (provider.clone(), model.clone()),
            (Some(provider), None) if provider == ollama::NAME => {
                let model = usual().ok_or_else(|| no_model(found))?;
                (provider.clone(), model)
            }
            (Some(provider), None) => {
                let message = format!("no model of {provider} was named");
                return Err(Failure::usage(message)
                    .hint(format!("abide setup --provider {provider} --model NAME")));
            }
            (None, _) => {
                if !asks {
                    let message = "no provider was named, and no user is present to choose one";
                    return Err(Failure::usage(message).hint(
                        "see what was found: abide setup --check; then: abide setup --provider \
                         NAME --model NAME --yes",
                    ));
                }
                found.show()?;
                let first = usual().map(|name| format!("ollama/{name}"));
                let offer = first.as_deref().unwrap_or("none; as provider/name");
                let said = said(&format!("which model? [{offer}] "))?;
                let named = match (said.as_str(), first.as_deref()) {
                    ("", Some(first)) => first,
                    ("", None) => return Err(no_model(found)),
                    (other, _) => other,
                };
                let (provider, model) = named.split_once('/').ok_or_else(|| {
                    Failure::usage(format!(
                        "{named} does not have the form provider/name; nothing was changed"
                    ))
                })?;
                (provider.to_owned(), model.to_owned())
            }
        };
        let known = provider == ollama::NAME
            || found::key_of(&provider).is_some()
            || config.named.providers.contains_key(&provider);
        if !known {
            let message = format!("there is no provider {provider}; nothing was changed");
            return Err(Failure::usage(message).hint(format!(
                "define it under [providers.{provider}] (kind, base_url), then run this again"
            )));
        }
        let cannot = found
            .ollama
            .models
            .iter()
            .any(|known| known.name == model && known.tools == Some(false));
        if provider == ollama::NAME && cannot {
            let message = format!("{model} cannot call tools; nothing was changed");
            return Err(Failure::new(exit::REFUSED, "no_tools", message)
                .hint("see which models can: abide setup --check"));
        }
        Ok(Choice { provider, model })
    }

    /// Refuses a model that may cost money unless the user has agreed to it.
    fn confirm(&self, choice: &Choice, config: &Config, asks: bool) -> Result<(), Failure> {
        let name = choice.name();
        if ollama::base_url(config, &choice.provider).is_some() || self.paid {
            return Ok(());
        }
        let refused = || {
            Failure::new(
                exit::REFUSED,
                "paid",
                format!("{name} may cost money, and that was not confirmed; nothing was changed"),
            )
            .hint("confirm it: --paid")
        };
        if !asks {
            return Err(refused());
        }
        let question = format!("{name} is paid: each run costs money. Use it? (yes or no) ");
        match said(&question)?.to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(refused()),
        }
    }
}

fn no_model(found: &Found) -> Failure {
    let message = match &found.ollama.problem {
        Some(problem) => format!("no model was found: {problem}"),
        None => "no model was found: Ollama has none that calls tools".to_owned(),
    };
    Failure::new(exit::NOT_FOUND, "no_model", message)
        .hint("get one: ollama pull qwen3:8b; nothing was changed")
}

/// Prompts for a line on standard input.
fn said(question: &str) -> Result<String, Failure> {
    print::prompt(question);
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|fault| Failure::local("the answer cannot be read", fault))?;
    Ok(line.trim().to_owned())
}

/// The configuration file that the daemon reads; fails if a variable or flag overrides the default
/// model.
async fn file_of(link: &Link) -> Result<PathBuf, Failure> {
    let in_force: InForce = link.ask(&GetConfig {}).await?;
    let mut settings = in_force.settings.iter();
    let model = settings.find(|setting| setting.key == "defaults.model");
    if let Some(model) = model.filter(|model| matches!(&*model.source, "variable" | "flag")) {
        let from = model.from.as_deref().unwrap_or("a variable");
        let message =
            format!("the daemon takes its default model from {from}, which overrides the file");
        return Err(
            Failure::new(exit::REFUSED, "overridden", message).hint(format!(
                "unset {from}, restart the daemon and run this again; nothing was changed"
            )),
        );
    }
    let usual = in_force.file.map(PathBuf::from);
    usual.or_else(|| Source::find(None).file).ok_or_else(|| {
        Failure::new(
            exit::CONFIG,
            "config",
            "the location of the configuration file is unknown",
        )
        .hint("set HOME, or name a file: ABIDE_CONFIG=FILE")
    })
}

/// Once this returns `Ok`, the model has called a tool, and the file has its provider and makes it
/// the default.
async fn prove(
    link: Link,
    common: &Common,
    file: &mut File,
    found: &Found,
    choice: &Choice,
    interrupt: &mut Interrupt,
) -> Result<Value, Failure> {
    let provider = choice.provider.as_str();
    let config = serve::settings(None)?.config;
    let fields = provider::table(&config, found, provider);
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| (vec!["providers", provider, field], Change::text(value)))
        .collect();
    let taken = |_: &str| Ok::<_, Failure>(());
    if file.change(&fields, taken)?.1 {
        reload(&link).await?;
    }
    let status: Status = link.ask(&GetStatus {}).await?;
    let mut providers = status.providers.iter();
    match providers.find(|known| known.name == provider) {
        Some(known) => {
            if let Some(problem) = &known.problem {
                let message = format!("the daemon cannot use {provider}: {problem}");
                return Err(Failure::new(exit::FAILED, "setup", message).hint(
                    "the variable must be set where the daemon is started; from a shell that has it: \
                     abide stop && abide serve --detach, then run this again",
                ));
            }
        }
        None => {
            let message = format!("the daemon has no provider {provider}");
            return Err(Failure::new(exit::FAILED, "setup", message)
                .hint("see its effective settings: abide config show"));
        }
    }
    let run = task(link, common, choice, interrupt).await?;
    let link = Link::open(&common.place).await?;
    let steps = follow::steps(&link, run.run_id).await?;
    let calls = steps
        .iter()
        .filter(|step| step.tool.is_some() && step.state == "done")
        .count();
    let journal = format!("see its steps: abide logs {}", short(run.run_id));
    if run.state != "ok" || calls == 0 {
        let message = match &run.error {
            Some(error) => format!("{}: {}", choice.name(), error.message),
            None if run.state == "ok" => format!(
                "{} answered without calling a tool, so agents cannot work with it",
                choice.name()
            ),
            None => format!("the run of {} ended {}", choice.name(), run.state),
        };
        return Err(Failure::new(exit::FAILED, "setup", message).hint(journal));
    }
    let model = (vec!["defaults", "model"], Change::text(&choice.name()));
    file.change(&vec![model], taken)?;
    let reloaded = reload(&link).await?;
    Ok(json!({
        "model": choice.name(),
        "file": file.path().display().to_string(),
        "runId": run.run_id,
        "toolCalls": calls,
        "needsRestart": reloaded.needs_restart,
    }))
}

async fn reload(link: &Link) -> Result<Reloaded, Failure> {
    link.ask(&ReloadConfig {}).await
}

/// Runs a small task of a read-only agent with the model.
async fn task(
    link: Link,
    common: &Common,
    choice: &Choice,
    interrupt: &mut Interrupt,
) -> Result<Run, Failure> {
    let id = RunId(Clock::system().new_id());
    let request = Spawn {
        task: TASK.to_owned(),
        run_id: Some(id),
        idempotency_key: Some(id.to_string()),
        agent: Some("explore".to_owned()),
        label: Some("setup".to_owned()),
        model: Some(choice.name()),
        run_timeout: Some(RunTimeout(LIMIT_MS)),
        announce: Some(AnnouncePolicy::None),
        ..Spawn::default()
    };
    let raw = spawn::send(&link, common, &request).await?;
    let spawned: Spawned = super::link::read(&raw)?;
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
    let link = Link::open(&common.place).await?;
    if !matches!(end, End::Done(_)) {
        let cancel = CancelRun {
            run_id: id,
            reason: None,
        };
        link.raw(&cancel).await?;
        let message = "the check was aborted, and its run is cancelled";
        return Err(Failure::new(
            exit::of_run("cancelled", false),
            "setup",
            message,
        ));
    }
    ids::details(&link, id).await
}

/// The file is restored and the daemon was asked to reload it once this returns; the failure
/// reports both.
async fn undo(common: &Common, file: &mut File, failure: Failure) -> Failure {
    let kept = file.put_back();
    let again = async {
        let link = Link::open(&common.place).await?;
        reload(&link).await
    };
    let failure = failure.hint(format!("{kept}; the default model is unchanged"));
    match again.await {
        Ok(_) => failure,
        Err(_) => failure.hint("the daemon could not reload it; run: abide config reload"),
    }
}
