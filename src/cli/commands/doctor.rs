//! `abide doctor`: checks the configuration, the state folder, the store and the system, with or
//! without a running daemon.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use unicode_width::UnicodeWidthStr;

use super::{serve, service};
use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, skew};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, BUSY, DIM, GOOD, styled};
use crate::cli::output::text::{clean, wrap};
use crate::config::Config;
use crate::contract::finding::{Finding, Health};
use crate::daemon::{offline, ollama};
use crate::wire::agents::ListAgents;
use crate::wire::gateway::GetStatus;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::maintenance::{Examine, Examined};

/// Columns before the text of a finding: its status.
const INDENT: usize = 5;

/// Check everything that could be wrong, and print how to fix it
///
/// Works with and without a running daemon. Without one, the whole store is read. Exits with 1 if a
/// check has failed.
#[derive(Debug, Args)]
#[command(after_help = "abide doctor
abide doctor --fix")]
pub(crate) struct Doctor {
    /// The configuration file [default: the usual one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Fix what is safe to fix: permissions of the state folder
    #[arg(long)]
    fix: bool,
}

impl Doctor {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let (config, mut findings) = configuration(self.config);
        let state = common.place.state_dir()?;
        let fix = self.fix;
        let settings = config.clone();
        let look = tokio::task::spawn_blocking(move || offline::look(&state, &config, fix))
            .await
            .map_err(|error| Failure::local("the folder could not be checked", error))?;
        findings.extend(look.findings);
        let mut models = BTreeSet::from([settings.model.clone()]);
        models.extend(settings.fallback_models.iter().cloned());
        if look.is_held {
            findings.extend(from_inside(common).await);
            models.extend(of_agents(common).await);
        }
        findings.extend(service::findings(common));
        findings.extend(ollama::look(&settings, &models).await);
        let examined = Examined::of(findings);
        if common.json {
            print::object(&examined)?;
        } else {
            for finding in &examined.findings {
                print::answer(&shown(finding))?;
            }
        }
        Ok(u8::from(!examined.ok))
    }
}

/// Loads the effective settings, with a finding about them.
fn configuration(file: Option<PathBuf>) -> (Config, Vec<Finding>) {
    let id = "config";
    match serve::settings(file) {
        Ok(loaded) => {
            let name = match &loaded.file {
                Some(file) => file.display().to_string(),
                None => "no file, defaults".to_owned(),
            };
            let finding = match loaded.warnings.is_empty() {
                true => Finding::new(id, Health::Ok, name),
                false => Finding::new(
                    id,
                    Health::Warn,
                    format!("{name}: {}", loaded.warnings.join("; ")),
                )
                .fix("correct what is named; unknown settings have no effect"),
            };
            (loaded.config, vec![finding])
        }
        Err(failure) => {
            let finding = Finding::new(id, Health::Fail, failure.message)
                .fix("correct the setting; a daemon would not start with it");
            (Config::default(), vec![finding])
        }
    }
}

/// Findings of the daemon that holds the folder.
async fn from_inside(common: &Common) -> Vec<Finding> {
    let asked = async {
        let link = DaemonLink::open(&common.place).await?;
        let raw = link.raw(&Examine {}).await?;
        let examined: Examined = link::read(&raw)?;
        let status = link.ask(&GetStatus {}).await?;
        let versions = std::iter::once(skew::finding(&status));
        Ok::<_, Failure>(versions.chain(examined.findings).collect::<Vec<_>>())
    };
    match asked.await {
        Ok(findings) => {
            let answers = Finding::new("daemon.answers", Health::Ok, "the daemon answers");
            std::iter::once(answers).chain(findings).collect()
        }
        Err(failure) => {
            let finding = Finding::new("daemon.answers", Health::Fail, failure.message);
            vec![match failure.hints.is_empty() {
                true => finding,
                false => finding.fix(failure.hints.join("; ")),
            }]
        }
    }
}

/// Models that active agents name; empty if the daemon does not answer, which has a finding of its
/// own.
async fn of_agents(common: &Common) -> Vec<String> {
    let asked = async {
        let link = DaemonLink::open(&common.place).await?;
        let request = ListAgents {
            limit: PageSize(PAGE_LIMIT),
            ..ListAgents::default()
        };
        link.ask(&request).await
    };
    let agents = asked.await.map(|found| found.agents).unwrap_or_default();
    let active = agents.into_iter().filter(|agent| agent.active);
    active.map(|agent| agent.model).collect()
}

/// Formats a finding as lines that fit the screen.
fn shown(finding: &Finding) -> String {
    let (style, word) = match finding.status {
        Health::Ok => (GOOD, "ok  "),
        Health::Warn => (BUSY, "warn"),
        Health::Fail => (BAD, "FAIL"),
        Health::Skip => (DIM, "skip"),
    };
    let text = clean(&format!("{}: {}", finding.id, finding.message));
    let mut out = format!("{} {}", styled(style, word), lines(&text).join("\n     "));
    if let Some(fix) = &finding.fix
        && finding.status != Health::Ok
    {
        for line in lines(&clean(&format!("→ {fix}"))) {
            out.push_str("\n     ");
            out.push_str(&line);
        }
    }
    out
}

/// Wraps only lines that do not fit, so that markers in excerpts of files keep their column.
fn lines(text: &str) -> Vec<String> {
    let columns = print::columns() - INDENT;
    let fit = |line: &str| match line.width() <= columns {
        true => vec![line.to_owned()],
        false => wrap(line, columns),
    };
    text.lines().flat_map(fit).collect()
}
