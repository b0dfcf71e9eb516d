//! Questions of agents: shown as text with the command that answers them, since an editor need not be
//! able to ask for text.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use super::editor::Editor;
use crate::acp_protocol::update::{Chunk, Update};
use crate::kernel::ids::{QuestionId, SessionKey};
use crate::kernel::question::QuestionState;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::questions::{ListQuestions, Question};

/// Number of the last digits of an id that name it in a command.
const SHORT: usize = 8;

/// The questions that were shown, each with its session.
#[derive(Default)]
pub(super) struct Questions(RefCell<HashSet<(String, QuestionId)>>);

impl Questions {
    /// Forgets what was shown in a session that is closed or opened anew.
    pub(super) fn forget(&self, session: &str) {
        self.0.borrow_mut().retain(|(of, _)| of != session);
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
            let Some(session) = keys.into_iter().flatten().find(is_open) else {
                continue;
            };
            let shown = (session.to_string(), question.id);
            if self.questions.0.borrow_mut().insert(shown) {
                let text = text(&question);
                let update = Update::AgentMessageChunk(Chunk::new(question.id, text));
                self.output.update(session.as_str(), &update).await;
            }
        }
    }
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
