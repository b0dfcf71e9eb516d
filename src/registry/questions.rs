//! Questions of runs to people: which are open, where they come from, and their answers.

use super::answer::{Page, QuestionView};
use super::request::{QuestionAnswer, QuestionFilter};
use super::view::{cut, place};
use super::{Principal, Registry};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{QuestionId, RunId, SessionId, SessionKey};
use crate::kernel::question::{Asker, Question, QuestionState};
use crate::store::asked::Query;
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
        let state = filter.state.map(QuestionState::as_str);
        let query = self.asked(
            who,
            filter.session.as_ref(),
            filter.tree,
            state,
            limit,
            cursor,
        )?;
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
            QuestionAnswer::Choice(choice) => self.choice(who, id, choice)?,
        };
        let command = Command::Answer {
            org: who.org.clone(),
            id,
            answer: text,
            by: who.by(),
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

    /// Which of what is asked a list gives, for questions and approvals alike.
    pub(super) fn asked(
        &self,
        who: &Principal,
        session: Option<&SessionKey>,
        tree: bool,
        state: Option<&'static str>,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Query, Fault> {
        let mut query = Query {
            org: who.org.clone(),
            session: None,
            root: None,
            state,
            after: place(cursor)?,
            limit: limit + 1,
        };
        if let Some(key) = session {
            let found = self
                .inner
                .store
                .read_now(|tx| sessions::by_key(tx, &who.org, key))?
                .ok_or_else(|| Fault::not_found("session", key))?;
            if tree {
                query.root = Some(found.root);
            } else {
                query.session = Some(found.id);
            }
        }
        Ok(query)
    }

    /// A choice must be one of those that the question proposes.
    fn choice(&self, who: &Principal, id: QuestionId, choice: String) -> Result<String, Fault> {
        let found = self.inner.store.read_now(|tx| questions::get(tx, id))?;
        let question = found
            .filter(|question| question.org == who.org)
            .ok_or_else(|| Fault::not_found("question", id))?;
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
    let origin = origin(tx, question.run, question.root_session)?;
    Ok(origin.map(|(origin, root)| QuestionView {
        root,
        origin,
        question,
    }))
}

/// The run that asks, for people, and the top of its tree; `None`: the run is not there.
pub(super) fn origin(
    tx: &mut dyn Tx,
    run: RunId,
    root: SessionId,
) -> Result<Option<(Asker, Option<SessionKey>)>, DbError> {
    let Some(run) = runs::get(tx, run)? else {
        return Ok(None);
    };
    let root = sessions::by_id(tx, root)?;
    let asker = Asker {
        agent: run.agent,
        session: run.session_key,
        label: run.label,
        title: run.title,
        depth: run.depth,
    };
    Ok(Some((asker, root.map(|root| root.key))))
}
