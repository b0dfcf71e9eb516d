//! Subagents. One that works in the background is a tool call of its own, with the progress of its
//! steps, until its result is announced. Editors that show subagents as sessions are also told of each
//! session, and get its updates until its run has ended.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use futures_util::future::OptionFuture;
use tokio::task::AbortHandle;

use super::editor::Editor;
use super::follow::data;
use super::{subagents, titles};
use crate::acp_protocol::update::{
    ToolCall, ToolCallUpdate, ToolContent, ToolKind, ToolStatus, Update,
};
use crate::kernel::event::{RunEnded, StepMoved};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::text::preview;
use crate::wire::events::{Event, LAGGED, Lagged, SNAPSHOT, Snapshot, SubscribeEvents};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, State};
use crate::wire::shapes::Run;

/// Maximum number of characters of a title.
const TITLE: usize = 120;
/// Maximum number of steps that are shown.
const STEPS: usize = 50;
/// Maximum number of characters of a step.
const STEP: usize = 100;

/// The runs of subagents that the editor was told of, also those that have ended.
#[derive(Default)]
pub(super) struct Children(RefCell<HashMap<RunId, ShownChild>>);

struct ShownChild {
    /// The open session in which it is shown.
    session: String,
    /// True if it is a tool call of its own.
    is_call: bool,
    /// Shows its progress.
    task: AbortHandle,
}

impl Children {
    /// True if the editor knows the tool call of this run.
    pub(super) fn knows(&self, run: RunId) -> bool {
        self.0.borrow().get(&run).is_some_and(|child| child.is_call)
    }

    /// Forgets what was shown in a session that is closed or opened anew.
    pub(super) fn forget(&self, session: &str) {
        self.0.borrow_mut().retain(|_, child| {
            let is_kept = child.session != session;
            if !is_kept {
                child.task.abort();
            }
            is_kept
        });
    }
}

/// Id of the tool call of a background run.
pub(super) fn call_id(run: RunId) -> String {
    format!("run:{run}")
}

impl Editor {
    /// Shows the open runs of subagents that this session has requested, each once.
    pub(super) async fn show_children(self: &Rc<Self>, session: &SessionKey) {
        if self.session(session.as_str()).is_err() {
            return;
        }
        let request = ListRuns {
            parent: Some(session.clone()),
            states: State::OPEN.to_vec(),
            limit: PageSize(PAGE_LIMIT),
            ..ListRuns::default()
        };
        // Without an answer their results are still announced.
        let Ok(page) = self.link.call(&request).await else {
            return;
        };
        // It may have been closed meanwhile.
        if self.session(session.as_str()).is_err() {
            return;
        }
        for run in page.runs.into_iter().rev() {
            let id = run.run_id;
            // A call that waits for its run shows the progress itself.
            let is_call = run.delegated.is_none();
            // One that the user has opened is followed already.
            let is_open = self.session(run.session_key.as_str()).is_ok();
            let is_session = self.shows_subagents() && !is_open;
            let is_known = self.children.0.borrow().contains_key(&id);
            if run.session_key == *session || is_known || !(is_call || is_session) {
                continue;
            }
            let exposed = is_session.then(|| {
                let (editor, parent) = (Rc::clone(self), session.to_string());
                subagents::follow(editor, parent, run.clone())
            });
            let child = is_call.then(|| {
                let child = Child::of(Rc::clone(self), session.to_string(), run);
                child.follow()
            });
            // Aborted together; each ends with the run, and its subscription with it.
            let task = tokio::task::spawn_local(async move {
                tokio::join!(OptionFuture::from(child), OptionFuture::from(exposed));
            });
            let shown = ShownChild {
                session: session.to_string(),
                is_call,
                task: task.abort_handle(),
            };
            self.children.0.borrow_mut().insert(id, shown);
        }
    }
}

/// A background run.
struct Child {
    editor: Rc<Editor>,
    session: String,
    run: RunId,
    title: String,
    /// Its latest steps, one line each.
    steps: Vec<(String, String)>,
}

impl Child {
    fn of(editor: Rc<Editor>, session: String, run: Run) -> Child {
        let what = run.label.unwrap_or(run.title);
        Child {
            editor,
            session,
            run: run.run_id,
            title: preview(&format!("{}: {what}", run.agent), TITLE),
            steps: Vec::new(),
        }
    }

    /// Follows the run until it has ended. [`Children::forget`] aborts it when its session is closed.
    async fn follow(mut self) {
        let call = ToolCall {
            tool_call_id: call_id(self.run),
            title: self.title.clone(),
            name: "subagent".to_owned(),
            kind: ToolKind::Think,
            status: ToolStatus::InProgress,
            content: Vec::new(),
            locations: Vec::new(),
            raw_input: None,
        };
        self.send(Update::ToolCall(call)).await;
        let mut request = SubscribeEvents {
            tree: Some(self.run),
            kinds: ["tool.started", "tool.completed", "run.ended"]
                .map(str::to_owned)
                .to_vec(),
            ..SubscribeEvents::default()
        };
        loop {
            let mut events = self.editor.link.subscribe_at_last(&mut request).await;
            while let Some(event) = events.next().await {
                let Ok(event) = event else { continue };
                if self.take(&event, &mut request).await.is_break() {
                    return;
                }
            }
        }
    }

    async fn take(&mut self, event: &Event, request: &mut SubscribeEvents) -> ControlFlow<()> {
        match event.kind.as_str() {
            SNAPSHOT => {
                let Some(snapshot) = data::<Snapshot>(event) else {
                    return ControlFlow::Continue(());
                };
                request.since = u64::try_from(snapshot.cursor).ok();
                request.store_id = Some(snapshot.store_id);
                let own = snapshot.runs.iter().find(|run| run.run_id == self.run);
                match own {
                    Some(run) if !run.is_open() => {
                        let error = run.error.as_ref().map(|error| error.message.clone());
                        self.ended(&run.state, error).await;
                        return ControlFlow::Break(());
                    }
                    // A snapshot that has no room for all runs may lack an open one.
                    None if !snapshot.more => {
                        let why = "the run was deleted".to_owned();
                        self.ended("deleted", Some(why)).await;
                        return ControlFlow::Break(());
                    }
                    _ => {}
                }
            }
            LAGGED => {
                if let Some(lagged) = data::<Lagged>(event) {
                    request.since = u64::try_from(lagged.resume_from).ok();
                }
            }
            "run.ended" if event.run_id == Some(self.run) => {
                if let Some(ended) = data::<RunEnded>(event) {
                    let error = ended.error.map(|error| error.message);
                    self.ended(&ended.state, error).await;
                }
                return ControlFlow::Break(());
            }
            "tool.started" | "tool.completed" => {
                if let Some(step) = data::<StepMoved>(event).filter(|step| step.source.is_none()) {
                    self.moved(&step).await;
                }
            }
            _ => {}
        }
        if let Some(cursor) = event.cursor {
            request.since = u64::try_from(cursor).ok();
        }
        ControlFlow::Continue(())
    }

    async fn moved(&mut self, step: &StepMoved) {
        let mark = match &*step.state {
            "intended" | "started" => "…",
            "done" => "✓",
            _ => "✗",
        };
        let tool = step.tool_name.as_deref().unwrap_or("program");
        let summary = step.params_summary.as_deref().unwrap_or_default();
        let line = preview(&format!("{mark} {tool} {summary}"), STEP);
        let id = step.step_id.to_string();
        match self.steps.iter_mut().find(|(of, _)| *of == id) {
            Some((_, old)) => *old = line,
            None => self.steps.push((id, line)),
        }
        if self.steps.len() > STEPS {
            self.steps.remove(0);
        }
        let lines: Vec<&str> = self.steps.iter().map(|(_, line)| &**line).collect();
        let text = titles::fenced(&lines.join("\n"));
        self.update(ToolStatus::InProgress, Some(text)).await;
    }

    /// The result itself comes with its announce.
    async fn ended(&self, state: &str, error: Option<String>) {
        let status = match state {
            "ok" => ToolStatus::Completed,
            _ => ToolStatus::Failed,
        };
        self.update(status, error).await;
    }

    async fn update(&self, status: ToolStatus, text: Option<String>) {
        self.send(Update::ToolCallUpdate(ToolCallUpdate {
            tool_call_id: call_id(self.run),
            status: Some(status),
            content: text.map(|text| vec![ToolContent::text(text)]),
            ..ToolCallUpdate::default()
        }))
        .await;
    }

    async fn send(&self, update: Update) {
        self.editor.output.update(&self.session, &update).await;
    }
}
