//! What a model of a provider does not take, learned from the provider's refusals. A refusal that
//! names an optional field of the request changes that field or leaves it out, the call is
//! repeated at once, and later calls of the same model are sent in that form. Called by `remote`;
//! the adapters read [`Switches`] when they write a request.

use std::collections::BTreeSet;

use super::ModelRequest;
use super::refusal::Refusal;
use crate::kernel::thinking::Thinking;

/// Levels that are sent, in order.
const LEVELS: [Thinking; 6] = [
    Thinking::Minimal,
    Thinking::Low,
    Thinking::Medium,
    Thinking::High,
    Thinking::XHigh,
    Thinking::Max,
];

/// Smaller numbers in a refusal are no limits of tokens.
const LEAST_LIMIT: u64 = 16;

/// How a request of one model is written. The default is what most models take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// The field `stream_options` is left out: the provider does not count tokens.
    pub no_stream_options: bool,
    /// The answer is asked for as a whole.
    pub no_stream: bool,
    /// The prompt is not marked for the provider's cache.
    pub no_cache_control: bool,
    /// The temperature is left out.
    pub no_temperature: bool,
    /// Nothing about thinking is sent.
    pub no_thinking: bool,
    /// Thinking has the adaptive form, with an effort, in place of a budget.
    pub adaptive: bool,
    /// Adaptive thinking is sent without an effort.
    pub no_effort: bool,
    /// The limit of the answer has the other one of its two names.
    pub other_limit: bool,
    /// The limit of the answer is left out.
    pub no_limit: bool,
    /// The largest limit of the answer that the model takes.
    pub most_tokens: Option<u32>,
    /// Levels of thinking that the model does not take.
    pub refused: BTreeSet<u8>,
}

/// What a refusal has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// How the request is written from now on.
    pub switches: Switches,
    /// It depends on this one request and is not kept for later ones.
    pub once: bool,
}

impl Switches {
    /// The level that is sent for `wanted`: itself, or the nearest one that the model takes, the
    /// lower of two. `None`: it takes none.
    pub(super) fn level(&self, wanted: Thinking) -> Option<Thinking> {
        let place = LEVELS.iter().position(|level| *level == wanted)?;
        let taken = (0..LEVELS.len()).filter(|at| !self.refuses(LEVELS[*at]));
        let nearest = taken.min_by_key(|at| (at.abs_diff(place), *at));
        nearest.map(|at| LEVELS[at])
    }

    fn refuses(&self, level: Thinking) -> bool {
        self.refused.contains(&(level as u8))
    }

    /// The limit of an answer that is sent for `wanted`.
    pub(super) fn limited(&self, wanted: u32) -> u32 {
        self.most_tokens.map_or(wanted, |most| wanted.min(most))
    }

    /// What is sent otherwise than the agent says, for the warnings of its run.
    pub(super) fn warnings(&self, request: &ModelRequest) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.no_temperature && request.temperature.is_some() {
            warnings.push("the provider refuses a temperature: it was left out".to_owned());
        }
        if let Some(level) = request.thinking.filter(|level| *level != Thinking::Off) {
            let sent = self.level(level).filter(|_| !self.no_thinking);
            match sent {
                None => warnings.push(format!(
                    "the provider refuses thinking levels: thinking {level} was left out"
                )),
                Some(sent) if sent != level => warnings.push(format!(
                    "the provider refuses thinking {level}: {sent} was sent"
                )),
                Some(_) => {}
            }
        }
        if let Some(wanted) = request.max_tokens {
            let sent = self.limited(wanted);
            if self.no_limit {
                warnings.push("the provider refuses max_tokens: it was left out".to_owned());
            } else if sent != wanted {
                warnings.push(format!(
                    "the provider refuses max_tokens {wanted}: {sent} was sent"
                ));
            }
        }
        warnings
    }

    /// What is known, one line each, for people.
    pub(super) fn shown(&self) -> Vec<String> {
        let flags = [
            (self.no_stream_options, "no stream_options"),
            (self.no_stream, "no streaming"),
            (self.no_cache_control, "no cache_control"),
            (self.no_temperature, "no temperature"),
            (self.no_thinking, "no thinking levels"),
            (self.adaptive && !self.no_thinking, "adaptive thinking"),
            (self.no_effort, "no effort"),
            (self.other_limit, "the other name of max_tokens"),
            (self.no_limit, "no max_tokens"),
        ];
        let flags = flags.iter().filter(|(on, _)| *on);
        let mut shown: Vec<String> = flags.map(|(_, words)| (*words).to_owned()).collect();
        shown.extend(self.most_tokens.map(|most| format!("max_tokens ≤ {most}")));
        let refused = LEVELS.iter().filter(|level| self.refuses(**level));
        let refused: Vec<&str> = refused.map(|level| level.as_str()).collect();
        if !refused.is_empty() && !self.no_thinking {
            shown.push(format!("no thinking {}", refused.join(", ")));
        }
        shown
    }

    /// What becomes of a request that was refused so. `sent`: its top-level fields, of which one
    /// must be named by the refusal. `None`: another form of the request would not help.
    pub(super) fn adapted(
        &self,
        refusal: &Refusal,
        sent: &Sent<'_>,
        request: &ModelRequest,
    ) -> Option<Change> {
        if !matches!(
            refusal.status,
            None | Some(400 | 404 | 405 | 415 | 422 | 500 | 501)
        ) {
            return None;
        }
        let mut next = self.clone();
        let mut once = false;
        let names = |field: &str| sent.has(field) && refusal.names_field(field);
        if names("stream_options") || (sent.has("stream_options") && refusal.says("include_usage"))
        {
            next.no_stream_options = true;
        } else if sent.has("reasoning_effort")
            && (refusal.names_field("reasoning_effort")
                || refusal.says("reasoning effort")
                || self.lists_levels(refusal, request))
        {
            next.learn_level(refusal, request.thinking?);
        } else if sent.has("output_config")
            && (refusal.names_field("output_config") || refusal.names_field("effort"))
            && !refusal.names_field("thinking")
        {
            next.learn_level(refusal, request.thinking?);
            if next.no_thinking {
                next.no_thinking = false;
                next.no_effort = true;
            }
        } else if sent.has("thinking") && is_about_thinking(refusal) {
            match self.adaptive {
                false => next.adaptive = true,
                true => next.no_thinking = true,
            }
        } else if let Some(limit) = ["max_completion_tokens", "max_tokens"]
            .into_iter()
            .find(|field| names(field))
            && !refusal.says("input length")
        {
            once = next.learn_limit(refusal, sent.number(limit), sent.limit_is_required)?;
        } else if names("temperature") && refusal.says_unsupported() {
            next.no_temperature = true;
        } else if refusal.says("cache_control") && sent.text.contains("\"cache_control\"") {
            next.no_cache_control = true;
        } else if sent.has("stream") && refusal.is_about("stream") && refusal.says_unsupported() {
            next.no_stream = true;
            next.no_stream_options = true;
        }
        (next != *self).then_some(Change {
            switches: next,
            once,
        })
    }

    /// Is the level refused that was sent, with others in its place, and without a field's name?
    fn lists_levels(&self, refusal: &Refusal, request: &ModelRequest) -> bool {
        let sent = request.thinking.and_then(|wanted| self.level(wanted));
        let listed = LEVELS
            .iter()
            .filter(|level| refusal.says_word(level.as_str()));
        sent.is_some_and(|sent| refusal.says_word(sent.as_str())) && listed.count() > 2
    }

    /// The level that was sent is refused: those that the refusal lists are taken. Without a list
    /// the next lower one is tried where the value was refused, else none.
    fn learn_level(&mut self, refusal: &Refusal, wanted: Thinking) {
        let Some(sent) = self.level(wanted) else {
            self.no_thinking = true;
            return;
        };
        let listed = |level: &&Thinking| **level != sent && refusal.says_word(level.as_str());
        let taken: Vec<Thinking> = LEVELS.iter().filter(listed).copied().collect();
        if !taken.is_empty() {
            let others = LEVELS.iter().filter(|level| !taken.contains(level));
            self.refused.extend(others.map(|level| *level as u8));
        } else if refusal.says_word(sent.as_str()) {
            self.refused.insert(sent as u8);
        } else {
            self.no_thinking = true;
        }
        if self.level(wanted).is_none() {
            self.no_thinking = true;
        }
    }

    /// The limit of an answer is refused. Whether that says something of this request alone.
    fn learn_limit(
        &mut self,
        refusal: &Refusal,
        sent: Option<u64>,
        is_required: bool,
    ) -> Option<bool> {
        let sent = sent?;
        let below = refusal.numbers();
        let below = below
            .iter()
            .filter(|number| (LEAST_LIMIT..sent).contains(number));
        let is_other = refusal.names_field("max_tokens")
            && refusal.names_field("max_completion_tokens")
            || refusal.says_unsupported();
        if refusal.says_any(&["maximum context", "context length", "max_model_len"]) && !is_other {
            // What is left of the window: another request leaves another rest.
            self.no_limit = !is_required;
            return self.no_limit.then_some(true);
        }
        if let Some(most) = below.max().filter(|_| !is_other) {
            self.most_tokens = u32::try_from(*most).ok();
        } else if is_required {
            return None;
        } else if is_other && !self.other_limit {
            self.other_limit = true;
        } else {
            self.no_limit = true;
        }
        Some(false)
    }
}

/// Does the refusal speak of the field, and not of what was thought in an earlier answer?
fn is_about_thinking(refusal: &Refusal) -> bool {
    refusal.says_any(&["thinking", "budget_tokens"])
        && !refusal.says_any(&["messages.", "block", "signature", "tool_use"])
}

/// A request as it was sent.
pub(super) struct Sent<'a> {
    text: &'a str,
    fields: serde_json::Map<String, serde_json::Value>,
    limit_is_required: bool,
}

impl<'a> Sent<'a> {
    /// Its text is JSON. `limit_is_required`: the API takes no request without `max_tokens`.
    pub(super) fn new(text: &'a str, limit_is_required: bool) -> Self {
        Sent {
            text,
            fields: serde_json::from_str(text).unwrap_or_default(),
            limit_is_required,
        }
    }

    fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.as_u64()
    }
}

#[cfg(test)]
#[path = "adapt_tests.rs"]
mod tests;
