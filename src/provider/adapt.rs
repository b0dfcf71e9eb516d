//! Learns from a provider's refusals which request fields a model does not accept. A refusal that
//! names an optional field changes or drops that field; the call is repeated at once, and later
//! calls of the same model use the new form. Called by `remote`; the adapters read [`Switches`]
//! when they write a request.

use std::collections::BTreeSet;

use super::ModelRequest;
use super::refusal::Refusal;
use crate::kernel::run::thinking::Thinking;

/// The thinking levels that can be sent, in ascending order.
const LEVELS: [Thinking; 6] = [
    Thinking::Minimal,
    Thinking::Low,
    Thinking::Medium,
    Thinking::High,
    Thinking::XHigh,
    Thinking::Max,
];

/// Smaller numbers in a refusal are not read as a token limit.
const LEAST_LIMIT: u64 = 16;

/// How requests of one model are written. The default is what most models accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// Leave out `stream_options`; the provider then reports no token usage.
    pub no_stream_options: bool,
    /// Request the whole answer in one response instead of a stream.
    pub no_stream: bool,
    /// Do not mark the prompt for the provider's cache.
    pub no_cache_control: bool,
    /// Leave out `temperature`.
    pub no_temperature: bool,
    /// Send no thinking fields at all.
    pub no_thinking: bool,
    /// Send adaptive thinking with an effort instead of a token budget.
    pub adaptive: bool,
    /// Send adaptive thinking without an effort.
    pub no_effort: bool,
    /// Use the alternative field name for the output limit (`max_tokens` or
    /// `max_completion_tokens`).
    pub other_limit: bool,
    /// Leave out the output limit.
    pub no_limit: bool,
    /// The largest output limit that the model accepts, tokens.
    pub token_cap: Option<u32>,
    /// Thinking levels that the model does not accept, as their numeric values.
    pub refused: BTreeSet<u8>,
}

/// The new request form derived from a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestAdaptation {
    /// How the request is written from now on.
    pub switches: Switches,
    /// Applies to this request only; not remembered for later ones.
    pub once: bool,
}

impl Switches {
    /// The level sent for `wanted`: itself or the nearest accepted level, the lower of two equally
    /// near ones. `None` if the model accepts none.
    pub(super) fn level(&self, wanted: Thinking) -> Option<Thinking> {
        let place = LEVELS.iter().position(|level| *level == wanted)?;
        let taken = (0..LEVELS.len()).filter(|at| !self.refuses(LEVELS[*at]));
        let nearest = taken.min_by_key(|at| (at.abs_diff(place), *at));
        nearest.map(|at| LEVELS[at])
    }

    fn refuses(&self, level: Thinking) -> bool {
        self.refused.contains(&(level as u8))
    }

    /// The output limit sent for `wanted`: at most [`Self::most_tokens`].
    pub(super) fn limited(&self, wanted: u32) -> u32 {
        self.token_cap.map_or(wanted, |most| wanted.min(most))
    }

    /// What is sent differently from the agent's settings, as warnings for its run.
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

    /// What was learned about the model, one line per fact, for status output.
    pub(super) fn shown(&self) -> Vec<String> {
        let flags = [
            (self.no_stream_options, "no stream_options"),
            (self.no_stream, "no streaming"),
            (self.no_cache_control, "no cache_control"),
            (self.no_temperature, "no temperature"),
            (self.no_thinking, "no thinking levels"),
            (self.adaptive && !self.no_thinking, "adaptive thinking"),
            (self.no_effort, "no effort"),
            (self.other_limit, "the alternative name of max_tokens"),
            (self.no_limit, "no max_tokens"),
        ];
        let flags = flags.iter().filter(|(on, _)| *on);
        let mut shown: Vec<String> = flags.map(|(_, words)| (*words).to_owned()).collect();
        shown.extend(self.token_cap.map(|most| format!("max_tokens ≤ {most}")));
        let refused = LEVELS.iter().filter(|level| self.refuses(**level));
        let refused: Vec<&str> = refused.map(|level| level.as_str()).collect();
        if !refused.is_empty() && !self.no_thinking {
            shown.push(format!("no thinking {}", refused.join(", ")));
        }
        shown
    }

    /// The changed request form after this refusal; `None` if another form would not help. `sent`:
    /// the request's top-level fields, one of which the refusal must name.
    pub(super) fn adapted(
        &self,
        refusal: &Refusal,
        sent: &SentBody<'_>,
        request: &ModelRequest,
    ) -> Option<RequestAdaptation> {
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
        (next != *self).then_some(RequestAdaptation {
            switches: next,
            once,
        })
    }

    /// Whether the refusal rejects the level that was sent and lists others, without naming a
    /// field.
    fn lists_levels(&self, refusal: &Refusal, request: &ModelRequest) -> bool {
        let sent = request.thinking.and_then(|wanted| self.level(wanted));
        let listed = LEVELS
            .iter()
            .filter(|level| refusal.says_word(level.as_str()));
        sent.is_some_and(|sent| refusal.says_word(sent.as_str())) && listed.count() > 2
    }

    /// Marks the sent level as refused. Only the levels listed in the refusal stay accepted;
    /// without a list, the next lower level is tried if the value was refused, otherwise none.
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

    /// Learns from a refused output limit; returns whether the change applies to this request only.
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
            // The remaining context window differs from request to request.
            self.no_limit = !is_required;
            return self.no_limit.then_some(true);
        }
        if let Some(most) = below.max().filter(|_| !is_other) {
            self.token_cap = u32::try_from(*most).ok();
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

/// Whether the refusal is about the request field and not about thinking blocks of an earlier
/// answer.
fn is_about_thinking(refusal: &Refusal) -> bool {
    refusal.says_any(&["thinking", "budget_tokens"])
        && !refusal.says_any(&["messages.", "block", "signature", "tool_use"])
}

/// A request body as it was sent.
pub(super) struct SentBody<'a> {
    text: &'a str,
    fields: serde_json::Map<String, serde_json::Value>,
    limit_is_required: bool,
}

impl<'a> SentBody<'a> {
    /// Parses the JSON `text`. `limit_is_required`: the API rejects requests without `max_tokens`.
    pub(super) fn new(text: &'a str, limit_is_required: bool) -> Self {
        SentBody {
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
