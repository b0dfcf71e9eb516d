//! The model that answers a step: the run's own, or if that has failed permanently, the fallback
//! models in order. Called by `perform`.

use std::sync::Arc;
use std::time::Duration;

use super::turn::TurnRunner;
use crate::agent::AgentDefinition;
use crate::contract::journal::RunView;
use crate::contract::runner::{StepOutcome, TextSink};
use crate::kernel::run::step::ModelUsage;
use crate::kernel::run::{RunError, Usage};
use crate::kernel::text::open_ended;
use crate::provider::{BUILT_IN, ModelAnswer, ModelRequest, Provider, ProviderFault};

/// Minimum pause of a run in milliseconds; a shorter one is not worth its two writes.
const LEAST_PAUSE_MS: u64 = 1000;
/// Maximum spread of the pauses of many runs in milliseconds.
const MOST_SPREAD_MS: u64 = 5000;

impl TurnRunner {
    /// The models that may answer, the first to call at the head. Once a fallback has answered, the
    /// rest of the run stays with it, so that a failing model is not waited for at every step.
    fn models(&self, view: &RunView, definition: &AgentDefinition) -> Vec<String> {
        let own = &view.run.model;
        let options = self.options.borrow();
        let others = definition
            .fallback_models
            .as_ref()
            .unwrap_or(&options.fallback_models);
        let mut models = vec![own.clone()];
        for model in others {
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
        let standing_in =
            last_answered_by(view).and_then(|model| models.iter().position(|known| known == model));
        models.split_off(standing_in.unwrap_or(0))
    }

    /// Calls one model after another until one answers, or a failure rules out the others. A switch
    /// adds a warning to the answer. If none answers and a provider accepts no requests at present,
    /// the step waits for it.
    pub(super) async fn ask(
        &self,
        view: &RunView,
        definition: &AgentDefinition,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> StepOutcome {
        let models = self.models(view, definition);
        let limited = view.run.budget.and_then(|budget| budget.cost_micros);
        let own = &view.run.model;
        let mut failed: Vec<(String, ProviderFault)> = Vec::new();
        for model in &models {
            let request = ModelRequest {
                is_fallback: model != own,
                ..request.clone()
            };
            let fault = match self.ask_one(model, limited, request, &sink).await {
                Ok(mut answer) => {
                    answer.usage.cost_micros = self.cost(model, &answer.usage);
                    return answered(answer, model, &failed);
                }
                Err(fault) => fault,
            };
            let switches = fault.switches;
            failed.push((model.clone(), fault));
            if !switches {
                break;
            }
            sink.reset();
        }
        self.waits(view, &failed)
            .unwrap_or_else(|| StepOutcome::failed(gave_up(&failed)))
    }

    /// The outcome that waits for a provider: the one available first, unless this call has already
    /// waited too long.
    fn waits(&self, view: &RunView, failed: &[(String, ProviderFault)]) -> Option<StepOutcome> {
        let (_, last) = failed.last()?;
        if !last.switches {
            return None;
        }
        let now = self.clock.now();
        let waits = failed
            .iter()
            .filter_map(|(model, fault)| Some((fault.wait.as_ref()?, model, fault)));
        let (wait, model, fault) = waits.min_by_key(|(wait, ..)| wait.until)?;
        let begun = view.steps.iter().rev().find(|step| step.state.is_open());
        let waited = begun.map_or(0, |step| now.since(step.started_at));
        if u128::from(waited) >= wait.max_total.as_millis() {
            return None;
        }
        let left = wait.until.since(now).max(LEAST_PAUSE_MS);
        // Spread the retries of runs that wait for the same provider.
        let spread = (left / 8).clamp(1, MOST_SPREAD_MS);
        let own = view.run.id.0.as_u128() % u128::from(spread);
        let own = u64::try_from(own).unwrap_or_default();
        Some(StepOutcome::AwaitsProvider {
            until: now.plus_ms(left + own),
            reason: format!("model {model}: {fault}"),
        })
    }

    /// The cost of this usage in millionths of the currency. Prices are per million tokens.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "numbers of tokens and prices are far below what a float holds exactly"
    )]
    fn cost(&self, model: &str, used: &Usage) -> u64 {
        let options = self.options.borrow();
        let Some(price) = options.prices.get(model) else {
            return 0;
        };
        let (input, output) = (used.input_tokens as f64, used.output_tokens as f64);
        (input * price.input + output * price.output).round() as u64
    }

    async fn ask_one(
        &self,
        model: &str,
        limited: Option<u64>,
        request: ModelRequest,
        sink: &Arc<dyn TextSink>,
    ) -> Result<ModelAnswer, ProviderFault> {
        let Some((provider, name)) = self.providers.find(model) else {
            return Err(ProviderFault::new(format!(
                "no provider offers it; offered models: {}",
                self.providers.offered().join(", ")
            )));
        };
        let has_price = self.options.borrow().prices.contains_key(model);
        if limited.is_some() && !has_price && provider.kind() != BUILT_IN {
            return Err(ProviderFault {
                kind: "budget",
                ..ProviderFault::new(format!(
                    "its price is unknown, so the cost budget cannot be enforced: set it \
                     under [prices.{model:?}]"
                ))
            });
        }
        let request = ModelRequest {
            model: name.to_owned(),
            ..request
        };
        within(request.limit, provider.as_ref(), request, Arc::clone(sink)).await
    }
}

async fn within(
    limit: Duration,
    provider: &dyn Provider,
    request: ModelRequest,
    sink: Arc<dyn TextSink>,
) -> Result<ModelAnswer, ProviderFault> {
    let call = provider.complete(request, sink);
    if provider.limits_itself() {
        return call.await;
    }
    match tokio::time::timeout(limit, call).await {
        Ok(answered) => answered,
        Err(_) => Err(ProviderFault {
            kind: "provider_timeout",
            ..ProviderFault::new(format!("it gave no answer within {limit:?}"))
        }),
    }
}

/// The model that gave this run's latest answer.
fn last_answered_by(view: &RunView) -> Option<&str> {
    let used = view.steps.iter().rev().find_map(|step| step.used.as_ref());
    used.map(|used| used.model.as_str())
}

fn answered(answer: ModelAnswer, model: &str, failed: &[(String, ProviderFault)]) -> StepOutcome {
    let mut warnings: Vec<String> = failed
        .iter()
        .map(|(other, fault)| {
            format!("model {model} answered instead of {other}, which failed: {fault}")
        })
        .collect();
    let cut = answer.warnings.into_iter();
    warnings.extend(cut.map(|warning| format!("model {model}: {warning}")));
    StepOutcome::Answer {
        blocks: answer.blocks,
        used: Some(ModelUsage {
            model: model.to_owned(),
            usage: Usage {
                model_calls: 1,
                ..answer.usage
            },
        }),
        warnings,
    }
}

fn gave_up(failed: &[(String, ProviderFault)]) -> RunError {
    let told: Vec<String> = failed
        .iter()
        .map(|(model, fault)| match &fault.wait {
            Some(wait) => format!(
                "model {model}: {fault}; the call waited for it as long as \
                 providers.{}.max_wait allows ({})",
                wait.provider,
                humantime::format_duration(wait.max_total)
            ),
            None => format!("model {model}: {}", open_ended(&fault.to_string())),
        })
        .collect();
    let kind = failed.last().map_or("provider", |(_, fault)| fault.kind);
    let message = format!(
        "{}. What the run has done so far is kept in its session",
        told.join("; then ")
    );
    RunError::new(kind, message)
}
