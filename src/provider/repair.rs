//! What is done when a provider refuses the conversation itself, for good: it is sent once more
//! as text and calls, without what the provider gave in its own form and without thinking. No
//! session can then be left unusable by something that a provider once answered. Used by
//! `remote`.

use super::failure::Failure;
use super::{ModelAnswer, ModelRequest};
use crate::kernel::message::{Block, Note, Role};

/// The repair of one call's conversation, which happens once at most.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// What the provider said of the conversation in its own form.
    refusal: Option<String>,
}

impl Repair {
    /// Is the conversation sent in plain form?
    pub(super) fn is_done(&self) -> bool {
        self.refusal.is_some()
    }

    /// True if the call is to be sent again in plain form because of this failure.
    pub(super) fn begins(&mut self, failure: &Failure, request: &ModelRequest) -> bool {
        let mut messages = request.messages.iter();
        // Without an answer in it, the conversation has nothing that a provider gave.
        let has_answers = messages.any(|message| message.role == Role::Assistant);
        let begins = !self.is_done() && failure.kind == "provider_request" && has_answers;
        if begins {
            self.refusal = Some(failure.message.clone());
        }
        begins
    }

    /// Marks the answer to a repaired conversation: later requests send what is before it in
    /// plain form, too, and the run says so.
    pub(super) fn mark(self, answer: &mut ModelAnswer, provider: &str) {
        let Some(refusal) = self.refusal else {
            return;
        };
        answer.warnings.push(format!(
            "the provider refused the conversation in the form in which it had given its answers \
             ({refusal}); it was repaired and sent again as text and calls only, without thinking"
        ));
        answer.blocks.push(Block::Note {
            note: Note::Plain {
                provider: provider.to_owned(),
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assistant, request, user};
    use super::*;

    #[test]
    fn only_a_lasting_refusal_of_a_conversation_with_answers_is_repaired_and_once() {
        let asked = request(vec![user(1, "a"), assistant(2, "b"), user(3, "c")]);
        let refused = || Failure::lasting("provider_request", "HTTP 400: because");
        let mut repair = Repair::default();
        assert!(!repair.begins(&Failure::passing("cut"), &asked));
        assert!(!repair.begins(&refused(), &request(vec![user(1, "a")])));
        assert!(repair.begins(&refused(), &asked) && repair.is_done());
        assert!(!repair.begins(&refused(), &asked));
        let mut answer = ModelAnswer {
            blocks: Vec::new(),
            usage: crate::kernel::run::Usage::default(),
            warnings: Vec::new(),
        };
        Repair::default().mark(&mut answer, "p");
        assert_eq!((answer.blocks.len(), answer.warnings.len()), (0, 0));
        repair.mark(&mut answer, "p");
        assert_eq!(answer.blocks.len(), 1);
        assert!(answer.warnings[0].contains("because"));
    }
}
