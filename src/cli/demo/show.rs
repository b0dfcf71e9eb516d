//! The steps of the demo: start, spawn, kill, restart, follow to the end, check, stop.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::checks::{self, QuotedLine, Resumed};
use super::daemon::Daemon;
use super::folder::Explored;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids;
use crate::cli::link::DaemonLink;
use crate::cli::live::follow;
use crate::cli::live::tree::{self, Followed};
use crate::cli::live::view::View;
use crate::cli::output::print::{BAD, GOOD, styled};
use crate::cli::output::text::{COLUMNS, line, short};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::session::Owner;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize, WaitTimeout};
use crate::wire::runs::Wait;
use crate::wire::sessions::{Create, GetHistory, GetInbox, Spawn};
use crate::wire::shapes::Step;

/// Label and task of each subagent. Any tree of source code has an answer to each.
pub(super) const QUESTIONS: [(&str, &str); 3] = [
    ("start", "Where is the entry point? Look for \"main(\"."),
    (
        "errors",
        "Which errors can happen, and how are they reported?",
    ),
    (
        "settings",
        "Which settings are there, and what are their defaults?",
    ),
];

/// Interval at which runs and inbox are polled.
const GLANCE: Duration = Duration::from_millis(100);

/// Number of finished steps in every open run that is enough for the kill.
const ENOUGH_STEPS: usize = 3;

/// Deadline for an announcement after its run has ended.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);

/// Failure kind of a broken guarantee.
pub(super) const BROKEN: &str = "demo_failed";

/// State of a running demo.
pub(super) struct RunningDemo {
    clock: Clock,
    daemon: Daemon,
    explored: Explored,
    view: View,
    /// One for each of [`QUESTIONS`].
    runs: Vec<RunId>,
}

/// The runs at the kill.
struct Killed {
    at: Timestamp,
    runs: Vec<Followed>,
}

/// Result of the demo.
pub(super) struct DemoSummary {
    pub(super) took: Duration,
    /// Process ids of the killed daemon and of its successor.
    pub(super) pids: (u32, u32),
    /// Number of steps that had ended before the kill and were not repeated.
    pub(super) kept_steps: usize,
    /// The findings for each of [`QUESTIONS`], all verified.
    pub(super) answers: Vec<Vec<QuotedLine>>,
}

impl RunningDemo {
    /// Creates the state folder and chooses the folder to explore. Starts nothing.
    pub(super) fn new(json: bool, keep: bool) -> Result<RunningDemo, Failure> {
        let clock = Clock::system();
        let daemon = Daemon::new(&clock, keep)?;
        let current = std::env::current_dir()
            .map_err(|error| Failure::local("the current folder does not exist", error))?;
        let home = std::env::home_dir();
        let explored = Explored::choose(&current, home.as_deref(), &daemon.folder)?;
        let view = if json {
            View::for_programs()
        } else {
            View::for_people()
        };
        Ok(RunningDemo {
            clock,
            daemon,
            explored,
            view,
            runs: Vec::new(),
        })
    }

    /// Once this returns, the last picture is drawn.
    pub(super) fn end(self) -> Daemon {
        drop(self.view);
        self.daemon
    }

    /// Plays the whole demo. A broken guarantee is a failure of kind [`BROKEN`].
    pub(super) async fn play(&mut self) -> Result<DemoSummary, Failure> {
        let began = self.clock.monotonic();
        let Explored {
            folder,
            files,
            is_sample,
        } = &self.explored;
        let what = if *is_sample { "a sample of " } else { "" };
        let text = format!("exploring {} ({what}{files} files)", folder.display());
        let data = json!({ "folder": folder, "files": files, "sample": is_sample });
        self.say("place", &text, data)?;
        let (first, link) = self.start("started").await?;
        let parent = self.spawn(&link).await?;
        self.watch_until_steps_are_finished(&link).await?;
        let killed = self.kill(link, first)?;
        let (second, link) = self.start("restarted").await?;
        self.watch_to_the_end(&link, &killed).await?;
        let kept_steps = check_steps(&link, &killed.runs).await?;
        let answers = self.check_answers(&link).await?;
        self.check_announces(&link, parent).await?;
        let code = self.daemon.stop(link).await?;
        ensure(code == Some(0), "the daemon stops gracefully", || {
            format!("exit code {code:?}")
        })?;
        self.say(
            "stopped",
            "the daemon has stopped",
            json!({ "pid": second }),
        )?;
        Ok(DemoSummary {
            took: self.clock.monotonic() - began,
            pids: (first, second),
            kept_steps,
            answers,
        })
    }

    /// Prints a line for users, or an event for programs.
    fn say(&mut self, event: &str, text: &str, mut data: Value) -> Result<(), Failure> {
        let text = line(text, COLUMNS);
        let text = match event {
            "killed" => styled(BAD, text),
            "resumed" => styled(GOOD, text),
            _ => text,
        };
        data["event"] = event.into();
        self.view.tell(&text, || data)
    }

    /// The daemon is ready once this returns.
    async fn start(&mut self, event: &str) -> Result<(u32, DaemonLink), Failure> {
        let (pid, url, link) = self.daemon.start().await?;
        let text = match event {
            "started" => format!("daemon {pid} is up at {url}"),
            _ => format!("daemon {pid} has replaced it"),
        };
        self.say(event, &text, json!({ "pid": pid, "url": url }))?;
        Ok((pid, link))
    }

    /// Creates a client's session and three runs that are announced to its inbox.
    async fn spawn(&mut self, link: &DaemonLink) -> Result<SessionKey, Failure> {
        let folder = &self.explored.folder;
        let folder = folder
            .to_str()
            .ok_or_else(|| Failure::usage(format!("{} is not UTF-8", folder.display())))?
            .to_owned();
        let session = Create {
            owner: Some(Owner::Client),
            title: Some("abide demo".to_owned()),
            ..Create::default()
        };
        let parent = link.ask(&session).await?.session.key;
        for (label, task) in QUESTIONS {
            let request = Spawn {
                task: task.to_owned(),
                parent: Some(parent.clone()),
                agent: Some("explore".to_owned()),
                label: Some(label.to_owned()),
                model: Some("offline/search".to_owned()),
                cwd: Some(folder.clone()),
                announce: Some(AnnouncePolicy::Inbox),
                idempotency_key: Some(format!("demo-{label}")),
                ..Spawn::default()
            };
            let id = link.ask(&request).await?.run_id;
            let text = format!("accepted {label} · {}: {task}", short(id));
            self.say(
                "accepted",
                &text,
                json!({ "runId": id, "label": label, "task": task }),
            )?;
            self.runs.push(id);
        }
        Ok(parent)
    }

    /// Shows the runs; true if all of them have ended.
    async fn glance(&mut self, link: &DaemonLink) -> Result<bool, Failure> {
        let ask = Wait {
            run_ids: Some(self.runs.clone()),
            wait_timeout: WaitTimeout(GLANCE),
            ..Wait::default()
        };
        let waited = link.ask(&ask).await?;
        self.view.update(link, &waited).await?;
        Ok(waited.done)
    }

    /// Once this returns, at least two runs are open and have finished steps that a kill could
    /// lose.
    async fn watch_until_steps_are_finished(&mut self, link: &DaemonLink) -> Result<(), Failure> {
        let has_ended = |step: &&Step| step.ended_at.is_some();
        let finished = |one: &Followed| one.steps.iter().filter(has_ended).count();
        loop {
            let all_ended = self.glance(link).await?;
            let open: Vec<usize> = open(self.view.runs()).map(finished).collect();
            let begun = open.iter().filter(|steps| **steps >= 1).count();
            let far = open.iter().all(|steps| *steps >= ENOUGH_STEPS);
            if begun >= 2 && (far || open.len() < self.runs.len()) {
                return Ok(());
            }
            let check = "two runs are open, each with a finished step, when the daemon is killed";
            ensure(!all_ended, check, || "the runs ended too early".to_owned())?;
        }
    }

    fn kill(&mut self, link: DaemonLink, pid: u32) -> Result<Killed, Failure> {
        self.daemon.kill()?;
        drop(link);
        let (at, runs) = (self.clock.now(), self.view.runs().to_vec());
        let open: Vec<RunId> = open(&runs).map(|one| one.run.run_id).collect();
        let text = format!("kill -9 {pid}, while {} runs are working", open.len());
        self.say("killed", &text, json!({ "pid": pid, "openRuns": open }))?;
        Ok(Killed { at, runs })
    }

    /// Once this returns, all runs have ended, and each that was open at the kill has resumed.
    async fn watch_to_the_end(
        &mut self,
        link: &DaemonLink,
        killed: &Killed,
    ) -> Result<(), Failure> {
        let mut resumed = HashSet::new();
        let mut all_ended = false;
        while !all_ended {
            all_ended = self.glance(link).await?;
            for one in open(&killed.runs) {
                let id = one.run.run_id;
                let now = self.view.runs().iter().find(|now| now.run.run_id == id);
                if let Some(how) = now.and_then(|now| Resumed::judge(&now.steps, killed.at))
                    && resumed.insert(id)
                {
                    let text = format!("{} · {} {}", tree::name(&one.run), short(id), how.text());
                    let data = json!({ "runId": id, "atStep": how.at, "notRepeated": how.kept });
                    self.say("resumed", &text, data)?;
                }
            }
        }
        let left = open(&killed.runs).find(|one| !resumed.contains(&one.run.run_id));
        ensure(left.is_none(), "every open run resumes", || {
            left.map_or(String::new(), |one| {
                format!("run {} did not", short(one.run.run_id))
            })
        })
    }

    /// Checks that every run ended ok and that its quotes match the files; returns the findings.
    async fn check_answers(&self, link: &DaemonLink) -> Result<Vec<Vec<QuotedLine>>, Failure> {
        let mut answers = Vec::new();
        for id in &self.runs {
            let run = ids::details(link, *id).await?;
            let is_ok = run.state == "ok";
            let why = run.error.map_or(String::new(), |error| error.message);
            ensure(is_ok, "every run ends ok", || {
                format!("run {}: {} {why}", short(id), run.state)
            })?;
            let found = QuotedLine::read(run.result.as_deref().unwrap_or_default());
            for finding in &found {
                let checked = finding.check(&self.explored.folder);
                checked.map_err(|why| broken("each quoted file:line exists", why))?;
            }
            let missing = found.is_empty() && self.explored.is_sample;
            ensure(!missing, "the sample answers every question", || run.title)?;
            answers.push(found);
        }
        Ok(answers)
    }

    /// Checks that each end is once in the parent's inbox and once in its transcript.
    async fn check_announces(
        &mut self,
        link: &DaemonLink,
        parent: SessionKey,
    ) -> Result<(), Failure> {
        let began = self.clock.monotonic();
        let page = GetInbox {
            session_key: parent.clone(),
            acked: false,
            limit: PageSize(PAGE_LIMIT),
            cursor: None,
        };
        let mut inbox = link.ask(&page).await?;
        while inbox.announces.len() < self.runs.len()
            && self.clock.monotonic() - began < ANNOUNCE_LIMIT
        {
            tokio::time::sleep(GLANCE).await;
            inbox = link.ask(&page).await?;
        }
        let request = GetHistory {
            session_key: parent,
            before: None,
            after: None,
            tools: None,
            limit: PageSize(PAGE_LIMIT),
        };
        let history = link.ask(&request).await?;
        let count = |id| {
            let pending = inbox.announces.iter().filter(|one| one.run_id == id);
            let messages = history.messages.iter();
            let written = messages.filter(|one| one.kind == "announce" && one.run_id == Some(id));
            (pending.count(), written.count())
        };
        let check = "each announce arrives exactly once";
        for id in self.runs.clone() {
            let (run, (pending, written)) = (short(id), count(id));
            ensure(pending == 1 && written == 1, check, || {
                format!("run {run}: {pending} times in the inbox, {written} in the transcript")
            })?;
            let data = json!({ "runId": id, "inbox": pending, "transcript": written });
            self.say("announced", &format!("announced once: {run}"), data)?;
        }
        Ok(())
    }
}

/// Checks that no step that had finished before the kill ran again; returns their number.
async fn check_steps(link: &DaemonLink, before: &[Followed]) -> Result<usize, Failure> {
    let mut kept = 0;
    for Followed { run, steps, .. } in before {
        let now = follow::steps(link, run.run_id).await?;
        kept += checks::check_kept(steps, &now).map_err(|why| {
            let detail = format!("run {}: {why}", short(run.run_id));
            broken("no finished step runs again", detail)
        })?;
    }
    Ok(kept)
}

/// The runs that have not ended.
fn open(runs: &[Followed]) -> impl Iterator<Item = &Followed> {
    runs.iter().filter(|one| !tree::is_ended(&one.run.state))
}

fn ensure(holds: bool, check: &str, detail: impl FnOnce() -> String) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(broken(check, detail())),
    }
}

fn broken(check: &str, detail: String) -> Failure {
    Failure::new(
        exit::FAILED,
        BROKEN,
        format!("demo failed: {check}: {detail}"),
    )
}
