//! The event log reports each change once, in the order in which the changes happened.

use std::collections::BTreeMap;

use abide::kernel::event::EventKind;

use crate::harness::{Event, Run, StoreRows};

/// No cursor exceeds the stored counter.
pub(super) fn log_is_in_order(book: &StoreRows) {
    let last = book.events.keys().next_back().copied().unwrap_or(0);
    assert!(last <= book.counter, "a cursor above the stored counter");
}

/// Whether events of a kind carry a session id and a run id besides their data, so that filters by
/// session or run find them. `None`: some of them do.
fn concerns(kind: EventKind) -> (Option<bool>, Option<bool>) {
    use EventKind as Kind;
    match kind {
        Kind::RunQueued
        | Kind::RunStarted
        | Kind::RunStep
        | Kind::RunSettling
        | Kind::RunPaused
        | Kind::RunResumed
        | Kind::RunEnded
        | Kind::RunWarned
        | Kind::ToolStarted
        | Kind::ToolCompleted
        | Kind::ToolProgress
        | Kind::SubAgentCallStart
        | Kind::SubAgentPartial
        | Kind::SubAgentComplete
        | Kind::SubAgentError
        | Kind::DelegationStart
        | Kind::DelegationComplete
        | Kind::DelegationBreaker
        | Kind::QuestionAsked
        | Kind::QuestionAnswered
        | Kind::ApprovalRequested
        | Kind::ApprovalResolved
        | Kind::EnvApplied
        | Kind::EnvRestored
        | Kind::EnvMissing
        | Kind::EnvProvided => (Some(true), Some(true)),
        // The session that receives the announce, and the run that it announces.
        Kind::AnnounceQueued
        | Kind::AnnounceDelivered
        | Kind::AnnounceHeld
        | Kind::AnnounceAcked
        | Kind::AnnounceDismissed => (Some(true), Some(true)),
        Kind::MessageAdded => (Some(true), None),
        Kind::SessionCreated | Kind::SessionUpdated | Kind::SessionDeleted => {
            (Some(true), Some(false))
        }
        Kind::AlertRaised => (None, None),
        Kind::AgentsChanged
        | Kind::SkillsChanged
        | Kind::UsageAlert
        | Kind::ProviderHealth
        | Kind::GatewayStarted
        | Kind::GatewayDraining
        | Kind::GatewayResumed
        | Kind::NodeWaiting
        | Kind::NodePaired
        | Kind::NodeConnected
        | Kind::NodeLost
        | Kind::NodeOfferChanged
        | Kind::NodeChanged
        | Kind::NodeAsked
        | Kind::NodeRemoved => (Some(false), Some(false)),
    }
}

/// Each event carries the ids of what it concerns, and the key of its session.
pub(super) fn each_says_what_it_concerns(book: &StoreRows) {
    for event in book.events.values() {
        let (session, run) = concerns(EventKind::parse(&event.kind).unwrap());
        if let Some(expected) = session {
            assert_eq!(event.session.is_some(), expected, "{event:?}");
        }
        if let Some(expected) = run {
            assert_eq!(event.run.is_some(), expected, "{event:?}");
        }
        assert_eq!(event.session.is_some(), event.key.is_some(), "{event:?}");
        if let Some(run) = event.run.as_ref().and_then(|run| book.runs.get(run)) {
            assert_eq!(event.root.as_ref(), Some(&run.root_run), "{event:?}");
        }
        if event.kind.starts_with("announce.") {
            let run = event.data["runId"].as_str();
            assert!(run.is_none_or(|run| event.run.as_deref() == Some(run)));
            let told = event.run.as_ref().and_then(|run| book.outbox.get(run));
            if let Some(told) = told {
                assert_eq!(event.session.as_ref(), Some(&told.target), "{event:?}");
            }
        }
    }
}

/// The data of each event matches the published schema.
pub(super) fn data_is_as_described(book: &StoreRows) {
    for event in book.events.values() {
        crate::schemas::assert_event(&event.kind, &event.data);
    }
}

/// The events of each session, run, step, message and announce match the state of its rows exactly.
pub(super) fn each_move_is_told_once(book: &StoreRows) {
    // Events that retention has removed cannot be counted.
    if book.is_trimmed() {
        return;
    }
    let mut by_session: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in book.events.values() {
        if let Some(session) = &event.session {
            by_session.entry(session).or_default().push(event);
        }
    }
    for session in book.sessions.values() {
        let events = by_session
            .get(session.id.as_str())
            .map_or(&[][..], Vec::as_slice);
        let told = |kind: &'static str| events.iter().filter(move |event| event.kind == kind);
        assert_eq!(told("session.created").count(), 1, "{}", session.key);
        let seqs: Vec<i64> = told("message.added")
            .map(|event| event.data["seq"].as_i64().unwrap())
            .collect();
        let told_of = book.transcript(&session.id).filter(|entry| !entry.silent);
        let expected: Vec<i64> = told_of.map(|entry| entry.seq).collect();
        assert_eq!(seqs, expected, "message events of {}", session.key);
    }
    let by_run = book.events_by_run();
    for run in book.runs.values() {
        let events = by_run.get(run.id.as_str()).map_or(&[][..], Vec::as_slice);
        // Announces that are finally undelivered have different events.
        let held = book.outbox.get(&run.id);
        if held.is_none_or(|notice| notice.state != "undelivered") {
            run_is_told_once(book, run, events);
        }
        steps_are_told_once(book, run, events);
    }
}

/// Each change of the list of agents is reported once, in order, and names at least one agent.
pub(super) fn agents_are_told_of_in_order(book: &StoreRows) {
    let told = book
        .events
        .values()
        .filter(|event| event.kind == "agents.changed");
    for (index, event) in told.enumerate() {
        assert_eq!(event.data["version"], index + 1, "{event:?}");
        let names = ["added", "changed", "removed"].map(|what| event.data[what].as_array());
        let count: usize = names.iter().flatten().map(|names| names.len()).sum();
        assert!(count > 0, "{event:?}");
    }
}

/// Each change of a folder's skills is reported once, under the next version.
pub(super) fn skills_are_told_of_in_order(book: &StoreRows) {
    let mut versions: BTreeMap<String, i64> = BTreeMap::new();
    let told = book.events.values();
    for event in told.filter(|event| event.kind == "skills.changed") {
        let workspace = event.data["workspace"].to_string();
        // The first version is not a change and has no event.
        let last = versions.entry(workspace).or_insert(1);
        *last += 1;
        assert_eq!(event.data["version"], *last, "{event:?}");
    }
}

fn run_is_told_once(book: &StoreRows, run: &Run, events: &[&Event]) {
    let mut after_its_end = events.iter().skip_while(|event| event.kind != "run.ended");
    let late = after_its_end.find(|event| event.kind == "tool.progress");
    assert!(late.is_none(), "{late:?} after the end of {run:?}");
    let at = |kind: &str| -> Vec<i64> {
        let events = events.iter().filter(|event| event.kind == kind);
        events.map(|event| event.cursor).collect()
    };
    let notice = book.outbox.get(&run.id);
    let mut last = 0;
    // In this order, each as often as the rows imply.
    for (kind, expected) in [
        ("run.queued", true),
        ("run.started", run.started),
        ("run.ended", run.ended),
        ("announce.queued", notice.is_some()),
        (
            "announce.delivered",
            notice.is_some_and(|notice| notice.message_seq.is_some()),
        ),
        ("announce.acked", notice.is_some_and(|notice| notice.acked)),
    ] {
        let cursors = at(kind);
        assert_eq!(cursors.len(), usize::from(expected), "{kind} of {run:?}");
        for cursor in cursors {
            assert!(cursor > last, "{kind} out of order in {run:?}");
            last = cursor;
        }
    }
    if let Some(end) = at("run.ended").first() {
        let late = events
            .iter()
            .filter(|event| event.cursor > *end && !event.kind.starts_with("announce."))
            // Emitted when nothing that the run started is left, or should be left.
            .find(|event| !["env.restored", "run.warned"].contains(&event.kind.as_str()))
            // Its announce is a message that carries the run's id.
            .filter(|event| event.data["kind"] != "announce");
        assert!(late.is_none(), "{late:?} after the end of {run:?}");
    }
}

fn steps_are_told_once(book: &StoreRows, run: &Run, events: &[&Event]) {
    for step in book.steps_of(&run.id) {
        let told: Vec<(&str, &str)> = events
            .iter()
            .filter(|event| event.data["stepId"] == step.id.as_str())
            .map(|event| (event.kind.as_str(), event.data["state"].as_str().unwrap()))
            .collect();
        let (begun, ended) = match step.kind.as_str() {
            "model" | "command" | "compaction" => ("run.step", "run.step"),
            _ => ("tool.started", "tool.completed"),
        };
        let mut expected = vec![(begun, "intended")];
        if !step.is_open() {
            expected.push((ended, step.state.as_str()));
        }
        assert_eq!(told, expected, "{step:?}");
    }
}
