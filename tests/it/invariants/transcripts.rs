//! A transcript matches its runs' journals entry by entry: no entry is missing, duplicated or
//! misplaced.

use std::collections::BTreeMap;

use super::once;
use crate::harness::{Message, Step, StoreRows};

/// Every entry belongs to exactly one cause and is in its required position.
pub(super) fn nothing_is_lost_or_doubled(book: &StoreRows) {
    let by_place: BTreeMap<(&str, i64), &Step> = book
        .steps
        .values()
        .filter_map(|step| {
            Some((
                (book.runs[&step.run].session.as_str(), step.message_seq?),
                step,
            ))
        })
        .collect();
    let outcomes = book
        .steps
        .values()
        .filter(|step| step.message_seq.is_some())
        .count();
    assert_eq!(by_place.len(), outcomes, "two outcomes share an entry");
    for session in book.sessions.values() {
        let entries: Vec<&Message> = book.transcript(&session.id).collect();
        for entry in &entries {
            let step = by_place.get(&(entry.session.as_str(), entry.seq)).copied();
            // Retention removes the journal but keeps the transcript.
            let is_old = entry
                .run
                .as_ref()
                .is_some_and(|run| book.expired.contains(run));
            if !is_old {
                entry_has_its_cause(entry, step);
            }
        }
        calls_are_answered(book, &entries);
        let (called, own): (Vec<&Message>, Vec<&Message>) =
            entries.iter().partition(|entry| entry.child_run.is_some());
        turns_do_not_mix(book, &own);
        called_ones_have_two_sides(book, &entries, &called);
    }
}

/// The entries of a called agent are contiguous, begin with its call, and lie between the caller's
/// answer that makes the call and the result of that call.
fn called_ones_have_two_sides(book: &StoreRows, entries: &[&Message], called: &[&Message]) {
    let mut by_run: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
    for entry in called {
        assert_eq!(entry.child_run, entry.run, "{entry:?}");
        by_run
            .entry(entry.run.as_ref().unwrap())
            .or_default()
            .push(entry);
    }
    for (id, own) in by_run {
        turns_do_not_mix(book, &own);
        let Some(run) = book.runs.get(id) else {
            continue;
        };
        assert!(run.is_called(), "{run:?}");
        let ((caller, _), call) = run.delegated.as_ref().unwrap();
        let of_kind = |kind: &str| -> Vec<&&Message> {
            own.iter().filter(|entry| entry.kind == kind).collect()
        };
        let (asked, answered) = (of_kind("sub_agent_user"), of_kind("sub_agent_ai"));
        assert_eq!(own[0].kind, "sub_agent_user", "{run:?}");
        assert_eq!(asked.len(), 1, "{run:?}");
        assert_eq!(answered.len(), usize::from(run.state == "ok"), "{run:?}");
        for side in asked.iter().chain(&answered) {
            assert_eq!(side.tool_call.as_ref(), Some(call), "{side:?}");
        }
        if let [answer] = &answered[..] {
            assert_eq!(
                run.result.as_deref(),
                Some(answer.text().as_str()),
                "{run:?}"
            );
        }
        let made = entries.iter().find(|entry| {
            let calls = entry.tool_calls();
            entry.run.as_ref() == Some(caller) && calls.iter().any(|(id, ..)| id == call)
        });
        let result = entries.iter().find(|entry| {
            entry.kind == "tool_result"
                && entry.run.as_ref() == Some(caller)
                && entry.tool_call.as_ref() == Some(call)
        });
        assert!(made.is_some_and(|made| made.seq < own[0].seq), "{run:?}");
        let last = answered.last().map_or(own[0].seq, |answer| answer.seq);
        assert!(result.is_none_or(|result| last < result.seq), "{run:?}");
    }
}

fn entry_has_its_cause(entry: &Message, step: Option<&Step>) {
    let of = step.map(|step| step.kind.as_str());
    match (entry.role.as_str(), entry.kind.as_str()) {
        // Inputs and announces are checked with their runs.
        ("user", "text" | "announce" | "sub_agent_user") | ("system", "restart_notice") => {
            assert_eq!(of, None, "{entry:?}");
        }
        ("assistant", "sub_agent_ai") => {
            assert!(matches!(of, None | Some("model" | "command")), "{entry:?}");
            assert!(entry.tool_calls().is_empty(), "{entry:?}");
        }
        ("assistant", "text") => {
            assert!(matches!(of, Some("model" | "command")), "{entry:?}");
            assert!(entry.tool_calls().is_empty(), "{entry:?}");
        }
        ("assistant", "tool_call") => {
            assert_eq!(of, Some("model"), "{entry:?}");
            assert!(!entry.tool_calls().is_empty(), "{entry:?}");
        }
        ("user", "compaction") => assert_eq!(of, Some("compaction"), "{entry:?}"),
        ("tool", "tool_result") => assert_eq!(of, Some("tool"), "{entry:?}"),
        other => panic!("an entry {other:?}: {entry:?}"),
    }
    if let Some(step) = step {
        assert_eq!(entry.run.as_ref(), Some(&step.run), "{entry:?}");
        if entry.kind != "sub_agent_ai" {
            assert_eq!(entry.tool_call, step.tool_call, "{entry:?}");
        }
    }
}

/// Each call of an answer has at most one step, in call order, and each result belongs to one call.
fn calls_are_answered(book: &StoreRows, entries: &[&Message]) {
    for entry in entries.iter().filter(|entry| entry.kind == "tool_call") {
        let run = entry.run.as_ref().unwrap();
        // Retention removes its journal but keeps the transcript.
        if book.expired.contains(run) {
            continue;
        }
        let asked = book
            .steps_of(run)
            .find(|step| step.message_seq == Some(entry.seq))
            .unwrap();
        let steps: Vec<&Step> = book
            .steps_of(run)
            .filter(|step| step.asked_by.as_ref() == Some(&asked.id))
            .collect();
        let calls = entry.tool_calls();
        // All steps of an answer are created with its outcome, unless the run ends there.
        let one_by_one = asked.input["node"] == "plan" && !book.runs[run].ended;
        let ends = steps.is_empty() && book.runs[run].cancel_by.is_some();
        match one_by_one {
            true => assert!(steps.len() <= calls.len(), "{entry:?}"),
            false => assert!(ends || steps.len() == calls.len(), "{entry:?}"),
        }
        for (step, (id, tool, arguments)) in steps.iter().zip(&calls) {
            assert_eq!(step.tool_call.as_ref(), Some(id), "{step:?}");
            assert_eq!(step.tool.as_ref(), Some(tool), "{step:?}");
            assert_eq!(&step.input, arguments, "{step:?}");
            assert!(
                step.message_seq.is_none_or(|seq| seq > entry.seq),
                "{step:?}"
            );
        }
    }
    let results = entries.iter().filter(|entry| entry.kind == "tool_result");
    once(
        "results",
        results.map(|entry| (&entry.run, entry.tool_call.as_ref().unwrap())),
    );
}

/// A turn's entries are contiguous: between its input and its last answer there is no entry of
/// another run, and an answer comes only when all previous calls have results.
fn turns_do_not_mix(book: &StoreRows, entries: &[&Message]) {
    let mut open: Option<&str> = None;
    let mut awaited = 0;
    for entry in entries
        .iter()
        .filter(|entry| entry.kind != "restart_notice")
    {
        let run = entry.run.as_deref().unwrap();
        // Calls of an interrupted run have no results.
        if open != Some(run) && ended_badly(book, open) {
            awaited = 0;
        }
        match entry.kind.as_str() {
            "announce" => {
                assert_eq!(
                    awaited, 0,
                    "an announce between calls and results: {entry:?}"
                );
            }
            "text" | "sub_agent_user" if entry.role == "user" => {
                assert_eq!(awaited, 0, "{entry:?}");
                open = Some(run);
            }
            "tool_result" => {
                assert_eq!(open, Some(run), "{entry:?}");
                awaited -= 1;
            }
            _ => {
                assert_eq!(awaited, 0, "an answer before all results: {entry:?}");
                let is_wake = book.runs.get(run).is_none_or(|run| run.origin == "wake");
                let begins_without_input = is_wake || open.is_none();
                let goes_on = open == Some(run);
                assert!(
                    goes_on || begins_without_input || is_over(book, open),
                    "{entry:?}"
                );
                open = Some(run);
                awaited = entry.tool_calls().len();
            }
        }
    }
}

fn is_over(book: &StoreRows, run: Option<&str>) -> bool {
    let run = run.and_then(|run| book.runs.get(run));
    run.is_none_or(|run| run.ended)
}

fn ended_badly(book: &StoreRows, run: Option<&str>) -> bool {
    let run = run.and_then(|run| book.runs.get(run));
    run.is_some_and(|run| run.ended && run.state != "ok")
}
