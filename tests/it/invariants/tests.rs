//! Tests of the checker itself: it must find every kind of violation when it is applied to the rows
//! of a successful scenario.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Moment, check};
use crate::harness::{Caller, Event, History, Place, StoreRows, run};
use crate::scenarios;

/// A violation: its description, and the change to the rows.
type Violation = (&'static str, fn(&mut StoreRows, &mut History));

const VIOLATIONS: &[Violation] = &[
    ("a message is lost", |book, _| {
        book.messages.pop_last();
    }),
    ("a session has counted one too many", |book, _| {
        book.sessions.values_mut().next().unwrap().messages += 1;
    }),
    ("a report is in another session", |book, _| {
        let run = told(book);
        let other = book.runs[&run].session.clone();
        book.outbox.get_mut(&run).unwrap().target = other;
    }),
    ("a report is marked delivered but missing", |book, _| {
        let run = told(book);
        let notice = book.outbox[&run].clone();
        let entry = book
            .messages
            .get_mut(&(notice.target, notice.message_seq.unwrap()));
        entry.unwrap().announce = None;
    }),
    ("a report waits for ever", |book, _| {
        let run = told(book);
        book.outbox.get_mut(&run).unwrap().state = "pending".to_owned();
    }),
    ("an end without its announce", |book, _| {
        let run = told(book);
        book.outbox.remove(&run);
    }),
    ("a run is lost", |book, _| {
        let run = told(book);
        book.runs.remove(&run);
    }),
    ("a run without a cause", |book, _| {
        let mut twin = book.runs[&told(book)].clone();
        twin.id = "01936f0e-0000-7000-8000-000000000001".to_owned();
        twin.seq += 100_000;
        twin.root_run.clone_from(&twin.id);
        book.runs.insert(twin.id.clone(), twin);
    }),
    ("a run is open", |book, _| {
        let run = told(book);
        let run = book.runs.get_mut(&run).unwrap();
        run.state = "running".to_owned();
        run.ended = false;
    }),
    ("a run was interrupted", |book, _| {
        let run = told(book);
        book.runs.get_mut(&run).unwrap().state = "interrupted".to_owned();
    }),
    ("an end has two events", |book, _| {
        let again = event(book, "run.ended");
        insert(book, again);
    }),
    ("an end has no event", |book, _| {
        let cursor = event(book, "run.ended").cursor;
        book.events.remove(&cursor);
    }),
    ("a start comes after the end", |book, _| {
        let mut start = event(book, "run.started");
        book.events.remove(&start.cursor);
        start.cursor = 0;
        insert(book, start);
    }),
    ("a tool's outcome has two events", |book, _| {
        let again = event(book, "tool.completed");
        insert(book, again);
    }),
    ("a cursor that the counter has not given out", |book, _| {
        book.counter = 1;
    }),
    ("a step is lost", |book, _| {
        book.steps.pop_first();
    }),
    ("an outcome changed after a kill", |book, history| {
        let place = history.kills[0].ended.first().unwrap().clone();
        book.steps.get_mut(&place).unwrap().attempts += 1;
    }),
    ("a step was tried again without a kill", |_, history| {
        history.kills.clear();
    }),
    ("a model was asked again after its outcome", |_, history| {
        // With no calls recorded at the kill, every later call looks like a repeat.
        history.kills[0].model_calls.clear();
    }),
    ("an answer is another one than the script's", |book, _| {
        let answer = book
            .messages
            .values_mut()
            .rfind(|entry| entry.role == "assistant");
        answer.unwrap().content = serde_json::json!([{ "type": "text", "text": "other" }]);
    }),
    ("a result is another one than the last answer", |book, _| {
        let run = told(book);
        book.runs.get_mut(&run).unwrap().result = Some("other".to_owned());
    }),
    ("a result stands before its call", |book, _| {
        let mut results = book
            .messages
            .values_mut()
            .filter(|entry| entry.kind == "tool_result");
        results.next().unwrap().kind = "text".to_owned();
    }),
    ("a call is not answered as it was promised", |book, _| {
        let (_, run, _) = &mut book.keys[0];
        *run = "01936f0e-0000-7000-8000-000000000001".to_owned();
    }),
    ("a client got another outcome", |_, history| {
        let end = history.ends.values_mut().next().unwrap();
        end["result"] = "other".into();
    }),
    ("an acknowledgement is forgotten", |book, history| {
        let acked = &history.acked[0];
        let notice = book
            .outbox
            .values_mut()
            .find(|notice| notice.announce == *acked);
        notice.unwrap().acked = false;
    }),
    ("a child has the wrong depth", |book, _| {
        book.sessions
            .values_mut()
            .find(|session| session.parent.is_some())
            .unwrap()
            .depth += 1;
    }),
];

/// The first run whose end was announced.
fn told(book: &StoreRows) -> String {
    book.outbox.keys().next().unwrap().clone()
}

fn event(book: &StoreRows, kind: &str) -> Event {
    book.events
        .values()
        .find(|event| event.kind == kind)
        .unwrap()
        .clone()
}

/// Inserts the event at its cursor, or with cursor 0 behind all others.
fn insert(book: &mut StoreRows, mut event: Event) {
    if event.cursor != 0 {
        event.cursor = book.counter + 1;
        book.counter += 1;
    } else {
        event.cursor = book.counter;
        while book.events.contains_key(&event.cursor) {
            event.cursor += 1;
            book.counter += 1;
        }
    }
    book.events.insert(event.cursor, event);
}

#[test]
fn the_checker_finds_every_kind_of_wrong() {
    let scenario = scenarios::all()
        .into_iter()
        .find(|scenario| scenario.name == "crash")
        .unwrap();
    let (book, history, place): (StoreRows, History, Place) = run(async {
        let mut caller = Caller::begin((scenario.place)(), None, false).await;
        (scenario.play)(&mut caller).await;
        let book = caller.finish().await;
        let (history, place) = caller.into_parts();
        (book, history, place)
    });
    check(&book, Moment::Finished, &history, &place);
    let unseen: Vec<&str> = VIOLATIONS
        .iter()
        .filter(|(_, wrong)| {
            let (mut book, mut history) = (book.clone(), history.clone());
            wrong(&mut book, &mut history);
            let checked = AssertUnwindSafe(|| check(&book, Moment::Finished, &history, &place));
            catch_unwind(checked).is_ok()
        })
        .map(|(what, _)| *what)
        .collect();
    assert_eq!(unseen, [] as [&str; 0], "the checker does not see it");
}
