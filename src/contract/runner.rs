//! How a run is executed. The registry asks the runner for the next step, journals it, and has the
//! runner carry it out.

use std::sync::Arc;

use super::BoxFuture;
use super::journal::RunView;
use super::preview::{Preview, UnapprovedCall};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::approval::Consent;
use crate::kernel::run::RunError;
use crate::kernel::run::step::{Intent, ModelUsage, Step};
use crate::kernel::session::message::{Block, Compacted};
use crate::kernel::time::Timestamp;

/// What a run does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Carry out these steps concurrently. Never empty.
    Steps(Vec<Intent>),
    /// End the turn with this final text; `None` = it has no answer.
    EndTurn(Option<String>),
    /// End the run as failed.
    Fail(RunError),
    /// End the run as failed, with its findings so far as the result.
    Cut {
        /// The error.
        error: RunError,
        /// The findings so far.
        findings: String,
    },
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// An answer of a model or of the agent's program.
    Answer {
        /// Text and tool calls, in the order received.
        blocks: Vec<Block>,
        /// Model usage; `None` if no model was called.
        used: Option<ModelUsage>,
        /// Warnings for the requester of the run, such as that another model answered.
        warnings: Vec<String>,
    },
    /// A tool's answer. A failure of the tool is an answer, too: the model sees it.
    ToolResult {
        /// The text of the result.
        text: String,
        /// Whether the tool reports a failure.
        is_error: bool,
    },
    /// A tool's effect may have happened, and the call has ended without saying so.
    Uncertain {
        /// Why it is unknown, as a clause.
        why: String,
        /// Nothing more will become known: carried out again, the effect begins anew. Otherwise
        /// the process that keeps the effect may answer later.
        is_final: bool,
    },
    /// The transcript was compacted for the model, or needs no compaction.
    Shortened {
        /// The summary that replaces the entries it names; `None` if there was nothing to compact.
        summary: Option<(String, Compacted)>,
        /// A one-line report for users.
        report: String,
        /// Memories to keep from the dropped part.
        remember: Vec<String>,
        /// Model usage; `None` if no model was called.
        used: Option<ModelUsage>,
    },
    /// The provider has refused the request as too long. The run may continue with a shorter one.
    TooLong(RunError),
    /// No outcome yet: the step waits, and gets its outcome from elsewhere.
    Waits,
    /// No outcome yet: the model's provider accepts no requests. The step is to be repeated at
    /// `until`.
    AwaitsProvider {
        /// The earliest time of the next attempt.
        until: Timestamp,
        /// The provider's reason.
        reason: String,
    },
    /// The run cannot continue.
    Failed {
        /// The error that ends the run.
        error: RunError,
        /// Usage of a model answer that was discarded.
        used: Option<ModelUsage>,
    },
}

impl StepOutcome {
    /// The run cannot continue, and no model was called.
    pub fn failed(error: RunError) -> Self {
        StepOutcome::Failed { error, used: None }
    }
}

/// Whether the effect of a step may begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// It may begin.
    Allowed,
    /// It may begin once a user approves it.
    NeedsApproval(Consent),
    /// It may not begin. The model gets this text as the result, and nothing is done.
    Refused(String),
}

/// Receives the text of a model's answer as it is streamed. Nothing of it is stored: only the
/// outcome counts.
pub trait TextSink: Send + Sync + 'static {
    /// The next piece of the text; all pieces of an answer joined are its text.
    fn text(&self, piece: &str);

    /// The next piece of the model's reasoning before its answer.
    fn thinking(&self, _piece: &str) {}

    /// Discards everything received so far: the answer starts over.
    fn reset(&self) {}
}

/// A sink that discards all text.
pub struct DiscardSink;

impl TextSink for DiscardSink {
    fn text(&self, _: &str) {}
}

/// Executes runs of one kind.
pub trait Runner: Send + Sync + 'static {
    /// What the run does next. Decided from `view` alone and without effects: the same view gives
    /// the same answer (apart from fresh step ids), also after a restart. Called only when no step
    /// of the view is open.
    fn next(&self, view: &RunView) -> Next;

    /// Whether the effect of a tool's step may begin. Called before each attempt, before any
    /// effect.
    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission>;

    /// What a user sees of a call that waits for approval, beside its arguments. Reads files and
    /// changes nothing.
    fn preview(&self, call: UnapprovedCall) -> BoxFuture<'static, Preview>;

    /// Called before it is stored that the kept effect of this step begins: what keeps it here is
    /// prepared, so that its absence later shows that it was lost.
    fn prepare(&self, view: &RunView, step: &Step);

    /// The step is not carried out: this text is its outcome. The program that made the call, if it
    /// waits for an answer, gets the refusal.
    fn refused(&self, _step: &Step, _why: &str) {}

    /// The step waits for a person. The program that makes the call may have dropped its question
    /// meanwhile, and then ends the wait.
    fn waits(&self, _step: &Step) {}

    /// The executor of the run is being stopped: once this resolves, the programs of its steps have
    /// had the time that their protocol gives them to end the work. Takes at most two seconds.
    fn stopping(&self, _run: RunId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The outcome of this step is stored: what another process keeps of its effect can go.
    fn stored(&self, step: StepId);

    /// Once this resolves, every resource leased to the ended run is released; failures to do so
    /// are returned as warnings of the run. Called for every run, with every outcome.
    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>>;

    /// Carries out one step whose intent is committed. Dropping the future stops it. May be called
    /// again for the same step after a kill, as the step's effect class allows. Text of a model is
    /// streamed to `sink`.
    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome>;
}
