//! Stores a step's outcome together with what follows it, which the runner decides. Called by
//! `drive`.

use std::sync::Arc;
use std::time::Duration;

use super::Drive;
use super::arguments::MaskedOutcome;
use crate::command::{DoubtEffect, RecordOutcome, Recorded, RunAfter, StepRef, Then, TurnEnd};
use crate::contract::journal::RunView;
use crate::contract::runner::{Next, StepOutcome};
use crate::failpoint::reach;
use crate::kernel::fault::Fault;
use crate::kernel::ids::MessageId;
use crate::kernel::run::recover::{StepFate, doubted, lost_program};
use crate::kernel::run::step::{EffectClass, Intent, ModelUsage, Step, StepKind};
use crate::kernel::run::{RunError, Usage};
use crate::kernel::session::message::NewMessage;
use crate::telemetry::metrics::metrics;

impl Drive<'_> {
    /// Once this returns, the outcome and what follows it are stored.
    pub(super) async fn record(
        &self,
        step: &Arc<Step>,
        came: MaskedOutcome,
    ) -> Result<RunAfter, Fault> {
        let MaskedOutcome { outcome, sealed } = came;
        if let StepOutcome::Uncertain { why, is_final } = &outcome {
            let fate = doubted(step, self.view.run.on_uncertain);
            if fate != StepFate::Uncertain {
                let is_reviewed = fate == StepFate::Review;
                return self.doubt(step, why.clone(), is_reviewed, *is_final).await;
            }
        }
        let recorded = match outcome {
            StepOutcome::Answer {
                blocks,
                used,
                warnings,
            } => Recorded::Answer {
                blocks,
                used,
                warnings,
                sealed,
            },
            StepOutcome::ToolResult { text, is_error } => Recorded::ToolResult { text, is_error },
            StepOutcome::Uncertain { why, .. } => Recorded::Uncertain { why },
            StepOutcome::Shortened {
                summary,
                report: told,
                remember,
                used,
            } => Recorded::Shortened {
                summary: summary.map(Box::new),
                told,
                remember,
                used,
            },
            StepOutcome::TooLong(error) => Recorded::TooLong(error),
            StepOutcome::Failed { error, used } => Recorded::Failed { error, used },
            StepOutcome::Waits | StepOutcome::AwaitsProvider { .. } => {
                return Err(Fault::internal("a step that waits has no outcome yet"));
            }
        };
        self.count(step, &recorded);
        let then = self.what_follows(step, &recorded);
        reach("drive.recording");
        let after = self
            .submit(RecordOutcome {
                run: step.run,
                step: step.seq,
                attempt: step.attempts,
                outcome: recorded,
                then,
            })
            .await?;
        if step.effect == EffectClass::Kept {
            reach("drive.recorded");
            self.forget_effect(step);
        }
        Ok(after)
    }

    /// Once this returns, the step waits for a review of its effect, or is to be carried out again.
    async fn doubt(
        &self,
        step: &Step,
        why: String,
        is_reviewed: bool,
        is_final: bool,
    ) -> Result<RunAfter, Fault> {
        let by = StepRef {
            run: step.run,
            step: step.seq,
            attempt: step.attempts,
        };
        let after = self
            .submit(DoubtEffect {
                by,
                why,
                is_reviewed,
                is_lost: is_final,
            })
            .await?;
        if is_final {
            self.forget_effect(step);
        }
        Ok(after)
    }

    /// What happened to the effect is stored, so its keeper need not know it any more.
    fn forget_effect(&self, step: &Step) {
        self.inner.runner.stored(step.id);
        self.inner.processes.step_stored(step.id);
    }

    /// Adds a model call, successful or failed, to the metrics.
    fn count(&self, step: &Step, outcome: &Recorded) {
        let (model, used, error) = match (outcome.used(), outcome) {
            // An answer that the run cannot use still counts as a successful call.
            (Some(ModelUsage { model, usage }), _) => (model, *usage, None),
            (None, Recorded::Failed { error, .. } | Recorded::TooLong(error))
                if step.kind == StepKind::Model =>
            {
                let kind = error.kind.as_str();
                (&self.view.run.model, Usage::default(), Some(kind))
            }
            _ => return,
        };
        let took = self.inner.clock.now().since(step.started_at);
        let took = Duration::from_millis(took);
        metrics().model_asked(model, used, error, took);
    }

    /// Asks the runner what follows, on the predicted view.
    fn what_follows(&self, step: &Step, outcome: &Recorded) -> Then {
        match outcome {
            Recorded::Failed { error, .. } => return Then::Fail(error.clone()),
            // No model is involved that could check what the program has done.
            Recorded::Uncertain { why } if step.kind == StepKind::Command => {
                return Then::Interrupt(lost_program(step.seq, why));
            }
            _ => {}
        }
        let others_open = self
            .view
            .steps
            .iter()
            .any(|other| other.id != step.id && other.state.is_open());
        if others_open {
            return Then::Wait;
        }
        let view = self.with_outcome(step, outcome);
        match self.inner.next_step(&view, &view) {
            Next::Steps(intents) => steps_or_fail(intents),
            Next::EndTurn(text) => Then::EndTurn(self.turn_end(text, &view)),
            Next::Fail(error) => Then::Fail(error),
            Next::Cut {
                error,
                findings: found,
            } => Then::Cut { error, found },
        }
    }

    /// The end of the turn, with the steps that the runner would take if a steer message came
    /// first. The store checks for such a message in the transaction that would end the turn.
    pub(super) fn turn_end(&self, text: Option<String>, view: &RunView) -> TurnEnd {
        let mut asked = view.clone();
        let mut said = NewMessage::user(MessageId(self.inner.clock.new_id()), "steer");
        said.run = Some(view.run.id);
        let said = said.at(
            view.last_seq() + 1,
            view.run.generation,
            self.inner.clock.now(),
        );
        asked.messages.push(Arc::new(said));
        let more = match self.inner.next_step(&asked, view) {
            Next::Steps(intents) => intents,
            // At a limit the turn ends as it is; a late steer message is reported as too late.
            Next::EndTurn(_) | Next::Fail(_) | Next::Cut { .. } => Vec::new(),
        };
        TurnEnd { text, more }
    }
}

fn steps_or_fail(intents: Vec<Intent>) -> Then {
    if intents.is_empty() {
        // The runner must return a step or an end; without either, the turn would never end.
        return Then::Fail(RunError::new("runner", "the runner named no next step"));
    }
    Then::Steps(intents)
}
