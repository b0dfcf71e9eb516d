//! Predicts a run's view after the pending write. The runner chooses the next step from it, so that
//! the outcome and the next intent go into one command.

use std::sync::Arc;

use super::Drive;
use crate::command::Recorded;
use crate::contract::journal::RunView;
use crate::kernel::ids::MessageId;
use crate::kernel::run::step::{Step, StepState};
use crate::kernel::session::message::{Message, NewMessage};

impl Drive<'_> {
    /// The view as it will be once the turn's input is in the transcript.
    pub(super) fn with_input(&self, input: Option<&str>) -> RunView {
        let mut view = RunView::clone(&self.view);
        if let Some(text) = input {
            let id = MessageId(self.inner.clock.new_id());
            let new = NewMessage::user(id, text);
            view.messages.push(Arc::new(self.placed(new)));
        }
        view
    }

    /// The view as it will be once this outcome is stored.
    pub(super) fn with_outcome(&self, step: &Step, outcome: &Recorded) -> RunView {
        let mut view = RunView::clone(&self.view);
        let id = MessageId(self.inner.clock.new_id());
        let message = outcome.message(step, id).map(|new| self.placed(new));
        let mut step = step.clone();
        step.state = StepState::Done;
        step.ended_at = Some(self.inner.clock.now());
        step.message_seq = message.as_ref().map(|message| message.seq);
        step.used = outcome.used().cloned();
        if let Some(used) = &step.used {
            view.run.usage.add(used.usage);
        }
        match outcome {
            Recorded::Shortened { told, .. } => step.result_summary = Some(told.clone()),
            Recorded::TooLong(_) => {
                step.state = StepState::Failed;
                step.error = outcome.error();
            }
            Recorded::Uncertain { .. } => {
                step.state = StepState::Uncertain;
                step.error = outcome.error();
            }
            Recorded::Answer { .. } | Recorded::ToolResult { .. } | Recorded::Failed { .. } => {}
        }
        view.messages.extend(message.map(Arc::new));
        if let Some(known) = view.steps.iter_mut().find(|known| known.id == step.id) {
            *known = Arc::new(step);
        }
        view
    }

    /// A message at the position that the store will most likely give it.
    fn placed(&self, mut new: NewMessage) -> Message {
        new.run = Some(self.view.run.id);
        new.at(
            self.view.last_seq() + 1,
            self.view.run.generation,
            self.inner.clock.now(),
        )
    }
}
