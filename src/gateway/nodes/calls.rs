//! The calls to one node that wait for its answer.
//!
//! Nothing of a call is stored here: the node's own journal answers for a call's id until the
//! gateway releases it. So a call whose frame or answer was lost is sent again with the same id.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::contract::nodes::{NodeEnd, NodeOutput};
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
/// Maximum number of calls per node that it knows and that have no caller.
const ORPHANS_LIMIT: usize = 4096;
/// A call that no caller has asked for is released after this time. A restored run asks for its
/// call within this time.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);
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
    /// Calls that the node knows and that have no caller, by when they were first seen.
    orphans: HashMap<CallId, Duration>,
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
                self.orphans.remove(&id);
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
                && self.orphans.len() < ORPHANS_LIMIT
            {
                self.orphans.entry(*id).or_insert(now);
            }
        }
        self.orphans.retain(|id, _| known.contains(id));
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
            None if self.orphans.len() < ORPHANS_LIMIT => {
                self.orphans.entry(id).or_insert(now);
            }
            None => {}
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
        let is_orphan = self.orphans.remove(&id).is_some();
        match outbox {
            Some(outbox) if is_orphan => self.end_released(id, outbox),
            Some(outbox) => outbox.push(&ToNode::Release { id }),
            None if self.releases.len() < ORPHANS_LIMIT => {
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
        if self.releases.len() < ORPHANS_LIMIT {
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
        self.orphans.retain(|id, since| {
            let is_old = now.saturating_sub(*since) >= ORPHAN_AGE;
            if is_old {
                outbox.push(&ToNode::Cancel { id: *id });
                outbox.push(&ToNode::Release { id: *id });
            }
            !is_old
        });
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
mod tests {
    use super::*;
    use crate::gateway::nodes::outbox::NextFrame;
    use crate::kernel::node::{NodeCommand, RunCall};

    struct Silent;

    impl NodeOutput for Silent {
        fn piece(&self, _: OutputStream, _: &str) {}
    }

    fn id(number: u128) -> CallId {
        CallId(uuid::Uuid::from_u128(number))
    }

    fn run_call() -> NodeCall {
        NodeCall::Run(RunCall {
            argv: vec!["true".to_owned()],
            cwd: None,
            env: BTreeMap::new(),
            timeout_ms: 1000,
            keep: 10,
        })
    }

    fn callable() -> Offer {
        Offer {
            commands: [NodeCommand::Run].into(),
            ..Offer::default()
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn joined(calls: &mut Calls, number: u128, now: Duration) -> Ticket {
        let joined = calls.join(id(number), run_call(), Arc::new(Silent), now);
        joined.unwrap_or_else(|why| panic!("{why}"))
    }

    /// The types of the frames that wait, with the number of their call.
    fn frames(outbox: &Outbox) -> Vec<(String, u128)> {
        let mut frames = Vec::new();
        while let Some(NextFrame::Text(text)) = outbox.pop() {
            let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
            let id: CallId = frame["id"].as_str().unwrap().parse().unwrap();
            frames.push((frame["type"].as_str().unwrap().to_owned(), id.0.as_u128()));
        }
        frames
    }

    fn frame(kind: &str, number: u128) -> (String, u128) {
        (kind.to_owned(), number)
    }

    #[test]
    fn a_call_is_sent_once_for_all_its_callers_and_again_on_a_new_link() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let mut first = joined(&mut calls, 1, seconds(0));
        calls.send(id(1), &outbox, seconds(0));
        let mut second = joined(&mut calls, 1, seconds(1));
        calls.send(id(1), &outbox, seconds(1));
        assert_eq!(frames(&outbox), [frame("call", 1)]);
        let other = NodeCall::Describe {};
        let taken = calls.join(id(1), other, Arc::new(Silent), seconds(1));
        assert!(taken.is_err(), "another call has this id");
        let newer = Outbox::default();
        calls.resume(&HashSet::new(), &callable(), &newer, seconds(2));
        assert_eq!(frames(&newer), [frame("call", 1)]);
        let end = CallEnd::Uncertain {
            message: String::new(),
        };
        calls.answered(id(1), end.clone(), &newer, seconds(3));
        for ticket in [&mut first, &mut second] {
            assert_eq!(ticket.end.try_recv(), Ok(NodeEnd::Answered(end.clone())));
        }
        assert_eq!(frames(&newer), [], "released by its callers alone");
    }

    #[test]
    fn what_was_not_sent_may_not_be_sent_without_approval() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let mut ticket = joined(&mut calls, 1, seconds(0));
        calls.resume(&HashSet::new(), &Offer::default(), &outbox, seconds(1));
        assert!(matches!(ticket.end.try_recv(), Ok(NodeEnd::NotSent(_))));
        assert_eq!(frames(&outbox), []);
    }

    #[test]
    fn the_last_caller_that_leaves_cancels_unless_the_daemon_stops() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let (first, second) = (
            joined(&mut calls, 1, seconds(0)),
            joined(&mut calls, 1, seconds(0)),
        );
        calls.send(id(1), &outbox, seconds(0));
        calls.leave(id(1), first.number, Some(&outbox), false);
        assert_eq!(frames(&outbox), [frame("call", 1)]);
        // Its link is lost meanwhile: the cancel comes with the next one.
        calls.leave(id(1), second.number, None, false);
        assert_eq!(calls.count(), 0);
        calls.resume(&[id(1)].into(), &callable(), &outbox, seconds(1));
        assert_eq!(frames(&outbox), [frame("cancel", 1)]);
        let end = CallEnd::Uncertain {
            message: String::new(),
        };
        calls.answered(id(1), end, &outbox, seconds(2));
        assert_eq!(frames(&outbox), [frame("release", 1)]);

        let ticket = joined(&mut calls, 2, seconds(3));
        calls.send(id(2), &outbox, seconds(3));
        calls.leave(id(2), ticket.number, Some(&outbox), true);
        assert_eq!(frames(&outbox), [frame("call", 2)], "the node goes on");
    }

    #[test]
    fn calls_of_a_node_that_is_away_end_by_what_may_have_happened() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let mut sent = joined(&mut calls, 1, seconds(0));
        calls.send(id(1), &outbox, seconds(0));
        let mut unsent = joined(&mut calls, 2, seconds(0));
        for number in [1, 2] {
            calls.overdue(id(number), "mac", false, None, seconds(19));
            assert_eq!(calls.count(), 2);
        }
        for number in [1, 2] {
            calls.overdue(id(number), "mac", true, None, seconds(20));
        }
        assert!(matches!(sent.end.try_recv(), Ok(NodeEnd::Away(_))));
        assert!(matches!(unsent.end.try_recv(), Ok(NodeEnd::NotSent(_))));
    }

    #[test]
    fn a_node_that_never_answers_is_not_waited_for_unless_it_asks() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let mut ticket = joined(&mut calls, 1, seconds(0));
        calls.send(id(1), &outbox, seconds(0));
        let question = RunQuestion {
            program: "/bin/true".to_owned(),
            argv: Vec::new(),
            cwd: "/".to_owned(),
            env: Vec::new(),
            digest: "d".to_owned(),
        };
        assert!(calls.asks(id(1), question.clone()));
        assert!(!calls.asks(id(1), question), "it is known");
        calls.overdue(id(1), "mac", false, Some(&outbox), seconds(100_000));
        assert!(ticket.end.try_recv().is_err(), "a person decides");
        calls.decided(id(1), seconds(100_000));
        calls.overdue(id(1), "mac", false, Some(&outbox), seconds(100_121));
        assert!(matches!(ticket.end.try_recv(), Ok(NodeEnd::Away(_))));
        assert_eq!(frames(&outbox), [frame("call", 1), frame("cancel", 1)]);
    }

    #[test]
    fn what_the_node_keeps_is_released_when_its_callers_are_done_or_never_come() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        calls.release(id(1), None);
        let known: HashSet<CallId> = [id(1), id(2)].into();
        calls.resume(&known, &callable(), &outbox, seconds(0));
        // It may still run; then it is released once it has ended.
        assert_eq!(frames(&outbox), [frame("cancel", 1), frame("release", 1)]);
        let end = CallEnd::Uncertain {
            message: "stopped".to_owned(),
        };
        calls.answered(id(1), end, &outbox, seconds(0));
        assert_eq!(frames(&outbox), [frame("release", 1)]);
        calls.sweep(&outbox, ORPHAN_AGE - seconds(1));
        assert_eq!(frames(&outbox), []);
        calls.sweep(&outbox, ORPHAN_AGE);
        assert_eq!(frames(&outbox), [frame("cancel", 2), frame("release", 2)]);

        for number in 10..10 + KEPT_LIMIT as u128 {
            calls.release_later(id(number), Some(&outbox), seconds(0));
        }
        assert_eq!(frames(&outbox), []);
        calls.release_later(id(99), Some(&outbox), seconds(1));
        assert_eq!(frames(&outbox), [frame("release", 10)], "the oldest");
        calls.sweep(&outbox, KEPT_FOR);
        assert_eq!(frames(&outbox).len(), KEPT_LIMIT - 1);
        calls.sweep(&outbox, KEPT_FOR + seconds(1));
        assert_eq!(frames(&outbox), [frame("release", 99)]);
    }

    #[test]
    fn a_malicious_node_fills_no_memory() {
        let (mut calls, outbox) = (Calls::default(), Outbox::default());
        let end = CallEnd::Uncertain {
            message: String::new(),
        };
        for number in 0..2 * ORPHANS_LIMIT as u128 {
            calls.answered(id(number), end.clone(), &outbox, seconds(0));
            let question = RunQuestion {
                program: String::new(),
                argv: Vec::new(),
                cwd: String::new(),
                env: Vec::new(),
                digest: number.to_string(),
            };
            calls.asks(id(number), question);
        }
        assert_eq!(calls.orphans.len(), ORPHANS_LIMIT);
        assert_eq!(calls.questions.len(), QUESTIONS_LIMIT);
        let full = (0..=CALLS_LIMIT as u128).map(|number| {
            let call = run_call();
            calls.join(id(1_000_000 + number), call, Arc::new(Silent), seconds(0))
        });
        assert_eq!(full.filter(Result::is_err).count(), 1);
    }
}
