//! Recovers when a provider refuses the conversation itself, for whatever stated reason: it is sent
//! once more as text and tool calls, without the provider's own JSON and without thinking. The
//! accepted form is noted in the conversation, and later requests use it from the start. So no
//! session becomes unusable because of something that a provider once answered. Used by `remote`.

use super::failure::{AttemptFailure, Remedy};
use super::history::AnswerForm;
use super::http::NO_CONNECTION;
use super::{ModelAnswer, ModelRequest};
use crate::kernel::session::message::{AnswerFinding, Block, Role};

/// The repair of one call's conversation; each other form is tried at most once.
#[derive(Debug, Default)]
pub(super) struct Repair {
    form: AnswerForm,
    /// The provider's message when it refused the first form.
    refusal: Option<String>,
}

impl Repair {
    /// The form in which the conversation is sent.
    pub(super) fn form(&self) -> AnswerForm {
        self.form
    }

    /// The request body in another form, if this failure may be fixed by one; otherwise the failure
    /// is final. `body` writes a form, `sent` is the refused body.
    pub(super) fn next(
        &mut self,
        failure: &AttemptFailure,
        request: &ModelRequest,
        sent: &[u8],
        body: impl Fn(AnswerForm) -> String,
    ) -> Option<String> {
        let mut messages = request.messages.iter();
        // A conversation without answers contains nothing from a provider.
        let has_answers = messages.any(|message| message.role == Role::Assistant);
        if !has_answers || !may_be_the_form(failure) {
            return None;
        }
        let others: &[AnswerForm] = match self.form {
            AnswerForm::Noted => &[AnswerForm::Own, AnswerForm::Plain],
            AnswerForm::Own => &[AnswerForm::Plain],
            AnswerForm::Plain => &[],
        };
        let (form, body) = others
            .iter()
            .map(|form| (*form, body(*form)))
            .find(|(_, body)| body.as_bytes() != sent)?;
        self.form = form;
        self.refusal.get_or_insert_with(|| failure.message.clone());
        Some(body)
    }

    /// Notes the accepted form in the answer and adds a warning for the run. Later requests use
    /// this form.
    pub(super) fn mark(self, answer: &mut ModelAnswer, provider: &str) {
        let Some(refusal) = self.refusal else {
            return;
        };
        let provider = provider.to_owned();
        let (told, note) = match self.form {
            AnswerForm::Own => (
                format!(
                    "the provider refused its earlier answers as text and tool calls ({refusal}); they were \
                     sent again in the provider's own form"
                ),
                AnswerFinding::Own { provider },
            ),
            AnswerForm::Plain | AnswerForm::Noted => (
                format!(
                    "the provider refused the conversation with its earlier answers in its own \
                     form ({refusal}); it was sent again as text and tool calls only, \
                     without thinking"
                ),
                AnswerFinding::Plain { provider },
            ),
        };
        answer.warnings.push(told);
        answer.blocks.push(Block::Note { note });
    }
}

/// Whether another form of the conversation may help. It does not if the provider was not reached
/// or accepts no requests, if the key or the account is the cause, or if the conversation is too
/// long.
fn may_be_the_form(failure: &AttemptFailure) -> bool {
    let status = failure.refusal.as_ref().and_then(|refusal| refusal.status);
    match failure.remedy {
        Remedy::Nothing => failure.kind == "provider_request",
        Remedy::Again => failure.kind == "provider" && !failure.message.starts_with(NO_CONNECTION),
        Remedy::Elsewhere => match failure.kind {
            "provider" => failure.refusal.is_some() && status != Some(429),
            "provider_auth" => status == Some(403),
            _ => false,
        },
        Remedy::Later => false,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::super::testing::{assistant, request, user};
    use super::*;
    use crate::kernel::time::Timestamp;

    fn of_status(status: u16, words: &str) -> AttemptFailure {
        let status = StatusCode::from_u16(status).unwrap();
        AttemptFailure::of_status(status, &HeaderMap::new(), words, Timestamp(0))
    }

    fn body(form: AnswerForm) -> String {
        match form {
            AnswerForm::Noted | AnswerForm::Own => "own".to_owned(),
            AnswerForm::Plain => "plain".to_owned(),
        }
    }

    #[test]
    fn a_conversation_with_answers_is_repaired_once_however_it_is_refused() {
        let asked = request(vec![user(1, "a"), assistant(2, "b"), user(3, "c")]);
        let broken_off = json!({"message": "bad message", "type": "server_error", "code": 500});
        for refused in [
            of_status(400, "because"),
            of_status(422, "because"),
            of_status(500, "because"),
            of_status(500, ""),
            of_status(404, "No endpoints found that support reasoning_content"),
            of_status(403, "because"),
            AttemptFailure::in_stream(&broken_off),
            AttemptFailure::passing("the answer broke off with the reason \"error\""),
        ] {
            let mut repair = Repair::default();
            let next = repair.next(&refused, &asked, b"own", body);
            assert_eq!(next.as_deref(), Some("plain"), "{refused:?}");
            assert_eq!(repair.form(), AnswerForm::Plain);
            assert_eq!(repair.next(&refused, &asked, b"plain", body), None);
            // The other form is identical.
            let next =
                |request, sent| Repair::default().next(&refused, request, sent, |_| "own".into());
            assert_eq!(next(&asked, b"own"), None);
            assert_eq!(next(&request(vec![user(1, "a")]), b"x"), None);
        }
        for other in [
            of_status(401, "no such key"),
            of_status(402, "pay"),
            of_status(429, "slow down"),
            of_status(503, "overloaded"),
            of_status(400, "insufficient balance"),
            of_status(400, "prompt is too long"),
            AttemptFailure::passing(format!("{NO_CONNECTION} to x")),
            AttemptFailure::timeout("too late"),
            AttemptFailure::lasting("refused", "no"),
        ] {
            let next = Repair::default().next(&other, &asked, b"own", body);
            assert_eq!(next, None, "{other:?}");
        }
    }

    #[test]
    fn a_repaired_conversation_is_marked_with_the_form_that_was_taken() {
        let asked = request(vec![user(1, "a"), assistant(2, "b"), user(3, "c")]);
        let mut answer = ModelAnswer {
            blocks: Vec::new(),
            usage: crate::kernel::run::Usage::default(),
            warnings: Vec::new(),
        };
        Repair::default().mark(&mut answer, "p");
        assert_eq!((answer.blocks.len(), answer.warnings.len()), (0, 0));
        // The plain form was noted before and is refused now.
        let mut repair = Repair::default();
        let refused = of_status(400, "because");
        let next = repair.next(&refused, &asked, b"plain", body);
        assert_eq!(next.as_deref(), Some("own"));
        repair.mark(&mut answer, "p");
        let own = AnswerFinding::Own {
            provider: "p".to_owned(),
        };
        assert_eq!(answer.blocks, [Block::Note { note: own }]);
        assert!(answer.warnings[0].contains("because"));
    }
}
