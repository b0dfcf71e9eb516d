//! Tests with real programs: how they end, which processes they leave, and which output is kept.

use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::contract::processes::ProcessTracker as _;
use crate::kernel::policy::env::Environment;

/// Far longer than anything in these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit for programs that are to exceed it: long enough to start on a busy machine.
const TIME: Duration = Duration::from_secs(2);
/// Long enough that a process which sleeps this long can only be ended from outside.
const LONG: &str = "4000";

struct Stage {
    folder: tempfile::TempDir,
    processes: Processes,
    run: RunId,
    clock: Clock,
}

impl Stage {
    fn new() -> Stage {
        Stage::with_grace(Duration::from_millis(300))
    }

    fn with_grace(grace: Duration) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let options = ProcessOptions {
            state: folder.path().to_owned(),
            socket: Some("/somewhere/abide.sock".to_owned()),
            grace,
            max_output: 4 << 20,
            descriptors: None,
            keepers: None,
        };
        Stage {
            processes: Processes::new(options, clock.clone()),
            run: RunId(clock.new_id()),
            folder,
            clock,
        }
    }

    fn program(&self, line: &str) -> Program {
        Program {
            argv: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
            environment: Environment::base(std::env::vars_os(), &[]).with("LAYER", "yes"),
            folder: self.folder.path().to_owned(),
            input: ProgramInput::Nothing,
            time: Some(PATIENCE),
            keep: 64 * 1024,
            detach: true,
        }
    }

    async fn run(&self, program: Program) -> Finished {
        let step = StepId(self.clock.new_id());
        let finished = self
            .processes
            .run(ProgramStep::first(self.run, step), program, |_| {});
        finished.await.unwrap()
    }

    async fn line(&self, line: &str) -> Finished {
        self.run(self.program(line)).await
    }

    /// Runs `line` until its time limit and returns the pids that it printed, one a line.
    async fn time_over(&self, line: &str) -> (Finished, Vec<u32>) {
        let mut program = self.program(line);
        program.time = Some(TIME);
        let finished = self.run(program).await;
        assert_eq!(finished.ending, ExitReason::TimedOut);
        let pids = pids(&finished.stdout.text());
        (finished, pids)
    }

    /// Waits until the file ends with a newline; returns the pids in it.
    async fn pids_in(&self, name: &str) -> Vec<u32> {
        let file = self.folder.path().join(name);
        until(|| {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.ends_with('\n').then(|| pids(&text))
        })
        .await
    }
}

fn pids(text: &str) -> Vec<u32> {
    text.lines()
        .map(|line| line.trim().parse().unwrap())
        .collect()
}

fn is_alive(pid: u32) -> bool {
    table::one(pid).is_some_and(|row| !row.is_zombie)
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap()
}

/// Waits until none of these pids is a live process or our zombie. An orphan belongs to process 1,
/// which in a container may be any program and may never reap it.
async fn until_gone(pids: &[u32]) {
    let me = std::process::id();
    until(|| {
        pids.iter()
            .all(|pid| table::one(*pid).is_none_or(|row| row.is_zombie && row.parent != me))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_program_gets_its_environment_and_nothing_else() {
    let stage = Stage::new();
    let finished = stage
        .line("env; ls /proc/self/fd 2>/dev/null | wc -l >&2")
        .await;
    assert_eq!(finished.ending, ExitReason::Exited(0));
    let text = finished.stdout.text();
    for (name, _) in text.lines().filter_map(|line| line.split_once('=')) {
        let is_base = Environment::base([(name.into(), "".into())], &[])
            .get(name)
            .is_some();
        // Variables that a shell sets by itself.
        let is_shells = ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
        let is_own = [RUN, STEP, "ABIDE_STATE_DIR", "ABIDE_SOCKET", "LAYER"].contains(&name);
        assert!(is_base || is_shells || is_own, "{name}");
    }
    assert!(text.contains(&format!("{RUN}={}\n", stage.run)), "{text}");
    assert!(
        text.contains("ABIDE_SOCKET=/somewhere/abide.sock\n"),
        "{text}"
    );
}

const RUN: &str = "ABIDE_RUN_ID";
const STEP: &str = "ABIDE_STEP_ID";

#[tokio::test]
async fn status_signal_streams_and_input_are_told() {
    let stage = Stage::new();
    let finished = stage.line("echo out; echo err >&2; exit 3").await;
    assert_eq!(finished.ending, ExitReason::Exited(3));
    assert_eq!(finished.stdout.text(), "out\n");
    assert_eq!(finished.stderr.text(), "err\n");
    assert_eq!(stage.line("kill -9 $$").await.ending, ExitReason::Signal(9));
    assert_eq!(stage.line("cat").await.stdout.text(), "");

    let mut program = stage.program("cat");
    // More than a pipe holds, so writing and reading must be interleaved.
    let text = "0123456789abcdef".repeat(16 * 1024);
    program.input = ProgramInput::Text(text.clone());
    program.keep = 1 << 20;
    assert_eq!(stage.run(program).await.stdout.text(), text);
    // A program need not read its input.
    let mut program = stage.program("exit 0");
    program.input = ProgramInput::Text(text);
    assert_eq!(stage.run(program).await.ending, ExitReason::Exited(0));
}

#[tokio::test]
async fn arguments_are_no_line_for_a_shell() {
    let stage = Stage::new();
    let mut program = stage.program("");
    program.argv = ["echo", "$HOME; `id`", "a  b", "*"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(
        stage.run(program).await.stdout.text(),
        "$HOME; `id` a  b *\n"
    );
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let stage = Stage::new();
    let step = StepId(stage.clock.new_id());
    let refused = |argv: Vec<String>, folder: &Path| {
        let mut program = stage.program("");
        program.argv = argv;
        program.folder = folder.to_owned();
        let step = ProgramStep::first(stage.run, step);
        let started = stage.processes.run(step, program, |_| {});
        async {
            match started.await.unwrap_err() {
                ProgramFault::NotStarted(why) => why,
                lost => panic!("{lost:?}"),
            }
        }
    };
    let here = stage.folder.path();
    let why = refused(vec!["no-such-program".to_owned()], here).await;
    assert!(why.contains("no-such-program"), "{why}");
    let why = refused(vec!["true".to_owned()], &here.join("gone")).await;
    assert!(why.contains("gone"), "{why}");
    let long = "x".repeat(4 << 20);
    let why = refused(vec!["true".to_owned(), long], here).await;
    assert!(why.contains("standard input"), "{why}");
}

#[tokio::test]
async fn g13_1_a_time_limit_ends_the_whole_tree_and_returns_within_two_seconds() {
    let stage = Stage::new();
    // A child, a grandchild, one in its own group, and one in its own session.
    let line = format!(
        "sh -c 'echo $$; sleep {LONG} & echo $!; wait' & echo $!; \
         setsid sh -c 'echo $$; exec sleep {LONG}' & sleep {LONG}"
    );
    let (finished, pids) = stage.time_over(&line).await;
    assert_eq!(pids.len(), 4, "{pids:?}");
    assert_eq!(finished.remaining, [0; 0]);
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{pids:?}");
}

#[tokio::test]
async fn g13_1_what_ignores_the_request_to_end_is_forced() {
    let stage = Stage::new();
    let line = format!("trap '' TERM; echo $$; while :; do sleep {LONG}; done");
    let (finished, pids) = stage.time_over(&line).await;
    assert_eq!(finished.remaining, [0; 0]);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn what_takes_the_request_to_end_has_time_to_clean_up() {
    let stage = Stage::with_grace(PATIENCE);
    let line = format!("trap 'echo 1; exit 0' TERM; sleep {LONG} & wait");
    let (finished, said) = stage.time_over(&line).await;
    assert_eq!(said, [1]);
    assert_eq!(finished.remaining, [0; 0]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn g13_4_what_left_group_and_parents_is_found_by_its_marks() {
    let stage = Stage::new();
    // Its parent has ended and it has its own session, all before the time limit.
    let line = format!("(setsid sh -c 'echo $$ > orphan; exec sleep {LONG}' &) ; sleep {LONG}");
    let mut program = stage.program(&line);
    program.time = Some(TIME);
    let running = stage.run(program);
    let (finished, orphan) = tokio::join!(running, stage.pids_in("orphan"));
    assert_eq!(finished.ending, ExitReason::TimedOut);
    assert_eq!(finished.remaining, [0; 0]);
    assert!(!is_alive(orphan[0]));
}

#[tokio::test]
async fn g13_1_dropping_the_call_ends_the_whole_tree() {
    let stage = Stage::new();
    let line = format!("sleep {LONG} & echo $$ > pids; echo $! >> pids; wait");
    let step = StepId(stage.clock.new_id());
    let processes = stage.processes.clone();
    let (run, program) = (stage.run, stage.program(&line));
    let step = ProgramStep::first(run, step);
    let call = tokio::spawn(async move { processes.run(step, program, |_| {}).await });
    let pids = until(|| {
        let text = std::fs::read_to_string(stage.folder.path().join("pids")).ok()?;
        (text.lines().count() == 2 && text.ends_with('\n')).then(|| pids(&text))
    })
    .await;
    call.abort();
    // Not even a zombie is left.
    until_gone(&pids).await;
}

#[tokio::test]
async fn g13_2_a_call_returns_when_its_own_process_ends_although_others_hold_the_pipes() {
    let stage = Stage::new();
    let line = format!("echo before; (sleep 0.1; sleep {LONG}) & echo $! > pids; echo after");
    let finished = stage.line(&line).await;
    assert_eq!(finished.ending, ExitReason::Exited(0));
    assert_eq!(finished.stdout.text(), "before\nafter\n");
    let pids = stage.pids_in("pids").await;
    assert!(
        finished.remaining.contains(&pids[0]),
        "{:?}",
        finished.remaining
    );
    assert!(is_alive(pids[0]), "it goes on until its run ends");
    assert_eq!(stage.processes.end_run(stage.run).await, [0; 0]);
    assert!(finished.remaining.iter().all(|pid| !is_alive(*pid)));
    // A second call has nothing to end.
    assert_eq!(stage.processes.end_run(stage.run).await, [0; 0]);
}

#[tokio::test]
async fn what_is_left_of_a_program_that_is_not_detached_ends_with_it() {
    let stage = Stage::new();
    let mut program = stage.program(&format!("setsid sleep {LONG} & echo $!"));
    program.detach = false;
    let finished = stage.run(program).await;
    assert_eq!(finished.ending, ExitReason::Exited(0));
    assert_eq!(finished.remaining, [0; 0]);
    assert!(!is_alive(pids(&finished.stdout.text())[0]));
}

#[tokio::test]
async fn g13_2_what_goes_on_is_not_stopped_by_a_pipe_that_nobody_reads() {
    let stage = Stage::new();
    // Far more than a pipe holds, written after the call has returned.
    let line = "(while [ ! -e go ]; do sleep 0.01; done; head -c 1000000 /dev/zero; \
                echo 1 > written; sleep 4000) & true";
    assert_eq!(stage.line(line).await.ending, ExitReason::Exited(0));
    std::fs::write(stage.folder.path().join("go"), "").unwrap();
    assert_eq!(stage.pids_in("written").await, [1]);
    assert_eq!(stage.processes.end_run(stage.run).await, [0; 0]);
}

#[tokio::test]
async fn g13_3_output_without_end_is_bounded_and_its_program_ended() {
    let stage = Stage::new();
    let finished = stage.line("yes 0123456789").await;
    assert_eq!(finished.ending, ExitReason::OutputLimit(4 << 20));
    assert_eq!(finished.remaining, [0; 0]);
    let text = finished.stdout.text();
    assert!(text.len() < 65 * 1024, "{}", text.len());
    assert!(text.starts_with("0123456789\n"));
    assert!(text.contains("bytes left out"), "{}", &text[..100]);
    // It was stopped in the middle of its output.
    assert!(text.ends_with('…'), "{}", &text[text.len() - 20..]);
}

#[tokio::test]
async fn g13_3_all_of_a_short_output_is_there_whenever_its_program_ends() {
    let stage = Stage::new();
    for _ in 0..20 {
        let finished = stage
            .line("head -c 60000 /dev/zero | tr '\\0' x; echo; echo end")
            .await;
        assert_eq!(finished.stdout.total(), 60_005);
        assert!(finished.stdout.text().ends_with("x\nend\n"));
    }
}

#[tokio::test]
async fn g13_6_when_a_run_ends_its_commands_are_ended_and_those_of_others_are_not() {
    let stage = Stage::new();
    let other = Stage {
        run: RunId(stage.clock.new_id()),
        processes: stage.processes.clone(),
        clock: stage.clock.clone(),
        folder: tempfile::tempdir().unwrap(),
    };
    let line = format!("setsid sleep {LONG} & echo $! > pids");
    stage.line(&line).await;
    other.line(&line).await;
    let (mine, theirs) = (stage.pids_in("pids").await, other.pids_in("pids").await);
    assert_eq!(stage.processes.end_run(stage.run).await, [0; 0]);
    assert!(!is_alive(mine[0]) && is_alive(theirs[0]));
    assert_eq!(stage.processes.end_all().await, [0; 0]);
    assert!(!is_alive(theirs[0]));
}

#[tokio::test]
async fn one_step_is_ended_without_the_others_of_its_run() {
    let stage = Stage::new();
    let background = format!("setsid sleep {LONG} & echo $! > pids");
    stage.line(&background).await;
    let pids = stage.pids_in("pids").await;
    let (finished, _) = stage.time_over(&format!("echo $$; sleep {LONG}")).await;
    assert_eq!(finished.remaining, [0; 0]);
    assert!(is_alive(pids[0]));
    stage.processes.end_run(stage.run).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_an_earlier_life_has_left_is_known_by_its_marks() {
    let stage = Stage::new();
    stage
        .line(&format!("setsid sleep {LONG} & echo $! > pids"))
        .await;
    let pids = stage.pids_in("pids").await;
    let life = |state: &Path| {
        let options = ProcessOptions {
            state: state.to_owned(),
            socket: None,
            grace: Duration::ZERO,
            max_output: 1,
            descriptors: None,
            keepers: None,
        };
        Processes::new(options, stage.clock.clone())
    };
    // A daemon with another state folder, then a restarted daemon with this one.
    assert_eq!(
        life(Path::new("/elsewhere"))
            .end_leftovers(HashSet::new())
            .await,
        [0; 0]
    );
    assert!(is_alive(pids[0]));
    assert_eq!(
        life(stage.folder.path())
            .end_leftovers(HashSet::new())
            .await,
        pids
    );
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn g13_5_no_zombie_is_left() {
    let stage = Stage::new();
    let step = || StepId(Uuid::from_u128(7));
    for _ in 0..5 {
        let finished = stage.processes.run(
            ProgramStep::first(stage.run, step()),
            stage.program("true"),
            |_| {},
        );
        finished.await.unwrap();
    }
    let (_, pids) = stage.time_over(&format!("echo $$; sleep {LONG}")).await;
    until_gone(&pids).await;
}
