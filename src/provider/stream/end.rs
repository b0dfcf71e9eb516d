//! Judges how an answer ended, by the finish reason that the provider gives. Only reasons known to
//! mean a complete answer are accepted: an unknown reason is a failed attempt. Used by the
//! adapters.

use super::super::failure::AttemptFailure;
use super::same::FinishPhase;
use crate::kernel::text::{in_quotes, preview};

/// Maximum characters of a broken answer that its error repeats.
const SHOWN: usize = 500;

/// What a finish reason means, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    /// The answer is complete.
    Whole,
    /// The provider continues once the answer is sent back.
    Paused,
    /// It was cut at the output token limit.
    Limit,
    /// It was cut at the end of the model's context window.
    Window,
    /// The model or a filter refused the rest.
    Refused,
    /// Any other reason: the answer is incomplete.
    Broken,
}

/// Classifies the reasons of both APIs and those that compatible servers are known to give.
fn meaning(reason: &str) -> Meaning {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "tool_calls" | "function_call" | "end_turn" | "tool_use" | "stop_sequence"
        | "eos" | "eos_token" | "complete" => Meaning::Whole,
        "pause_turn" => Meaning::Paused,
        "length" | "max_tokens" | "max_output_tokens" => Meaning::Limit,
        "model_length" | "model_context_window_exceeded" => Meaning::Window,
        "content_filter" | "refusal" | "safety" | "sensitive" => Meaning::Refused,
        _ => Meaning::Broken,
    }
}

/// The finish reasons of a stream, of which the worst counts: servers may send several.
#[derive(Debug, Default)]
pub(in crate::provider) struct FinishReasons {
    worst: Option<(Meaning, String)>,
    /// A reason that says that tools are called.
    calls: Option<String>,
}

/// The end of a usable answer.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::provider) struct AnswerEnd {
    /// A warning for the run: the answer was cut off.
    pub(in crate::provider) warning: Option<String>,
    /// Its last part may be missing.
    pub(in crate::provider) is_cut: bool,
    /// The provider continues once the answer is sent back.
    pub(in crate::provider) is_paused: bool,
    /// The reason, if it says that tools are called.
    calls: Option<String>,
}

impl AnswerEnd {
    /// Fails if the answer ended for tool calls but has none. `so_far` is the answer's text,
    /// repeated in the failure.
    pub(in crate::provider) fn check(
        &self,
        calls: usize,
        so_far: &str,
    ) -> Result<(), AttemptFailure> {
        match &self.calls {
            Some(reason) if calls == 0 => Err(AttemptFailure::passing(format!(
                "the answer ended with the reason {reason:?} but contains no tool call; {}",
                shown_so_far(so_far)
            ))),
            _ => Ok(()),
        }
    }
}

/// A clause with the text that a failed answer had reached.
fn shown_so_far(text: &str) -> String {
    match text.trim() {
        "" => "it had no text yet".to_owned(),
        text => format!("its text so far: {}", preview(text, SHOWN)),
    }
}

/// The trimmed reason; `None` if it is empty or `null`.
fn given(reason: &str) -> Option<&str> {
    let reason = reason.trim();
    // Some servers send the word `null` in every event before the last.
    let is_none = reason.is_empty() || reason.eq_ignore_ascii_case("null");
    (!is_none).then_some(reason)
}

impl FinishReasons {
    /// Records a finish reason; an empty one is ignored.
    pub(in crate::provider) fn take(&mut self, reason: &str) {
        let Some(reason) = given(reason) else {
            return;
        };
        let meaning = meaning(reason);
        let of_calls = ["tool_calls", "function_call", "tool_use"];
        if of_calls
            .iter()
            .any(|of_calls| reason.eq_ignore_ascii_case(of_calls))
        {
            self.calls = Some(reason.to_owned());
        }
        if self
            .worst
            .as_ref()
            .is_none_or(|(worst, _)| *worst < meaning)
        {
            self.worst = Some((meaning, reason.to_owned()));
        }
    }

    /// The phase of an event that carries this reason.
    pub(in crate::provider) fn phase(&self, reason: Option<&str>) -> FinishPhase {
        match reason.and_then(given) {
            _ if self.is_given() => FinishPhase::After,
            Some(_) => FinishPhase::With,
            None => FinishPhase::Before,
        }
    }

    /// Whether a finish reason was given.
    pub(in crate::provider) fn is_given(&self) -> bool {
        self.worst.is_some()
    }

    /// Judges the end of an answer whose text is `so_far`; a failure repeats that text.
    pub(in crate::provider) fn judge(self, so_far: &str) -> Result<AnswerEnd, AttemptFailure> {
        let so_far = || shown_so_far(so_far);
        let Some((meaning, reason)) = self.worst else {
            return Err(AttemptFailure::passing(format!(
                "the answer is incomplete: the stream closed without a finish reason; {}",
                so_far()
            )));
        };
        let shown = in_quotes(&reason, 64);
        let cut = |at: &str| {
            let warning = format!("an answer was truncated {at}");
            (Some(warning), true)
        };
        let (warning, is_cut) = match meaning {
            Meaning::Whole | Meaning::Paused => (None, false),
            Meaning::Limit => cut("at its output token limit (max_tokens)"),
            Meaning::Window => cut("at the end of the model's context window"),
            Meaning::Refused => {
                return Err(AttemptFailure::lasting(
                    "refused",
                    format!(
                        "the model or the provider's filter refused to give the answer \
                         (reason {shown}); {}",
                        so_far()
                    ),
                ));
            }
            Meaning::Broken => {
                return Err(AttemptFailure::passing(format!(
                    "the answer ended early with the reason {shown}; {}",
                    so_far()
                )));
            }
        };
        Ok(AnswerEnd {
            warning,
            is_cut,
            is_paused: meaning == Meaning::Paused,
            calls: self.calls.filter(|_| meaning == Meaning::Whole),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::Remedy;
    use super::*;

    fn judged(reasons: &[&str]) -> Result<AnswerEnd, AttemptFailure> {
        let mut ends = FinishReasons::default();
        reasons.iter().for_each(|reason| ends.take(reason));
        ends.judge("half an answer")
    }

    #[test]
    fn only_known_reasons_end_an_answer_well() {
        for good in [
            "stop",
            "tool_calls",
            "function_call",
            "end_turn",
            "tool_use",
            "stop_sequence",
            "STOP",
        ] {
            let end = judged(&[good]).unwrap();
            assert_eq!(
                (end.warning, end.is_cut, end.is_paused),
                (None, false, false),
                "{good}"
            );
        }
        for cut in ["length", "max_tokens", "model_length", "MAX_TOKENS"] {
            let end = judged(&[cut]).unwrap();
            assert!(end.is_cut && end.warning.is_some(), "{cut}");
        }
        assert!(judged(&["pause_turn"]).unwrap().is_paused);
        for refused in ["refusal", "content_filter", "safety"] {
            let failure = judged(&[refused]).unwrap_err();
            assert_eq!((failure.kind, failure.remedy), ("refused", Remedy::Nothing));
            assert!(failure.message.contains("half an answer"), "{failure:?}");
        }
        for bad in [
            "error",
            "insufficient_system_resource",
            "network_error",
            "abort",
            "stopped",
            "?",
        ] {
            let failure = judged(&[bad]).unwrap_err();
            assert_eq!((failure.kind, failure.remedy), ("provider", Remedy::Again));
            assert!(failure.message.contains(bad), "{failure:?}");
            assert!(failure.message.contains("half an answer"), "{failure:?}");
        }
        for none in [&[][..], &["", "null"]] {
            assert!(judged(none).unwrap_err().message.contains("is incomplete"));
        }
    }

    #[test]
    fn of_several_reasons_the_worst_counts() {
        assert!(judged(&["stop", "error", "stop"]).is_err());
        assert!(judged(&["length", "stop"]).unwrap().is_cut);
        let end = judged(&["tool_calls", "stop"]).unwrap();
        assert_eq!(
            (end.warning, end.is_cut, end.is_paused),
            (None, false, false)
        );
    }
}
