//! Builds the `WHERE` condition of a list from the filters of its caller.

use crate::store::tx::Param;

/// Conditions joined by `AND`, and their parameters.
#[derive(Default)]
pub struct Filter<'a> {
    conditions: Vec<String>,
    values: Vec<Param<'a>>,
}

impl<'a> Filter<'a> {
    /// Adds a condition without a parameter.
    pub fn only(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    /// Adds a condition in which each `?` stands for `value`.
    pub fn by(&mut self, condition: &str, value: impl Into<Param<'a>>) {
        self.values.push(value.into());
        let place = format!("?{}", self.values.len());
        self.conditions.push(condition.replace('?', &place));
    }

    /// As [`Filter::by`], if there is a value.
    pub fn maybe(&mut self, condition: &str, value: Option<impl Into<Param<'a>>>) {
        if let Some(value) = value {
            self.by(condition, value);
        }
    }

    /// Adds the condition that the column has one of these values.
    pub fn one_of<V: Into<Param<'a>>>(
        &mut self,
        column: &str,
        values: impl IntoIterator<Item = V>,
    ) {
        let first = self.values.len() + 1;
        self.values.extend(values.into_iter().map(Into::into));
        let places: Vec<String> = (first..=self.values.len())
            .map(|place| format!("?{place}"))
            .collect();
        self.only(&format!("{column} IN ({})", places.join(", ")));
    }

    /// The `WHERE` condition and its parameters.
    pub fn finish(self) -> (String, Vec<Param<'a>>) {
        (self.conditions.join(" AND "), self.values)
    }
}
