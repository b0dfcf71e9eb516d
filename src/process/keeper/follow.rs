//! The daemon's side of one kept program: starts its keeper, or finds the one of an earlier
//! attempt, and follows the program's output to its end.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use process_wrap::tokio::{CommandWrap, ProcessSession};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::exit::finished;
use super::folder::{KeeperRecord, Stored};
use super::found::{KeeperUse, Keepers};
use super::reading::{Follower, PAUSE};
use super::sealed::OutputKey;
use super::serve::{HandOver, KEEP, READY};
use crate::failpoint::{self, reach};
use crate::kernel::ids::{RunId, StepId};
use crate::process::marks::{MarkFilter, ProcessOwner};
use crate::process::program::{Finished, Program, ProgramInput, find};
use crate::process::running::{Awaited, Processes, ProcessesInner, numbers};
use crate::process::table::{self, ProcessIdentity};
use crate::process::tree::{self, ProcessQuery};

/// How often a keeper is started that ends before it has started its program.
const STARTS: usize = 3;
/// The time by which a keeper's limit for the whole run is longer than the daemon's: a daemon that
/// is there ends the run itself.
const AFTER_RUN_LIMIT: Duration = Duration::from_secs(5);

/// The step that a program belongs to.
#[derive(Clone, Copy, Debug)]
pub struct ProgramStep {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// An earlier attempt may have started the program, so that it is looked for.
    pub may_have_begun: bool,
    /// What is left of the run's time limit; `None` = no limit.
    pub run_time: Option<Duration>,
}

#[cfg(test)]
impl ProgramStep {
    /// The first attempt of a step, without a time limit of its run.
    pub fn first(run: RunId, step: StepId) -> Self {
        ProgramStep {
            run,
            step,
            may_have_begun: false,
            run_time: None,
        }
    }
}

/// Why a program has no result. Both are messages for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramFault {
    /// It was not started, for this reason.
    NotStarted(String),
    /// It was started, and how it ended is unknown.
    Lost(String),
}

/// What became of a keeper that was followed.
enum Followed {
    /// The program has ended.
    Ended(Result<Finished, String>),
    /// The keeper has ended before it started the program.
    NotLaunched,
}

impl Processes {
    /// Runs a program under a keeper, or follows the one that runs for the step already; see
    /// [`Processes::run`]. Dropping the future does not end the program: the end of its run does.
    pub(in crate::process) async fn run_kept(
        &self,
        keepers: &Arc<Keepers>,
        step: ProgramStep,
        program: Program,
        mut heard: impl FnMut(&[u8]) + Send,
    ) -> Result<Finished, ProgramFault> {
        let refused = |fault: io::Error| {
            let folder = keepers.options.folder.display();
            ProgramFault::NotStarted(format!("its keeper's folder in {folder}: {fault}"))
        };
        let is_there = keepers.folder(step.step).exists();
        match (step.may_have_begun, is_there) {
            (true, false) => {
                let why = "nothing of its keeper is there, as after the restore of a backup";
                return Err(ProgramFault::Lost(why.to_owned()));
            }
            (false, false) => keepers.prepare(step.run, step.step).map_err(refused)?,
            (_, true) => {}
        }
        let mut is_prepared = !step.may_have_begun;
        for _ in 0..STARTS {
            if is_prepared {
                self.start_keeper(keepers, step, &program)
                    .await
                    .map_err(ProgramFault::NotStarted)?;
            }
            let followed = self.follow(keepers, step, &program, &mut heard).await?;
            match followed {
                Followed::Ended(Ok(finished)) => {
                    let remain = !finished.remaining.is_empty();
                    self.0.kept_ended(keepers, step, remain);
                    return Ok(finished);
                }
                Followed::Ended(Err(why)) => return Err(ProgramFault::NotStarted(why)),
                // It has not begun, whatever a keeper has left.
                Followed::NotLaunched => {
                    keepers.prepare(step.run, step.step).map_err(refused)?;
                    is_prepared = true;
                }
            }
        }
        let why = format!("its keeper ended {STARTS} times before the start");
        Err(ProgramFault::NotStarted(why))
    }

    /// Once this returns, a keeper has the program and starts it, whatever happens to this process.
    async fn start_keeper(
        &self,
        keepers: &Arc<Keepers>,
        step: ProgramStep,
        program: &Program,
    ) -> Result<(), String> {
        let owner = ProcessOwner::Step(step.run, step.step);
        self.enter_folder(program).await?;
        let (name, arguments) = program
            .argv
            .split_first()
            .ok_or("argv is empty: the program is missing")?;
        let environment = self.0.marks.put(program.environment.clone(), owner);
        let file = find(name, environment.get("PATH"), &program.folder)?;
        let mut command = CommandWrap::with_new(&keepers.own, |command| {
            command
                .arg0("abide")
                .arg(KEEP)
                .arg(keepers.folder(step.step).path())
                .args([step.run.0.to_string(), step.step.0.to_string()])
                .env_clear()
                .envs(environment.iter())
                .current_dir(&program.folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
        });
        command.wrap(ProcessSession);
        // Set before the program can connect to the socket.
        self.0.has_started.store(true, Ordering::SeqCst);
        let refused = |fault: io::Error| format!("its keeper cannot be started: {fault}");
        // The wrapper is only used for the session.
        let mut child = command.spawn().map_err(refused)?.into_inner();
        let pid = child.id().unwrap_or_default();
        let keeper = table::one(pid).map_or(ProcessIdentity { pid, start: 0 }, |row| row.id);
        self.0.knows(owner, [keeper]);
        let known = KeeperUse {
            run: step.run,
            keeper: Some(keeper),
            is_detached: false,
        };
        keepers.note(step.step, known);
        let (input, output) = (child.stdin().take(), child.stdout().take());
        let awaited = Awaited::of(&self.0, keeper);
        tokio::spawn(async move {
            // It goes on if this process ends before.
            let _ = child.wait().await;
            drop(awaited);
        });
        let (Some(mut input), Some(output)) = (input, output) else {
            return Err("its keeper has no pipes".to_owned());
        };
        let mut said = String::new();
        let read = BufReader::new(output).read_line(&mut said).await;
        if said.trim() != READY {
            let why = read.err().map(|fault| fault.to_string());
            let why = why.unwrap_or_else(|| said.trim().to_owned());
            return Err(format!("its keeper did not start: {why}"));
        }
        reach("keeper.ready");
        let given = self.hand_over(keepers, step, program, file.clone(), arguments)?;
        let handed = input.write_all(&given).await;
        reach("keeper.handed");
        tracing::debug!(run = %step.run, step = %step.step, pid, program = %file.display(), "started a keeper");
        // A keeper that has ended meanwhile is noticed by the one that follows it.
        drop(handed);
        Ok(())
    }

    /// The line for the keeper.
    fn hand_over(
        &self,
        keepers: &Keepers,
        step: ProgramStep,
        program: &Program,
        file: PathBuf,
        arguments: &[String],
    ) -> Result<Vec<u8>, String> {
        let input = match &program.input {
            ProgramInput::Text(text) => Some(text.clone()),
            ProgramInput::Nothing | ProgramInput::Pipe => None,
        };
        let folder = keepers.folder(step.step);
        let Ok(Stored::Record(record)) = folder.keeper() else {
            return Err("its keeper has not written its name".to_owned());
        };
        let run_time = step.run_time.map(|left| left + AFTER_RUN_LIMIT);
        let limits = [program.time, run_time].into_iter().flatten();
        let given = HandOver {
            file: file.into_os_string(),
            arguments: arguments.to_vec(),
            input,
            time_ms: limits.min().map(millis),
            max_output: self.0.max_output,
            grace_ms: millis(self.0.grace),
            orphan_max_ms: millis(keepers.options.orphan_max),
            daemon_lock: keepers.options.daemon_lock.clone().into_os_string(),
            detach: program.detach,
            soft_limit: self.0.descriptors.as_ref().map(|limit| limit.soft()),
            key: OutputKey::derive(&keepers.options.key, step.step, &record.salt),
            failpoints: failpoint::to_inherit(),
        };
        let mut line = serde_json::to_vec(&given).map_err(|fault| fault.to_string())?;
        line.push(b'\n');
        Ok(line)
    }

    /// Follows a keeper until its program has ended.
    async fn follow(
        &self,
        keepers: &Arc<Keepers>,
        step: ProgramStep,
        program: &Program,
        heard: &mut (impl FnMut(&[u8]) + Send),
    ) -> Result<Followed, ProgramFault> {
        let folder = keepers.folder(step.step);
        let lost = |why: String| ProgramFault::Lost(why);
        let record = match folder.keeper().map_err(|fault| lost(fault.to_string()))? {
            Stored::Record(record) => record,
            // Its keeper has ended, or writes its name now, before anything else.
            Stored::Nothing => return Ok(Followed::NotLaunched),
            Stored::Newer(version) => {
                return Err(lost(format!(
                    "its keeper is of a newer abide (version {version} of its files), which this \
                     one cannot follow; {} was left alone",
                    folder.path().display()
                )));
            }
        };
        let owner = ProcessOwner::Step(step.run, step.step);
        self.0.knows(owner, [record.keeper]);
        let key = OutputKey::derive(&keepers.options.key, step.step, &record.salt);
        let follower = Follower::new(&folder, program.keep, &key);
        let mut follower = follower.ok_or_else(|| lost("its key cannot be used".to_owned()))?;
        loop {
            // Asked before the files are read: what a dead keeper has not written never comes.
            let is_alive = folder.is_alive().unwrap_or(true);
            let exit = folder.exit().unwrap_or_default();
            let read = follower.read(heard).await;
            match (exit, read) {
                (Some(record), Ok(())) => {
                    let [out, err] = follower.captured();
                    return Ok(Followed::Ended(finished(record, out, err)));
                }
                (_, Err(fault)) if fault.kind() == ErrorKind::InvalidData => {
                    let ended = self.end_lost(step, &record).await;
                    return Err(lost(format!("{fault} ({ended})")));
                }
                (_, Err(fault)) if fault.kind() != ErrorKind::NotFound => {
                    tracing::warn!(step = %step.step, %fault, "the output of a kept program cannot be read now");
                    tokio::time::sleep(PAUSE).await;
                }
                _ if is_alive => follower.changed().await,
                _ if folder.is_launched().unwrap_or(true) => {
                    return Err(lost(self.end_lost(step, &record).await));
                }
                _ => return Ok(Followed::NotLaunched),
            }
        }
    }

    /// Ends what a keeper has left that has ended without a record; returns what happened.
    async fn end_lost(&self, step: ProgramStep, record: &KeeperRecord) -> String {
        let mut rest = ProcessQuery::marked(MarkFilter::Step(step.step));
        let machine = self.0.clock.machine().map(|machine| machine.boot);
        let is_this_boot = machine.is_some() && machine == record.machine;
        let now = table::one(record.keeper.pid).map(|row| row.id);
        // A session of another process that has got this pid has nothing to do with it.
        if is_this_boot && now.is_none_or(|now| now == record.keeper) {
            rest.session = Some(record.keeper.pid);
            rest.since = record.keeper.start;
        }
        let left = tree::end(rest, self.0.grace, &self.0.clock).await;
        let why = match machine.is_none() || is_this_boot {
            true => "its keeper was killed while the program ran",
            false => "the machine was restarted while the program ran",
        };
        match left.is_empty() {
            true => why.to_owned(),
            false => format!("{why}; processes {:?} could not be ended", numbers(&left)),
        }
    }
}

impl ProcessesInner {
    /// The program of a step has ended by its keeper's record.
    fn kept_ended(&self, keepers: &Keepers, step: ProgramStep, is_detached: bool) {
        if let Some(known) = keepers.uses().get_mut(&step.step) {
            known.is_detached = is_detached;
        }
        if !is_detached {
            self.now_knows(ProcessOwner::Step(step.run, step.step), &[]);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
