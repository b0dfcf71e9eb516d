//! The calls to one node that wait for its answer.
//!
//! Nothing of a call is stored here: the node's own journal answers for a call's id until the
//! gateway releases it. So a call whose frame or answer was lost is sent again with the same id.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::orphans::Orphans;
use super::outbox::Outbox;
use crate::contract::nodes::{NodeEnd, NodeOutput, StepOfCall};
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, NodeCall, Offer, OutputStream, RunQuestion};
use crate::wire::node_link::ToNode;

/// A call that has not begun on the node after this time is refused there.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);
/// Time for the answer of a node, beyond that of its program.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of calls in progress per node.
const CALLS_LIMIT: usize = 64;
/// Maximum number of calls per node that were cancelled and have not ended there.
const CANCELLED_LIMIT: usize = 256;
/// Maximum number of released calls per node that it is told again when it names them.
const RELEASES_LIMIT: usize = 4096;
/// A client that names its call can repeat it for this long after its end.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Maximum number of ended calls per node that are kept for this; the oldest is released.
const KEPT_LIMIT: usize = 64;
/// Maximum number of open questions per node.
const QUESTIONS_LIMIT: usize = 64;

/// The calls to one node.
#[derive(Default)]
pub(super) struct Calls {
    pending: HashMap<CallId, PendingCall>,
    /// What the node asks the operator, also about calls without a caller.
    questions: BTreeMap<CallId, RunQuestion>,
    /// Calls that the node knows and that have no caller.
    orphans: Orphans,
    /// Calls that were released while the node was away.
    releases: HashSet<CallId>,
    /// Calls that are released then, oldest first.
    kept: VecDeque<(CallId, Duration)>,
    waiters: u64,
}

/// A call that has no answer yet.
struct PendingCall {
    call: NodeCall,
    begin_by: Duration,
    is_sent: bool,
    /// Its callers have gone: it is cancelled, and its result is released.
    is_cancelled: bool,
    /// The node's answer is overdue then; unset while it asks the operator.
    answer_by: Option<Duration>,
    waiters: Vec<Waiter>,
}

/// A caller that waits for the end of a call.
struct Waiter {
    number: u64,
    answer: oneshot::Sender<NodeEnd>,
    output: Arc<dyn NodeOutput>,
}

/// What a caller of a call gets.
pub(super) struct Ticket {
    /// Identifies the caller among those of the call.
    pub(super) number: u64,
    /// The end of the call.
    pub(super) end: oneshot::Receiver<NodeEnd>,
}

impl Calls {
    /// Adds a caller to the call, which is new or in progress; the reply says whether it is new.
    pub(super) fn join(
        &mut self,
        id: CallId,
        call: NodeCall,
        output: Arc<dyn NodeOutput>,
        now: Duration,
    ) -> Result<Ticket, String> {
        let wanted = self.pending.values().filter(|call| !call.is_cancelled);
        let is_full = wanted.count() >= CALLS_LIMIT;
        let (answer, end) = oneshot::channel();
        self.waiters += 1;
        let waiter = Waiter {
            number: self.waiters,
            answer,
            output,
        };
        match self.pending.get_mut(&id) {
            Some(pending) if pending.call != call => {
                return Err(format!("call {id} is another one, which is in progress"));
            }
            Some(pending) if pending.is_cancelled => {
                return Err(format!("call {id} was cancelled and has not ended yet"));
            }
            Some(pending) => pending.waiters.push(waiter),
            None if is_full => {
                return Err(format!(
                    "{CALLS_LIMIT} calls to it are in progress, which is the limit"
                ));
            }
            None => {
                let pending = PendingCall {
                    call,
                    begin_by: now + BEGIN_WITHIN,
                    is_sent: false,
                    is_cancelled: false,
                    answer_by: None,
                    waiters: vec![waiter],
                };
                self.orphans.remove(id);
                self.pending.insert(id, pending);
            }
        }
        Ok(Ticket {
            number: self.waiters,
            end,
        })
    }

    /// Sends the call, unless it was sent.
    pub(super) fn send(&mut self, id: CallId, outbox: &Outbox, now: Duration) {
        if let Some(pending) = self.pending.get_mut(&id)
            && !pending.is_sent
        {
            pending.send(id, outbox, now);
        }
    }

    /// A link is open: what is wanted is sent again, what is not is cancelled or released. `known`
    /// are the calls that the node knows. Calls that may no longer be made and were not sent end.
    pub(super) fn resume(
        &mut self,
        known: &HashSet<CallId>,
        callable: &Offer,
        outbox: &Outbox,
        now: Duration,
    ) {
        self.questions.clear();
        let releases = std::mem::take(&mut self.releases);
        for id in known {
            if releases.contains(id) {
                self.end_released(*id, outbox);
            } else if !self.pending.contains_key(id)
                && !self.kept.iter().any(|(kept, _)| kept == id)
            {
                self.orphans.add(*id, now);
            }
        }
        self.orphans.keep_known(known);
        self.pending.retain(|id, pending| {
            if pending.is_cancelled {
                outbox.push(&ToNode::Cancel { id: *id });
                return known.contains(id);
            }
            if !pending.is_sent
                && let Err(why) = may_call(&pending.call, callable)
            {
                pending.end(NodeEnd::NotSent(why));
                return false;
            }
            pending.send(*id, outbox, now);
            true
        });
    }

    /// The node has answered. Results without a caller stay with the node, except those of
    /// cancelled calls.
    pub(super) fn answered(&mut self, id: CallId, end: CallEnd, outbox: &Outbox, now: Duration) {
        self.questions.remove(&id);
        match self.pending.remove(&id) {
            Some(pending) if pending.is_cancelled => outbox.push(&ToNode::Release { id }),
            Some(mut pending) => pending.end(NodeEnd::Answered(end)),
            None if self.releases.remove(&id) => outbox.push(&ToNode::Release { id }),
            None => {
                self.orphans.add(id, now);
                if let CallEnd::Uncertain { .. } = end {
                    self.orphans.note_uncertain(id);
                }
            }
        }
    }

    /// A part of a program's output.
    pub(super) fn output(&self, id: CallId, stream: OutputStream, text: &str) {
        let waiters = self.pending.get(&id).map(|pending| &pending.waiters);
        for waiter in waiters.into_iter().flatten() {
            waiter.output.piece(stream, text);
        }
    }

    /// The node asks the operator about a call; returns whether that is new. Too many questions are
    /// not shown; their calls end at their deadlines.
    pub(super) fn asks(&mut self, id: CallId, question: RunQuestion) -> bool {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.answer_by = None;
        }
        let is_known = self.questions.get(&id) == Some(&question);
        if is_known || self.questions.len() >= QUESTIONS_LIMIT {
            return false;
        }
        self.questions.insert(id, question);
        true
    }

    /// The open questions.
    pub(super) fn questions(&self) -> &BTreeMap<CallId, RunQuestion> {
        &self.questions
    }

    /// The operator has answered this question.
    pub(super) fn decided(&mut self, id: CallId, now: Duration) {
        self.questions.remove(&id);
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.answer_by = Some(now + pending.time());
        }
    }

    /// The number of calls in progress.
    pub(super) fn count(&self) -> usize {
        self.pending
            .values()
            .filter(|one| !one.is_cancelled)
            .count()
    }

    /// A caller has gone. The call is cancelled if it was the last one, unless `is_stopping`: then
    /// it continues on the node, for the next process of the daemon.
    pub(super) fn leave(
        &mut self,
        id: CallId,
        number: u64,
        outbox: Option<&Outbox>,
        is_stopping: bool,
    ) {
        let cancelled = self.pending.values().filter(|one| one.is_cancelled).count();
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        pending.waiters.retain(|waiter| waiter.number != number);
        if !pending.waiters.is_empty() || pending.is_cancelled {
            return;
        }
        if !pending.is_sent || is_stopping || cancelled >= CANCELLED_LIMIT {
            self.pending.remove(&id);
            return;
        }
        pending.is_cancelled = true;
        if let Some(outbox) = outbox {
            outbox.push(&ToNode::Cancel { id });
        }
    }

    /// The end of a call that can wait no longer: its node is away, or has not answered in time.
    pub(super) fn overdue(
        &mut self,
        id: CallId,
        name: &str,
        is_away: bool,
        outbox: Option<&Outbox>,
        now: Duration,
    ) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        if is_away {
            let end = match pending.is_sent {
                true => NodeEnd::Away(format!(
                    "node {name} was lost after it got the call; what the call has done is unknown"
                )),
                false => NodeEnd::NotSent(format!("node {name} is away; nothing was sent")),
            };
            pending.end(end);
            self.pending.remove(&id);
        } else if pending.answer_by.is_some_and(|by| now >= by) {
            pending.end(NodeEnd::Away(format!(
                "node {name} is connected and has not answered in time; what the call has done is \
                 unknown"
            )));
            pending.is_cancelled = true;
            if let Some(outbox) = outbox {
                outbox.push(&ToNode::Cancel { id });
            }
        }
    }

    /// The caller has stored the end of the call.
    pub(super) fn release(&mut self, id: CallId, outbox: Option<&Outbox>) {
        let is_orphan = self.orphans.remove(id);
        match outbox {
            Some(outbox) if is_orphan => self.end_released(id, outbox),
            Some(outbox) => outbox.push(&ToNode::Release { id }),
            None if self.releases.len() < RELEASES_LIMIT => {
                self.releases.insert(id);
            }
            // The node names the call again when it connects.
            None => {}
        }
    }

    /// Releases a call that may still run: it is cancelled, and released again once it has ended.
    fn end_released(&mut self, id: CallId, outbox: &Outbox) {
        outbox.push(&ToNode::Cancel { id });
        outbox.push(&ToNode::Release { id });
        if self.releases.len() < RELEASES_LIMIT {
            self.releases.insert(id);
        }
    }

    /// As [`Calls::release`], after a while: until then a client that has lost the answer gets it
    /// again with the same id.
    pub(super) fn release_later(&mut self, id: CallId, outbox: Option<&Outbox>, now: Duration) {
        self.kept.retain(|(kept, _)| *kept != id);
        self.kept.push_back((id, now + KEPT_FOR));
        if self.kept.len() > KEPT_LIMIT
            && let Some((oldest, _)) = self.kept.pop_front()
        {
            self.release(oldest, outbox);
        }
    }

    /// Ends calls that the node has kept for too long without a caller.
    pub(super) fn sweep(&mut self, outbox: &Outbox, now: Duration) {
        while let Some((id, _)) = self
            .kept
            .front()
            .copied()
            .filter(|(_, until)| now >= *until)
        {
            self.kept.pop_front();
            self.release(id, Some(outbox));
        }
        for id in self.orphans.take_old(now) {
            outbox.push(&ToNode::Cancel { id });
            outbox.push(&ToNode::Release { id });
        }
    }

    /// Calls without a caller that may belong to steps of runs.
    pub(super) fn maybe_of_steps(&self) -> Vec<CallId> {
        self.orphans.maybe_of_steps()
    }

    /// Ends those of the `asked` calls without a caller for which no step will ask: recovery has ended
    /// its run, for example. Those of steps are in `steps`.
    pub(super) fn end_unwanted(
        &mut self,
        asked: &[CallId],
        steps: &HashMap<CallId, StepOfCall>,
        outbox: &Outbox,
    ) {
        for id in self.orphans.identified(asked, steps) {
            self.release(id, Some(outbox));
        }
    }

    /// The node was removed: nothing more comes of its calls.
    pub(super) fn removed(&mut self, name: &str) {
        for (_, mut pending) in self.pending.drain() {
            let end = match pending.is_sent {
                true => NodeEnd::Answered(CallEnd::Uncertain {
                    message: format!(
                        "node {name} was removed while it carried out the call; what the call has \
                         done is unknown"
                    ),
                }),
                false => NodeEnd::NotSent(format!("node {name} was removed; nothing was sent")),
            };
            pending.end(end);
        }
        *self = Calls::default();
    }
}

impl PendingCall {
    /// How long the node may take once the call may begin.
    fn time(&self) -> Duration {
        let program = match &self.call {
            NodeCall::Run(run) => Duration::from_millis(run.timeout_ms),
            _ => Duration::ZERO,
        };
        BEGIN_WITHIN
            .saturating_add(program)
            .saturating_add(ANSWER_WITHIN)
    }

    fn send(&mut self, id: CallId, outbox: &Outbox, now: Duration) {
        self.is_sent = true;
        if self.answer_by.is_none() {
            self.answer_by = Some(now.saturating_add(self.time()));
        }
        let left = self.begin_by.saturating_sub(now);
        outbox.push(&ToNode::Call {
            id,
            begin_within_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            call: self.call.clone(),
        });
    }

    fn end(&mut self, end: NodeEnd) {
        for waiter in self.waiters.drain(..) {
            // A caller that has gone needs no answer.
            let _ = waiter.answer.send(end.clone());
        }
    }
}

/// Whether this may be called of what is callable; the text says why not.
pub(super) fn may_call(call: &NodeCall, callable: &Offer) -> Result<(), String> {
    let command = call.command();
    if !callable.commands.contains(&command) {
        return Err(format!(
            "{command} may not be called there; nothing was sent"
        ));
    }
    let (NodeCall::List { path } | NodeCall::Read { path, .. }) = call else {
        return Ok(());
    };
    // The node checks the path as its file system has it; this is what was approved.
    let is_plain = !path.split('/').any(|part| part == "..");
    let mut roots = callable.roots.iter();
    match is_plain && roots.any(|root| std::path::Path::new(path).starts_with(root)) {
        true => Ok(()),
        false => Err(format!(
            "{path} is below none of its approved folders; nothing was sent"
        )),
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
