//! The budget of a run and its subtree. The store checks it before each step that calls a model and
//! before each spawn or send of a run, in the same transaction.

use serde::{Deserialize, Serialize};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::{RunError, Usage};

/// What a run may use together with all its descendants; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Maximum tokens, sent and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in millionths of the currency of the prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

/// The usage that counts against a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens sent and received.
    pub tokens: u64,
    /// Cost in millionths of the currency of the prices.
    pub cost_micros: u64,
}

impl From<Usage> for Spent {
    fn from(used: Usage) -> Spent {
        Spent {
            tokens: used.input_tokens.saturating_add(used.output_tokens),
            cost_micros: used.cost_micros,
        }
    }
}

impl Budget {
    /// True if it limits tokens or cost.
    pub fn limits(&self) -> bool {
        self.tokens.is_some() || self.cost_micros.is_some()
    }

    /// Why `spent` uses up the budget, as text for people; `None` while something is left.
    pub fn exceeded(&self, spent: Spent) -> Option<String> {
        if let Some(most) = self.tokens.filter(|most| spent.tokens >= *most) {
            return Some(format!("{} tokens of {most} are used", spent.tokens));
        }
        let most = self.cost_micros.filter(|most| spent.cost_micros >= *most)?;
        Some(format!(
            "{} of {} are spent",
            amount(spent.cost_micros),
            amount(most)
        ))
    }

    /// The rest of the budget after `spent`.
    pub fn remaining(&self, spent: Spent) -> Budget {
        Budget {
            tokens: self.tokens.map(|most| most.saturating_sub(spent.tokens)),
            cost_micros: self
                .cost_micros
                .map(|most| most.saturating_sub(spent.cost_micros)),
        }
    }

    /// The stricter of both budgets, per field.
    pub fn narrowed(self, other: Budget) -> Budget {
        let lesser = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Budget {
            tokens: lesser(self.tokens, other.tokens),
            cost_micros: lesser(self.cost_micros, other.cost_micros),
        }
    }
}

/// A used-up budget that stops a run: its own or that of an ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedUp {
    /// The run that the budget belongs to.
    pub of: RunId,
    /// What is used of which limit, as text for people.
    pub why: String,
}

impl UsedUp {
    /// The error that ends `run`, which has made `model_calls` model calls itself.
    pub fn ends(&self, run: RunId, model_calls: u64) -> RunError {
        let whose = match self.of == run {
            true => "its budget".to_owned(),
            false => format!("the budget of its ancestor run {}", self.of),
        };
        RunError::new(
            "budget",
            format!(
                "{whose} is used up: {} by that run and its descendants; {model_calls} model calls \
                 were its own. The transcript holds all of them; a run with a larger budget can go \
                 on from there",
                self.why
            ),
        )
    }

    /// The refusal of a spawn or send by a run under this budget.
    pub fn refuses(&self) -> Fault {
        let counts = "what this run and all its descendants have used";
        let free = "finish with the results so far, or start again with a larger budget";
        Fault::new(
            Kind::Limit,
            format!(
                "the budget of run {} is used up: {}; what counts: {counts}. Nothing was created",
                self.of, self.why
            ),
        )
        .hint(free)
        .with("limit", "budget")
        .with("counts", counts)
        .with("free", free)
    }
}

/// Converts an amount of money to millionths, rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts are checked where they are read"
)]
pub fn micros(cost: f64) -> u64 {
    (cost * 1e6).round() as u64
}

/// Formats millionths as a decimal number.
fn amount(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tokens: Option<u64>, cost_micros: Option<u64>) -> Budget {
        Budget {
            tokens,
            cost_micros,
        }
    }

    fn spent(tokens: u64, cost_micros: u64) -> Spent {
        Spent {
            tokens,
            cost_micros,
        }
    }

    #[test]
    fn what_two_budgets_allow_is_the_lesser_of_each() {
        let one = budget(Some(10), None);
        assert_eq!(
            one.narrowed(budget(Some(7), Some(3))),
            budget(Some(7), Some(3))
        );
        assert_eq!(one.narrowed(budget(None, None)), one);
        assert_eq!(
            budget(Some(10), Some(5)).remaining(spent(4, 9)),
            budget(Some(6), Some(0))
        );
    }

    #[test]
    fn a_budget_is_used_up_when_nothing_is_left() {
        let both = budget(Some(10), Some(1_500_000));
        assert_eq!(both.exceeded(spent(9, 1_499_999)), None);
        assert_eq!(
            both.exceeded(spent(10, 0)).unwrap(),
            "10 tokens of 10 are used"
        );
        let money = both.exceeded(spent(0, 1_600_000)).unwrap();
        assert_eq!(money, "1.600000 of 1.500000 are spent");
        assert_eq!(budget(None, None).exceeded(spent(u64::MAX, u64::MAX)), None);
    }
}
