//! Running programs: started for a step of a run or as a service, waited for, and ended with their
//! descendants when their time limit expires, when the caller stops waiting, or when their run or
//! the daemon ends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use rustix::process::{Pid, Signal, kill_process_group};
use uuid::Uuid;

use super::capture::Captured;
use super::keeper::{Keepers, ProgramFault, ProgramStep};
use super::launch::Descriptors;
use super::marks::{Marks, ProcessOwner};
use super::oom;
use super::program::{ExitReason, Finished, Program, ProgramInput, find};
use super::reap;
use super::stream::{PipeReader, feed, over};
use super::table::{self, ProcessIdentity};
use super::tree::{self, ProcessQuery};
use crate::clock::Clock;
use crate::file_work::TOOLS;
use crate::kernel::ids::{CallId, RunId, StepId};
use crate::kernel::node::OutputStream;

/// Options for starting and ending programs.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The daemon's state folder; a restarted daemon recognizes earlier programs by it.
    pub state: PathBuf,
    /// The daemon's socket, through which programs reach it.
    pub socket: Option<String>,
    /// How long a program may take to end after SIGTERM before it is killed.
    pub grace: Duration,
    /// The maximum number of bytes that a program may write; it is ended above that.
    pub max_output: u64,
    /// The open-file limit of programs; `None` if the daemon's own limit was not raised.
    pub descriptors: Option<Descriptors>,
    /// The keepers of steps' programs; `None`: they are children of this process and end with it.
    pub keepers: Option<Arc<Keepers>>,
}

/// All running programs of the daemon. Cheap to clone.
#[derive(Clone)]
pub struct Processes(pub(super) Arc<ProcessesInner>);

pub(super) struct ProcessesInner {
    pub(super) marks: Marks,
    pub(super) grace: Duration,
    pub(super) max_output: u64,
    pub(super) descriptors: Option<Descriptors>,
    pub(super) keepers: Option<Arc<Keepers>>,
    pub(super) clock: Clock,
    known: Mutex<KnownProcesses>,
    /// True once a program was started since the boot, or if an earlier boot's program may be alive.
    pub(super) has_started: AtomicBool,
}

/// The processes known to be alive.
#[derive(Default)]
pub(super) struct KnownProcesses {
    /// By run and step. A run is removed when it ends.
    pub(super) runs: HashMap<RunId, HashMap<StepId, HashSet<ProcessIdentity>>>,
    /// By the start of a service, or by call.
    pub(super) services: HashMap<Uuid, HashSet<ProcessIdentity>>,
    /// Children of this process that a task waits for.
    awaited: HashSet<ProcessIdentity>,
}

impl Processes {
    /// Creates an empty set of programs.
    pub fn new(options: ProcessOptions, clock: Clock) -> Self {
        let mut known = KnownProcesses::default();
        for (step, kept) in options.keepers.iter().flat_map(|one| one.uses().clone()) {
            let Some(keeper) = kept.keeper else {
                continue;
            };
            let steps = known.runs.entry(kept.run).or_default();
            steps.entry(step).or_default().insert(keeper);
        }
        Processes(Arc::new(ProcessesInner {
            has_started: AtomicBool::new(
                options
                    .keepers
                    .as_ref()
                    .is_some_and(|all| all.has_started()),
            ),
            known: Mutex::new(known),
            keepers: options.keepers,
            marks: Marks {
                state: options.state,
                socket: options.socket,
            },
            grace: options.grace,
            max_output: options.max_output,
            descriptors: options.descriptors,
            clock,
        }))
    }

    /// Reaps the orphans that the daemon adopts, until the runtime ends.
    pub async fn reap_orphans(&self) {
        let shared = Arc::clone(&self.0);
        reap::reap_orphans(move |one| shared.lock().awaited.contains(&one)).await;
    }

    /// Prepares the keeper of a step's program, before it is stored that the step begins. A failure
    /// is reported by [`Processes::run`], which tries again.
    pub fn prepare(&self, run: RunId, step: StepId) {
        if let Some(keepers) = &self.0.keepers
            && let Err(fault) = keepers.prepare(run, step)
        {
            tracing::warn!(%fault, %step, "the folder of a program could not be made");
        }
    }

    /// Runs a program for a step and waits for its end, or, if an earlier attempt has started it,
    /// follows it. Dropping the future leaves the program to its keeper; without keepers it ends the
    /// program with all its descendants. Each piece of its standard output, from the first byte, is
    /// passed to `heard`.
    pub async fn run(
        &self,
        step: ProgramStep,
        program: Program,
        mut heard: impl FnMut(&[u8]) + Send,
    ) -> Result<Finished, ProgramFault> {
        if let Some(keepers) = &self.0.keepers {
            return self.run_kept(keepers, step, program, heard).await;
        }
        let heard = |stream: OutputStream, bytes: &[u8]| {
            if stream == OutputStream::Stdout {
                heard(bytes);
            }
        };
        let owner = ProcessOwner::Step(step.run, step.step);
        let started = self.enter(owner, &program).await;
        let started = started.map_err(ProgramFault::NotStarted)?;
        let ended = self.attend(started, program, heard, std::future::pending());
        ended.await.map_err(ProgramFault::Lost)
    }

    /// Starts a program once its working folder has answered.
    pub(super) async fn enter(
        &self,
        owner: ProcessOwner,
        program: &Program,
    ) -> Result<StartedProgram, String> {
        self.enter_folder(program).await?;
        self.start(owner, program)
    }

    /// Returns once the working folder has answered; the error says why it cannot be used.
    pub(super) async fn enter_folder(&self, program: &Program) -> Result<(), String> {
        // Entering the folder of an unresponsive mount would block this thread.
        let folder = program.folder.clone();
        let looked = TOOLS.run(move |_| folder.is_dir()).await;
        match looked.map_err(|busy| busy.to_string())? {
            true => Ok(()),
            false => Err(format!(
                "its working folder {} does not exist",
                program.folder.display()
            )),
        }
    }

    /// Waits until a started program has ended, or ends it when its time limit or `stop` is over.
    pub(super) async fn attend(
        &self,
        mut started: StartedProgram,
        program: Program,
        mut heard: impl FnMut(OutputStream, &[u8]) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Finished, String> {
        let mut out = PipeReader::new(started.child.stdout().take(), program.keep);
        let mut err = PipeReader::new(started.child.stderr().take(), program.keep);
        let most = self.0.max_output;
        let ending = {
            let feeding = feed(started.child.stdin().take(), program.input.into_text());
            let mut feeding = pin!(feeding);
            let mut fed = false;
            let mut over = pin!(over(program.time));
            let mut stop = pin!(stop);
            loop {
                tokio::select! {
                    status = started.child.wait() => {
                        let status = status.map_err(|fault| format!("its exit status could not be read: {fault}"))?;
                        break ending(status);
                    }
                    bytes = out.next(), if out.is_open() => heard(OutputStream::Stdout, bytes),
                    bytes = err.next(), if err.is_open() => heard(OutputStream::Stderr, bytes),
                    () = &mut feeding, if !fed => fed = true,
                    () = &mut over => break ExitReason::TimedOut,
                    () = &mut stop => break ExitReason::TimedOut,
                }
                if out.kept.total() + err.kept.total() > most {
                    break ExitReason::OutputLimit(most);
                }
            }
        };
        let left = match ending {
            ExitReason::Exited(_) | ExitReason::Signal(_) => {
                started.after_end(program.detach).await
            }
            _ => started.end().await,
        };
        let mut streams = [
            out.finish(|bytes| heard(OutputStream::Stdout, bytes)).await,
            err.finish(|bytes| heard(OutputStream::Stderr, bytes)).await,
        ];
        // After a timeout the program is asked to end, and its final output is complete.
        if matches!(ending, ExitReason::OutputLimit(_)) {
            streams.iter_mut().for_each(Captured::cut);
        }
        let [stdout, stderr] = streams;
        Ok(Finished {
            ending,
            stdout,
            stderr,
            remaining: left,
        })
    }

    pub(super) fn start(
        &self,
        owner: ProcessOwner,
        program: &Program,
    ) -> Result<StartedProgram, String> {
        let folder = &program.folder;
        let (name, arguments) = program
            .argv
            .split_first()
            .ok_or("argv is empty: the program is missing")?;
        let environment = self.0.marks.put(program.environment.clone(), owner);
        let file = find(name, environment.get("PATH"), folder)?;
        let (first, before) = match &self.0.descriptors {
            Some(descriptors) => descriptors.before(&file),
            None => (file.as_path(), Vec::new()),
        };
        let mut command = CommandWrap::with_new(first, |command| {
            command
                .args(before)
                .args(arguments)
                .env_clear()
                .envs(environment.iter())
                .current_dir(folder)
                .stdin(match program.input {
                    ProgramInput::Nothing => Stdio::null(),
                    ProgramInput::Text(_) | ProgramInput::Pipe => Stdio::piped(),
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        });
        command.wrap(ProcessSession);
        // Set before the program can connect to the socket.
        self.0.has_started.store(true, Ordering::SeqCst);
        let spawned = command.spawn();
        let child = spawned.map_err(|fault| refusal(&file.display().to_string(), &fault))?;
        // The wrapper is only used for the session: it would wait for the whole process group.
        let child = child.into_inner();
        // Not waited for yet, so the pid cannot be reused.
        let pid = child.id().unwrap_or_default();
        if self.0.descriptors.is_none() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            oom::goes_first(&process, Path::new("/proc/self"));
        }
        let root = table::one(pid).map_or(ProcessIdentity { pid, start: 0 }, |row| row.id);
        self.0.knows(owner, [root]);
        tracing::debug!(?owner, pid, program = %file.display(), "started a program");
        Ok(StartedProgram {
            shared: Arc::clone(&self.0),
            owner,
            root,
            child: HeldChild(Some((child, Awaited::of(&self.0, root)))),
        })
    }
}

/// A started program that only this value waits for.
pub(super) struct StartedProgram {
    shared: Arc<ProcessesInner>,
    owner: ProcessOwner,
    pub(super) root: ProcessIdentity,
    pub(super) child: HeldChild,
}

/// The child process; `None` only once another task waits for its end.
pub(super) struct HeldChild(Option<(Box<dyn ChildWrapper>, Awaited)>);

/// Marks this child as waited for by a task, until it is dropped.
pub(super) struct Awaited(Arc<ProcessesInner>, ProcessIdentity);

impl Awaited {
    /// From now until it is dropped, a task waits for this child.
    pub(super) fn of(shared: &Arc<ProcessesInner>, child: ProcessIdentity) -> Self {
        shared.lock().awaited.insert(child);
        Awaited(Arc::clone(shared), child)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.lock().awaited.remove(&self.1);
    }
}

impl std::ops::Deref for HeldChild {
    type Target = dyn ChildWrapper;

    fn deref(&self) -> &Self::Target {
        let (child, _) = self.0.as_ref().expect("it is taken by the drop alone");
        child.as_ref()
    }
}

impl std::ops::DerefMut for HeldChild {
    fn deref_mut(&mut self) -> &mut Self::Target {
        let (child, _) = self.0.as_mut().expect("it is taken by the drop alone");
        child.as_mut()
    }
}

impl StartedProgram {
    fn wanted(&self) -> ProcessQuery {
        let known = self.shared.lock();
        let known = match self.owner {
            ProcessOwner::Step(run, step) => {
                known.runs.get(&run).and_then(|steps| steps.get(&step))
            }
            ProcessOwner::Service(id) | ProcessOwner::Call(CallId(id)) => known.services.get(&id),
        };
        ProcessQuery {
            known: known.cloned().unwrap_or_default(),
            since: self.root.start,
            ..ProcessQuery::marked(self.owner.whose(&self.shared.marks))
        }
    }

    /// Finds the live descendants of a program that has ended by itself: they continue if it is
    /// detached, and are ended now if not. Returns the ones still alive.
    async fn after_end(&mut self, is_detached: bool) -> Vec<u32> {
        if reap::nothing_is_left() {
            self.shared.now_knows(self.owner, &[]);
            return Vec::new();
        }
        let mut wanted = self.wanted();
        wanted.session = Some(self.root.pid);
        let alive = match is_detached {
            false => tree::end(wanted, self.shared.grace, &self.shared.clock).await,
            true => tree::look(&mut wanted).await,
        };
        self.shared.now_knows(self.owner, &alive);
        numbers(&alive)
    }

    /// Ends the program with its descendants; returns the pids that could not be ended.
    pub(super) async fn end(&mut self) -> Vec<u32> {
        let left = tree::end(self.wanted(), self.shared.grace, &self.shared.clock).await;
        self.shared.now_knows(self.owner, &left);
        if left.iter().all(|one| *one != self.root) {
            // It has ended, so this only reaps it; the exit status has no meaning any more.
            let _ = self.child.wait().await;
        }
        numbers(&left)
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        let Some((mut child, awaited)) = self.child.0.take() else {
            return;
        };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let wanted = self.wanted();
        let shared = Arc::clone(&self.shared);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tree::end(wanted, shared.grace, &shared.clock).await;
                    let _ = child.wait().await;
                    drop(awaited);
                });
            }
            // Without a runtime the daemon cannot wait for the end, so it kills the process group.
            Err(_) => {
                let pid = i32::try_from(self.root.pid).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
            }
        }
    }
}

impl ProcessesInner {
    pub(super) fn lock(&self) -> MutexGuard<'_, KnownProcesses> {
        // The sets are consistent even after a panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True once a program was started since the boot.
    pub(super) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::SeqCst)
    }

    pub(super) fn knows(
        &self,
        owner: ProcessOwner,
        alive: impl IntoIterator<Item = ProcessIdentity>,
    ) {
        let mut known = self.lock();
        let own = match owner {
            ProcessOwner::Step(run, step) => known.runs.entry(run).or_default().entry(step),
            ProcessOwner::Service(id) | ProcessOwner::Call(CallId(id)) => {
                known.services.entry(id).or_default().extend(alive);
                return;
            }
        };
        own.or_default().extend(alive);
    }

    /// Replaces the known processes of `owner` by `alive`. A run that has ended is not added again.
    pub(super) fn now_knows(&self, owner: ProcessOwner, alive: &[ProcessIdentity]) {
        let mut known = self.lock();
        let own: HashSet<ProcessIdentity> = alive.iter().copied().collect();
        match owner {
            ProcessOwner::Step(run, step) => {
                if let Some(steps) = known.runs.get_mut(&run) {
                    match own.is_empty() {
                        true => steps.remove(&step),
                        false => steps.insert(step, own),
                    };
                }
            }
            ProcessOwner::Service(id) | ProcessOwner::Call(CallId(id)) => {
                match own.is_empty() {
                    true => known.services.remove(&id),
                    false => known.services.insert(id, own),
                };
            }
        }
    }
}

pub(super) fn numbers(processes: &[ProcessIdentity]) -> Vec<u32> {
    let mut numbers: Vec<u32> = processes.iter().map(|one| one.pid).collect();
    numbers.sort_unstable();
    numbers
}

pub(super) fn ending(status: ExitStatus) -> ExitReason {
    match status.code() {
        Some(code) => ExitReason::Exited(code),
        // A status without a code means that a signal ended it.
        None => ExitReason::Signal(status.signal().unwrap_or_default()),
    }
}

pub(super) fn refusal(file: &str, fault: &io::Error) -> String {
    match fault.kind() {
        io::ErrorKind::ArgumentListTooLong => format!(
            "{file} cannot be started: its arguments exceed the system limit; pass long \
             texts on standard input"
        ),
        _ => format!("{file} cannot be started: {fault}"),
    }
}

#[cfg(test)]
#[path = "running_tests.rs"]
mod tests;
