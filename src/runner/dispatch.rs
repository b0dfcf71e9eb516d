//! Dispatches each run to the runner of its kind, by its pinned agent.

use std::sync::Arc;

use futures_util::FutureExt;

use super::turn::{pinned_agent, read_agent};
use super::{CommandRunner, OutsideRunner, TurnRunner};
use crate::agent::{AgentDefinition, Speaks};
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
    /// Executes runs of agents that are programs and speak the Agent Client Protocol.
    pub outside: OutsideRunner,
}

impl Runners {
    fn of(&self, view: &RunView) -> &dyn Runner {
        self.of_kind(pinned_agent(view).ok().as_deref())
    }

    fn of_kind(&self, definition: Option<&AgentDefinition>) -> &dyn Runner {
        let command = definition.and_then(|definition| definition.command.as_ref());
        match command.map(|command| command.speaks) {
            // The model runner reports a definition that cannot be read.
            None => &self.turn,
            Some(Speaks::Text) => &self.command,
            Some(Speaks::Acp) => &self.outside,
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
        let definition = read_agent(&call.agent).ok();
        self.of_kind(definition.as_deref()).preview(call)
    }

    fn prepare(&self, view: &RunView, step: &Step) {
        self.of(view).prepare(view, step);
    }

    fn refused(&self, step: &Step, why: &str) {
        self.outside.refused(step, why);
    }

    fn waits(&self, step: &Step) {
        self.outside.waits(step);
    }

    fn stopping(&self, run: RunId) -> BoxFuture<'static, ()> {
        self.outside.stopping(run)
    }

    fn stored(&self, step: StepId) {
        self.turn.stored(step);
    }

    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>> {
        let (mut tools, mut program) = (self.turn.ended(run), self.outside.ended(run));
        // Most runs have nothing to release.
        match ((&mut tools).now_or_never(), (&mut program).now_or_never()) {
            (Some(first), Some(then)) => Box::pin(std::future::ready([first, then].concat())),
            (Some(first), None) => Box::pin(async move { [first, program.await].concat() }),
            (None, Some(then)) => Box::pin(async move { [tools.await, then].concat() }),
            (None, None) => Box::pin(async move {
                let (first, then) = tokio::join!(tools, program);
                [first, then].concat()
            }),
        }
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
