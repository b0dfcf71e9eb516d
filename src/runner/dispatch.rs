//! Dispatches each run to the runner of its kind, by its pinned agent.

use std::sync::Arc;

use super::turn::{pinned_agent, read_agent};
use super::{CommandRunner, TurnRunner};
use crate::contract::BoxFuture;
use crate::contract::journal::RunView;
use crate::contract::preview::{Preview, UnapprovedCall};
use crate::contract::runner::{Admission, Next, Runner, StepOutcome, TextSink};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::step::Step;

/// Executes runs of every kind.
pub struct Runners {
    /// Executes runs of agents that are models.
    pub turn: TurnRunner,
    /// Executes runs of agents that are programs.
    pub command: CommandRunner,
}

impl Runners {
    fn of(&self, view: &RunView) -> &dyn Runner {
        // The model runner reports a definition that cannot be read.
        match pinned_agent(view).is_ok_and(|definition| definition.command.is_some()) {
            true => &self.command,
            false => &self.turn,
        }
    }
}

impl Runner for Runners {
    fn next(&self, view: &RunView) -> Next {
        self.of(view).next(view)
    }

    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission> {
        self.of(&view).admit(view, step)
    }

    fn preview(&self, call: UnapprovedCall) -> BoxFuture<'static, Preview> {
        match read_agent(&call.agent).is_ok_and(|definition| definition.command.is_some()) {
            true => self.command.preview(call),
            false => self.turn.preview(call),
        }
    }

    fn prepare(&self, view: &RunView, step: &Step) {
        self.of(view).prepare(view, step);
    }

    fn stored(&self, step: StepId) {
        self.turn.stored(step);
    }

    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>> {
        self.turn.ended(run)
    }

    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome> {
        self.of(&view).perform(view, step, sink)
    }
}
