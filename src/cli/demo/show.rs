//! The steps of the demo: start, spawn, kill, restart, follow to the end.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::journal::{self, Resumed};
use super::place::Place;
use super::stage::Stage;
use super::summary::Summary;
use super::{QUESTIONS, broken};
use crate::cli::common::failure::Failure;
use crate::cli::link::Link;
use crate::cli::live::follow::steps;
use crate::cli::live::tree;
use crate::cli::live::tree::Followed;
use crate::cli::live::view::View;
use crate::cli::output::print::{BAD, GOOD, styled};
use crate::cli::output::text::{COLUMNS, line, short};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;
use crate::wire::input::WaitTimeout;
use crate::wire::runs::{Wait, Waited};
use crate::wire::sessions::{AnnouncePolicy, Create, Created, Owner, Spawn, Spawned};
use crate::wire::shapes::Step;

/// Interval at which the runs are polled.
const GLANCE: Duration = Duration::from_millis(100);
/// Number of finished steps in every open run that is enough for the kill.
const ENOUGH_STEPS: usize = 3;
/// State of a running demo.
pub(super) struct Show {
    pub(super) clock: Clock,
    pub(super) stage: Stage,
    pub(super) place: Place,
    pub(super) view: View,
}

/// State of the runs at the kill.
struct Before {
    killed_at: Timestamp,
    steps: HashMap<RunId, Vec<Step>>,
    open: Vec<RunId>,
}

impl Show {
    /// Creates the state folder and chooses the folder to explore. Starts nothing.
    pub(super) fn new(json: bool) -> Result<Show, Failure> {
        let clock = Clock::system();
        let stage = Stage::new(&clock)?;
        let current = std::env::current_dir()
            .map_err(|error| Failure::local("the current folder does not exist", error))?;
        let place = Place::choose(&current, std::env::home_dir().as_deref(), stage.folder())?;
        let view = if json {
            View::for_programs()
        } else {
            View::for_people()
        };
        Ok(Show {
            clock,
            stage,
            place,
            view,
        })
    }

    /// Plays the whole demo. A broken guarantee is a failure of kind `BROKEN`.
    pub(super) async fn play(&mut self) -> Result<Summary, Failure> {
        let began = self.clock.monotonic();
        let what = if self.place.is_sample {
            "a sample of "
        } else {
            ""
        };
        let files = self.place.files;
        self.say(
            &format!(
                "exploring {} ({what}{files} files)",
                self.place.folder.display()
            ),
            "place",
            json!({ "folder": self.place.folder, "files": files, "sample": self.place.is_sample }),
        )?;
        let (first_pid, url, link) = self.stage.start().await?;
        self.say(
            &format!("daemon {first_pid} is up at {url}"),
            "started",
            json!({ "pid": first_pid, "url": url }),
        )?;
        let (parent, runs) = self.spawn(&link).await?;

        let before = self.watch_then_kill(link, &runs, first_pid).await?;
        let (second_pid, url, link) = self.stage.start().await?;
        self.say(
            &format!("daemon {second_pid} has replaced it"),
            "restarted",
            json!({ "pid": second_pid, "url": url }),
        )?;
        let kept_steps = self.watch_to_the_end(&link, &runs, &before).await?;

        let answers = self.check_answers(&link, &runs).await?;
        self.check_announces(&link, &parent, &runs).await?;
        if let Some(code) = self.stage.stop(link).await?.filter(|code| *code != 0) {
            return Err(broken(
                "the daemon stops gracefully",
                format!("exit code {code}"),
            ));
        }
        self.say(
            "the daemon has stopped",
            "stopped",
            json!({ "pid": second_pid }),
        )?;
        let took = self.clock.monotonic() - began;
        Ok(Summary {
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            pids: (first_pid, second_pid),
            kept_steps,
            answers,
        })
    }

    /// Prints a line for users, or an event for programs.
    pub(super) fn say(&mut self, text: &str, event: &str, mut data: Value) -> Result<(), Failure> {
        let text = line(text, COLUMNS);
        let text = match event {
            "killed" => styled(BAD, text),
            "resumed" => styled(GOOD, text),
            _ => text,
        };
        self.view.tell(&text, || {
            data["event"] = event.into();
            data.take()
        })
    }

    /// Creates a client's session and three runs that are announced to its inbox.
    async fn spawn(&mut self, link: &Link) -> Result<(SessionKey, Vec<RunId>), Failure> {
        let created: Created = link
            .ask(&Create {
                owner: Some(Owner::Client),
                title: Some("abide demo".to_owned()),
                ..Create::default()
            })
            .await?;
        let parent = created.session.key;
        let folder = self.place.folder.to_str().ok_or_else(|| {
            Failure::usage(format!("{} is not UTF-8", self.place.folder.display()))
        })?;
        let folder = folder.to_owned();
        let mut runs = Vec::new();
        for (label, task) in QUESTIONS {
            let spawned: Spawned = link
                .ask(&Spawn {
                    task: task.to_owned(),
                    parent: Some(parent.clone()),
                    agent: Some("explore".to_owned()),
                    label: Some(label.to_owned()),
                    model: Some("offline/search".to_owned()),
                    cwd: Some(folder.clone()),
                    announce: Some(AnnouncePolicy::Inbox),
                    idempotency_key: Some(format!("demo-{label}")),
                    ..Spawn::default()
                })
                .await?;
            self.say(
                &format!("accepted {} · {}: {task}", label, short(spawned.run_id)),
                "accepted",
                json!({ "runId": spawned.run_id, "label": label, "task": task }),
            )?;
            runs.push(spawned.run_id);
        }
        Ok((parent, runs))
    }

    /// Waits until the runs have finished steps that a kill could lose, then kills the daemon.
    async fn watch_then_kill(
        &mut self,
        link: Link,
        runs: &[RunId],
        pid: u32,
    ) -> Result<Before, Failure> {
        loop {
            let waited = self.glance(&link, runs).await?;
            let open: Vec<&Followed> = self
                .view
                .runs()
                .iter()
                .filter(|followed| !tree::is_ended(&followed.run.state))
                .collect();
            let finished = |followed: &Followed| {
                let ended = followed.steps.iter().filter(|step| step.ended_at.is_some());
                ended.count()
            };
            let begun = open.iter().filter(|one| finished(one) >= 1).count();
            let far = open.iter().all(|one| finished(one) >= ENOUGH_STEPS);
            if begun >= 2 && (far || open.len() < runs.len()) {
                break;
            }
            if waited.done {
                return Err(broken(
                    "two runs are open, each with a finished step, when the daemon is killed",
                    "the runs ended too early",
                ));
            }
        }
        self.stage.kill()?;
        let before = Before {
            killed_at: self.clock.now(),
            steps: self
                .view
                .runs()
                .iter()
                .map(|followed| (followed.run.run_id, followed.steps.clone()))
                .collect(),
            open: self
                .view
                .runs()
                .iter()
                .filter(|followed| !tree::is_ended(&followed.run.state))
                .map(|followed| followed.run.run_id)
                .collect(),
        };
        drop(link);
        self.say(
            &format!(
                "kill -9 {pid}, while {} runs are working",
                before.open.len()
            ),
            "killed",
            json!({ "pid": pid, "openRuns": before.open }),
        )?;
        Ok(before)
    }

    /// Follows each run to its end and checks that no finished step was repeated. Returns the
    /// number of finished steps that were kept.
    async fn watch_to_the_end(
        &mut self,
        link: &Link,
        runs: &[RunId],
        before: &Before,
    ) -> Result<usize, Failure> {
        let mut waiting = before.open.clone();
        loop {
            let waited = self.glance(link, runs).await?;
            let mut carried_on = Vec::new();
            for followed in self.view.runs() {
                let id = followed.run.run_id;
                let Some(place) = waiting.iter().position(|open| *open == id) else {
                    continue;
                };
                let Some(resumed) = Resumed::judge(&followed.steps, before.killed_at) else {
                    continue;
                };
                waiting.swap_remove(place);
                let who = format!("{} · {}", tree::name(&followed.run), short(id));
                carried_on.push((id, format!("{who} {}", resumed.text()), resumed));
            }
            for (id, text, resumed) in carried_on {
                self.say(
                    &text,
                    "resumed",
                    json!({ "runId": id, "atStep": resumed.at, "notRepeated": resumed.kept }),
                )?;
            }
            if waited.done {
                break;
            }
        }
        let mut kept = 0;
        for id in runs {
            let now = steps(link, *id).await?;
            let then = before.steps.get(id).map_or(&[][..], Vec::as_slice);
            kept += journal::check_kept(then, &now).map_err(|detail| {
                broken(
                    "no finished step runs again",
                    format!("run {}: {detail}", short(id)),
                )
            })?;
        }
        if let Some(id) = waiting.first() {
            return Err(broken(
                "every open run resumes",
                format!("run {} did not", short(id)),
            ));
        }
        Ok(kept)
    }

    async fn glance(&mut self, link: &Link, runs: &[RunId]) -> Result<Waited, Failure> {
        let ask = Wait {
            run_ids: Some(runs.to_vec()),
            wait_timeout: WaitTimeout(GLANCE),
            ..Wait::default()
        };
        let waited: Waited = link.ask(&ask).await?;
        self.view.update(link, &waited).await?;
        Ok(waited)
    }
}
