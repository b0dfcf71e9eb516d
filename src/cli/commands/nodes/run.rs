//! `abide nodes run`: a program on a node, with live output and its exit code.

use std::io::{Write, stderr, stdout};

use clap::Args;
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::signals::ExitSignals;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::clock::Clock;
use crate::kernel::ids::CallId;
use crate::kernel::node::{
    CallEnd, FailureReason, NodeCall, OUTPUT_LIMIT, OutputStream, RunCall, RunEnd,
};
use crate::wire::nodes::{CallNode, NodeCallEnded, NodeOutputPart};

/// Exit code if it is unknown what the program has done.
const UNCERTAIN: u8 = 7;

#[derive(Debug, Args)]
pub(crate) struct NodeRunArgs {
    /// Name of the node
    node: String,

    /// Working folder on the node [default: the node's own]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// Variable of the program; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Time limit of the program
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: std::time::Duration,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "ARGV")]
    argv: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a variable is NAME=VALUE".to_owned()),
    }
}

/// How much of each stream was printed.
#[derive(Default)]
struct Printed {
    stdout: u64,
    stderr: u64,
}

impl NodeRunArgs {
    pub(crate) async fn run(self, link: DaemonLink, common: &Common) -> Result<u8, Failure> {
        let mut signals = ExitSignals::new()?;
        let request = CallNode {
            node: self.node,
            id: Some(CallId(Clock::system().new_id())),
            call: NodeCall::Run(RunCall {
                argv: self.argv,
                cwd: self.cwd,
                env: self.env.into_iter().collect(),
                timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
                keep: OUTPUT_LIMIT,
            }),
            follow: !common.json,
        };
        let mut printed = Printed::default();
        let running = follow(link, &request, &mut printed, common);
        let raw = tokio::select! {
            raw = running => raw?,
            // The connection ends with this process, which cancels the call.
            code = interrupted(&mut signals) => return Ok(code),
        };
        let ended: NodeCallEnded = link::read(&raw)?;
        if common.json {
            print::object(&raw)?;
        }
        match ended.end {
            CallEnd::Done { value } => {
                let end: RunEnd = link::read(&value)?;
                if !common.json {
                    rest(&end, &printed)?;
                }
                Ok(code(&end))
            }
            CallEnd::Failed { reason, message } => {
                let code = match reason {
                    FailureReason::NotFound => exit::NOT_FOUND,
                    FailureReason::Denied => exit::REFUSED,
                    _ => exit::FAILED,
                };
                Err(Failure::new(
                    code,
                    "not_run",
                    format!("{}: {message}", ended.node),
                ))
            }
            CallEnd::Uncertain { message } => Err(Failure::new(UNCERTAIN, "uncertain", message)
                .hint("look on the machine before you run it again")),
        }
    }
}

/// Waits for a signal that ends the command.
async fn interrupted(signals: &mut ExitSignals) -> u8 {
    loop {
        if let Some(code) = signals.next().await {
            return code;
        }
    }
}

/// Makes the call and prints its output as it arrives. After a lost connection the call is made
/// again with its id: it continues.
async fn follow(
    mut link: DaemonLink,
    request: &CallNode,
    printed: &mut Printed,
    common: &Common,
) -> Result<Value, Failure> {
    loop {
        match attempt(&link, request, printed).await {
            Err(lost) if link::is_broken(&lost) => {
                link = link::reconnect(&common.place, lost, print::note).await?;
            }
            answer => return answer,
        }
    }
}

async fn attempt(
    link: &DaemonLink,
    request: &CallNode,
    printed: &mut Printed,
) -> Result<Value, Failure> {
    let mut output = link.node_output().await?;
    let mut calling = std::pin::pin!(link.raw(request));
    loop {
        tokio::select! {
            biased;
            Some(part) = output.next() => show(part, request.id, printed)?,
            answer = &mut calling => {
                // What arrived before the answer.
                while let Some(part) = output.ready() {
                    show(part, request.id, printed)?;
                }
                return answer;
            }
        }
    }
}

fn show(part: NodeOutputPart, id: Option<CallId>, printed: &mut Printed) -> Result<(), Failure> {
    if Some(part.id) != id {
        return Ok(());
    }
    let bytes = part.text.as_bytes();
    let written = match part.stream {
        OutputStream::Stdout => {
            printed.stdout += bytes.len() as u64;
            let mut out = stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        OutputStream::Stderr => {
            printed.stderr += bytes.len() as u64;
            stderr().lock().write_all(bytes)
        }
    };
    written.map_err(|error| Failure::local("the output could not be written", error))
}

/// Prints the output of the result if nothing of it was printed live; says what is missing.
fn rest(end: &RunEnd, printed: &Printed) -> Result<(), Failure> {
    if printed.stdout == 0 && printed.stderr == 0 {
        let mut out = stdout().lock();
        out.write_all(end.stdout.as_bytes())
            .and_then(|()| out.flush())
            .and_then(|()| stderr().lock().write_all(end.stderr.as_bytes()))
            .map_err(|error| Failure::local("the output could not be written", error))?;
        if end.stdout_bytes > end.stdout.len() as u64 || end.stderr_bytes > end.stderr.len() as u64
        {
            print::note("parts of the output are left out");
        }
        return Ok(());
    }
    let all = end.stdout_bytes + end.stderr_bytes;
    if printed.stdout + printed.stderr < all {
        print::note("parts of the output were not shown; --json has its beginning and its end");
    }
    if let Some(why) = &end.stopped {
        print::note(&format!("the node ended the program: {why}"));
    }
    Ok(())
}

/// The exit code of the program, as shells give it.
fn code(end: &RunEnd) -> u8 {
    match (end.status, end.signal) {
        (Some(status), _) => u8::try_from(status & 0xff).unwrap_or(exit::FAILED),
        (None, Some(signal)) => u8::try_from(signal).map_or(u8::MAX, |signal| 128 + signal),
        (None, None) => exit::FAILED,
    }
}
