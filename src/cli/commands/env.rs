//! `abide env`: shows the names in a run's environment, and provides values that paused runs wait
//! for. Also parses `--env` of `run` and `spawn`.

use std::collections::BTreeMap;

use clap::Args;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{COLUMNS, line, short};
use crate::kernel::policy::overlay;
use crate::kernel::secret::{GivenValue, Reference};
use crate::wire::environment::{Env, ProvideEnv};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{GetRun, ListRuns, Runs, State};
use crate::wire::shapes::{EnvName, Run};

/// Show a run's environment, or provide a value
///
/// Shows names and their origins, never values. A run whose value can no longer be read is paused
/// before it starts a program; it continues once the value is provided. Without a run: every run
/// that waits for a value.
#[derive(Debug, Args)]
#[command(after_help = r#"abide env
abide env @last
abide env 4f2a91c3 GH_TOKEN
abide env 4f2a91c3 GH_TOKEN=@file:/run/secrets/gh"#)]
pub(crate) struct EnvOf {
    /// The run
    #[arg(value_name = "RUN")]
    run: Option<String>,

    /// NAME=VALUE, or NAME for this shell's value, or NAME=@env:OTHER, NAME=@file:/PATH or
    /// NAME=@cred:NAME, which the daemon reads
    #[arg(value_name = "NAME[=VALUE]")]
    given: Vec<String>,
}

impl EnvOf {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let env = given(&self.given)?;
        let link = DaemonLink::open(&common.place).await?;
        let Some(named) = &self.run else {
            return lacking(&link, common).await;
        };
        let run_id = ids::run(&link, named).await?;
        let raw = match env {
            Some(env) => {
                let request = ProvideEnv { run_id, env };
                link.raw(&request).await?
            }
            None => link.raw(&GetRun { run_id }).await?,
        };
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let run: Run = link::read(&raw)?;
        if self.given.is_empty() {
            if run.env.is_empty() {
                print::note(
                    "only the variables that every program gets: see env.pass in docs/environment.md",
                );
            }
            for row in rows(&run) {
                print::answer(&row)?;
            }
            return Ok(0);
        }
        let lacks: Vec<&str> = missing(&run).map(|one| one.name.as_str()).collect();
        print::note(&match lacks.is_empty() {
            true => format!(
                "accepted; run {} continues: abide wait {0}",
                short(run.run_id)
            ),
            false => format!(
                "accepted; run {} still lacks {}",
                short(run.run_id),
                lacks.join(", ")
            ),
        });
        Ok(0)
    }
}

/// Names in the run's environment that have no value.
pub(crate) fn missing(run: &Run) -> impl Iterator<Item = &EnvName> {
    run.env.iter().filter(|one| one.missing.is_some())
}

/// One line per name, with its origin.
fn rows(run: &Run) -> Vec<String> {
    let width = run.env.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let row = |one: &EnvName| {
        let mut from = one.from.clone().into_owned();
        if let Some(why) = &one.missing {
            from.push_str(&format!(", missing: {why}"));
        }
        let room = COLUMNS.saturating_sub(width + 2).max(20);
        format!("{:width$}  {}", one.name, line(&from, room))
    };
    run.env.iter().map(row).collect()
}

async fn lacking(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let request = ListRuns {
        states: vec![State::Paused],
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let raw = link.raw(&request).await?;
    let page: Runs = link::read(&raw)?;
    let runs: Vec<&Run> = page
        .runs
        .iter()
        .filter(|run| missing(run).next().is_some())
        .collect();
    if common.json {
        for run in runs {
            print::object(run)?;
        }
        return Ok(0);
    }
    if runs.is_empty() {
        print::note("no run is paused for a missing value");
    }
    for run in runs {
        let what = run.label.as_deref().unwrap_or(&run.title);
        let head = format!("{} of {}: {what}", short(run.run_id), run.agent);
        print::answer(&print::styled(print::HEAD, line(&head, print::room(0))))?;
        for one in missing(run) {
            let why = one.missing.as_deref().unwrap_or_default();
            let row = format!("{}: {why}", one.name);
            print::answer(&format!("  {}", line(&row, print::room(2))))?;
            print::answer(&format!("  abide env {} {}=…", short(run.run_id), one.name))?;
        }
    }
    Ok(0)
}

/// Parses `--env` arguments; no error message contains a value.
pub(crate) fn given(items: &[String]) -> Result<Option<Env>, Failure> {
    let mut env = BTreeMap::new();
    for item in items {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item.as_str(), None),
        };
        if !overlay::is_name(name) {
            // Without = the word may be a misplaced value, so the message does not repeat it.
            return Err(Failure::usage("an environment value is NAME=VALUE or NAME")
                .hint("a name has letters, digits and _, and does not begin with a digit"));
        }
        let given = match value {
            None => GivenValue::text(std::env::var(name).map_err(|_| {
                Failure::usage(format!("{name} is not set in this shell"))
                    .hint(format!("give it: {name}=VALUE"))
            })?),
            // @@ escapes a leading @.
            Some(text) if text.starts_with("@@") => GivenValue::text(&text[1..]),
            Some(text) => match text.strip_prefix('@') {
                None => GivenValue::text(text),
                Some(place) => GivenValue::From(Reference::parse(place).map_err(|why| {
                    Failure::usage(format!("{name}=@…: {why}"))
                        .hint(format!("a value that begins with @: {name}=@@…"))
                })?),
            },
        };
        env.insert(name.to_owned(), given);
    }
    Ok((!env.is_empty()).then_some(Env(env)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_value_or_a_place_and_is_never_repeated() {
        let typed = |item: &str| given(&[item.to_owned()]);
        let one = |item: &str| {
            typed(item)
                .unwrap()
                .unwrap()
                .0
                .into_values()
                .next()
                .unwrap()
        };
        assert_eq!(one("A=b=c"), GivenValue::text("b=c"));
        assert_eq!(one("A="), GivenValue::text(""));
        assert_eq!(one("A=@@x"), GivenValue::text("@x"));
        let place = Reference::Variable("B".to_owned());
        assert_eq!(one("A=@env:B"), GivenValue::From(place));
        assert_eq!(
            one("PATH"),
            GivenValue::text(std::env::var("PATH").unwrap())
        );
        assert!(given(&[]).unwrap().is_none());
        for item in ["canary-1", "1=canary", "A=@canary", "ABIDE_TEST_NOT_SET"] {
            let refused = typed(item).unwrap_err();
            assert!(!format!("{refused:?}").contains("canary"), "{refused:?}");
        }
    }
}
