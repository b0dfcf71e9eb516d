//! Questions of runs to people: which are open, where they come from, and their answers.

use super::request::{Page, QuestionAnswer, QuestionFilter, QuestionView};
use super::view::{cut, place};
use super::{Principal, Registry};
use crate::kernel::fault::Fault;
use crate::kernel::ids::QuestionId;
use crate::kernel::question::{Asker, Question};
use crate::store::tx::{DbError, Tx};
use crate::store::{Command, Reply, questions, runs, sessions};

impl Registry {
    /// A page of questions, oldest first, each with where it comes from. With `tree`, those of
    /// the whole tree in which the session lies: a person who looks at its top sees all.
    pub async fn questions(
        &self,
        who: &Principal,
        filter: QuestionFilter,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<QuestionView>, Fault> {
        let mut query = questions::Query {
            org: who.org.clone(),
            session: None,
            root: None,
            state: filter.state,
            after: place(cursor)?,
            limit: limit + 1,
        };
        if let Some(key) = &filter.session {
            let found = self
                .inner
                .store
                .read_now(|tx| sessions::by_key(tx, &who.org, key))?
                .ok_or_else(|| Fault::not_found("session", key))?;
            if filter.tree {
                query.root = Some(found.root);
            } else {
                query.session = Some(found.id);
            }
        }
        let mut found = self
            .inner
            .store
            .read(move |tx| {
                questions::list(tx, &query)?
                    .into_iter()
                    .map(|(seq, question)| Ok((seq, with_origin(tx, question)?)))
                    .collect::<Result<Vec<_>, DbError>>()
            })
            .await?;
        let next = cut(&mut found, limit, |(seq, _)| *seq);
        Ok(Page {
            items: found.into_iter().filter_map(|(_, view)| view).collect(),
            next,
        })
    }

    /// Answers a question: the run that asked it goes on with the answer. The same answer
    /// again gives the same.
    pub async fn answer(
        &self,
        who: &Principal,
        id: QuestionId,
        answer: QuestionAnswer,
    ) -> Result<QuestionView, Fault> {
        let text = match answer {
            QuestionAnswer::Text(text) => text,
            QuestionAnswer::Choice(choice) => self.choice(id, choice)?,
        };
        let command = Command::Answer {
            org: who.org.clone(),
            id,
            answer: text,
            by: who.user.clone(),
        };
        match self.inner.store.submit(command).await? {
            Reply::Question(question) => self
                .inner
                .store
                .read_now(|tx| with_origin(tx, *question))?
                .ok_or_else(|| Fault::not_found("question", id)),
            other => Err(super::spawn::unexpected(&other)),
        }
    }

    /// A choice must be one of those that the question proposes.
    fn choice(&self, id: QuestionId, choice: String) -> Result<String, Fault> {
        let found = self.inner.store.read_now(|tx| questions::get(tx, id))?;
        let question = found.ok_or_else(|| Fault::not_found("question", id))?;
        if question.choices.contains(&choice) {
            return Ok(choice);
        }
        let choices = question.choices.join(", ");
        Err(Fault::params(
            "choice",
            if choices.is_empty() {
                "this question proposes no choices; answer with text".to_owned()
            } else {
                format!("{choice:?} is not one of {choices}")
            },
        )
        .with("choices", question.choices))
    }
}

/// The question with the run and session that it comes from.
fn with_origin(tx: &mut dyn Tx, question: Question) -> Result<Option<QuestionView>, DbError> {
    let Some(run) = runs::get(tx, question.run)? else {
        return Ok(None);
    };
    let root = sessions::by_id(tx, question.root_session)?;
    Ok(Some(QuestionView {
        root: root.map(|root| root.key),
        origin: Asker {
            agent: run.agent,
            session: run.session_key,
            label: run.label,
            title: run.title,
            depth: run.depth,
        },
        question,
    }))
}
