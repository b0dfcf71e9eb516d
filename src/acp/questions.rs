//! Questions of agents. An editor that can show a form is asked with one; others are shown the text
//! with the command that answers it. What the editor does not answer stays open and can be answered
//! elsewhere; the form of what is answered elsewhere is withdrawn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::editor::Editor;
use super::permissions::is_of_kind;
use crate::acp_protocol::answer::AskForm;
use crate::acp_protocol::request::FormAnswer;
use crate::acp_protocol::update::{Chunk, Update};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{QuestionId, SessionKey};
use crate::kernel::question::QuestionState;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::questions::{AnswerQuestion, ListQuestions, Question};

/// Number of the last digits of an id that name it in a command.
const SHORT: usize = 8;
/// Names of the fields of a form.
const CHOICE: &str = "choice";
const TEXT: &str = "text";

/// The questions that were shown.
#[derive(Default)]
pub(super) struct Questions(RefCell<HashMap<QuestionId, ShownQuestion>>);

struct ShownQuestion {
    /// The open session in which it is shown.
    session: String,
    /// Withdraws the form when it is dropped.
    _withdraw: Option<oneshot::Sender<()>>,
}

impl Questions {
    /// A question is no longer open.
    pub(super) fn answered(&self, id: QuestionId) {
        self.0.borrow_mut().remove(&id);
    }

    /// Forgets what was shown in a session that is closed or opened anew.
    pub(super) fn forget(&self, session: &str) {
        self.0
            .borrow_mut()
            .retain(|_, shown| shown.session != session);
    }
}

impl Editor {
    /// Shows the open questions in the tree of this session, each once.
    pub(super) async fn show_questions(self: &Rc<Self>, key: &SessionKey) {
        let request = ListQuestions {
            session_key: Some(key.clone()),
            tree: Some(true),
            state: Some(QuestionState::Open),
            limit: PageSize(PAGE_LIMIT),
            ..ListQuestions::default()
        };
        // Without an answer they stay open, and `abide answer` lists them.
        let Ok(open) = self.link.call(&request).await else {
            return;
        };
        for question in open.questions {
            let keys = [
                Some(&question.session_key),
                question.root_session_key.as_ref(),
            ];
            let is_open = |key: &&SessionKey| self.session(key.as_str()).is_ok();
            let Some(session) = keys.into_iter().flatten().find(is_open).cloned() else {
                continue;
            };
            if self.questions.0.borrow().contains_key(&question.id) {
                continue;
            }
            let (withdraw, withdrawn) = oneshot::channel();
            let with_form = self.shows_forms();
            let shown = ShownQuestion {
                session: session.to_string(),
                _withdraw: with_form.then_some(withdraw),
            };
            self.questions.0.borrow_mut().insert(question.id, shown);
            if with_form {
                let editor = Rc::clone(self);
                let session = session.to_string();
                tokio::task::spawn_local(async move {
                    ask(&editor, session, question, withdrawn).await;
                });
            } else {
                self.show_question(session.as_str(), &question).await;
            }
        }
    }

    async fn show_question(&self, session: &str, question: &Question) {
        let update = Update::AgentMessageChunk(Chunk::new(question.id, text(question)));
        self.output.update(session, &update).await;
    }
}

/// Asks the user with a form and passes the answer on.
async fn ask(
    editor: &Rc<Editor>,
    session: String,
    question: Question,
    withdrawn: oneshot::Receiver<()>,
) {
    let params = AskForm {
        mode: "form",
        session_id: session.clone(),
        message: format!("{} asks: {}", question.agent, question.text),
        requested_schema: form(&question.choices),
    };
    let mut request = editor.output.request("elicitation/create", params).await;
    let answer = tokio::select! {
        answer = request.answer() => answer,
        _ = withdrawn => return request.withdraw().await,
    };
    let Some(answer) = answer.and_then(|answer| answered(question.id, &question.choices, &answer))
    else {
        // It stays open; the text says how it can still be answered.
        return editor.show_question(&session, &question).await;
    };
    match editor.link.call(&answer).await {
        Ok(_) => {}
        // It was answered elsewhere, or its time is over.
        Err(error) if is_of_kind(&error, Kind::Conflict) => {}
        // No daemon has answered, so whether it is answered is not known: the user is asked again if
        // it is still open.
        Err(error) if error.data.is_none() => {
            editor.link.client_at_last().await;
            editor.questions.answered(question.id);
            Box::pin(editor.show_questions(&question.session_key)).await;
        }
        // A repeat would fail, too, and an editor that answers by itself would repeat it forever.
        Err(error) => {
            let why = format!("the answer was not passed on: {}", error.message);
            editor.note(&session, why).await;
            editor.show_question(&session, &question).await;
        }
    }
}

/// The fields of a form: a proposed answer, or a text.
fn form(choices: &[String]) -> Value {
    let text = |title: &str| json!({ "type": "string", "title": title });
    match choices.is_empty() {
        true => json!({
            "type": "object",
            "properties": { TEXT: text("Answer") },
            "required": [TEXT],
        }),
        false => {
            let mut choice = text("Answer");
            choice["enum"] = json!(choices);
            json!({
                "type": "object",
                "properties": { CHOICE: choice, TEXT: text("Other answer") },
            })
        }
    }
}

/// The user's answer; `None` if there is none.
fn answered(id: QuestionId, choices: &[String], answer: &Value) -> Option<AnswerQuestion> {
    let FormAnswer::Accept {
        content: Some(content),
    } = FormAnswer::deserialize(answer).ok()?
    else {
        return None;
    };
    let field = |content: &Map<String, Value>, name: &str| {
        let text = content.get(name)?.as_str()?;
        (!text.trim().is_empty()).then(|| text.to_owned())
    };
    let text = field(&content, TEXT);
    // An own text says more than a choice that a form has selected by itself.
    let choice = match text {
        Some(_) => None,
        None => field(&content, CHOICE).filter(|choice| choices.contains(choice)),
    };
    (text.is_some() || choice.is_some()).then_some(AnswerQuestion { id, text, choice })
}

fn text(question: &Question) -> String {
    let id = question.id.to_string();
    let mut text = format!("\n\n**{} asks:** {}\n", question.agent, question.text);
    for choice in &question.choices {
        text.push_str(&format!("- {choice}\n"));
    }
    text.push_str(&format!(
        "\nAnswer it in a terminal: `abide answer {} \"…\"`\n\n",
        &id[id.len() - SHORT..]
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn only_an_accepted_form_with_an_answer_answers() {
        let id = QuestionId(Clock::system().new_id());
        let choices = ["red".to_owned(), "blue".to_owned()];
        let of = |answer: Value| {
            let answered = answered(id, &choices, &answer)?;
            Some((answered.text, answered.choice))
        };
        let accept = |content: Value| json!({ "action": "accept", "content": content });
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            of(accept(json!({ "choice": "red" }))),
            Some((None, text("red")))
        );
        assert_eq!(
            of(accept(json!({ "choice": "red", "text": "green" }))),
            Some((text("green"), None))
        );
        for none in [
            accept(json!({})),
            accept(json!({ "text": "  " })),
            accept(json!({ "choice": "pink" })),
            accept(Value::Null),
            json!({ "action": "accept" }),
            json!({ "action": "decline", "content": { "text": "x" } }),
            json!({ "action": "cancel" }),
            json!({ "action": "_mine" }),
            json!({}),
        ] {
            assert_eq!(of(none.clone()), None, "{none}");
        }
    }
}
