//! Sessions of subagents for editors that show them: announced on the session of their requester, and
//! followed until the run has ended. The feature is unstable in the protocol.

use std::rc::Rc;

use super::editor::Editor;
use super::follow::Follower;
use crate::acp_protocol::update::{SubagentState, Update};
use crate::acp_protocol::{Answered, RpcError, code};
use crate::kernel::text::preview;
use crate::wire::runs::GetRun;
use crate::wire::shapes::Run;

/// Maximum number of characters of a title.
const TITLE: usize = 120;

/// Announces the session of this run, sends its updates, and says how the run has ended. Its
/// subscription ends with the run.
pub(super) async fn follow(editor: Rc<Editor>, parent: String, run: Run) {
    let what = run.label.clone().unwrap_or_else(|| run.title.clone());
    let title = preview(&format!("{}: {what}", run.agent), TITLE);
    tell(
        &editor,
        &parent,
        &run,
        Some(title),
        SubagentState::Running {},
    )
    .await;
    let state = match follow_session(&editor, &run).await {
        Ok(ended) => ended,
        Err(error) => SubagentState::Idle {
            stop_reason: "error",
            error: Some(error),
        },
    };
    tell(&editor, &parent, &run, None, state).await;
}

async fn follow_session(editor: &Rc<Editor>, run: &Run) -> Answered<SubagentState> {
    let follower = Follower::open(editor, &run.session_key).await?;
    follower.run_until(run.run_id).await?;
    let ended = editor.link.call(&GetRun { run_id: run.run_id }).await?;
    Ok(match &*ended.state {
        "ok" => SubagentState::Idle {
            stop_reason: "end_turn",
            error: None,
        },
        "cancelled" => SubagentState::Idle {
            stop_reason: "cancelled",
            error: None,
        },
        state => SubagentState::Idle {
            stop_reason: "error",
            error: Some(RpcError::new(
                code::INTERNAL,
                match ended.error {
                    Some(error) => error.message,
                    None => format!("the run has ended as {state}"),
                },
            )),
        },
    })
}

async fn tell(
    editor: &Editor,
    parent: &str,
    run: &Run,
    title: Option<String>,
    state: SubagentState,
) {
    let update = Update::SubagentUpdate {
        session_id: run.session_key.to_string(),
        title,
        state,
    };
    editor.output.update(parent, &update).await;
}
