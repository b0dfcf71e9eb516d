//! Checks against the model as an independent witness: it records the start of each call outside
//! the store, which reveals a step that ran again.

use std::collections::BTreeMap;

use crate::harness::{History, Message, Script, Step, StoreRows};

type Asked = BTreeMap<(String, usize), usize>;

/// Every answer in a transcript is the script's answer to the model's input, and a run's result is
/// its last answer.
pub(super) fn answers_are_the_scripts(book: &StoreRows, script: &Script) {
    for step in book
        .steps
        .values()
        .filter(|step| step.kind == "model" && step.is_over())
        .filter(|step| book.has_session(&book.runs[&step.run]))
    {
        let (rule, index) = asked_for(book, script, step);
        let run = &book.runs[&step.run];
        let (input, announce) = input_of(book, step);
        let (_, answer) = script.answer(&input, announce, index).unwrap();
        let answer = answer.unwrap_or_else(|| panic!("{rule:?} has no answer {index}"));
        let Some(seq) = step.message_seq else {
            let failure = answer.failure().unwrap();
            assert!(step.error.as_ref().unwrap().contains(failure), "{step:?}");
            assert_eq!(run.state, "error", "{run:?}");
            continue;
        };
        let entry = book.entry(&run.session, seq);
        assert_eq!(entry.text(), answer.text(), "{rule:?} {index}: {entry:?}");
        // The calls that result from a plan were not made by the model.
        if step.input["node"] == "plan" {
            continue;
        }
        let calls: Vec<_> = entry
            .tool_calls()
            .into_iter()
            .map(|(_, tool, arguments)| (tool, arguments))
            .collect();
        assert_eq!(calls, answer.tool_calls(), "{rule:?} {index}: {entry:?}");
    }
    let whole = book.runs.values().filter(|run| book.has_session(run));
    for run in whole.filter(|run| run.state == "ok") {
        let answers = book.steps_of(&run.id).filter(|step| step.answers());
        let Some(last) = answers.last() else {
            // The run only compacted its session and called no model.
            assert!(
                book.steps_of(&run.id)
                    .all(|step| step.is_asked_compaction())
            );
            continue;
        };
        let entry = book.entry(&run.session, last.message_seq.unwrap());
        assert_eq!(
            run.result.as_deref(),
            Some(entry.text().as_str()),
            "{run:?}"
        );
    }
}

/// An outcome that was stored at a kill does not change.
pub(super) fn outcomes_stand(book: &StoreRows, history: &History) {
    // An outcome of an earlier kill was also stored at the latest one.
    if let Some(killed) = &history.latest {
        for (place, before) in &killed.steps {
            let Some(step) = book.steps.get(place) else {
                assert!(is_gone(book, &before.run), "a step is gone: {before:?}");
                continue;
            };
            assert!(step.attempts >= before.attempts, "{step:?}");
            if !before.is_open() {
                assert_eq!(
                    format!("{step:?}"),
                    format!("{before:?}"),
                    "an outcome changed"
                );
            }
        }
        for (id, before) in &killed.runs {
            let Some(run) = book.runs.get(id) else {
                assert!(book.expired.contains(id), "a run is gone: {before:?}");
                continue;
            };
            if before.ended {
                assert_eq!(format!("{run:?}"), format!("{before:?}"), "an end changed");
            }
        }
        for (place, before) in &killed.messages {
            let Some(found) = book.messages.get(place) else {
                let is_gone = !book.sessions.contains_key(&before.session);
                assert!(is_gone, "an entry is gone: {before:?}");
                continue;
            };
            let found = format!("{found:?}");
            assert_eq!(found, format!("{before:?}"), "an entry changed");
        }
        // Events that retention has removed cannot be compared.
        let oldest = match book.is_trimmed() {
            true => book.events.keys().next().copied().unwrap_or(i64::MAX),
            false => i64::MIN,
        };
        for (cursor, before) in killed.events.range(oldest..) {
            let found = format!("{:?}", book.events[cursor]);
            assert_eq!(found, format!("{before:?}"), "an event changed");
        }
    }
}

/// Was the run's journal removed, by a deletion or by retention?
fn is_gone(book: &StoreRows, run: &str) -> bool {
    book.runs.get(run).is_none_or(|run| !book.has_session(run))
}

/// A model call whose outcome was committed is never repeated, and every recorded call belongs to a
/// step.
pub(super) fn finished_steps_never_ran_again(
    book: &StoreRows,
    script: &Script,
    history: &History,
    asked: &Asked,
) {
    // Calls of removed journals cannot be distinguished from calls without a step.
    if book.has_gaps() {
        return;
    }
    let mut steps: BTreeMap<(String, usize), Vec<&Step>> = BTreeMap::new();
    for step in book.steps.values().filter(|step| step.kind == "model") {
        steps
            .entry(asked_for(book, script, step))
            .or_default()
            .push(step);
    }
    for (call, times) in asked {
        let steps = steps
            .get(call)
            .unwrap_or_else(|| panic!("{call:?} has no step"));
        let tries: i64 = steps.iter().map(|step| step.attempts).sum();
        assert!(
            *times <= usize::try_from(tries).unwrap(),
            "{call:?}: {times} of {tries}"
        );
        for kill in &history.kills {
            let finished = steps
                .iter()
                .all(|step| kill.ended.contains(&(step.run.clone(), step.seq)));
            let before = kill.model_calls.get(call).copied().unwrap_or(0);
            assert!(
                !finished || before == *times,
                "{call:?} ran again after its outcome"
            );
        }
    }
    for (call, steps) in &steps {
        let finished = steps.iter().filter(|step| step.is_over()).count();
        let times = asked.get(call).copied().unwrap_or(0);
        assert!(
            times >= finished,
            "{call:?}: {finished} outcomes, {times} calls"
        );
    }
}

/// A step is retried only if a kill found it open, and then it is retried, or if a user has decided
/// that it has not happened.
pub(super) fn only_kills_repeat_steps(book: &StoreRows, history: &History) {
    for (place, step) in &book.steps {
        let found = history
            .kills
            .iter()
            .filter(|kill| kill.held.contains(place))
            .count();
        let decided = history.not_done.iter().filter(|id| **id == step.id);
        let repeated = i64::try_from(found + decided.count()).unwrap();
        let found = i64::try_from(found).unwrap();
        assert!(step.attempts <= 1 + repeated, "{repeated} causes: {step:?}");
        // A run that ended in another state did not need its open steps.
        let dropped = book.runs[&step.run].state != "ok";
        // An effect that may have happened is not repeated: the step ends as uncertain, or a user's
        // review decides.
        let nobody_knew = step.state == "uncertain" || step.waits.as_deref() == Some("review");
        assert!(
            step.attempts > 1 || found == 0 || dropped || nobody_knew,
            "not repeated: {step:?}"
        );
    }
}

/// The script's rule and the index of its answer for a model call, derived from the transcript that
/// the model was shown.
fn asked_for(book: &StoreRows, script: &Script, step: &Step) -> (String, usize) {
    let (input, announce) = input_of(book, step);
    let index = answers_since_input(book, step);
    let found = script.answer(&input, announce, index);
    let (rule, _) = found.unwrap_or_else(|| panic!("no rule for {input:?}: {step:?}"));
    (rule.to_owned(), index)
}

/// The entries that the model was shown and that belong to this run, newest first.
fn shown<'a>(book: &'a StoreRows, step: &'a Step) -> impl Iterator<Item = &'a Message> {
    let run = &book.runs[&step.run];
    let mut shown: Vec<&Message> = book
        .transcript(&run.session)
        .filter(|entry| Some(entry.seq) <= step.seen_up_to)
        .filter(|entry| entry.kind != "restart_notice")
        // A called agent sees its own entries, and its input is its call.
        .filter(|entry| entry.child_run.as_ref() == Some(&run.id).filter(|_| run.is_called()))
        // Inputs of other turns do not count.
        .filter(|entry| !entry.is_agent_input() || entry.run.as_ref() == Some(&run.id))
        .collect();
    shown.reverse();
    shown.into_iter()
}

/// The latest input, and whether it consists of announces.
fn input_of(book: &StoreRows, step: &Step) -> (String, bool) {
    let is_input = |entry: &&Message| entry.is_agent_input() || entry.kind == "announce";
    let from = shown(book, step).skip_while(|entry| !is_input(entry));
    let mut inputs = from.take_while(is_input).peekable();
    let latest = inputs
        .peek()
        .unwrap_or_else(|| panic!("nothing to answer: {step:?}"));
    if latest.is_agent_input() {
        return (latest.text(), false);
    }
    let announces = inputs.take_while(|entry| entry.kind == "announce");
    let texts: Vec<String> = announces.map(Message::text).collect();
    (texts.join("\n"), true)
}

fn answers_since_input(book: &StoreRows, step: &Step) -> usize {
    shown(book, step)
        .take_while(|entry| !entry.is_agent_input() && entry.kind != "announce")
        .filter(|entry| entry.role == "assistant")
        .count()
}
