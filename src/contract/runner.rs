//! How a run is carried out. The registry asks for the next step and journals it; the runner
//! carries it out.

use std::sync::Arc;

use super::BoxFuture;
use super::journal::RunView;
use crate::kernel::message::Block;
use crate::kernel::run::{RunError, Usage};
use crate::kernel::step::{Intent, Step};

/// What a run does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// These steps, at the same time. Never empty.
    Steps(Vec<Intent>),
    /// Nothing: its turn is over, with this final text (`None`: it has no answer).
    EndTurn(Option<String>),
    /// Nothing: it cannot go on.
    Fail(RunError),
}

/// What came out of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// A model's answer.
    Answer {
        /// Text and tool calls, in the order in which they came.
        blocks: Vec<Block>,
        /// What it cost.
        usage: Usage,
    },
    /// A tool's answer. A failure of the tool is an answer too: the model is told.
    ToolResult {
        /// What it says.
        text: String,
        /// It says that it failed.
        is_error: bool,
    },
    /// None yet: the step waits for something, and gets its outcome from elsewhere.
    Waits,
    /// The run cannot go on; it ends with this error.
    Failed(RunError),
}

/// Carries out runs of one kind.
pub trait Runner: Send + Sync + 'static {
    /// What comes next. Judged from `view` alone and without effects: the same view gives the
    /// same answer (apart from fresh step ids), also after a restart. Called only when no
    /// step of the view is open.
    fn next(&self, view: &RunView) -> Next;

    /// Carries out one step whose intent is committed. Dropping the future stops it. May be
    /// called again for the same step after a kill, as the step's effect class allows.
    fn perform(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, StepOutcome>;
}
