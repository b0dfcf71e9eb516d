//! Tests the tool `shell` with real commands.

use std::fs;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::clock::Clock;
use crate::kernel::ids::{RunId, StepId};
use crate::process::ProcessOptions;

struct Stage {
    folder: tempfile::TempDir,
    shell: Shell,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("work/inner")).unwrap();
        let options = ProcessOptions {
            state: folder.path().join("state"),
            socket: None,
            grace: Duration::from_millis(200),
            max_output: 1 << 20,
            descriptors: None,
            keepers: None,
        };
        let shell = Shell {
            processes: Processes::new(options, Clock::system()),
            timeout: Duration::from_secs(60),
        };
        Stage { folder, shell }
    }

    async fn call(&self, arguments: Value) -> ToolOutput {
        let run = RunId(Uuid::from_u128(1));
        let step = ProgramStep::first(run, StepId(Clock::system().new_id()));
        let environment = Environment::base(std::env::vars_os(), &[]);
        let workspace = Workspace::open(&self.folder.path().join("work"), &[]).unwrap();
        let called = self.shell.call(step, workspace, environment, arguments);
        match called.await {
            Called::Done(output) => output.storable(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn status_and_both_streams_are_told() {
    let stage = Stage::new();
    let output = stage.call(json!({ "command": "echo a; echo b >&2" })).await;
    assert_eq!(
        output,
        ToolOutput::text("exit status 0\nstdout:\na\nstderr:\nb")
    );
    let output = stage.call(json!({ "command": "exit 7" })).await;
    assert_eq!(output, ToolOutput::error("exit status 7"));
    let output = stage.call(json!({ "command": "kill -TERM $$" })).await;
    assert_eq!(output, ToolOutput::error("ended by signal 15 (SIGTERM)"));
}

#[tokio::test]
async fn it_runs_in_the_workspace_and_its_folder_cannot_lie_outside() {
    let stage = Stage::new();
    let output = stage
        .call(json!({ "command": "pwd", "cwd": "inner" }))
        .await;
    assert!(output.text.ends_with("/work/inner"), "{}", output.text);
    for cwd in ["..", "/", "missing"] {
        let output = stage
            .call(json!({ "command": "touch ../made", "cwd": cwd }))
            .await;
        assert!(output.is_error, "{cwd}");
    }
    assert!(!stage.folder.path().join("made").exists());
}

#[tokio::test]
async fn g13_4_a_time_out_says_that_it_was_stopped_once_nothing_is_left() {
    let stage = Stage::new();
    let command = "echo before; sleep 4000 & sleep 4000";
    let output = stage
        .call(json!({ "command": command, "timeout": 2 }))
        .await;
    assert!(output.is_error);
    assert_eq!(
        output.text,
        "timeout: it had not ended after 2s; it was stopped with everything that it had \
         started\nstdout:\nbefore"
    );
}

#[tokio::test]
async fn what_goes_on_in_the_background_is_told() {
    let stage = Stage::new();
    let output = stage.call(json!({ "command": "sleep 4000 &" })).await;
    assert_eq!(output, ToolOutput::text("exit status 0"));
    let detached = json!({ "command": "sleep 4000 &", "detach": true });
    let output = stage.call(detached).await;
    assert!(!output.is_error);
    let told = "exit status 0; still running in the background: ";
    assert!(output.text.starts_with(told), "{}", output.text);
    use crate::contract::processes::ProcessTracker as _;
    let left = stage
        .shell
        .processes
        .end_run(RunId(Uuid::from_u128(1)))
        .await;
    assert_eq!(left, [0; 0]);
}

#[tokio::test]
async fn g13_3_a_long_output_keeps_its_ends_and_one_without_end_is_stopped() {
    let stage = Stage::new();
    let output = stage.call(json!({ "command": "seq 1 40000" })).await;
    assert!(output.text.len() <= super::super::OUTPUT_LIMIT);
    assert!(output.text.starts_with("exit status 0\nstdout:\n1\n2\n"));
    assert!(output.text.ends_with("\n40000"), "the end is kept");
    assert!(output.text.contains("bytes left out"));
    let output = stage.call(json!({ "command": "yes" })).await;
    assert!(output.is_error);
    let told = "too much output: it wrote more than 1048576 bytes; it was stopped";
    assert!(output.text.starts_with(told), "{}", &output.text[..100]);
}

#[tokio::test]
async fn arguments_that_do_not_fit_run_nothing() {
    let stage = Stage::new();
    for arguments in [
        json!({}),
        json!({ "command": "" }),
        json!({ "command": "touch made", "timeout": 0 }),
        json!({ "command": "touch made", "timeout": 3601 }),
        json!({ "command": "touch made\0" }),
        json!({ "command": "touch made", "env": {} }),
    ] {
        assert!(stage.call(arguments.clone()).await.is_error, "{arguments}");
    }
    assert!(!stage.folder.path().join("work/made").exists());
}
