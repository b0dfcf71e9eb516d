//! Every waiting step waits for something that will happen, and gets it once.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Step, StoreRows};

/// Each waiting step names what it waits for, which has not happened yet; a run whose open steps
/// all wait is paused.
pub(super) fn who_waits_is_known(book: &StoreRows) {
    let waiting = |step: &&Step| step.is_open() && step.waits.is_some();
    // A review and a value have no row to refer to.
    let in_review = |step: &Step| matches!(step.waits.as_deref(), Some("review" | "value"));
    let named: BTreeSet<&(String, i64)> = book.waits.iter().map(|(_, step)| step).collect();
    for (place, step) in &book.steps {
        let names = waiting(&step) && !in_review(step);
        assert_eq!(named.contains(place), names, "{step:?}");
    }
    for (awaited, place) in &book.waits {
        let step = &book.steps[place];
        match step.waits.as_deref() {
            Some("answer") => assert_eq!(book.questions[awaited].state, "open", "{step:?}"),
            Some("approval") => assert_eq!(book.approvals[awaited].state, "open", "{step:?}"),
            Some("reply") => assert!(!book.runs[awaited].ended, "a reply was missed: {step:?}"),
            // A provider has no row: only time ends that wait.
            Some("child" | "provider") => {}
            Some("any_child") => assert!(!book.runs[awaited].ended, "missed: {step:?}"),
            other => panic!("{other:?}: {step:?}"),
        }
    }
    for run in book.runs.values().filter(|run| !run.ended) {
        let open: Vec<&Step> = book
            .steps_of(&run.id)
            .filter(|step| step.is_open())
            .collect();
        let all_wait = open.iter().any(waiting)
            && open
                .iter()
                .all(|step| waiting(step) || is_held(step, &open));
        if run.cancel_by.is_none() {
            assert_eq!(run.state == "paused", all_wait, "{run:?}: {open:?}");
        }
        let children = open
            .iter()
            .filter(|step| step.waits.as_deref() == Some("child"));
        for step in children {
            let place = (step.run.clone(), step.seq);
            let open = book
                .waits
                .iter()
                .filter(|(_, waiter)| *waiter == place)
                .any(|(awaited, _)| !book.runs[awaited].ended);
            assert!(open, "waits although every awaited run has ended: {step:?}");
        }
    }
}

/// True for the prompt or a call of an outside agent while one of these waits: its program waits, too.
fn is_held(step: &Step, open: &[&Step]) -> bool {
    let is_of = |step: &Step, prompt: &Step| {
        step.id == prompt.id || step.asked_by.as_ref() == Some(&prompt.id)
    };
    open.iter()
        .filter(|prompt| prompt.kind == "command" && prompt.input.get("acp").is_some())
        .filter(|prompt| is_of(step, prompt))
        .any(|prompt| {
            open.iter()
                .any(|other| is_of(other, prompt) && other.waits.is_some())
        })
}

/// Each delegated call has one run, waits exactly while that run is open, and has its result.
pub(super) fn delegations_are_whole(book: &StoreRows) {
    let mut calls = BTreeSet::new();
    for run in book.runs.values() {
        let Some((place, call)) = &run.delegated else {
            continue;
        };
        assert!(calls.insert(place), "two runs for one call: {run:?}");
        let Some(step) = book.steps.get(place) else {
            assert!(
                book.expired.contains(&place.0),
                "a delegated run without its call: {run:?}"
            );
            continue;
        };
        assert_eq!(step.tool_call.as_ref(), Some(call), "{run:?}: {step:?}");
        if !run.ended {
            // Its caller may have ended earlier.
            let waits = step.is_open() && step.waits.as_deref() == Some("child");
            assert!(waits || run.cancel_by.is_some(), "{run:?}: {step:?}");
            continue;
        }
        assert!(!step.is_open(), "its end was missed: {run:?}: {step:?}");
        let Some(seq) = step.message_seq else {
            assert!(book.runs[&place.0].ended, "no result: {run:?}: {step:?}");
            continue;
        };
        let message = book.entry(&book.runs[&place.0].session, seq);
        let text = message.content[0]["text"].as_str().unwrap();
        let told: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(told["runId"], run.id.as_str(), "another's result: {run:?}");
        assert_eq!(told["unavailable"] == true, run.state != "ok", "{run:?}");
    }
}

/// The caller's event stream reports the call of each called run once, and its end once, unless the
/// caller had ended before.
pub(super) fn called_ones_are_told_of(book: &StoreRows) {
    if book.is_trimmed() {
        return;
    }
    for run in book.runs.values().filter(|run| run.is_called()) {
        let ((caller, _), _) = run.delegated.as_ref().unwrap();
        let told = |kind: &'static str| {
            let events = book.events.values();
            let own = events.filter(move |event| event.kind == kind);
            own.filter(|event| event.data["childRunId"] == run.id.as_str())
                .inspect(|event| assert_eq!(event.run.as_ref(), Some(caller), "{event:?}"))
                .count()
        };
        assert_eq!(told("sub_agent.call_start"), 1, "{run:?}");
        let (well, badly) = (told("sub_agent.complete"), told("sub_agent.error"));
        assert!(
            well + badly <= 1 && run.ended >= (well + badly == 1),
            "{run:?}"
        );
        assert!(well == 0 || run.state == "ok", "{run:?}");
        assert!(badly == 0 || run.state != "ok", "{run:?}");
        let caller = book.runs.get(caller);
        let is_told = well + badly == 1 || !run.ended;
        let fell = caller.is_none_or(|caller| caller.ended && caller.state != "ok");
        assert!(is_told || fell, "{run:?}");
    }
}

/// A question is open exactly while its step waits.
pub(super) fn questions_are_whole(book: &StoreRows) {
    for (id, question) in &book.questions {
        let step = &book.steps[&question.step];
        assert_eq!(step.id, *id, "{question:?}");
        assert_eq!(question.state == "open", step.is_open(), "{question:?}");
        assert_eq!(
            question.answer.is_some(),
            question.state == "answered",
            "{question:?}"
        );
        if let (Some(answer), Some(seq)) = (&question.answer, step.message_seq) {
            let entry = book.entry(&book.runs[&step.run].session, seq);
            assert!(entry.content.to_string().contains(answer), "{entry:?}");
        }
    }
}

/// An approval is open exactly while its step waits for it, and a call that was not approved was
/// not made: its outcome is the refusal.
pub(super) fn approvals_are_whole(book: &StoreRows) {
    for (id, approval) in &book.approvals {
        let step = &book.steps[&approval.step];
        assert_eq!(step.id, *id, "{approval:?}");
        let waits = step.is_open() && step.waits.as_deref() == Some("approval");
        assert_eq!(approval.state == "open", waits, "{approval:?}: {step:?}");
        let refused = matches!(approval.state.as_str(), "denied" | "expired");
        if let (true, Some(seq)) = (refused, step.message_seq) {
            let entry = book.entry(&book.runs[&step.run].session, seq);
            assert!(
                entry.content[0]["text"]
                    .as_str()
                    .unwrap()
                    .starts_with("denied: "),
                "{entry:?}"
            );
        }
        // An outside agent may drop its question; its call was not made.
        let is_dropped = approval.state == "closed" && step.tool_call.is_none();
        let own = if approval.state == "allowed" { 0 } else { 1 };
        assert!(
            !step.is_over() || refused || own == 0 || is_dropped && step.state == "failed",
            "{approval:?}: {step:?}"
        );
    }
}

/// Each turn that answers another session has its row. The session that began an exchange gets its
/// result once: through the waiting step, the waiting call, or one announce.
pub(super) fn exchanges_are_whole(book: &StoreRows, finished: bool) {
    let mut turns: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for run in book.runs.values() {
        let sent = book.sends.get(&run.id);
        assert_eq!(sent.is_some(), run.origin == "send", "{run:?}");
        let Some(sent) = sent else { continue };
        assert_eq!(sent.state == "open", !run.ended, "{run:?}: {sent:?}");
        assert!(!finished || sent.state == "done", "{run:?}: {sent:?}");
        assert!(!run.ended || !sent.has_deadline, "{run:?}: {sent:?}");
        turns.entry(&sent.first).or_default().push(sent.turn);
    }
    for (first, mut turns) in turns {
        turns.sort_unstable();
        let expected: Vec<i64> = (0..).take(turns.len()).collect();
        assert_eq!(turns, expected, "turns of the exchange of {first}");
        let told = book
            .outbox
            .keys()
            .filter(|run| book.sends.get(*run).is_some_and(|sent| sent.first == first))
            .count();
        let by_step = steps_that_got(book, first);
        assert!(
            told + by_step <= 1,
            "told {told} announces and {by_step} steps: {first}"
        );
        let by_run = book.step_keys.iter().any(|(_, run, _)| run == first);
        if finished && by_run {
            assert_eq!(told + by_step, 1, "the reply of {first} was lost");
        }
    }
}

/// The number of steps whose outcome is the end of this run.
fn steps_that_got(book: &StoreRows, run: &str) -> usize {
    let ends = book.steps.values().filter(|step| {
        let Some(seq) = step.message_seq else {
            return false;
        };
        if step.waits.as_deref() != Some("reply") {
            return false;
        }
        let entry = book.entry(&book.runs[&step.run].session, seq);
        let text = entry.content[0]["text"].as_str().unwrap();
        let told: serde_json::Value = serde_json::from_str(text).unwrap();
        told["runId"] == run && told["status"] != "pending"
    });
    ends.count()
}
