//! What a called run says is passed on to its caller's stream while it says it: gathered, so that
//! the event log does not grow by every word, or as it comes where that was asked for.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::contract::runner::TextSink;
use crate::kernel::delegation::PARTIAL_BYTES;
use crate::kernel::ids::RunId;
use crate::kernel::run::Run;
use crate::kernel::step::Step;
use crate::kernel::text::{prefix, storable};
use crate::registry::Inner;
use crate::store::Command;

/// The most bytes of one piece; the answer itself has the rest.
const MOST: usize = 32 * 1024;

/// Passes on what one step of a called run says.
pub(super) struct Passing {
    inner: Arc<Inner>,
    run: RunId,
    step: u32,
    attempt: u32,
    pause: Duration,
    said: Arc<Said>,
}

/// What was said and is not passed on yet.
struct Said {
    /// Whoever else listens.
    also: Arc<dyn TextSink>,
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    /// So many bytes were passed on before.
    offset: usize,
    text: String,
}

impl Passing {
    /// For a step of a called run whose words are to be shown; `sink` hears them too.
    pub(super) fn of(
        inner: &Arc<Inner>,
        run: &Run,
        step: &Step,
        sink: &Arc<dyn TextSink>,
    ) -> Option<Self> {
        let stream = run.delegated.as_ref()?.stream?;
        let pause = stream.pause_ms().filter(|_| step.kind.answers())?;
        Some(Passing {
            inner: Arc::clone(inner),
            run: run.id,
            step: step.seq,
            attempt: step.attempts,
            pause: Duration::from_millis(pause),
            said: Arc::new(Said {
                also: Arc::clone(sink),
                waiting: Mutex::default(),
                news: Notify::new(),
            }),
        })
    }

    /// Where the words go.
    pub(super) fn sink(&self) -> Arc<dyn TextSink> {
        Arc::clone(&self.said) as Arc<dyn TextSink>
    }

    /// Carries `work` out and passes on what it says meanwhile; all of it, once it is done.
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
        let command = Command::NotePartial {
            run: self.run,
            step: self.step,
            attempt: self.attempt,
            offset,
            text,
        };
        if let Err(fault) = self.inner.store.submit_patiently(command).await {
            // The answer itself will have it.
            tracing::debug!(run = %self.run, %fault, "a piece of an answer was not passed on");
        }
    }
}

impl Said {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whole at every moment, also where somebody panicked.
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

impl TextSink for Said {
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
        *self.waiting() = Waiting::default();
    }
}
