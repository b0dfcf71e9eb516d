//! Parser of `--budget`: tokens, cost, or both.

use crate::wire::budget::Budget;

/// Parses `200000`, `200k`, `1.5M`, `cost=2.50` or `200k,cost=2.50`.
pub(crate) fn budget(text: &str) -> Result<Budget, String> {
    let expected = "tokens such as 200k, cost=2.50, or both: 200k,cost=2.50";
    let mut budget = Budget {
        tokens: None,
        cost: None,
    };
    for part in text.split(',').map(str::trim) {
        let (name, value) = part.split_once('=').unwrap_or(("tokens", part));
        let is_new = match name {
            "tokens" => budget
                .tokens
                .replace(tokens(value).ok_or(expected)?)
                .is_none(),
            "cost" => budget.cost.replace(cost(value).ok_or(expected)?).is_none(),
            _ => return Err(expected.to_owned()),
        };
        if !is_new {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(budget)
}

fn tokens(text: &str) -> Option<u64> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000.0),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1_000_000.0),
            None => return text.parse().ok().filter(|tokens| *tokens > 0),
        },
    };
    let tokens = number.parse::<f64>().ok()? * factor;
    // Less than one token is invalid, and so is about 2^53 or more.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is within the range that is looked at"
    )]
    (1.0..9e15).contains(&tokens).then_some(tokens as u64)
}

fn cost(text: &str) -> Option<f64> {
    let cost = text.trim_start_matches('$').parse::<f64>().ok()?;
    (cost.is_finite() && cost > 0.0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_money_are_read_as_people_write_them() {
        for (text, tokens, cost) in [
            ("200000", Some(200_000), None),
            ("200k", Some(200_000), None),
            ("1.5M", Some(1_500_000), None),
            ("tokens=7", Some(7), None),
            ("cost=2.50", None, Some(2.5)),
            ("200k, cost=$0.1", Some(200_000), Some(0.1)),
        ] {
            assert_eq!(budget(text), Ok(Budget { tokens, cost }), "{text}");
        }
        for text in [
            "", "0", "-1", "x", "1.5", "0k", "cost=0", "cost=", "cost=nan", "1,2", "time=1h",
            "1e300k",
        ] {
            assert!(budget(text).is_err(), "{text}");
        }
    }
}
