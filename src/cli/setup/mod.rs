//! `abide setup`: finds model providers, verifies one by a real tool call through the daemon, and
//! only then makes its model the default.

mod found;
mod notifications;
mod prove;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;

use super::link::DaemonLink;
use crate::cli::commands::config::ConfigFile;
use crate::cli::commands::serve;
use crate::cli::common::Common;
use crate::cli::common::ask::{agrees, said};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::config::{Config, SettingsSource};
use crate::daemon::ollama;
use crate::wire::config::GetConfig;
use found::{KeyVariable, ModelSources};

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

/// The chosen model.
struct ModelChoice {
    /// `provider/model`.
    name: String,
    provider: String,
}

impl Setup {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("setup", "--state-dir")?;
        if self.notify {
            return notifications::set_up(common, self.asks(common)).await;
        }
        let config = serve::settings(None)?.config;
        let found = ModelSources::look(&config).await;
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
        let mut interrupt = CtrlC::new()?;
        let link = DaemonLink::open(&common.place)
            .await
            .map_err(|failure| failure.hint("nothing was changed; then run abide setup again"))?;
        let mut file = ConfigFile::open(&file_of(&link).await?)?;
        match prove::prove(link, common, &mut file, &found, &choice, &mut interrupt).await {
            Ok(done) => {
                match common.json {
                    true => print::object(&done)?,
                    false => print::answer(&clean(&format!(
                        "{} called a tool and is now the default ({})",
                        choice.name,
                        file.path().display()
                    )))?,
                }
                if asks && config.notify_command.is_empty() && notifications::found().is_some() {
                    return notifications::set_up(common, asks).await;
                }
                Ok(0)
            }
            Err(failure) => Err(prove::undo(common, &mut file, failure).await),
        }
    }

    /// True if a user is present and may be prompted.
    fn asks(&self, common: &Common) -> bool {
        !self.yes && !common.json && io::stdin().is_terminal()
    }

    fn choose(
        &self,
        found: &ModelSources,
        config: &Config,
        asks: bool,
    ) -> Result<ModelChoice, Failure> {
        let named = match (&self.provider, &self.model) {
            (Some(provider), Some(model)) => format!("{provider}/{model}"),
            (Some(provider), None) if provider == ollama::NAME => {
                found.usual_model().ok_or_else(|| no_model(found))?
            }
            (Some(provider), None) => {
                let message = format!("no model of {provider} was named");
                return Err(Failure::usage(message)
                    .hint(format!("abide setup --provider {provider} --model NAME")));
            }
            (None, _) if !asks => {
                let message = "no provider was named, and no user is present to choose one";
                return Err(Failure::usage(message).hint(
                    "see what was found: abide setup --check; then: abide setup --provider NAME \
                     --model NAME --yes",
                ));
            }
            (None, _) => {
                found.show()?;
                let first = found.usual_model();
                let offer = first.as_deref().unwrap_or("none; as provider/name");
                match said(&format!("which model? [{offer}] "))? {
                    typed if typed.is_empty() => first.ok_or_else(|| no_model(found))?,
                    typed => typed,
                }
            }
        };
        let (provider, model) = named.split_once('/').ok_or_else(|| {
            let form = "does not have the form provider/name; nothing was changed";
            Failure::usage(format!("{named} {form}"))
        })?;
        let is_ollama = provider == ollama::NAME;
        let is_table = config.named.providers.contains_key(provider);
        if !is_ollama && !is_table && KeyVariable::of(provider).is_none() {
            let message = format!("there is no provider {provider}; nothing was changed");
            return Err(Failure::usage(message).hint(format!(
                "define it under [providers.{provider}] (kind, base_url), then run this again"
            )));
        }
        let mut models = found.ollama.models.iter();
        if is_ollama && models.any(|known| known.name == model && known.tools == Some(false)) {
            let message = format!("{model} cannot call tools; nothing was changed");
            return Err(Failure::new(exit::REFUSED, "no_tools", message)
                .hint("see which models can: abide setup --check"));
        }
        let provider = provider.to_owned();
        Ok(ModelChoice {
            provider,
            name: named,
        })
    }

    /// Refuses a model that may cost money unless the user has agreed to it.
    fn confirm(&self, choice: &ModelChoice, config: &Config, asks: bool) -> Result<(), Failure> {
        let name = &choice.name;
        let question = format!("{name} is paid: each run costs money. Use it? (yes or no) ");
        if ollama::base_url(config, &choice.provider).is_some()
            || self.paid
            || asks && agrees(&question)?
        {
            return Ok(());
        }
        let message =
            format!("{name} may cost money, and that was not confirmed; nothing was changed");
        Err(Failure::new(exit::REFUSED, "paid", message).hint("confirm it: --paid"))
    }
}

fn no_model(found: &ModelSources) -> Failure {
    let message = match &found.ollama.problem {
        Some(problem) => format!("no model was found: {problem}"),
        None => "no model was found: Ollama has none that calls tools".to_owned(),
    };
    Failure::new(exit::NOT_FOUND, "no_model", message)
        .hint("get one: ollama pull qwen3:8b; nothing was changed")
}

/// The configuration file that the daemon reads; fails if a variable or flag overrides the default
/// model.
async fn file_of(link: &DaemonLink) -> Result<PathBuf, Failure> {
    let in_force = link.ask(&GetConfig {}).await?;
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
    usual
        .or_else(|| SettingsSource::find(None).file)
        .ok_or_else(|| {
            Failure::new(
                exit::CONFIG,
                "config",
                "the location of the configuration file is unknown",
            )
            .hint("set HOME, or name a file: ABIDE_CONFIG=FILE")
        })
}
