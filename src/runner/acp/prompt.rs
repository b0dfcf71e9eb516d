//! What an outside agent is told: the task, what its session does not know, and how a turn goes on
//! that was interrupted.

use std::sync::Arc;

use crate::acp_protocol::request::ContentBlock;
use crate::contract::journal::RunView;
use crate::kernel::run::outside::{OUTSIDE, OutsideTurn};
use crate::kernel::run::step::Step;
use crate::kernel::session::message::{Message, Role};
use crate::runner::command::task;
use crate::runner::prompt::conversation;

/// Maximum number of bytes of an earlier conversation that a new session is told.
const EARLIER: usize = 50 * 1024;

/// The session in which the agent of this name was prompted before in the run's session.
pub(super) fn earlier_session(view: &RunView, step: &Step, agent: &str) -> Option<OutsideTurn> {
    let of_steps = view.steps.iter().rev();
    let of_steps = of_steps.filter(|other| other.id != step.id);
    let of_messages = view.messages.iter().rev();
    let of_messages = of_messages.filter_map(|message| {
        let kept = message.metadata.as_ref()?.get(OUTSIDE)?;
        serde_json::from_value(kept).ok()
    });
    let mut turns = of_steps
        .filter_map(|other| OutsideTurn::of(other))
        .chain(of_messages);
    turns.find(|turn| turn.agent == agent && turn.session.is_some())
}

/// The prompt of a turn in a session that knows what was said before.
pub(super) fn next(view: &RunView, step: &Step) -> Vec<ContentBlock> {
    vec![ContentBlock::text(task(view, step))]
}

/// The prompt of the first turn in a new session.
pub(super) fn first(view: &RunView, step: &Step, instructions: &str) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    if !instructions.trim().is_empty() {
        blocks.push(ContentBlock::text(instructions.trim()));
    }
    if let Some(earlier) = earlier(view, step) {
        blocks.push(ContentBlock::text(earlier));
    }
    blocks.extend(next(view, step));
    blocks
}

/// The prompt that continues a turn of which the agent's program was lost.
pub(super) fn continued(view: &RunView, step: &Step) -> Vec<ContentBlock> {
    let note = "Your previous turn in this session was interrupted: your program was stopped before \
                the turn ended. Find out what of the task is already done, do not do it again, and \
                finish the rest. The task was:";
    let mut blocks = vec![ContentBlock::text(note)];
    blocks.extend(next(view, step));
    blocks
}

/// What was said before the present task.
fn earlier(view: &RunView, step: &Step) -> Option<String> {
    let mut seen = conversation(view, step.seen_up_to);
    while seen
        .last()
        .is_some_and(|message| message.role == Role::User)
    {
        seen.pop();
    }
    let mut room = EARLIER;
    let mut told: Vec<String> = Vec::new();
    for message in seen.iter().rev() {
        let line = line(message);
        if line.is_empty() {
            continue;
        }
        if line.len() > room {
            told.push("…".to_owned());
            break;
        }
        room -= line.len();
        told.push(line);
    }
    told.reverse();
    (!told.is_empty()).then(|| {
        format!(
            "The conversation so far, of which your session knows nothing:\n\n{}\n\nWhat follows \
             is the present message.",
            told.join("\n\n")
        )
    })
}

fn line(message: &Arc<Message>) -> String {
    let text = message.text();
    match text.trim() {
        "" => String::new(),
        text => match message.role {
            Role::Assistant => format!("You: {text}"),
            _ => format!("User: {text}"),
        },
    }
}
