//! How a run is carried out. The registry asks for the next step and journals it; the runner
//! carries it out.

use std::sync::Arc;

use super::BoxFuture;
use super::journal::RunView;
use super::preview::{Preview, Waiting};
use crate::kernel::approval::Consent;
use crate::kernel::ids::RunId;
use crate::kernel::message::{Block, Compacted};
use crate::kernel::run::RunError;
use crate::kernel::step::{Intent, Step, Used};
use crate::kernel::time::Timestamp;

/// What a run does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// These steps, at the same time. Never empty.
    Steps(Vec<Intent>),
    /// Nothing: its turn is over, with this final text (`None`: it has no answer).
    EndTurn(Option<String>),
    /// Nothing: it cannot go on.
    Fail(RunError),
    /// Nothing: it cannot go on, and what it has found so far is its result.
    Cut {
        /// Why.
        error: RunError,
        /// What it has found.
        found: String,
    },
}

/// What came out of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// An answer, of a model or of the agent's program.
    Answer {
        /// Text and tool calls, in the order in which they came.
        blocks: Vec<Block>,
        /// What it cost; `None`: no model was asked.
        used: Option<Used>,
        /// What whoever asked for the run should know: another model answered, for one.
        warnings: Vec<String>,
    },
    /// A tool's answer. A failure of the tool is an answer too: the model is told.
    ToolResult {
        /// What it says.
        text: String,
        /// It says that it failed.
        is_error: bool,
    },
    /// The transcript is shorter for the model, or needs not be.
    Shortened {
        /// What stands for the entries that it names; `None`: there was nothing to shorten.
        summary: Option<(String, Compacted)>,
        /// What has come of it, on one line, for people.
        told: String,
        /// What of it is worth keeping in the long-term memory.
        remember: Vec<String>,
        /// What it cost; `None`: no model was asked.
        used: Option<Used>,
    },
    /// The provider has refused the request as too long. The run may go on with a shorter one.
    TooLong(RunError),
    /// None yet: the step waits for something, and gets its outcome from elsewhere.
    Waits,
    /// None yet: the provider of the model takes no requests. The step is to be carried out once
    /// more at `until`.
    AwaitsProvider {
        /// When.
        until: Timestamp,
        /// What the provider has said.
        reason: String,
    },
    /// The run cannot go on.
    Failed {
        /// It ends with this error.
        error: RunError,
        /// What an answer cost that was of no use.
        used: Option<Used>,
    },
}

impl StepOutcome {
    /// The run cannot go on, and no model was asked.
    pub fn failed(error: RunError) -> Self {
        StepOutcome::Failed { error, used: None }
    }
}

/// Whether the effect of a step may begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// It may.
    Goes,
    /// Once a person allows it.
    Asks(Consent),
    /// It may not; the step is told so in these words, and nothing is done.
    Refused(String),
}

/// Takes the text of a model's answer while it comes, for those who listen. Nothing of it is
/// stored: what counts is the outcome.
pub trait TextSink: Send + Sync + 'static {
    /// More of the text; all pieces of an answer together are its text.
    fn text(&self, piece: &str);

    /// More of what the model thinks before it answers.
    fn thinking(&self, _piece: &str) {}

    /// What has come so far does not count: the answer begins anew.
    fn reset(&self) {}
}

/// Takes no text: nobody listens.
pub struct Nobody;

impl TextSink for Nobody {
    fn text(&self, _: &str) {}
}

/// Carries out runs of one kind.
pub trait Runner: Send + Sync + 'static {
    /// What comes next. Judged from `view` alone and without effects: the same view gives the
    /// same answer (apart from fresh step ids), also after a restart. Called only when no
    /// step of the view is open.
    fn next(&self, view: &RunView) -> Next;

    /// Whether the effect of a tool's step may begin. Asked before each try, and before anything
    /// is begun.
    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission>;

    /// What a person sees of a call that waits for approval, beside its arguments. Reads files and
    /// changes nothing.
    fn preview(&self, call: Waiting) -> BoxFuture<'static, Preview>;

    /// The run has ended: once this resolves, nothing is left of what it was lent; what went wrong
    /// with that, as warnings of the run. Called for every run, in every outcome.
    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>>;

    /// Carries out one step whose intent is committed. Dropping the future stops it. May be
    /// called again for the same step after a kill, as the step's effect class allows. What a
    /// model says goes to `sink` while it comes.
    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome>;
}
