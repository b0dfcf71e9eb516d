//! Forwards the text of a called run to its caller's stream while the run produces it: aggregated,
//! to limit the size of the event log, or piece by piece in pass-through mode.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::command::NotePartial;
use crate::contract::runner::TextSink;
use crate::kernel::delegation::PARTIAL_BYTES;
use crate::kernel::ids::RunId;
use crate::kernel::run::Run;
use crate::kernel::run::step::Step;
use crate::kernel::text::{prefix, storable};
use crate::registry::RegistryInner;

/// Maximum bytes of one piece; the rest of a longer piece is only in the final answer.
const MOST: usize = 32 * 1024;

/// Forwards the text of one step of a called run.
pub(super) struct Forwarder {
    inner: Arc<RegistryInner>,
    run: RunId,
    step: u32,
    attempt: u32,
    pause: Duration,
    said: Arc<ForwardBuffer>,
}

/// Text that was produced but not forwarded yet.
struct ForwardBuffer {
    /// The next sink, which gets every piece unchanged.
    also: Arc<dyn TextSink>,
    waiting: Mutex<PendingText>,
    news: Notify,
}

#[derive(Default)]
struct PendingText {
    /// Count of bytes forwarded before `text`.
    offset: usize,
    text: String,
}

impl Forwarder {
    /// Creates a forwarder if the step belongs to a called run whose stream setting asks for it;
    /// `sink` gets the text as well.
    pub(super) fn of(
        inner: &Arc<RegistryInner>,
        run: &Run,
        step: &Step,
        sink: &Arc<dyn TextSink>,
    ) -> Option<Self> {
        let stream = run.delegated.as_ref()?.stream?;
        let pause = stream.pause_ms().filter(|_| step.kind.answers())?;
        Some(Forwarder {
            inner: Arc::clone(inner),
            run: run.id,
            step: step.seq,
            attempt: step.attempts,
            pause: Duration::from_millis(pause),
            said: Arc::new(ForwardBuffer {
                also: Arc::clone(sink),
                waiting: Mutex::default(),
                news: Notify::new(),
            }),
        })
    }

    /// The sink that the step writes to.
    pub(super) fn sink(&self) -> Arc<dyn TextSink> {
        Arc::clone(&self.said) as Arc<dyn TextSink>
    }

    /// Runs `work` and forwards its text meanwhile; forwards the remainder when it is done.
    pub(super) async fn along<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            never = self.pass_on() => match never {},
        };
        self.pass().await;
        done
    }

    async fn pass_on(&self) -> Infallible {
        let mut next = Duration::ZERO;
        loop {
            self.said.news.notified().await;
            while self.said.bytes() < PARTIAL_BYTES {
                tokio::select! {
                    () = tokio::time::sleep(next.saturating_sub(self.now())) => break,
                    () = self.said.news.notified() => {}
                }
            }
            self.pass().await;
            next = self.now() + self.pause;
        }
    }

    fn now(&self) -> Duration {
        self.inner.clock.monotonic()
    }

    async fn pass(&self) {
        let Some((offset, text)) = self.said.take() else {
            return;
        };
        let command = NotePartial {
            run: self.run,
            step: self.step,
            attempt: self.attempt,
            offset,
            text,
        };
        if let Err(fault) = self.inner.store.submit_waiting(command).await {
            // The final answer contains the text.
            tracing::debug!(run = %self.run, %fault, "a partial answer was not forwarded");
        }
    }
}

impl ForwardBuffer {
    fn waiting(&self) -> MutexGuard<'_, PendingText> {
        // The buffer is consistent at every moment, so a poisoned lock is safe to use.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> usize {
        self.waiting().text.len()
    }

    fn take(&self) -> Option<(usize, String)> {
        let mut waiting = self.waiting();
        if waiting.text.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut waiting.text);
        let offset = waiting.offset;
        waiting.offset += whole.len();
        Some((offset, prefix(&whole, MOST).to_owned()))
    }
}

impl TextSink for ForwardBuffer {
    fn text(&self, piece: &str) {
        self.also.text(piece);
        self.waiting().text.push_str(&storable(piece));
        self.news.notify_one();
    }

    fn thinking(&self, piece: &str) {
        self.also.thinking(piece);
    }

    fn reset(&self) {
        self.also.reset();
        *self.waiting() = PendingText::default();
    }
}
