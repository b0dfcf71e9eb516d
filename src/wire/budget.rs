//! Budget of a run in requests (`sessions.spawn`, `agent.run`) and its use in results.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::kernel::run::budget;

/// Maximum `cost` in a request, in the currency of the prices.
const COST_LIMIT: f64 = 1e9;

/// Budget of a run together with all its descendants. It is checked before each model call, so the
/// call that exceeds it is the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Maximum number of input and output tokens; at least 1.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in the currency of `[prices]`.
    #[schemars(range(min = 0.000_001, max = 1e9))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl From<Budget> for budget::Budget {
    fn from(given: Budget) -> Self {
        budget::Budget {
            tokens: given.tokens,
            cost_micros: given.cost.map(budget::micros),
        }
    }
}

/// Budget of a run, and what the run and all its descendants have used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    /// Maximum number of input and output tokens; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost in millionths of the currency of `[prices]`; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Tokens used.
    pub used_tokens: u64,
    /// Cost so far, in millionths of the currency.
    pub used_cost_micros: u64,
}

/// Deserializes an optional budget and refuses one that sets no limit.
pub(super) fn checked<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Budget>, D::Error> {
    let Some(budget) = Option::<Budget>::deserialize(from)? else {
        return Ok(None);
    };
    if budget.tokens == Some(0) {
        return Err(D::Error::custom("tokens: 1 or more are expected"));
    }
    let is_amount = |cost: f64| (0.000_001..=COST_LIMIT).contains(&cost);
    if budget.cost.is_some_and(|cost| !is_amount(cost)) {
        return Err(D::Error::custom("cost: a number above 0 is expected"));
    }
    match budget {
        Budget {
            tokens: None,
            cost: None,
        } => Err(D::Error::custom("tokens, cost or both are expected")),
        budget => Ok(Some(budget)),
    }
}
