//! Fields of other programs that restrict nothing: names, descriptions, models.

use serde_json::{Value, json};

use super::DialectReader;
use crate::agent::names::{self, derived};
use crate::agent::values::line;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::in_quotes;

/// Model names without a meaning outside of that program.
const ALIASES: &[&str] = &[
    "inherit", "sonnet", "opus", "haiku", "default", "auto", "best", "opusplan",
];
/// The maximum number of characters of a description.
const DESCRIPTION: usize = 4096;

impl DialectReader {
    pub(super) fn model(&mut self, value: Value) {
        let first = match value {
            Value::Array(items) => items.into_iter().next().unwrap_or_default(),
            value => value,
        };
        self.soft_model = true;
        match first.as_str().map(str::trim) {
            Some(alias) if ALIASES.contains(&alias) => self
                .narrowing
                .note(format!("model {alias}: the default model is used")),
            // Their models belong to one provider; names here include the provider.
            Some(model) if !model.contains('/') && !model.is_empty() => {
                self.keep("model", Value::String(format!("anthropic/{model}")));
            }
            _ => self.keep("model", first),
        }
    }

    /// Levels that do not exist here become the highest one.
    pub(super) fn thinking(&mut self, value: Value) {
        match value.as_str() {
            Some(word @ ("xhigh" | "max")) if Thinking::parse(word).is_none() => {
                self.narrowing
                    .note(format!("effort {word}: high is the maximum here"));
                self.keep("thinking", json!("high"));
            }
            Some(word) if Thinking::parse(word).is_none() => {
                let shown = in_quotes(word, 32);
                self.narrowing.note(format!(
                    "effort {shown} is unknown: the model's default is used"
                ));
            }
            Some(_) => self.keep("thinking", value),
            // For example a number of tokens.
            None => self.narrowing.note("not in effect here: effort".to_owned()),
        }
    }

    pub(super) fn description(&mut self, value: Value) {
        let long = value
            .as_str()
            .filter(|text| text.chars().count() > DESCRIPTION);
        let Some(text) = long else {
            return self.keep("description", value);
        };
        let note = format!(
            "description has {} characters; {DESCRIPTION} are kept",
            text.chars().count()
        );
        self.narrowing.note(note);
        let cut: String = text.chars().take(DESCRIPTION - 1).collect();
        self.keep("description", Value::String(cut));
    }

    /// Turns an invalid name into the title, and derives a valid name from it.
    pub(super) fn name(&mut self, stem: &str) {
        let stated = self.fields.iter().position(|(name, _)| name == "name");
        let written = stated
            .and_then(|at| self.fields[at].1.as_str())
            .filter(|name| !name.trim().is_empty())
            .unwrap_or(stem)
            .trim()
            .to_owned();
        if names::check(&written).is_ok() {
            // Without surrounding blanks.
            if let Some(at) = stated {
                self.fields[at].1 = Value::String(written);
            }
            return;
        }
        let mut own = derived(&written);
        if names::check(&own).is_err() {
            own = derived(stem);
        }
        if names::check(&own).is_err() {
            own = format!("agent-{}", &blake3::hash(written.as_bytes()).to_hex()[..8]);
        }
        let shown = in_quotes(&written, 64);
        self.narrowing.note(format!(
            "name {shown} cannot be used here: the agent is called {own}"
        ));
        if !self.fields.iter().any(|(name, _)| name == "title")
            && let Ok(title) = line(&Value::String(written))
        {
            self.keep("title", Value::String(title));
        }
        match stated {
            Some(at) => self.fields[at].1 = Value::String(own),
            None => self.keep("name", Value::String(own)),
        }
    }
}
