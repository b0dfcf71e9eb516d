//! `system.run`: one program from the decision of the allow-list to its result.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::allow::{AllowList, AllowSubject, AskPlace};
use super::calls::{CallPhase, CallsInner};
use super::files::encoded;
use super::live::{INTERVAL, LiveOutput};
use super::program::{CallFailure, ReadyProgram};
use super::question::{QUESTION_LIFETIME, TerminalAnswer};
use crate::failpoint::reach;
use crate::file_work::TOOLS;
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, FailureReason, OutputStream, RunCall, RunEnd, RunQuestion};
use crate::kernel::policy::gate::Decision;
use crate::process::{ExitReason, Finished, Program, ProgramInput};
use crate::wire::node_link::{FromNode, LOST};

/// Maximum size of both output streams of a result in JSON, in bytes.
const OUTPUT_ENCODED: usize = 800 * 1024;

/// What decides whether the call begins.
struct Judged {
    program: ReadyProgram,
    decision: Decision,
    why: String,
    ask: AskPlace,
}

impl CallsInner {
    /// Carries out a call of `system.run`.
    pub(super) async fn run(
        self: &Arc<Self>,
        id: CallId,
        call: RunCall,
        begin_within: Duration,
        cancel: &CancellationToken,
    ) -> CallEnd {
        match self.begin(id, call, begin_within, cancel).await {
            Ok(program) => self.execute(id, program, cancel).await,
            Err((reason, message)) => CallEnd::Failed { reason, message },
        }
    }

    /// The call may begin once this returns, and its place is taken.
    async fn begin(
        self: &Arc<Self>,
        id: CallId,
        call: RunCall,
        begin_within: Duration,
        cancel: &CancellationToken,
    ) -> Result<Placed, CallFailure> {
        let since = self.clock.monotonic();
        let late = || {
            let message = "the node had no place for it in time; nothing was run".to_owned();
            Err((FailureReason::Late, message))
        };
        let mut judged = self.judge(&call).await?;
        let mut asked = Duration::ZERO;
        if judged.decision == Decision::Ask {
            let question = judged.program.question();
            let from = self.clock.monotonic();
            self.ask(id, &judged, question.clone(), cancel).await?;
            asked = self.clock.monotonic().saturating_sub(from);
            // What was approved is what runs: the program may be another file by now.
            judged = self.judge(&call).await?;
            if judged.program.question().digest != question.digest
                || judged.decision == Decision::Deny
            {
                let message = "the program or its folder has changed since it was approved; nothing \
                               was run";
                return Err((FailureReason::Denied, message.to_owned()));
            }
        }
        let left = begin_within.saturating_sub(
            self.clock
                .monotonic()
                .saturating_sub(since)
                .saturating_sub(asked),
        );
        let place = tokio::select! {
            place = tokio::time::timeout(left, Arc::clone(&self.places).acquire_owned()) => place,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let Ok(Ok(place)) = place else {
            return late();
        };
        if self.is_link_lost_for(LOST) {
            // The gateway has given it up by now.
            return late();
        }
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        Ok(Placed {
            program: judged.program,
            _place: place,
        })
    }

    async fn judge(&self, call: &RunCall) -> Result<Judged, CallFailure> {
        let (call, folder) = (call.clone(), self.folder.clone());
        let judged = TOOLS.run(move |_| {
            let settings = folder
                .settings()
                .map_err(|why| (FailureReason::Denied, why.to_string()))?;
            if !settings.run {
                let message = "this machine does not run programs for this gateway".to_owned();
                return Err((FailureReason::Denied, message));
            }
            let program = ReadyProgram::new(call, &settings)?;
            let list = AllowList::read(&folder.allow_file()).map_err(|why| {
                tracing::error!(%why, "the allow-list is not valid: every call is denied");
                let message = format!("the allow-list of the node is not valid: {why}");
                (FailureReason::Denied, message)
            })?;
            let verdict = list.judge(AllowSubject {
                argv: &program.argv,
                cwd: &program.folder,
                path: program.environment.get("PATH"),
            });
            if verdict.decision == Decision::Deny {
                let message = format!("the node denies this call: {}", verdict.why);
                return Err((FailureReason::Denied, message));
            }
            Ok(Judged {
                program,
                decision: verdict.decision,
                why: verdict.why,
                ask: list.ask,
            })
        });
        match judged.await {
            Ok(judged) => judged,
            Err(busy) => Err((FailureReason::Busy, busy.to_string())),
        }
    }

    /// The call is approved once this returns.
    async fn ask(
        self: &Arc<Self>,
        id: CallId,
        judged: &Judged,
        question: RunQuestion,
        cancel: &CancellationToken,
    ) -> Result<(), CallFailure> {
        let argv = &question.argv;
        tracing::info!(call = %id, ?argv, why = judged.why, "a person is asked about a call");
        let answered = async {
            if let (AskPlace::Here | AskPlace::Either, Some(operator)) =
                (judged.ask, &self.operator)
            {
                match operator.ask(&self.folder.name(), question.clone()).await {
                    TerminalAnswer::Allow => return Some(true),
                    TerminalAnswer::Deny => return Some(false),
                    TerminalAnswer::Gone => {}
                }
            }
            match judged.ask {
                AskPlace::Here => None,
                AskPlace::Gateway | AskPlace::Either => {
                    let mut answers = self.answers(id)?;
                    self.set_phase(id, CallPhase::Asking(question.clone()));
                    self.tell(FromNode::Ask {
                        id,
                        question: question.clone(),
                    })
                    .await;
                    let answer = answers.wait_for(Option::is_some).await.ok()?;
                    *answer
                }
            }
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(QUESTION_LIFETIME, answered) => answer,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let denied = |message: &str| Err((FailureReason::Denied, message.to_owned()));
        self.set_phase(id, CallPhase::Waiting);
        match answer {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => denied("the person who was asked has denied the call"),
            Ok(None) => {
                denied("the allow-list of the node asks at its terminal, and no person is there")
            }
            Err(_) => denied("no person has answered the question of the node in time"),
        }
    }

    /// Runs the program; its result is stored once this returns.
    async fn execute(
        self: &Arc<Self>,
        id: CallId,
        placed: Placed,
        cancel: &CancellationToken,
    ) -> CallEnd {
        let program = placed.program;
        // From here on the end of the node does not withdraw the call.
        self.set_phase(id, CallPhase::Running);
        let begun = self.journaled(id, {
            let name = program.program.display().to_string();
            move |journal, now| journal.begin(id, &name, now)
        });
        if let Err(fault) = begun.await {
            self.set_phase(id, CallPhase::Waiting);
            let message =
                format!("the journal of the node cannot be written ({fault}); nothing was run");
            return CallEnd::Failed {
                reason: FailureReason::Failed,
                message,
            };
        }
        reach("node.call.begun");
        tracing::info!(call = %id, program = %program.program.display(), "runs a program for the gateway");
        let since = self.clock.monotonic();
        let end = match self.started(id, program, cancel).await {
            Ok(finished) => {
                let ran = self.clock.monotonic().saturating_sub(since);
                let stopped = match () {
                    () if cancel.is_cancelled() => "cancelled",
                    () if self.stopping.is_cancelled() => "stopping",
                    () => "timeout",
                };
                done(&finished, ran, stopped)
            }
            Err(message) => CallEnd::Failed {
                reason: FailureReason::NotFound,
                message,
            },
        };
        reach("node.call.exited");
        let stored = self.journaled(id, {
            let end = end.clone();
            move |journal, _| journal.end(id, &end)
        });
        if let Err(fault) = stored.await {
            tracing::error!(%fault, call = %id, "the result of a call could not be stored; it is lost if this process ends");
            self.keep_in_memory(id, end.clone());
        }
        reach("node.call.ended");
        end
    }

    async fn started(
        self: &Arc<Self>,
        id: CallId,
        ready: ReadyProgram,
        cancel: &CancellationToken,
    ) -> Result<Finished, String> {
        let mut argv = ready.argv;
        // Exactly the file that was judged.
        if let Some(first) = argv.first_mut() {
            *first = ready.program.to_string_lossy().into_owned();
        }
        let program = Program {
            argv,
            environment: ready.environment,
            folder: ready.folder,
            input: ProgramInput::Nothing,
            time: Some(ready.time),
            keep: ready.keep,
            detach: false,
        };
        let live = Arc::new(LiveOutput::default());
        let sending = AbortOnDropHandle::new(tokio::spawn(
            Arc::clone(self).send_output(id, Arc::clone(&live)),
        ));
        let launched = |process| {
            if let Err(fault) = self.journal.launched(id, process) {
                tracing::warn!(%fault, call = %id, "the process of a call could not be noted");
            }
            reach("node.call.launched");
        };
        let heard = |stream: OutputStream, bytes: &[u8]| live.push(stream, bytes);
        let stop = async {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = self.stopping.cancelled() => {}
            }
        };
        let finished = self
            .processes
            .run_call(id, program, launched, heard, stop)
            .await;
        drop(sending);
        for (stream, text) in live.take(true) {
            self.offer_output(FromNode::Output { id, stream, text });
        }
        finished
    }

    async fn send_output(self: Arc<Self>, id: CallId, live: Arc<LiveOutput>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (stream, text) in live.take(false) {
                self.offer_output(FromNode::Output { id, stream, text });
            }
        }
    }
}

/// A program that may begin, with its place.
struct Placed {
    program: ReadyProgram,
    _place: tokio::sync::OwnedSemaphorePermit,
}

fn cancelled() -> CallFailure {
    let message = "the call was cancelled before it began; nothing was run".to_owned();
    (FailureReason::Cancelled, message)
}

/// The result of a program that has ended; `stopped` says why, if its time was over.
fn done(finished: &Finished, ran: Duration, stopped: &str) -> CallEnd {
    let (mut status, mut signal, mut reason) = (None, None, None);
    match finished.ending {
        ExitReason::Exited(code) => status = Some(code),
        ExitReason::Signal(number) => signal = Some(number),
        // Calls have no keeper that could end them.
        ExitReason::TimedOut | ExitReason::Stopped | ExitReason::Orphaned(_) => {
            reason = Some(stopped.to_owned());
        }
        ExitReason::OutputLimit(_) => reason = Some("output".to_owned()),
    }
    let end = RunEnd {
        status,
        signal,
        stopped: reason,
        stdout: fitting(finished.stdout.text()),
        stderr: fitting(finished.stderr.text()),
        stdout_bytes: finished.stdout.total(),
        stderr_bytes: finished.stderr.total(),
        ran_ms: u64::try_from(ran.as_millis()).unwrap_or(u64::MAX),
    };
    value(&end)
}

/// The end of a call with this result.
pub(super) fn value(result: &impl serde::Serialize) -> CallEnd {
    match serde_json::to_value(result) {
        Ok(value) => CallEnd::Done { value },
        Err(fault) => failed(&fault),
    }
}

fn failed(fault: &dyn Display) -> CallEnd {
    CallEnd::Failed {
        reason: FailureReason::Failed,
        message: fault.to_string(),
    }
}

/// The text, or its beginning and end if JSON makes it too long for a frame.
fn fitting(text: String) -> String {
    let half = OUTPUT_ENCODED / 4;
    if encoded(&text) <= 2 * half {
        return text;
    }
    let upto = |chars: &mut dyn Iterator<Item = char>| {
        let mut size = 0;
        chars
            .take_while(|c| {
                size += encoded(c.encode_utf8(&mut [0; 4]));
                size <= half
            })
            .map(char::len_utf8)
            .sum::<usize>()
    };
    let head = upto(&mut text.chars());
    let tail = upto(&mut text.chars().rev());
    let left = text.len() - head - tail;
    format!(
        "{}\n… {left} bytes left out …\n{}",
        &text[..head],
        &text[text.len() - tail..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_fits_into_a_frame_whatever_the_output() {
        assert_eq!(fitting("plain".to_owned()), "plain");
        for long in ["\u{1}".repeat(256 * 1024), "ä\u{1}".repeat(128 * 1024)] {
            let shown = fitting(long.clone());
            assert!(encoded(&shown) < OUTPUT_ENCODED / 2 + 100);
            assert!(shown.contains("bytes left out"));
            assert!(shown.starts_with(&long[..99]) && shown.ends_with(&long[long.len() - 3..]));
        }
    }
}
