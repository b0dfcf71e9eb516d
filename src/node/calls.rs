//! All calls of one gateway: accepts them from the link, carries out each once, and keeps every
//! result until the gateway has stored it.
//!
//! Only programs have effects, so only they are in the journal, and from the moment on at which
//! they begin. A call that has not begun when the node ends is forgotten, and the gateway sends it
//! again. Calls go on while the link is down.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::NodeError;
use super::folder::GatewayFolder;
use super::journal::{FoundCall, Journal};
use super::question::AskOperator;
use crate::clock::Clock;
use crate::failpoint::reach;
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, FailureReason, NodeCall, RunQuestion};
use crate::kernel::time::Timestamp;
use crate::process::Processes;
use crate::wire::node_link::FromNode;

/// Maximum number of calls that wait, are asked about or run.
const OPEN_LIMIT: usize = 256;
/// Maximum number of reads at the same time.
const READS: usize = 8;
/// How long ending programs are waited for when the node stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The calls of one gateway. Cheap to clone.
#[derive(Clone)]
pub(super) struct NodeCalls(Arc<CallsInner>);

pub(super) struct CallsInner {
    pub(super) folder: GatewayFolder,
    pub(super) processes: Processes,
    pub(super) journal: Arc<Journal>,
    pub(super) operator: Option<Arc<dyn AskOperator>>,
    pub(super) clock: Clock,
    /// Places of programs.
    pub(super) places: Arc<Semaphore>,
    pub(super) stopping: CancellationToken,
    /// Places of calls without effects.
    pub(super) reads: Semaphore,
    tasks: TaskTracker,
    state: Mutex<CallsState>,
}

#[derive(Default)]
struct CallsState {
    calls: HashMap<CallId, KnownCall>,
    link: Option<mpsc::Sender<FromNode>>,
    /// Since when there is no link.
    lost_since: Option<Duration>,
}

/// A call that the gateway has not released.
struct KnownCall {
    phase: CallPhase,
    cancel: CancellationToken,
    /// The answer of the gateway's operator to the question about it.
    answer: watch::Sender<Option<bool>>,
}

/// How far a call has come.
#[derive(Clone, Debug)]
pub(super) enum CallPhase {
    /// It has not begun.
    Waiting,
    /// The gateway's operator is asked about it.
    Asking(RunQuestion),
    /// Its effect has begun.
    Running,
    /// Its result is in the journal, or here if the journal could not be written.
    Ended(Option<CallEnd>),
}

impl KnownCall {
    fn new(phase: CallPhase) -> KnownCall {
        KnownCall {
            phase,
            cancel: CancellationToken::new(),
            answer: watch::Sender::new(None),
        }
    }
}

impl NodeCalls {
    /// Opens the journal of a gateway. What a previous process left running is ended before this
    /// returns, and its calls have a result.
    pub(super) async fn open(
        folder: GatewayFolder,
        processes: Processes,
        operator: Option<Arc<dyn AskOperator>>,
        clock: Clock,
    ) -> Result<NodeCalls, NodeError> {
        let settings = folder.settings()?;
        let (journal, found) = Journal::open(folder.calls(), clock.now())?;
        let calls = CallsInner {
            journal: Arc::new(journal),
            places: Arc::new(Semaphore::new(settings.programs)),
            reads: Semaphore::new(READS),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            state: Mutex::default(),
            folder,
            processes,
            operator,
            clock,
        };
        for call in found {
            calls.take_over(call).await;
        }
        Ok(NodeCalls(Arc::new(calls)))
    }

    /// The ids of the calls whose effect has begun and that the gateway has not released.
    pub(super) fn begun(&self) -> Vec<CallId> {
        let state = self.0.state();
        let calls = state.calls.iter();
        let begun = calls
            .filter(|(_, call)| matches!(call.phase, CallPhase::Running | CallPhase::Ended(_)));
        let mut begun: Vec<CallId> = begun.map(|(id, _)| *id).collect();
        begun.sort_unstable();
        begun
    }

    /// The link is open: results that were not released and open questions are sent over it.
    pub(super) async fn attach(&self, link: mpsc::Sender<FromNode>) {
        let open: Vec<CallId> = {
            let mut state = self.0.state();
            state.link = Some(link);
            state.lost_since = None;
            state.calls.keys().copied().collect()
        };
        for id in open {
            self.0.tell_state(id, false).await;
        }
    }

    /// The link is lost.
    pub(super) fn detach(&self) {
        let now = self.0.clock.monotonic();
        let mut state = self.0.state();
        state.link = None;
        state.lost_since.get_or_insert(now);
    }

    /// Takes a call from the link. A call that is known is not carried out again.
    pub(super) async fn accept(&self, id: CallId, begin_within: Duration, call: NodeCall) {
        let known = {
            let mut state = self.0.state();
            let open = state
                .calls
                .values()
                .filter(|call| !matches!(call.phase, CallPhase::Ended(_)));
            let is_full = open.count() >= OPEN_LIMIT || !self.0.journal.has_room();
            match state.calls.contains_key(&id) {
                true => Ok(true),
                false if is_full => Err(()),
                false => {
                    state.calls.insert(id, KnownCall::new(CallPhase::Waiting));
                    Ok(false)
                }
            }
        };
        match known {
            Ok(true) => self.0.tell_state(id, true).await,
            Ok(false) => {
                reach("node.call.received");
                self.0.tell(FromNode::Accepted { id }).await;
                let calls = Arc::clone(&self.0);
                self.0.tasks.spawn(calls.carry_out(id, begin_within, call));
            }
            Err(()) => {
                let end = CallEnd::Failed {
                    reason: FailureReason::Busy,
                    message: "the node has no room for another call; nothing was run".to_owned(),
                };
                self.0.tell(FromNode::Result { id, end }).await;
            }
        }
    }

    /// Stops a call. Its result follows.
    pub(super) async fn cancel(&self, id: CallId) {
        let cancel = self
            .0
            .state()
            .calls
            .get(&id)
            .map(|call| call.cancel.clone());
        match cancel {
            Some(cancel) => cancel.cancel(),
            // It did not arrive, or the node was started anew since: it has had no effect.
            None => {
                let end = CallEnd::Failed {
                    reason: FailureReason::Cancelled,
                    message: "the node does not have this call; nothing was run".to_owned(),
                };
                self.0.tell(FromNode::Result { id, end }).await;
            }
        }
    }

    /// The gateway's operator has answered the question with this digest.
    pub(super) fn answer(&self, id: CallId, digest: &str, allow: bool) {
        let state = self.0.state();
        match state.calls.get(&id) {
            Some(KnownCall {
                phase: CallPhase::Asking(question),
                answer,
                ..
            }) if question.digest == digest => {
                answer.send_replace(Some(allow));
            }
            _ => {
                tracing::warn!(call = %id, "an answer from the gateway is ignored: it is for no open question")
            }
        }
    }

    /// The gateway has stored the result.
    pub(super) async fn release(&self, id: CallId) {
        {
            let mut state = self.0.state();
            match state.calls.get(&id).map(|call| &call.phase) {
                Some(CallPhase::Ended(_)) => state.calls.remove(&id),
                Some(_) => {
                    tracing::warn!(call = %id, "the gateway has released a call that has not ended; it is kept");
                    return;
                }
                None => return,
            };
        }
        // A failure is logged there.
        let _ = self
            .0
            .journaled(id, move |journal, _| {
                journal.forget(id);
                Ok(())
            })
            .await;
        reach("node.call.released");
    }

    /// Ends all programs; their results are stored, and sent if the link is open.
    pub(super) async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.0.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!("not all programs of the gateway's calls have ended in time");
        }
    }
}

impl CallsInner {
    /// A call of a previous process of this node.
    async fn take_over(&self, found: FoundCall) {
        let FoundCall {
            id,
            program,
            has_ended,
        } = found;
        let mut phase = CallPhase::Ended(None);
        if !has_ended {
            let left = self.processes.end_call(id, program).await;
            let rest = match left.is_empty() {
                true => "what was left of the program was ended".to_owned(),
                false => format!("processes {left:?} could not be ended"),
            };
            let end = CallEnd::Uncertain {
                message: format!(
                    "the node ended while the program ran, so it is unknown how far it came; {rest}"
                ),
            };
            tracing::warn!(call = %id, "a program was interrupted by the end of the node: {rest}");
            if let Err(fault) = self.journal.end(id, &end) {
                tracing::error!(%fault, call = %id, "the result of a call could not be stored");
                phase = CallPhase::Ended(Some(end));
            }
            reach("node.call.recovered");
        }
        self.state().calls.insert(id, KnownCall::new(phase));
    }

    /// Carries out a call and sends its result.
    async fn carry_out(self: Arc<Self>, id: CallId, begin_within: Duration, call: NodeCall) {
        let Some(cancel) = self.state().calls.get(&id).map(|call| call.cancel.clone()) else {
            return;
        };
        let end = match call {
            NodeCall::Run(call) => {
                let run = self.run(id, call, begin_within, &cancel);
                tokio::select! {
                    end = run => end,
                    // Before it begins; a program that runs ends by itself then.
                    () = self.stopped_before_begin(id) => return,
                }
            }
            look => tokio::select! {
                end = self.look(look, begin_within) => end,
                () = cancel.cancelled() => CallEnd::Failed {
                    reason: FailureReason::Cancelled,
                    message: "the call was cancelled".to_owned(),
                },
                () = self.stopping.cancelled() => return,
            },
        };
        let is_kept = matches!(
            self.phase(id),
            Some(CallPhase::Running | CallPhase::Ended(_))
        );
        if is_kept {
            let mut state = self.state();
            if let Some(known) = state.calls.get_mut(&id)
                && !matches!(known.phase, CallPhase::Ended(_))
            {
                known.phase = CallPhase::Ended(None);
            }
        } else {
            // It has had no effect, so a repetition may try it again.
            self.drop_call(id);
        }
        self.tell(FromNode::Result { id, end }).await;
        reach("node.call.answered");
    }

    /// Ready when the node stops and the call has not begun by then.
    async fn stopped_before_begin(&self, id: CallId) {
        self.stopping.cancelled().await;
        if matches!(
            self.phase(id),
            Some(CallPhase::Running | CallPhase::Ended(_))
        ) {
            std::future::pending::<()>().await;
        }
    }

    /// Writes to the journal on a thread of its own, since a disk may be slow.
    pub(super) async fn journaled(
        &self,
        id: CallId,
        write: impl FnOnce(&Journal, Timestamp) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (journal, now) = (Arc::clone(&self.journal), self.clock.now());
        let written = tokio::task::spawn_blocking(move || write(&journal, now)).await;
        written.unwrap_or_else(|fault| {
            tracing::error!(%fault, call = %id, "writing to the journal has failed");
            Err(io::Error::other(fault))
        })
    }

    /// Sends the state of a call; `all`: also where it has merely been accepted.
    async fn tell_state(&self, id: CallId, all: bool) {
        let frame = match self.phase(id) {
            Some(CallPhase::Waiting | CallPhase::Running) if all => FromNode::Accepted { id },
            Some(CallPhase::Asking(question)) => FromNode::Ask { id, question },
            Some(CallPhase::Ended(Some(end))) => FromNode::Result { id, end },
            Some(CallPhase::Ended(None)) => FromNode::Result {
                id,
                end: self.stored(id).await,
            },
            _ => return,
        };
        self.tell(frame).await;
    }

    /// The stored result of a call.
    async fn stored(&self, id: CallId) -> CallEnd {
        let journal = Arc::clone(&self.journal);
        let read = tokio::task::spawn_blocking(move || journal.result(id)).await;
        let why = match read {
            Ok(Ok(Some(end))) => return end,
            Ok(Ok(None)) => "it is not there".to_owned(),
            Ok(Err(fault)) => fault.to_string(),
            Err(fault) => fault.to_string(),
        };
        tracing::error!(call = %id, why, "the result of a call cannot be read");
        CallEnd::Uncertain {
            message: format!("the program has ended, and the node cannot read its result: {why}"),
        }
    }

    /// Sends a frame, waiting for room. Without a link it is dropped: the state of each call is
    /// sent again when there is one.
    pub(super) async fn tell(&self, frame: FromNode) {
        let link = self.state().link.clone();
        if let Some(link) = link {
            let _ = link.send(frame).await;
        }
    }

    /// Sends a frame if there is room.
    pub(super) fn offer_output(&self, frame: FromNode) {
        if let Some(link) = &self.state().link {
            let _ = link.try_send(frame);
        }
    }

    /// True if there has been no link for this long.
    pub(super) fn is_link_lost_for(&self, time: Duration) -> bool {
        let now = self.clock.monotonic();
        let since = self.state().lost_since;
        since.is_some_and(|since| now.saturating_sub(since) >= time)
    }

    /// Receives the answer to the question about a call.
    pub(super) fn answers(&self, id: CallId) -> Option<watch::Receiver<Option<bool>>> {
        let state = self.state();
        state.calls.get(&id).map(|call| call.answer.subscribe())
    }

    pub(super) fn set_phase(&self, id: CallId, phase: CallPhase) {
        if let Some(call) = self.state().calls.get_mut(&id) {
            call.phase = phase;
        }
    }

    /// Keeps a result that could not be stored.
    pub(super) fn keep_in_memory(&self, id: CallId, end: CallEnd) {
        self.set_phase(id, CallPhase::Ended(Some(end)));
    }

    fn drop_call(&self, id: CallId) {
        self.state().calls.remove(&id);
    }

    fn phase(&self, id: CallId) -> Option<CallPhase> {
        self.state().calls.get(&id).map(|call| call.phase.clone())
    }

    fn state(&self) -> MutexGuard<'_, CallsState> {
        // Each change is one assignment, insertion or removal.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
