//! `abide spawn`: submits work to the daemon and returns as soon as it is stored.

use std::io::Read;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use super::env;
use crate::cli::common::budget::budget;
use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, duration, ids, origin, turn};
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::cli::{chat, link};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, SessionMode};
use crate::wire::budget::Budget;
use crate::wire::input::RunTimeout;
use crate::wire::runs::TurnAccepted;
use crate::wire::sessions::{Context, Spawn as Request, Spawned};

/// Submit work to the daemon and return at once
///
/// Prints the run's id. The work goes on even if this terminal is closed.
#[derive(Debug, Args)]
#[command(after_help = r#"abide spawn --label docs "What is not documented?"
abide spawn --parent client:bot --idempotency-key question-1 "Where is main?"
abide spawn --session agent:build:desk --thinking high --budget 200k "Go on.""#)]
pub(crate) struct CliSpawnArgs {
    #[command(flatten)]
    work: WorkArgs,

    /// The session that requests the run and is notified of its end
    #[arg(long, value_name = "SESSION", conflicts_with = "session")]
    parent: Option<String>,

    /// How the parent is notified [default: wake, or inbox where no agent answers]
    #[arg(long, value_name = "HOW", conflicts_with = "session", value_parser = PossibleValuesParser::new(["wake", "inbox", "steer", "none"]))]
    announce: Option<String>,

    /// Delete its session once everything was announced
    #[arg(long, conflicts_with = "session")]
    cleanup: bool,

    /// Start with a copy of the parent's current conversation
    #[arg(long, requires = "parent")]
    fork: bool,

    /// Keep its session open for further turns
    #[arg(long, conflicts_with_all = ["cleanup", "session"])]
    keep_open: bool,

    /// JSON that is returned with the result: an object, to which a mark of this terminal is added;
    /// @last does not find runs with other JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    meta: Option<Value>,
}

/// Options that `spawn` and `run` have in common.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// The task; - reads it from standard input
    task: String,

    /// The agent that does it [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Run it as a turn of this session, with its conversation: a key or label; an unknown key
    /// creates a session [default: a session of its own]
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["label", "cwd"])]
    session: Option<String>,

    /// Label of the run
    #[arg(long, value_name = "NAME")]
    label: Option<String>,

    /// Its model, as provider/name [default: the agent's]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Thinking level of its model [default: the agent's]
    #[arg(long, value_name = "LEVEL", value_parser = chat::levels())]
    thinking: Option<String>,

    /// Budget of the run and all its descendants: tokens such as 200k, cost=2.50, or both
    #[arg(long, value_name = "AMOUNT", value_parser = budget)]
    budget: Option<Budget>,

    /// Working folder of its tools [default: the current folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<std::path::PathBuf>,

    /// Time limit of the run, such as 90s or 10m [default: defaults.run_timeout, 1h if not set]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    run_timeout: Option<Duration>,

    /// A variable for its programs: NAME=VALUE, or NAME for this shell's value, or NAME=@env:OTHER,
    /// NAME=@file:/PATH or NAME=@cred:NAME, which the daemon reads; may be given again
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Idempotency key: repeated calls with the same key start only one run
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// A run that the daemon has accepted.
pub(crate) struct AcceptedRun {
    /// The daemon's reply, unparsed.
    pub(crate) raw: Value,
    pub(crate) run_id: RunId,
    /// Agent and model, or the session of the turn, for display.
    pub(crate) about: String,
    warnings: Vec<String>,
}

impl CliSpawnArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let session = self.work.session();
        let mut request = self.work.request()?;
        if let Some(parent) = &self.parent {
            request.parent = Some(ids::session(&link, parent).await?);
        }
        request.announce = self.announce.as_deref().and_then(AnnouncePolicy::parse);
        request.cleanup = self.cleanup.then_some(Cleanup::Delete);
        request.context = self.fork.then_some(Context::Fork);
        request.mode = self.keep_open.then_some(SessionMode::Session);
        request.meta = origin::marked(self.meta);
        let accepted = hand_over(&link, common, request, session.as_deref()).await?;
        if common.json {
            print::object(&accepted.raw)?;
            return Ok(0);
        }
        accepted.warn();
        print::answer(&accepted.run_id.to_string())?;
        let short = text::short(accepted.run_id);
        print::note(&format!(
            "{}; its answer: abide wait {short}",
            accepted.about
        ));
        Ok(0)
    }
}

impl WorkArgs {
    /// The session that the run shall be a turn of.
    pub(crate) fn session(&self) -> Option<String> {
        self.session.clone()
    }

    /// The request with its own run id and idempotency key, so that it can be sent again.
    pub(crate) fn request(self) -> Result<Request, Failure> {
        let id = RunId(Clock::system().new_id());
        let folder = match self.cwd {
            Some(folder) => std::path::absolute(&folder)
                .map_err(|error| Failure::local(folder.display(), error))?,
            None => std::env::current_dir()
                .map_err(|error| Failure::local("the current folder does not exist", error))?,
        };
        let cwd = folder.into_os_string().into_string().map_err(|folder| {
            Failure::usage(format!(
                "the folder's name is not UTF-8: {}",
                folder.display()
            ))
        })?;
        // A given key may belong to the run of an earlier call, so this call must not name another
        // run.
        let (run_id, key) = match self.idempotency_key {
            Some(key) => (None, key),
            None => (Some(id), id.to_string()),
        };
        Ok(Request {
            task: task(self.task)?,
            run_id,
            agent: self.agent,
            label: self.label,
            model: self.model,
            thinking: self.thinking.as_deref().and_then(Thinking::parse),
            budget: self.budget,
            cwd: Some(cwd),
            env: env::given(&self.env)?,
            run_timeout: self
                .run_timeout
                .map(|limit| RunTimeout(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))),
            idempotency_key: Some(key),
            meta: origin::marked(None),
            ..Request::default()
        })
    }
}

/// The daemon has accepted the run once this returns. A retry after a lost reply is recognised by
/// its key, so it never creates a second run.
pub(crate) async fn send(
    link: &DaemonLink,
    common: &Common,
    request: &Request,
) -> Result<Value, Failure> {
    link.raw_retried(request, &common.place).await
}

/// The daemon has accepted the run once this returns: as a turn of `session`, or in a session of
/// its own.
pub(crate) async fn hand_over(
    link: &DaemonLink,
    common: &Common,
    request: Request,
    session: Option<&str>,
) -> Result<AcceptedRun, Failure> {
    if let Some(session) = session {
        let turn = turn::of(link, session, request).await?;
        let raw = turn::send(link, common, &turn).await?;
        let taken: TurnAccepted = link::read(&raw)?;
        return Ok(AcceptedRun {
            raw,
            run_id: taken.run_id,
            about: format!("a turn of {}", text::line(taken.session_key.as_str(), 40)),
            warnings: taken.warnings,
        });
    }
    let raw = send(link, common, &request).await?;
    let spawned: Spawned = link::read(&raw)?;
    let (agent, model) = (
        text::line(&spawned.agent, 24),
        text::line(&spawned.model, 30),
    );
    Ok(AcceptedRun {
        raw,
        run_id: spawned.run_id,
        about: format!("{agent} with {model}"),
        warnings: spawned.warnings,
    })
}

impl AcceptedRun {
    /// Prints the daemon's warnings.
    pub(crate) fn warn(&self) {
        for warning in &self.warnings {
            print::note(&format!("note: {}", text::clean(warning)));
        }
    }
}

pub(crate) fn task(given: String) -> Result<String, Failure> {
    if given != "-" {
        if given.trim().is_empty() {
            return Err(Failure::usage("the text is empty")
                .hint("give the text, or - to read it from standard input"));
        }
        return Ok(given);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("the task on standard input", error))?;
    if text.trim().is_empty() {
        return Err(Failure::usage("standard input is empty"));
    }
    Ok(text)
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
