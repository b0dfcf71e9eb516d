//! What a run may use, as a request gives it. Named by `sessions.spawn` and `agent.run`.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The most that a request may give, in the currency of the prices.
const COST_LIMIT: f64 = 1e9;

/// What a run may use, with all runs below it. Looked at before each model call: the call that
/// goes beyond is the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// Tokens sent and received.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in the currency in which `[prices]` are.
    #[schemars(range(min = 0.000_001, max = 1e9))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// What a run may use, and what it and all runs below it have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    /// Tokens sent and received, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money at most, in millionths of the currency in which `[prices]` are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Tokens that were used.
    pub used_tokens: u64,
    /// Millionths that were spent.
    pub used_cost_micros: u64,
}

/// Reads a budget that limits something.
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
