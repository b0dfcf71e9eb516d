//! Masks a run's secrets in the outcomes of its steps, before they are stored, delivered or shown.
//! Called by `drive`, which handles every outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::contract::runner::{StepOutcome, TextSink};
use crate::kernel::run::RunError;
use crate::kernel::session::message::{AnswerFinding, Block};
use crate::kernel::text::redact::{Pieces, Redactor};

/// Masks the secrets in an outcome.
pub(crate) fn redact(outcome: &mut StepOutcome, redactor: &Redactor) {
    if redactor.is_empty() {
        return;
    }
    let error = |error: &mut RunError| redactor.in_place(&mut error.message);
    match outcome {
        StepOutcome::Answer {
            blocks,
            warnings,
            used,
        } => {
            // Model text is never truncated; the output of a program may be.
            let is_cut = used.is_none();
            blocks
                .iter_mut()
                .for_each(|block| in_block(block, redactor, is_cut));
            warnings.iter_mut().for_each(|one| redactor.in_place(one));
        }
        StepOutcome::ToolResult { text, .. } => redactor.in_place(text),
        StepOutcome::Shortened {
            summary,
            report: told,
            remember,
            ..
        } => {
            if let Some((text, _)) = summary {
                redactor.in_place(text);
            }
            redactor.in_place(told);
            remember.iter_mut().for_each(|one| redactor.in_place(one));
        }
        StepOutcome::TooLong(failed) | StepOutcome::Failed { error: failed, .. } => error(failed),
        StepOutcome::AwaitsProvider { reason: why, .. } | StepOutcome::Uncertain { why, .. } => {
            redactor.in_place(why);
        }
        StepOutcome::Waits => {}
    }
}

fn in_block(block: &mut Block, redactor: &Redactor, is_cut: bool) {
    match block {
        Block::Text { text } | Block::ToolResult { text, .. } if is_cut => redactor.in_place(text),
        Block::Text { text } | Block::ToolResult { text, .. } => redactor.in_whole(text),
        Block::ToolCall { arguments, .. } => redactor.in_value(arguments),
        Block::Native { json, .. } => redactor.in_whole(json),
        Block::Note {
            note: AnswerFinding::Refused { reason, .. },
        } => redactor.in_whole(reason),
        Block::Note { .. } => {}
    }
}

/// A sink that forwards text with secrets masked, including a secret split over two pieces.
pub(crate) struct Redacted {
    to: Arc<dyn TextSink>,
    redactor: Redactor,
    said: Mutex<Channels>,
}

/// The held-back text of each channel.
#[derive(Default)]
struct Channels {
    text: Pieces,
    thinking: Pieces,
}

impl Channels {
    fn new(redactor: &Redactor) -> Self {
        Channels {
            text: Pieces::new(redactor.clone()),
            thinking: Pieces::new(redactor.clone()),
        }
    }
}

impl Redacted {
    /// Wraps the sink `to`.
    pub(crate) fn over(to: Arc<dyn TextSink>, redactor: &Redactor) -> Arc<Self> {
        Arc::new(Redacted {
            to,
            said: Mutex::new(Channels::new(redactor)),
            redactor: redactor.clone(),
        })
    }

    /// Ends the stream and forwards the held-back text.
    pub(crate) fn end(&self) {
        let (text, thinking) = {
            let mut said = self.lock();
            (said.text.rest(), said.thinking.rest())
        };
        if !thinking.is_empty() {
            self.to.thinking(&thinking);
        }
        if !text.is_empty() {
            self.to.text(&text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        // After a panic the held-back text is still valid and must be forwarded.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextSink for Redacted {
    fn text(&self, piece: &str) {
        if self.redactor.is_empty() {
            return self.to.text(piece);
        }
        let piece = self.lock().text.more(piece);
        if !piece.is_empty() {
            self.to.text(&piece);
        }
    }

    fn thinking(&self, piece: &str) {
        if self.redactor.is_empty() {
            return self.to.thinking(piece);
        }
        let piece = self.lock().thinking.more(piece);
        if !piece.is_empty() {
            self.to.thinking(&piece);
        }
    }

    fn reset(&self) {
        *self.lock() = Channels::new(&self.redactor);
        self.to.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::secret::Secret;
    use serde_json::json;

    fn redactor() -> Redactor {
        let secret = Secret::new("canary-1");
        Redactor::new([("A_KEY", &secret)])
    }

    #[test]
    fn no_outcome_keeps_a_secret() {
        let call = |text: &str| Block::ToolCall {
            id: "c".to_owned(),
            name: "shell".to_owned(),
            arguments: json!({ "command": text }),
        };
        let text = "says canary-1".to_owned();
        let failed = RunError::new("provider", "401 canary-1");
        let outcomes = [
            StepOutcome::Answer {
                blocks: vec![Block::Text { text: text.clone() }, call("x canary-1")],
                used: None,
                warnings: vec![text.clone()],
            },
            StepOutcome::ToolResult {
                text: text.clone(),
                is_error: true,
            },
            StepOutcome::Shortened {
                summary: None,
                report: text.clone(),
                remember: vec![text],
                used: None,
            },
            StepOutcome::TooLong(failed.clone()),
            StepOutcome::failed(failed),
        ];
        for mut outcome in outcomes {
            assert!(format!("{outcome:?}").contains("canary-1"));
            redact(&mut outcome, &redactor());
            let shown = format!("{outcome:?}");
            assert!(!shown.contains("canary-1"), "{shown}");
            assert!(shown.contains("[secret:A_KEY]"), "{shown}");
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<String>);

    impl TextSink for Heard {
        fn text(&self, piece: &str) {
            self.0.lock().unwrap().push_str(piece);
        }

        fn reset(&self) {
            self.0.lock().unwrap().clear();
        }
    }

    #[test]
    fn a_secret_in_two_pieces_is_not_passed_on_and_nothing_else_is_lost() {
        let heard = Arc::new(Heard::default());
        let sink = Redacted::over(Arc::clone(&heard) as Arc<dyn TextSink>, &redactor());
        sink.text("x can");
        sink.reset();
        for piece in ["a can", "ary", "-1 b c", "an"] {
            sink.text(piece);
        }
        sink.end();
        assert_eq!(*heard.0.lock().unwrap(), "a [secret:A_KEY] b can");
    }
}
