//! Streaming answers. Nothing here is stored: the text of each running model call is kept once, and
//! each listener keeps its offset into it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::filter::{EventAttributes, EventFilter};
use crate::contract::runner::TextSink;
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::Run;
use crate::kernel::run::step::{Step, StepKind, StepState};
use crate::kernel::text;

/// Maximum bytes of one answer that are streamed; the rest arrives with the stored message.
const MOST_TEXT: usize = 256 * 1024;
/// Maximum number of answers queued for a listener that does not read; the oldest are dropped.
const MOST_WAITING: usize = 32;

/// All streaming answers and their listeners.
#[derive(Default)]
pub struct Partials {
    state: Mutex<PartialsState>,
}

#[derive(Default)]
struct PartialsState {
    coming: Vec<Arc<Partial>>,
    listeners: Vec<Weak<TextSubscriber>>,
}

/// A streaming answer.
pub(in crate::registry) struct Partial {
    run: RunId,
    message: MessageId,
    org: String,
    session: String,
    parent: Option<RunId>,
    root: RunId,
    trace: String,
    /// An earlier attempt had streamed text, which listeners must discard.
    again: bool,
    spoken: Mutex<StreamedText>,
    listeners: Mutex<Vec<Weak<TextSubscriber>>>,
}

#[derive(Default)]
struct StreamedText {
    text: String,
    /// The model's thinking before the text, for clients that show it.
    thinking: String,
    /// Number of times the answer restarted.
    resets: u32,
    is_full: bool,
    is_over: bool,
}

/// A subscriber that wants streaming text.
struct TextSubscriber {
    org: String,
    filter: EventFilter,
    waiting: Mutex<Vec<TextPosition>>,
    wake: Notify,
}

/// A listener's position in an answer.
struct TextPosition {
    partial: Arc<Partial>,
    begin: FirstDelivery,
    heard: usize,
    heard_thinking: usize,
    /// The restart count that the offsets belong to.
    resets: u32,
}

/// What a listener receives before the first piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstDelivery {
    /// Nothing: the answer starts now.
    Fresh,
    /// A reset: text of an earlier attempt is void.
    Again,
    /// The text so far: the listener subscribed during the answer.
    Midway,
    /// Already delivered.
    Told,
}

/// A streaming event of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEvent {
    /// The run that answers.
    pub run: RunId,
    /// The id that the message will have once it is stored.
    pub message: MessageId,
    /// The tenant.
    pub org: String,
    /// Key of the session in which the run answers.
    pub session: String,
    /// The trace that the run belongs to.
    pub trace: String,
    /// The update.
    pub what: TextUpdate,
}

/// An update of a streaming answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextUpdate {
    /// All text so far; it replaces what the client received before.
    Partial(String),
    /// More text, at this byte offset.
    Delta(usize, String),
    /// More thinking text, at this byte offset of the thinking.
    Thinking(usize, String),
    /// The answer starts over; the client must discard what it received of it.
    Reset,
}

impl Partials {
    /// Starts streaming this step's answer; it ends when the returned handle is dropped.
    pub(in crate::registry) fn begin(self: &Arc<Self>, run: &Run, step: &Step) -> PartialGuard {
        let partial = Arc::new(Partial {
            run: run.id,
            message: MessageId::answer_of(step.id),
            org: run.org.clone(),
            session: run.session_key.to_string(),
            parent: run.parent_run,
            root: run.root_run,
            trace: run.trace_id.clone(),
            // A program's answer is followed again after a pause of its run.
            again: step.attempts > 1
                || (step.kind == StepKind::Command && step.state == StepState::Started),
            spoken: Mutex::default(),
            listeners: Mutex::default(),
        });
        let begin = match partial.again {
            true => FirstDelivery::Again,
            false => FirstDelivery::Fresh,
        };
        let mut state = lock(&self.state);
        for listener in state.listeners.iter().filter_map(Weak::upgrade) {
            listener.hears(&partial, begin);
        }
        state.coming.push(Arc::clone(&partial));
        PartialGuard {
            all: Arc::clone(self),
            partial,
        }
    }

    /// Registers a listener; it also receives unfinished answers, from their beginning.
    pub(super) fn listen(&self, org: &str, filter: &EventFilter) -> TextListener {
        let listener = Arc::new(TextSubscriber {
            org: org.to_owned(),
            filter: filter.clone(),
            waiting: Mutex::default(),
            wake: Notify::new(),
        });
        let mut state = lock(&self.state);
        for partial in &state.coming {
            listener.hears(partial, FirstDelivery::Midway);
        }
        remember(&mut state.listeners, &listener);
        TextListener {
            listener,
            hearing: Vec::new(),
        }
    }
}

/// Handle that keeps an answer in the list of streaming answers.
pub(in crate::registry) struct PartialGuard {
    all: Arc<Partials>,
    partial: Arc<Partial>,
}

impl PartialGuard {
    /// The sink that the answer's text is written to.
    pub(in crate::registry) fn sink(&self) -> Arc<dyn TextSink> {
        Arc::clone(&self.partial) as Arc<dyn TextSink>
    }
}

impl Drop for PartialGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.all.state);
        state
            .coming
            .retain(|other| !Arc::ptr_eq(other, &self.partial));
        drop(state);
        lock(&self.partial.spoken).is_over = true;
        self.partial.wake();
    }
}

impl Partial {
    fn wake(&self) {
        for listener in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            listener.wake.notify_one();
        }
    }

    fn event(&self, what: TextUpdate) -> TextEvent {
        TextEvent {
            run: self.run,
            message: self.message,
            org: self.org.clone(),
            session: self.session.clone(),
            trace: self.trace.clone(),
            what,
        }
    }
}

impl TextSink for Partial {
    fn text(&self, piece: &str) {
        let piece = text::storable(piece);
        let mut spoken = lock(&self.spoken);
        // After a dropped piece the offsets of later ones would be wrong, so those are dropped too.
        spoken.is_full |= spoken.size() + piece.len() > MOST_TEXT;
        if spoken.is_full {
            return;
        }
        spoken.text.push_str(&piece);
        drop(spoken);
        self.wake();
    }

    fn thinking(&self, piece: &str) {
        let piece = text::storable(piece);
        let mut spoken = lock(&self.spoken);
        if spoken.is_full || spoken.size() + piece.len() > MOST_TEXT {
            return;
        }
        spoken.thinking.push_str(&piece);
        drop(spoken);
        self.wake();
    }

    fn reset(&self) {
        let mut spoken = lock(&self.spoken);
        let resets = spoken.resets + 1;
        *spoken = StreamedText {
            resets,
            ..StreamedText::default()
        };
        drop(spoken);
        self.wake();
    }
}

impl StreamedText {
    fn size(&self) -> usize {
        self.text.len() + self.thinking.len()
    }
}

impl TextSubscriber {
    fn hears(self: &Arc<Self>, partial: &Arc<Partial>, begin: FirstDelivery) {
        let place = EventAttributes {
            org: &partial.org,
            session: Some(&partial.session),
            run: Some(partial.run),
            parent: partial.parent,
            root: Some(partial.root),
        };
        if !self.filter.covers(&self.org, &place) {
            return;
        }
        remember(&mut lock(&partial.listeners), self);
        let mut waiting = lock(&self.waiting);
        if waiting.len() == MOST_WAITING {
            waiting.remove(0);
        }
        waiting.push(TextPosition {
            partial: Arc::clone(partial),
            begin,
            heard: 0,
            heard_thinking: 0,
            resets: 0,
        });
        drop(waiting);
        self.wake.notify_one();
    }
}

/// Adds a listener and removes dropped ones, so the list is bounded by live listeners.
fn remember(listeners: &mut Vec<Weak<TextSubscriber>>, listener: &Arc<TextSubscriber>) {
    listeners.retain(|other| other.strong_count() > 0);
    listeners.push(Arc::downgrade(listener));
}

/// The reading side of a listener, owned by a subscription.
pub(super) struct TextListener {
    listener: Arc<TextSubscriber>,
    hearing: Vec<TextPosition>,
}

impl TextListener {
    /// Returns when there may be new text.
    pub(super) async fn woken(&self) {
        self.listener.wake.notified().await;
    }

    /// The updates since the last call.
    pub(super) fn take(&mut self) -> Vec<TextEvent> {
        self.hearing.append(&mut lock(&self.listener.waiting));
        let mut told = Vec::new();
        self.hearing.retain_mut(|hearing| hearing.tell(&mut told));
        told
    }
}

impl TextPosition {
    /// Appends the new updates; `false` once the whole answer was delivered.
    fn tell(&mut self, told: &mut Vec<TextEvent>) -> bool {
        let spoken = lock(&self.partial.spoken);
        match std::mem::replace(&mut self.begin, FirstDelivery::Told) {
            FirstDelivery::Midway => {
                self.heard = spoken.text.len();
                self.heard_thinking = spoken.thinking.len();
                self.resets = spoken.resets;
                told.push(self.partial.event(TextUpdate::Partial(spoken.text.clone())));
            }
            FirstDelivery::Again => told.push(self.partial.event(TextUpdate::Reset)),
            FirstDelivery::Fresh | FirstDelivery::Told => {}
        }
        if self.resets != spoken.resets {
            // A client that received nothing has nothing to discard.
            if self.heard + self.heard_thinking > 0 {
                told.push(self.partial.event(TextUpdate::Reset));
            }
            (self.heard, self.heard_thinking) = (0, 0);
            self.resets = spoken.resets;
        }
        let thought = &spoken.thinking[self.heard_thinking..];
        if !thought.is_empty() {
            let thinking = TextUpdate::Thinking(self.heard_thinking, thought.to_owned());
            told.push(self.partial.event(thinking));
            self.heard_thinking = spoken.thinking.len();
        }
        // Pieces are whole characters, so the offset is a character boundary.
        let news = &spoken.text[self.heard..];
        if !news.is_empty() {
            let delta = TextUpdate::Delta(self.heard, news.to_owned());
            told.push(self.partial.event(delta));
            self.heard = spoken.text.len();
        }
        !spoken.is_over
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent at every moment, so a poisoned lock is safe to use.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial() -> Partial {
        let id = uuid::Uuid::from_u128(1);
        Partial {
            run: RunId(id),
            message: MessageId(id),
            org: "a".to_owned(),
            session: "s".to_owned(),
            parent: None,
            root: RunId(id),
            trace: String::new(),
            again: false,
            spoken: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    fn coming(all: &Arc<Partials>) -> PartialGuard {
        let partial = Arc::new(partial());
        let mut state = lock(&all.state);
        for listener in state.listeners.iter().filter_map(Weak::upgrade) {
            listener.hears(&partial, FirstDelivery::Fresh);
        }
        state.coming.push(Arc::clone(&partial));
        PartialGuard {
            all: Arc::clone(all),
            partial,
        }
    }

    fn said(ear: &mut TextListener) -> Vec<TextUpdate> {
        ear.take().into_iter().map(|event| event.what).collect()
    }

    #[test]
    fn pieces_are_told_together_and_the_rest_after_the_end() {
        let all = Arc::new(Partials::default());
        let mut ear = all.listen("a", &EventFilter::default());
        let mut stranger = all.listen("b", &EventFilter::default());
        let answer = coming(&all);
        answer.sink().text("grü");
        answer.sink().text("n");
        assert_eq!(said(&mut ear), [TextUpdate::Delta(0, "grün".to_owned())]);
        assert_eq!(said(&mut ear), []);
        let mut late = all.listen("a", &EventFilter::default());
        answer.sink().text("er");
        drop(answer);
        assert_eq!(said(&mut ear), [TextUpdate::Delta(5, "er".to_owned())]);
        assert_eq!(said(&mut late), [TextUpdate::Partial("grüner".to_owned())]);
        assert_eq!(said(&mut stranger), [], "another tenant's");
        assert!(ear.hearing.is_empty() && late.hearing.is_empty());
        assert!(lock(&all.state).coming.is_empty());
    }

    #[test]
    fn g11_3_what_was_heard_of_a_broken_answer_is_taken_back() {
        let all = Arc::new(Partials::default());
        let mut ear = all.listen("a", &EventFilter::default());
        let mut deaf = all.listen("a", &EventFilter::default());
        let answer = coming(&all);
        answer.sink().thinking("hm");
        answer.sink().text("half an ans");
        let half = TextUpdate::Delta(0, "half an ans".to_owned());
        assert_eq!(
            said(&mut ear),
            [TextUpdate::Thinking(0, "hm".to_owned()), half]
        );
        answer.sink().reset();
        answer.sink().text("whole");
        let whole = TextUpdate::Delta(0, "whole".to_owned());
        assert_eq!(said(&mut ear), [TextUpdate::Reset, whole.clone()]);
        assert_eq!(said(&mut deaf), [whole], "it had heard nothing");
        let mut late = all.listen("a", &EventFilter::default());
        assert_eq!(said(&mut late), [TextUpdate::Partial("whole".to_owned())]);
    }

    #[test]
    fn g9_1_what_is_kept_of_answers_and_listeners_is_bounded() {
        let all = Arc::new(Partials::default());
        let mut deaf = all.listen("a", &EventFilter::default());
        for _ in 0..3 * MOST_WAITING {
            coming(&all).sink().text("x");
        }
        assert_eq!(lock(&deaf.listener.waiting).len(), MOST_WAITING);
        assert_eq!(said(&mut deaf).len(), MOST_WAITING);

        let answer = coming(&all);
        let piece = "ä".repeat(1000);
        for _ in 0..1000 {
            answer.sink().text(&piece);
        }
        let kept = lock(&answer.partial.spoken).text.len();
        assert!(kept <= MOST_TEXT && kept > MOST_TEXT - 2 * piece.len());
        for _ in 0..1000 {
            drop(all.listen("a", &EventFilter::default()));
        }
        assert!(lock(&all.state).listeners.len() <= 2);
        assert!(lock(&answer.partial.listeners).len() <= 2);
    }
}
