//! Related rows exist together or not at all.

use std::collections::BTreeMap;

use super::{gap_free, once};
use crate::harness::{Message, OutboxRow, Run, Step, StoreRows};

/// Messages have no gaps, and each session stores their count. A child is one level deeper than its
/// parent.
pub(super) fn sessions_are_whole(book: &StoreRows) {
    for session in book.sessions.values() {
        // A fork continues its parent's transcript.
        let seqs = book
            .transcript(&session.id)
            .map(|message| message.seq - session.fork_seq);
        let last = gap_free(&format!("transcript of {}", session.key), seqs);
        assert_eq!(last + session.fork_seq, session.messages, "{}", session.key);
        match &session.parent {
            None => {
                assert_eq!(session.root, session.id, "{}", session.key);
            }
            Some(parent) => {
                let parent = &book.sessions[parent];
                // Children of a called run are one level deeper than that run.
                let called = |run: &&Run| run.is_called() && run.session == parent.id;
                let mut called = book.runs.values().filter(called);
                let is_next = session.depth == parent.depth + 1;
                let is_whole = is_next || called.any(|run| session.depth == run.depth + 1);
                assert!(is_whole, "{}", session.key);
                assert_eq!(session.root, parent.root, "{}", session.key);
            }
        }
    }
    for message in book.messages.values() {
        let is_left = book.purges.contains(&message.session);
        assert_ne!(
            book.sessions.contains_key(&message.session),
            is_left,
            "{message:?}"
        );
    }
    once(
        "session keys",
        book.sessions.values().map(|session| &session.key),
    );
}

/// The next run whose budget counts this run's usage: the parent run, else the root run of its
/// tree.
fn payer<'a>(book: &'a StoreRows, run: &Run) -> Option<&'a Run> {
    let root = Some(&run.root_run).filter(|root| **root != run.id);
    run.parent
        .as_ref()
        .or(root)
        .and_then(|id| book.runs.get(id))
}

/// A budget counts the usage of its run and all descendants. Usage of rows that retention or a
/// deletion has removed still counts.
pub(super) fn budgets_count_the_tree(book: &StoreRows) {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for run in book.runs.values() {
        let mut at = Some(run);
        while let Some(above) = at {
            *used.entry(&above.id).or_default() += run.used_tokens;
            at = payer(book, above);
        }
    }
    for run in book.runs.values() {
        let Some(spent) = run.spent_tokens else {
            continue;
        };
        let used = used[run.id.as_str()];
        let whole = book.expired.is_empty();
        assert!(
            spent == used || !whole && spent > used,
            "{spent}, {used}: {run:?}"
        );
        if let Some(above) = payer(book, run) {
            // The chain of ancestors that count a usage has no gap.
            assert!(
                above.spent_tokens.is_none() || run.spent_tokens.is_some(),
                "{run:?}"
            );
        }
    }
}

/// A run exists together with its session, its input and the idempotency key of its call.
pub(super) fn runs_are_whole(book: &StoreRows) {
    once("run order", book.runs.values().map(|run| run.seq));
    for run in book.runs.values() {
        assert_eq!(run.ended, is_terminal(&run.state), "{run:?}");
        assert!(run.started || !run.ended || run.state != "ok", "{run:?}");
        let Some(session) = book.sessions.get(&run.session) else {
            assert!(run.ended, "open run in a deleted session: {run:?}");
            continue;
        };
        assert_eq!(
            session.owner, "agent",
            "a run in a client's session: {run:?}"
        );
        let root_is_known =
            book.runs.contains_key(&run.root_run) || book.expired.contains(&run.root_run);
        assert!(root_is_known, "{run:?}");
        let said = book
            .transcript(&run.session)
            .filter(|message| message.is_agent_input() && message.run.as_deref() == Some(&run.id));
        // A turn's message is stored with the run until the turn begins.
        let expected = match run.origin.as_str() {
            "spawn" if run.is_called() => usize::from(run.started),
            "spawn" => 1,
            "turn" if shortens(book, run) => 0,
            "turn" | "send" => usize::from(run.started),
            "wake" => 0,
            other => panic!("a run of origin {other}"),
        };
        let steers = book.steers.get(&run.id).copied().unwrap_or(0);
        assert_eq!(said.count(), expected + steers, "input of {run:?}");
        let waits = (matches!(&*run.origin, "turn" | "send") || run.is_called())
            && !shortens(book, run)
            && !run.started
            && !run.ended;
        // A run that ended before its turn began keeps the input for a retry.
        let never_began = run.ended && !run.started;
        assert!(run.input.is_some() == waits || never_began, "{run:?}");
        if run.is_called() {
            assert_eq!(Some(&run.session), run.requester.as_ref(), "{run:?}");
        } else if run.origin == "spawn" {
            assert_eq!(session.parent, run.requester, "{run:?}");
        }
    }
    for (key, run, answer) in book.keys.iter().chain(&book.step_keys) {
        assert!(book.runs.contains_key(run), "key {key} without its run");
        assert_eq!(answer["run"], run.as_str(), "key {key}");
    }
    let turns = book.runs.values().filter(|run| run.state == "running");
    once("turns at once", turns.map(|run| &run.session));
    let wakes = book
        .runs
        .values()
        .filter(|run| run.origin == "wake" && run.state == "queued");
    once("waiting wake runs", wakes.map(|run| &run.session));
}

/// Every end that must be announced is in the outbox once, addressed to the requester, and in the
/// requester's transcript exactly when it is marked as delivered.
pub(super) fn announces_are_whole(book: &StoreRows) {
    let mut told: BTreeMap<&str, &Message> = BTreeMap::new();
    for message in book.messages.values() {
        if let Some(announce) = &message.announce {
            assert_eq!(message.kind, "announce", "{message:?}");
            assert!(
                told.insert(announce, message).is_none(),
                "told twice: {message:?}"
            );
        }
    }
    for run in book.runs.values() {
        let notice = book.outbox.get(&run.id);
        let sent = book.sends.get(&run.id);
        // Whether a turn of an exchange is announced depends on the exchange.
        if sent.is_none() {
            let owes = run.ended && run.owes_announce();
            assert_eq!(notice.is_some(), owes, "{run:?}");
        }
        let Some(notice) = notice else { continue };
        let asker = sent.and_then(|sent| sent.asker.as_ref());
        assert_eq!(
            Some(&notice.target),
            run.requester.as_ref().or(asker),
            "{run:?}"
        );
        let message = told.remove(notice.announce.as_str());
        match notice.state.as_str() {
            "delivered" if notice.via.as_deref() == Some("tool") => {
                assert!(
                    message.is_none(),
                    "delivered as a tool result and as an announce: {run:?}"
                );
                let entry = book.entry(&notice.target, notice.message_seq.unwrap());
                assert_eq!(entry.kind, "tool_result", "{run:?}");
                assert!(entry.content.to_string().contains(&run.id), "{entry:?}");
            }
            "pending" => assert!(message.is_none(), "delivered and still pending: {run:?}"),
            "delivered" if !book.sessions.contains_key(&notice.target) => {}
            "dismissed" => assert!(message.is_none(), "delivered and dismissed: {run:?}"),
            "undelivered" => {
                let is_gone = !book.sessions.contains_key(&notice.target);
                assert!(
                    is_gone || message.is_none(),
                    "delivered and marked undelivered: {run:?}"
                );
            }
            "delivered" => {
                let message = message.unwrap_or_else(|| panic!("never told: {run:?}"));
                announce_says_how_it_ended(message, notice, run);
            }
            other => panic!("{other}: {run:?}"),
        }
    }
    told.retain(|_, message| {
        !book.expired.contains(message.run.as_ref().unwrap())
            && book.sessions.contains_key(&message.session)
    });
    assert!(told.is_empty(), "announces without an outbox row: {told:?}");
}

fn announce_says_how_it_ended(message: &Message, notice: &OutboxRow, run: &Run) {
    assert_eq!(
        message.session, notice.target,
        "announced to the wrong session: {run:?}"
    );
    assert_eq!(Some(message.seq), notice.message_seq, "{run:?}");
    assert_eq!(message.run.as_ref(), Some(&run.id), "{message:?}");
    assert_eq!(message.origin, "internal", "{message:?}");
    let text = message.text();
    let parts = abide::kernel::delegation::announce::parts(&text);
    assert!(parts.head.contains(&run.id), "{text}");
    assert!(
        parts.head.contains(&format!(" ended {} ", run.state)),
        "{text}"
    );
    let bytes = run.result.as_deref().unwrap_or_default().len();
    // Among many announces at once a long result is only pointed to.
    match text.contains(&format!("Its result of {bytes} bytes is not shown here")) {
        // A short one is always shown.
        true => assert!(bytes > 64 && parts.result.is_none(), "{text}"),
        false => assert_eq!(parts.result, run.result.as_deref(), "{text}"),
    }
}

/// In a cancelled session no run continues, and no announce is pending that would start one.
pub(super) fn what_was_cancelled_stays_so(book: &StoreRows) {
    for session in book.stops.keys() {
        assert!(book.sessions.contains_key(session), "{session}");
        let goes_on = book
            .runs
            .values()
            .find(|run| run.session == *session && !run.ended && run.cancel_by.is_none());
        assert!(goes_on.is_none(), "{goes_on:?}");
        let wakes = book.outbox.values().find(|notice| {
            notice.target == *session && notice.state == "pending" && notice.policy != "inbox"
        });
        assert!(wakes.is_none(), "{wakes:?}");
    }
}

/// A settling run waits for something that will happen.
pub(super) fn nobody_is_forgotten_while_settling(book: &StoreRows) {
    for run in book.runs.values().filter(|run| run.state == "settling") {
        let is_from_here = |other: &&Run| other.requester.as_ref() == Some(&run.session);
        let children = book
            .runs
            .values()
            .filter(is_from_here)
            .any(|child| !child.ended);
        let news = book
            .outbox
            .values()
            .any(|notice| notice.target == run.session && notice.state == "pending");
        let replies = book
            .sends
            .values()
            .any(|sent| sent.asker.as_ref() == Some(&run.session) && sent.state != "done");
        assert!(
            children || news || replies,
            "settling without anything to wait for: {run:?}"
        );
    }
}

/// The journal has no gaps, and each outcome has its entry in the transcript.
pub(super) fn steps_are_whole(book: &StoreRows) {
    once("step ids", book.steps.values().map(|step| &step.id));
    for run in book.runs.values().filter(|run| book.has_session(run)) {
        let seqs = book.steps_of(&run.id).map(|step| step.seq);
        let last = gap_free(&format!("steps of {}", run.id), seqs);
        assert_eq!(last, run.steps, "{run:?}");
        let done = |answers: bool| {
            let ended = book.steps_of(&run.id).filter(|step| {
                step.kind != "compaction" && step.answers() == answers && step.is_over()
            });
            i64::try_from(ended.count()).unwrap()
        };
        assert_eq!(done(true), run.loops, "{run:?}");
        assert_eq!(done(false), run.tool_calls, "{run:?}");
    }
    for step in book.steps.values() {
        assert!(step.attempts >= 1, "{step:?}");
        let run = &book.runs[&step.run];
        assert!(
            !step.is_open() || !run.ended,
            "open step of an ended run: {step:?}"
        );
        assert!(
            !step.was_cut_off() || run.ended && run.state != "ok",
            "{step:?}"
        );
        assert_eq!(step.seen_up_to.is_some(), step.answers(), "{step:?}");
        // No entry asks for a call of an outside agent.
        let is_outside = step.kind == "tool" && step.tool_call.is_none();
        let is_failed_answer = step.answers() && step.state == "failed";
        let has_entry = step.is_over() && !is_failed_answer && !is_outside;
        // A requested compaction with nothing to compact has no entry.
        let may_have_none = step.is_asked_compaction() && step.message_seq.is_none();
        assert!(
            step.message_seq.is_some() == has_entry || may_have_none,
            "{step:?}"
        );
    }
}

/// Does the run only compact its session?
fn shortens(book: &StoreRows, run: &Run) -> bool {
    let first = book.steps_of(&run.id).next();
    first.is_some_and(|step| step.is_asked_compaction())
}

/// No run is open, no announce is pending.
pub(super) fn everything_has_ended(book: &StoreRows) {
    for run in book.runs.values() {
        assert!(run.ended, "{run:?}");
    }
    for (run, notice) in &book.outbox {
        let is_gone = !book.sessions.contains_key(&notice.target);
        let settled = match notice.state.as_str() {
            "delivered" | "dismissed" => true,
            "undelivered" => is_gone,
            _ => false,
        };
        assert!(settled, "{notice:?}: {:?}", book.runs[run]);
    }
    // A turn of the session has seen each announce that wakes its agent.
    for (run, notice) in &book.outbox {
        let is_there = book.sessions.contains_key(&notice.target);
        if notice.policy == "inbox" || notice.state != "delivered" || !is_there {
            continue;
        }
        let seen = book
            .steps
            .values()
            .filter(|step| book.runs[&step.run].session == notice.target)
            .any(|step| step.seen_up_to >= notice.message_seq);
        // A cancel ends the run that would have seen it, and wakes no agent.
        let was_cancelled = book
            .runs
            .values()
            .any(|other| other.session == notice.target && other.state == "cancelled");
        assert!(
            seen || was_cancelled,
            "no turn has seen the announce of {:?}",
            book.runs[run]
        );
    }
    assert_eq!(
        book.boots.last(),
        Some(&true),
        "the last boot must have ended cleanly"
    );
}

/// A kill interrupts no run.
pub(super) fn nothing_was_interrupted(book: &StoreRows) {
    for run in book.runs.values() {
        // A program that was running at a kill is not started again.
        let lost = |step: &Step| step.kind == "command" && step.state == "uncertain";
        let is_lost = book.steps_of(&run.id).any(lost);
        assert_eq!(run.state == "interrupted", is_lost, "{run:?}");
    }
}

/// States that are final.
pub(super) fn is_terminal(state: &str) -> bool {
    matches!(
        state,
        "ok" | "error" | "timeout" | "cancelled" | "interrupted"
    )
}
