//! The conditions of a list, put together from what its caller asks for.

use super::tx::Param;

/// Conditions that all must hold, and the values in them.
#[derive(Default)]
pub struct Filter<'a> {
    conditions: Vec<String>,
    values: Vec<Param<'a>>,
}

impl<'a> Filter<'a> {
    /// A condition without a value.
    pub fn only(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    /// A condition in which each `?` stands for `value`.
    pub fn by(&mut self, condition: &str, value: impl Into<Param<'a>>) {
        self.values.push(value.into());
        let place = format!("?{}", self.values.len());
        self.conditions.push(condition.replace('?', &place));
    }

    /// As [`Filter::by`], where there is a value.
    pub fn maybe(&mut self, condition: &str, value: Option<impl Into<Param<'a>>>) {
        if let Some(value) = value {
            self.by(condition, value);
        }
    }

    /// The column holds one of these.
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

    /// What stands behind `WHERE`, and the values in it.
    pub fn finish(self) -> (String, Vec<Param<'a>>) {
        (self.conditions.join(" AND "), self.values)
    }
}
