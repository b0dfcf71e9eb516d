//! How an answer ended, by the reason that the provider gives for it. Only a reason that is
//! known to stand for a whole answer makes one: an unknown reason is a failed try.

use super::super::failure::Failure;
use super::same::Phase;
use crate::kernel::text::preview;

/// The most characters of a broken answer that its error repeats.
const SHOWN: usize = 500;

/// What a reason means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    /// The answer is whole.
    Whole,
    /// The provider goes on when it gets the answer back.
    Paused,
    /// It was cut at its limit of tokens.
    Limit,
    /// It was cut at the end of the model's window.
    Window,
    /// The model or a filter does not give the rest.
    Refused,
    /// Anything else: half an answer.
    Broken,
}

/// The reasons of both APIs, and those that compatible servers are known to give.
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

/// The reasons that a stream has given, of which the worst counts: servers give one again.
#[derive(Debug, Default)]
pub(in crate::provider) struct Ends {
    worst: Option<(Meaning, String)>,
    /// A reason that says that tools are called.
    calls: Option<String>,
}

/// The end of an answer that may be used.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::provider) struct End {
    /// What callers should know of it.
    pub(in crate::provider) warning: Option<String>,
    /// Its last part may be missing.
    pub(in crate::provider) is_cut: bool,
    /// The provider goes on when it gets the answer back.
    pub(in crate::provider) is_paused: bool,
    /// The reason, where it says that tools are called.
    calls: Option<String>,
}

impl End {
    /// Refuses an answer that ends for its calls and has none. It has come to the text `so_far`.
    pub(in crate::provider) fn check(&self, calls: usize, so_far: &str) -> Result<(), Failure> {
        match &self.calls {
            Some(reason) if calls == 0 => Err(Failure::passing(format!(
                "the answer ended with the reason {reason:?} and has no call of a tool; {}",
                shown_so_far(so_far)
            ))),
            _ => Ok(()),
        }
    }
}

/// What had come of an answer that failed.
fn shown_so_far(text: &str) -> String {
    match text.trim() {
        "" => "nothing of its text had come".to_owned(),
        text => format!("it had come to this: {}", preview(text, SHOWN)),
    }
}

/// The reason as it is given; an empty one is none.
fn given(reason: &str) -> Option<&str> {
    let reason = reason.trim();
    // Some send the word in every piece before the last.
    let is_none = reason.is_empty() || reason.eq_ignore_ascii_case("null");
    (!is_none).then_some(reason)
}

impl Ends {
    /// Takes a reason. An empty one is none.
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

    /// Where an event stands that gives this reason.
    pub(in crate::provider) fn phase(&self, reason: Option<&str>) -> Phase {
        match reason.and_then(given) {
            _ if self.is_given() => Phase::After,
            Some(_) => Phase::With,
            None => Phase::Before,
        }
    }

    /// Has a reason been given?
    pub(in crate::provider) fn is_given(&self) -> bool {
        self.worst.is_some()
    }

    /// The end of an answer that has come to the text `so_far`; the failure repeats it.
    pub(in crate::provider) fn judge(self, so_far: &str) -> Result<End, Failure> {
        let so_far = || shown_so_far(so_far);
        let Some((meaning, reason)) = self.worst else {
            return Err(Failure::passing(format!(
                "the answer was cut: it ended without a reason for its end; {}",
                so_far()
            )));
        };
        let shown = preview(&reason, 64);
        let cut = |at: &str| {
            let warning = format!("an answer was cut off {at}");
            (Some(warning), true)
        };
        let (warning, is_cut) = match meaning {
            Meaning::Whole | Meaning::Paused => (None, false),
            Meaning::Limit => cut("at its limit of tokens (max_tokens)"),
            Meaning::Window => cut("at the end of the model's window"),
            Meaning::Refused => {
                return Err(Failure::lasting(
                    "refused",
                    format!(
                        "the model or the provider's filter refused to give the answer \
                         (reason {shown:?}); {}",
                        so_far()
                    ),
                ));
            }
            Meaning::Broken => {
                return Err(Failure::passing(format!(
                    "the answer broke off with the reason {shown:?}; {}",
                    so_far()
                )));
            }
        };
        Ok(End {
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

    fn judged(reasons: &[&str]) -> Result<End, Failure> {
        let mut ends = Ends::default();
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
            assert!(judged(none).unwrap_err().message.contains("was cut"));
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
