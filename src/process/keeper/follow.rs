//! The daemon's side of one kept program: starts its keeper, or finds the one of an earlier
//! attempt, and follows the program's output to its end.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use process_wrap::tokio::{CommandWrap, ProcessSession};
use rustix::io::Errno;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::changes::PAUSE;
use super::exit::finished;
use super::folder::KeeperFolder;
use super::folder::{KeeperRecord, Stored};
use super::found::{KeeperUse, Keepers, is_newer};
use super::reading::{Follower, Seen, Unread};
use super::sealed::OutputKey;
use super::serve::{HandOver, KEEP, READY};
use crate::failpoint::{self, reach};
use crate::kernel::ids::{RunId, StepId};
use crate::process::marks::{MarkFilter, ProcessOwner};
use crate::process::program::{Finished, Program, find};
use crate::process::running::{Awaited, Processes, ProcessesInner, numbers};
use crate::process::table::{self, ProcessIdentity};
use crate::process::tree::{self, ProcessQuery};

/// How often a keeper is started that ends before it has started its program.
const STARTS: usize = 3;
/// The time by which a keeper's limit for the whole run is longer than the daemon's: a daemon that
/// is there ends the run itself.
const AFTER_RUN_LIMIT: Duration = Duration::from_secs(5);
/// The longest pause before something is read again that the system refused to read.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a keeper that has released its lock may take to end.
const LAST_LOOKS: Duration = Duration::from_secs(1);

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

/// The result of following a keeper.
enum Followed {
    /// The program has ended.
    Ended(Result<Finished, String>),
    /// The keeper has ended before it started the program, for this reason if it has left one.
    NotLaunched(Option<String>),
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
        let folder = keepers.folder(step.step);
        if let Some(version) = keepers.newer(step.step) {
            return Err(ProgramFault::Lost(is_newer(version, &folder)));
        }
        let is_there = match readable(step.step, || folder.exists()).await {
            Ok(is_there) => is_there,
            Err(fault) if step.may_have_begun => {
                return Err(self.unreadable(&folder, step, None, &fault).await);
            }
            Err(fault) => return Err(refused(fault)),
        };
        match (step.may_have_begun, is_there) {
            (true, false) => {
                let why = "nothing of its keeper is there, as after the restore of a backup";
                return Err(ProgramFault::Lost(why.to_owned()));
            }
            (false, false) => keepers.prepare(step.run, step.step).map_err(refused)?,
            (_, true) => {}
        }
        let mut is_prepared = !step.may_have_begun;
        let mut refusal = None;
        for _ in 0..STARTS {
            if is_prepared && let Err(why) = self.start_keeper(keepers, step, &program).await {
                // A keeper without its input ends by itself.
                self.0.kept_ended(keepers, step, false);
                return Err(ProgramFault::NotStarted(why));
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
                Followed::NotLaunched(why) => {
                    keepers.prepare(step.run, step.step).map_err(refused)?;
                    is_prepared = true;
                    refusal = why.or(refusal);
                }
            }
        }
        let why = refusal.map(|why| format!(": {why}")).unwrap_or_default();
        let why = format!("its keeper ended {STARTS} times before the start{why}");
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
        let folder = keepers.folder(step.step);
        let unread = |fault: io::Error| format!("the record of its keeper cannot be read: {fault}");
        let Stored::Record(record) = folder.keeper().map_err(unread)? else {
            return Err("its keeper has not written its record".to_owned());
        };
        let run_time = step.run_time.map(|left| left + AFTER_RUN_LIMIT);
        let limits = [program.time, run_time].into_iter().flatten();
        let given = HandOver {
            file: file.into_os_string(),
            arguments: arguments.to_vec(),
            input: program.input.clone().into_text(),
            time_ms: limits.min().map(millis),
            max_output: self.0.max_output,
            grace_ms: millis(self.0.grace),
            orphan_max_ms: millis(keepers.options.orphan_max),
            daemon_lock: keepers.options.daemon_lock.clone().into_os_string(),
            state: self.0.marks.state.clone().into_os_string(),
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
        let unread = match readable(step.step, || folder.keeper()).await {
            Ok(record) => record,
            Err(fault) => return Err(self.unreadable(&folder, step, None, &fault).await),
        };
        let record = match unread {
            Stored::Record(record) if (record.run, record.step) == (step.run, step.step) => record,
            Stored::Record(record) => {
                let ended = self.end_lost(&folder, step, None).await;
                let why = format!("its folder is that of step {}", record.step);
                return Err(lost(after(why, ended)));
            }
            Stored::Nothing => match readable(step.step, || folder.is_launched()).await {
                // A loss of power can leave less than was written.
                Ok(true) => {
                    let ended = self.end_lost(&folder, step, None).await;
                    let why = "the record of its keeper is lost".to_owned();
                    return Err(lost(after(why, ended)));
                }
                // Its keeper has ended, or writes its record now, before anything else.
                Ok(false) => return Ok(Followed::NotLaunched(folder.refusal())),
                Err(fault) => return Err(self.unreadable(&folder, step, None, &fault).await),
            },
            Stored::Newer(version) => return Err(lost(is_newer(version, &folder))),
        };
        let owner = ProcessOwner::Step(step.run, step.step);
        match readable(step.step, || folder.is_held_by(record.keeper.pid)).await {
            Ok(true) => self.0.knows(owner, [record.keeper]),
            Ok(false) => {}
            Err(fault) => {
                let record = Some(&record);
                return Err(self.unreadable(&folder, step, record, &fault).await);
            }
        }
        let key = OutputKey::derive(&keepers.options.key, step.step, &record.salt);
        let follower = Follower::new(&folder, program.keep, &key);
        let mut follower = follower.ok_or_else(|| lost("its key cannot be used".to_owned()))?;
        let mut retry = Retry::new(step.step);
        loop {
            match follower.look(heard).await {
                Ok(Seen::Running) => {
                    retry = Retry::new(step.step);
                    follower.changed().await;
                }
                Ok(Seen::More) => {}
                Ok(Seen::Exited(record)) => {
                    let [out, err] = follower.captured();
                    return Ok(Followed::Ended(finished(record, out, err)));
                }
                Ok(Seen::Lost) => {
                    let why = self.why_lost(&record);
                    let ended = self.end_lost(&folder, step, Some(&record)).await;
                    return Err(lost(after(why, ended)));
                }
                Ok(Seen::NotLaunched) => return Ok(Followed::NotLaunched(folder.refusal())),
                Err(Unread::Sealed) => {
                    let why = "its output was sealed with another key (env.key), or changed";
                    let ended = self.end_lost(&folder, step, Some(&record)).await;
                    return Err(lost(after(why.to_owned(), ended)));
                }
                Err(Unread::Refused(fault)) if can_pass(&fault) => retry.wait(&fault).await,
                Err(Unread::Refused(fault)) => {
                    let record = Some(&record);
                    return Err(self.unreadable(&folder, step, record, &fault).await);
                }
            }
        }
    }

    /// Why a keeper has ended without a record of the exit.
    fn why_lost(&self, record: &KeeperRecord) -> String {
        let machine = self.0.clock.machine().map(|machine| machine.boot);
        let why = match machine.is_none() || machine == record.machine {
            true => "its keeper was killed while the program ran",
            false => "the machine was restarted while the program ran",
        };
        why.to_owned()
    }

    /// The fault of a program whose keeper's files cannot be read. Once this returns, what runs of it
    /// was ended.
    async fn unreadable(
        &self,
        folder: &KeeperFolder,
        step: ProgramStep,
        record: Option<&KeeperRecord>,
        fault: &io::Error,
    ) -> ProgramFault {
        let ended = self.end_lost(folder, step, record).await;
        let why = format!("what its keeper has written cannot be read: {fault}");
        ProgramFault::Lost(after(why, ended))
    }

    /// Ends what a keeper has left that has ended without a record of the exit, or whose program
    /// cannot be followed. Returns what could not be ended, for people.
    async fn end_lost(
        &self,
        folder: &KeeperFolder,
        step: ProgramStep,
        record: Option<&KeeperRecord>,
    ) -> Option<String> {
        let state = self.0.marks.state.clone();
        let mut rest = ProcessQuery::marked(MarkFilter::Step(step.step, state));
        let machine = self.0.clock.machine().map(|machine| machine.boot);
        let is_this_boot = |record: &&KeeperRecord| machine.is_some() && machine == record.machine;
        if let Some(record) = record.filter(is_this_boot)
            && !self.is_of_another_folder(folder, record).await
        {
            rest.session = Some(record.keeper.pid);
            rest.since = record.keeper.start;
        }
        let left = tree::end(rest, self.0.grace, &self.0.clock).await;
        (!left.is_empty()).then(|| format!("processes {:?} could not be ended", numbers(&left)))
    }

    /// True if the session of this keeper must not be ended: its pid is that of another process now,
    /// or the folder is a copy and its keeper works in the original.
    async fn is_of_another_folder(&self, folder: &KeeperFolder, record: &KeeperRecord) -> bool {
        let pid = record.keeper.pid;
        let begun = self.0.clock.monotonic();
        loop {
            match table::one(pid) {
                None => return false,
                Some(now) if now.id != record.keeper => return true,
                Some(now) if now.is_zombie => return false,
                // An error is as good as a lock: then it is not a copy that is known of.
                Some(_) if folder.is_held_by(pid).unwrap_or(true) => return false,
                // Its lock is released a moment before it is gone.
                Some(_) if self.0.clock.monotonic().saturating_sub(begun) < LAST_LOOKS => {
                    tokio::time::sleep(PAUSE).await;
                }
                Some(_) => return true,
            }
        }
    }
}

/// The reason with what could not be ended.
fn after(why: String, left: Option<String>) -> String {
    match left {
        Some(left) => format!("{why}; {left}"),
        None => why,
    }
}

/// Tries again what the system refused, as without a free descriptor, at growing intervals.
struct Retry {
    step: StepId,
    pause: Duration,
}

impl Retry {
    fn new(step: StepId) -> Self {
        Retry { step, pause: PAUSE }
    }

    /// Returns when it is to be tried again. The first of several faults is logged.
    async fn wait(&mut self, fault: &io::Error) {
        if self.pause == PAUSE {
            tracing::warn!(step = %self.step, %fault, "what the keeper of a program has written cannot be read now; this is tried again");
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// True if the system refused something for want of descriptors or memory, or for a moment. All other
/// errors, such as those of a damaged disk, stay.
fn can_pass(fault: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(fault),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN)
    )
}

/// Reads something of a keeper's folder, again while the system refuses it for a reason that can
/// pass; the limits of the run end the waiting. The error is one that stays.
async fn readable<T>(step: StepId, read: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut retry = Retry::new(step);
    loop {
        match read() {
            Err(fault) if can_pass(&fault) => retry.wait(&fault).await,
            found => return found,
        }
    }
}

impl ProcessesInner {
    /// The program of a step has ended by its keeper's record, or its keeper was not started.
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
