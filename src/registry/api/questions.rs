//! Questions of runs to the user: lists them with their origin, and records answers.

use super::answer::Page;
use super::view::{cut, place};
use crate::command::Answer;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{QuestionId, RunId, SessionId, SessionKey};
use crate::kernel::question::{Asker, Question, QuestionState};
use crate::registry::{Principal, Registry};
use crate::store::tables::requests::Query;
use crate::store::tables::{questions, runs, sessions};
use crate::store::tx::{DbError, Tx};
use crate::wire::questions as wire;

impl Registry {
    /// A page of questions, oldest first, each with its origin. With `tree`, all questions of the
    /// tree that contains the session, so that a user at the root sees every one.
    pub async fn questions(
        &self,
        who: &Principal,
        filter: wire::ListQuestions,
    ) -> Result<Page<wire::Question>, Fault> {
        let (state, limit) = (filter.state.map(QuestionState::as_str), filter.limit.0);
        let (key, tree) = (filter.session_key.as_ref(), filter.tree);
        let query = self.asked(who, key, tree, state, limit, filter.cursor)?;
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

    /// Once this returns, the question is answered and its run continues with the answer. Repeating
    /// the same answer returns the same result.
    pub async fn answer(
        &self,
        who: &Principal,
        request: wire::AnswerQuestion,
    ) -> Result<wire::Question, Fault> {
        let id = request.id;
        let text = match (request.text, request.choice) {
            (Some(text), None) if !text.trim().is_empty() => text,
            (None, Some(choice)) => self.choice(who, id, choice)?,
            _ => return Err(Fault::params("text", "give either text or choice")),
        };
        let command = Answer {
            org: who.org.clone(),
            id,
            answer: text,
            by: who.by(),
        };
        let question = self.inner.store.submit(command).await?;
        self.inner
            .store
            .read_now(|tx| with_origin(tx, question))?
            .ok_or_else(|| Fault::not_found("question", id))
    }

    /// Builds the list query for questions and approvals.
    pub(crate) fn asked(
        &self,
        who: &Principal,
        session: Option<&SessionKey>,
        tree: Option<bool>,
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
            if tree.unwrap_or(true) {
                query.root = Some(found.root);
            } else {
                query.session = Some(found.id);
            }
        }
        Ok(query)
    }

    /// Checks that the choice is one of the answers proposed by the question, which must belong to the
    /// caller's tenant.
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

/// The question with the run and session that it comes from; `None` if the run is gone.
fn with_origin(tx: &mut dyn Tx, question: Question) -> Result<Option<wire::Question>, DbError> {
    let origin = origin(tx, question.run, question.root_session)?;
    Ok(origin.map(|(origin, root)| wire::Question {
        id: question.id,
        run_id: question.run,
        session_key: origin.session,
        root_session_key: root,
        agent: origin.agent,
        label: origin.label,
        title: origin.title,
        depth: origin.depth,
        text: question.text,
        choices: question.choices,
        asked_at: question.asked_at,
        expires_at: question.expires_at,
        state: question.state.as_str().into(),
        answer: question.answer,
        answered_by: question.answered_by,
        ended_at: question.ended_at,
    }))
}

/// The run as shown to the user, and the root session of its tree; `None` if the run is gone.
pub(crate) fn origin(
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
