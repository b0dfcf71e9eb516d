//! Watches what concerns several sessions: approvals, also of subagents, new runs in the background,
//! questions, and skills.

use std::rc::Rc;

use super::editor::Editor;
use super::follow::data;
use crate::kernel::event::{
    ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked, RunQueued,
};
use crate::kernel::ids::SessionKey;
use crate::wire::events::{Event, LAGGED, Lagged, SNAPSHOT, Snapshot, SubscribeEvents};

/// The kinds of events that are watched.
const KINDS: [&str; 5] = [
    "approval.*",
    "run.queued",
    "question.*",
    "skills.changed",
    "agents.changed",
];

/// Begins to watch, once.
pub(super) fn start(editor: &Rc<Editor>) {
    if !editor.permissions.begin_watch() {
        return;
    }
    tokio::task::spawn_local(watch(Rc::clone(editor)));
}

async fn watch(editor: Rc<Editor>) {
    let mut request = SubscribeEvents {
        kinds: KINDS.map(str::to_owned).to_vec(),
        ..SubscribeEvents::default()
    };
    loop {
        let mut events = editor.link.subscribe_at_last(&mut request).await;
        while let Some(event) = events.next().await {
            let Ok(event) = event else {
                continue;
            };
            match event.kind.as_str() {
                SNAPSHOT => {
                    if let Some(snapshot) = data::<Snapshot>(&event) {
                        request.since = u64::try_from(snapshot.cursor).ok();
                        request.store_id = Some(snapshot.store_id);
                    }
                    for key in open_keys(&editor) {
                        editor.permissions.refresh(&editor, &key);
                        editor.show_children(&key).await;
                        editor.show_questions(&key).await;
                    }
                }
                LAGGED => {
                    if let Some(lagged) = data::<Lagged>(&event) {
                        request.since = u64::try_from(lagged.resume_from).ok();
                    }
                }
                _ => take(&editor, &event).await,
            }
            if let Some(cursor) = event.cursor {
                request.since = u64::try_from(cursor).ok();
            }
        }
    }
}

async fn take(editor: &Rc<Editor>, event: &Event) {
    match event.kind.as_str() {
        "approval.requested" => {
            if let Some(asked) = data::<ApprovalRequested>(event) {
                editor.permissions.refresh(editor, &asked.session_key);
            }
        }
        "approval.resolved" => {
            if let Some(resolved) = data::<ApprovalResolved>(event) {
                editor.permissions.resolved(resolved.approval_id);
            }
        }
        "run.queued" => {
            let queued = data::<RunQueued>(event);
            if let Some(requester) = queued.and_then(|queued| queued.parent) {
                editor.show_children(&requester).await;
            }
        }
        "question.asked" => {
            if let Some(asked) = data::<QuestionAsked>(event) {
                editor.show_questions(&asked.session_key).await;
            }
        }
        "question.answered" => {
            if let Some(answered) = data::<QuestionAnswered>(event) {
                editor.questions.answered(answered.question_id);
            }
        }
        _ => {
            let sessions: Vec<_> = editor.sessions.borrow().values().cloned().collect();
            for session in sessions {
                editor.tell_commands(&session).await;
            }
        }
    }
}

fn open_keys(editor: &Editor) -> Vec<SessionKey> {
    let sessions = editor.sessions.borrow();
    sessions
        .values()
        .map(|session| session.key.clone())
        .collect()
}
