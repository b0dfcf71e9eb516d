//! Limits on the size of an answer, checked while it streams, and a plausibility check of the token
//! counts that the provider reports. Called by `http`.

use super::ModelAnswer;
use super::answer::Extent;
use super::failure::AttemptFailure;
use crate::kernel::run::Usage;

/// Maximum bytes of the arguments of one call.
const ARGUMENTS: usize = 1 << 20;
/// Maximum bytes of an answer, arguments included.
const ANSWER: usize = 8 << 20;
/// Maximum bytes of a tool name.
const NAME: usize = 1 << 10;
/// Maximum tool calls of one answer: each is a step of its own.
const CALLS: usize = 128;
/// Maximum number of times calls may be begun, over all calls: some servers send a call again.
const MAX_BEGINNINGS: usize = 8 * CALLS;
/// Maximum bytes of an answer as written on the wire, beyond [`USUAL_EVENT`] per event: JSON may
/// write a byte as several.
const WRITTEN: usize = 2 * ANSWER;
/// Bytes of a usual event with one token of the answer.
const USUAL_EVENT: usize = 4 << 10;
/// Error kind of an answer that exceeds a limit.
const TOO_LARGE: &str = "answer_too_large";

/// Maximum plausible tokens per byte sent or received: a byte is hardly ever a token and never
/// several.
const TOKENS_A_BYTE: u64 = 2;
/// Input tokens allowed beyond that: what a provider adds to each request itself.
const PROVIDER_PROMPT_TOKENS: u64 = 100_000;
/// Output tokens allowed beyond what was received: thinking that is not sent along.
const HIDDEN_OUTPUT_TOKENS: u64 = 300_000;
/// Approximate bytes per token, for estimates.
const BYTES_A_TOKEN: u64 = 4;

/// Fails if the answer so far exceeds a limit.
pub(super) fn check(extent: &Extent<'_>) -> Result<(), AttemptFailure> {
    if let Some((tool, bytes)) = extent.longest
        && bytes > ARGUMENTS
    {
        return Err(too_large(format!(
            "the model's arguments for tool {tool} exceed the limit of {ARGUMENTS} bytes \
             for one call; the answer was discarded and none of its calls was executed"
        )));
    }
    if extent.name > NAME {
        return Err(too_large(format!(
            "the answer calls a tool whose name is longer than the limit of {NAME} bytes; it \
             was discarded and none of its calls was executed"
        )));
    }
    if extent.calls > CALLS {
        return Err(too_large(format!(
            "the answer has more than {CALLS} tool calls, the limit for one answer; it \
             was discarded and none of its calls was executed"
        )));
    }
    if extent.begun > MAX_BEGINNINGS {
        return Err(too_large(format!(
            "the answer begins its tool calls more than {MAX_BEGINNINGS} times, the limit; it \
             was discarded and none of its calls was executed"
        )));
    }
    match extent.all > ANSWER {
        true => Err(more_than_an_answer()),
        false => Ok(()),
    }
}

fn more_than_an_answer() -> AttemptFailure {
    too_large(format!(
        "the answer has more than {ANSWER} bytes, the limit; it was discarded and none of its \
         calls was executed"
    ))
}

/// Counts the wire bytes of an answer as they arrive, so that no field can escape the limits.
#[derive(Debug, Default)]
pub(super) struct ReceivedBytes(usize);

impl ReceivedBytes {
    /// Adds `bytes` and fails above the limit. `is_event`: the bytes are one stream event,
    /// otherwise a piece of an unstreamed body.
    pub(super) fn take(&mut self, bytes: usize, is_event: bool) -> Result<(), AttemptFailure> {
        self.0 += match is_event {
            true => bytes.saturating_sub(USUAL_EVENT),
            false => bytes,
        };
        match self.0 > WRITTEN {
            true => Err(more_than_an_answer()),
            false => Ok(()),
        }
    }
}

/// A failure for an answer over a limit; it is final, since another attempt would be as large.
pub(super) fn too_large(message: String) -> AttemptFailure {
    AttemptFailure::lasting(TOO_LARGE, message)
}

/// The answer with plausible usage: implausible counts are replaced by an estimate from the bytes
/// sent and received, with a warning.
pub(super) fn plausible(mut answer: ModelAnswer, sent: usize, received: usize) -> ModelAnswer {
    let (sent, received) = (sent as u64, received as u64);
    let Usage {
        input_tokens,
        output_tokens,
        ..
    } = answer.usage;
    let most_sent = TOKENS_A_BYTE * sent + PROVIDER_PROMPT_TOKENS;
    let most_received = TOKENS_A_BYTE * received + HIDDEN_OUTPUT_TOKENS;
    if input_tokens <= most_sent && output_tokens <= most_received {
        return answer;
    }
    let used = &mut answer.usage;
    if input_tokens > most_sent {
        used.input_tokens = sent / BYTES_A_TOKEN;
    }
    if output_tokens > most_received {
        used.output_tokens = received / BYTES_A_TOKEN;
    }
    answer.warnings.push(format!(
        "the provider reports {input_tokens} input and {output_tokens} output tokens, which \
         cannot be right for {sent} bytes sent and {received} received: {} and {} are counted \
         instead",
        used.input_tokens, used.output_tokens
    ));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(input_tokens: u64, output_tokens: u64) -> ModelAnswer {
        ModelAnswer {
            blocks: Vec::new(),
            usage: Usage {
                model_calls: 1,
                input_tokens,
                output_tokens,
                cost_micros: 0,
            },
            warnings: Vec::new(),
        }
    }

    #[test]
    fn counts_that_can_be_right_are_taken_as_they_are() {
        for (input, output) in [(0, 0), (5000, 100), (100_000, 250_000)] {
            let answer = plausible(counted(input, output), 8000, 400);
            assert_eq!(answer, counted(input, output));
        }
    }

    #[test]
    fn counts_that_cannot_be_right_are_estimated_with_a_warning() {
        for (lie, booked) in [
            ((u64::MAX, 10), (2000, 10)),
            ((10, u64::MAX), (10, 100)),
            ((200_000, 400_000), (2000, 100)),
        ] {
            let answer = plausible(counted(lie.0, lie.1), 8000, 400);
            let used = (answer.usage.input_tokens, answer.usage.output_tokens);
            assert_eq!(used, booked, "{lie:?}");
            assert!(answer.warnings[0].contains("cannot be right"), "{answer:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_named() {
        let of = |all: usize, longest: Option<(&'static str, usize)>| {
            check(&Extent {
                all,
                longest,
                ..Extent::default()
            })
        };
        assert_eq!(of(ANSWER, Some(("write", ARGUMENTS))), Ok(()));
        let failure = of(ARGUMENTS + 1, Some(("write", ARGUMENTS + 1))).unwrap_err();
        assert!(failure.message.contains("tool write"), "{failure:?}");
        assert!(failure.message.contains("1048576"), "{failure:?}");
        let failure = of(ANSWER + 1, None).unwrap_err();
        assert!(failure.message.contains("8388608"), "{failure:?}");
        let failure = check(&Extent {
            name: NAME + 1,
            ..Extent::default()
        });
        assert!(failure.unwrap_err().message.contains("1024 bytes"));
        let calls = |calls, begun| {
            check(&Extent {
                calls,
                begun,
                ..Extent::default()
            })
        };
        assert_eq!(calls(CALLS, MAX_BEGINNINGS), Ok(()));
        for (calls, says) in [
            (calls(CALLS + 1, 0), "more than 128 tool calls"),
            (calls(1, MAX_BEGINNINGS + 1), "more than 1024 times"),
        ] {
            let failure = calls.unwrap_err();
            assert!(failure.message.contains(says), "{failure:?}");
        }
    }

    #[test]
    fn whatever_field_it_is_in_too_much_is_not_taken() {
        let mut written = ReceivedBytes::default();
        for _ in 0..200_000 {
            written.take(400, true).unwrap();
        }
        let mut count = 0;
        while written.take(1 << 20, true).is_ok() {
            count += 1;
        }
        assert_eq!(count, WRITTEN >> 20);
        let mut written = ReceivedBytes::default();
        assert!(written.take(WRITTEN, false).is_ok());
        assert!(written.take(1, false).is_err());
    }
}
