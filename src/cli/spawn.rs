//! `abide spawn`: hands work to the daemon and returns as soon as it is stored.

use std::io::Read;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use super::args::{Common, duration};
use super::failure::Failure;
use super::link::{self, Link};
use super::{env, ids, origin, print, text};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::input::RunTimeout;
use crate::wire::sessions::{AnnouncePolicy, Cleanup, Context, Mode, Spawn as Request, Spawned};

/// Hand work to the daemon and return at once
///
/// Prints the run's id. The work goes on whatever becomes of this terminal.
#[derive(Debug, Args)]
#[command(after_help = r#"abide spawn --label docs "What is not documented?"
abide spawn --parent client:bot --idempotency-key question-1 "Where is main?""#)]
pub(crate) struct Spawn {
    #[command(flatten)]
    work: Work,

    /// The session that asks and is told of the end
    #[arg(long, value_name = "SESSION")]
    parent: Option<String>,

    /// How the parent is told [default: wake, or inbox where no agent answers]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(["wake", "inbox", "steer", "none"]))]
    announce: Option<String>,

    /// Delete its session once all is told
    #[arg(long)]
    cleanup: bool,

    /// Begin with the parent's conversation as it is now
    #[arg(long, requires = "parent")]
    fork: bool,

    /// Keep its session open for further turns
    #[arg(long, conflicts_with = "cleanup")]
    keep_open: bool,

    /// Repeat the call with the same key and nothing is done twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// JSON that comes back with the result: an object, beside whose fields stands the mark
    /// of this terminal; @last does not find runs with other JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    meta: Option<Value>,
}

/// What `spawn` and `run` have in common.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// What is to be done; - reads it from standard input
    task: String,

    /// Who does it [default: the default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// A name for the run
    #[arg(long, value_name = "NAME")]
    label: Option<String>,

    /// Its model, as provider/name [default: the agent's]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// The folder that its tools see [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<std::path::PathBuf>,

    /// End the run when it has run this long, such as 90s or 10m
    /// [default: defaults.run_timeout, 1h if not set]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    run_timeout: Option<Duration>,

    /// A variable for its programs: NAME=VALUE, NAME=@env:OTHER as the daemon reads it (also
    /// @file:/PATH, @cred:NAME), or NAME for this shell's value; may be given again
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
}

impl Spawn {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let mut request = self.work.request()?;
        if let Some(parent) = &self.parent {
            request.parent = Some(ids::session(&link, parent).await?);
        }
        request.announce = self.announce.as_deref().and_then(policy);
        request.cleanup = self.cleanup.then_some(Cleanup::Delete);
        request.context = self.fork.then_some(Context::Fork);
        request.mode = self.keep_open.then_some(Mode::Session);
        request.meta = origin::marked(self.meta);
        if let Some(key) = self.idempotency_key {
            // The key stands for the first call's run, so this one must not name another.
            request.run_id = None;
            request.idempotency_key = Some(key);
        }
        let raw = send(&link, common, &request).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let spawned: Spawned = link::read(&raw)?;
        warn(&spawned);
        print::answer(&spawned.run_id.to_string())?;
        let short = text::short(spawned.run_id);
        print::note(&format!(
            "{} with {}; its answer: abide wait {short}",
            text::line(&spawned.agent, 24),
            text::line(&spawned.model, 30),
        ));
        Ok(0)
    }
}

impl Work {
    /// The request, under an id and a key of its own, so that it can be sent again.
    pub(crate) fn request(self) -> Result<Request, Failure> {
        let id = RunId(Clock::system().new_id());
        let folder = match self.cwd {
            Some(folder) => std::path::absolute(&folder)
                .map_err(|error| Failure::local(folder.display(), error))?,
            None => std::env::current_dir()
                .map_err(|error| Failure::local("the current folder is not there", error))?,
        };
        let cwd = folder.into_os_string().into_string().map_err(|folder| {
            Failure::usage(format!(
                "the folder's name is not UTF-8: {}",
                folder.display()
            ))
        })?;
        Ok(Request {
            task: task(self.task)?,
            run_id: Some(id),
            agent: self.agent,
            label: self.label,
            model: self.model,
            cwd: Some(cwd),
            env: env::given(&self.env)?,
            run_timeout: self
                .run_timeout
                .map(|limit| RunTimeout(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))),
            idempotency_key: Some(id.to_string()),
            meta: origin::marked(None),
            ..Request::default()
        })
    }
}

/// Sends the request until it is answered. A request that was accepted and whose answer was
/// lost is recognised by its key, so this never makes a second run.
pub(crate) async fn send(
    link: &Link,
    common: &Common,
    request: &Request,
) -> Result<Value, Failure> {
    match link.raw("sessions.spawn", request).await {
        Err(lost) if link::is_broken(&lost) && request.idempotency_key.is_some() => {
            let again = link::find_again(&common.place, lost, print::note).await?;
            again.raw("sessions.spawn", request).await
        }
        answer => answer,
    }
}

/// Shows what the daemon wants the caller to know.
pub(crate) fn warn(spawned: &Spawned) {
    for warning in &spawned.warnings {
        print::note(&format!("note: {}", text::clean(warning)));
    }
}

pub(crate) fn task(given: String) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("the task on standard input", error))?;
    if text.trim().is_empty() {
        return Err(Failure::usage("standard input holds no task"));
    }
    Ok(text)
}

fn policy(word: &str) -> Option<AnnouncePolicy> {
    [
        AnnouncePolicy::Wake,
        AnnouncePolicy::Inbox,
        AnnouncePolicy::Steer,
        AnnouncePolicy::None,
    ]
    .into_iter()
    .find(|policy| policy.as_str() == word)
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
