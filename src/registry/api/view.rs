//! Read-only views for the RPC layer: lists, histories and inboxes, all read from the rows.

use super::answer::{AnnounceState, Page, RunDetail, SessionView, StepPage, TranscriptPage};
use crate::command::Ack;
use crate::kernel::delegation::announce::AnnounceNote;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, MessageId, RunId, SessionId, SessionKey};
use crate::kernel::run::Run;
use crate::kernel::run::step::Step;
use crate::kernel::session::stored_content::StoredMessage;
use crate::registry::spawn::folder;
use crate::registry::{Principal, Registry};
use crate::store::tables::{
    approvals, environment, expired, messages, outbox, questions, read, runs, sends, sessions,
    steps,
};
use crate::store::tx::{DbError, Tx};
use crate::wire::gateway::Counts;
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, MetaValue};
use crate::wire::sessions::{GetHistory, GetInbox, ListSessions, SessionKind};
use crate::wire::shapes::Announce;

/// Key in a fault's data: the run existed and retention has removed it.
pub(crate) const EXPIRED: &str = "expired";

impl Registry {
    /// One session of the tenant.
    pub async fn session(&self, who: &Principal, key: &SessionKey) -> Result<SessionView, Fault> {
        let found = self
            .inner
            .store
            .read_now(|tx| read::session(tx, &who.org, key))?;
        found
            .map(SessionView::from)
            .ok_or_else(|| Fault::not_found("session", key))
    }

    /// Reads a page of sessions, newest first, and returns what `show` makes of it.
    pub async fn sessions<R: Send + 'static>(
        &self,
        who: &Principal,
        filter: ListSessions,
        show: impl FnOnce(Page<SessionView>) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, Fault> {
        let limit = filter.limit.0;
        let mut query = sessions::ListQuery {
            org: who.org.clone(),
            roots: match filter.kind {
                None | Some(SessionKind::Main) => Some(true),
                Some(SessionKind::Child) => Some(false),
                Some(SessionKind::All) => None,
            },
            parent: None,
            agent: filter.agent,
            label: filter.label,
            cwd: match filter.cwd {
                // Folders are stored with their links resolved; one that is gone has none.
                Some(cwd) => folder::taken(Some(cwd.clone())).await.unwrap_or(Some(cwd)),
                None => None,
            },
            search: filter.search,
            archived: filter.archived,
            before: place(filter.cursor)?,
            limit: limit + 1,
        };
        if let Some(key) = &filter.parent {
            query.parent = Some(self.session_id(who, key)?);
            query.roots = None;
        }
        let rows = move |tx: &mut dyn Tx| {
            let rows = sessions::list(tx, &query)?;
            rows.into_iter()
                .map(|(seq, session)| Ok((seq, read::session_beside(tx, session)?)))
                .collect::<Result<Vec<_>, DbError>>()
        };
        let shown = move |mut found: Vec<(i64, read::ShownSession)>| {
            let next = cut(&mut found, limit, |(seq, _)| *seq);
            show(Page {
                items: found
                    .into_iter()
                    .map(|(_, shown)| SessionView::from(shown))
                    .collect(),
                next,
            })
        };
        self.inner.store.read_then(rows, shown).await
    }

    /// Reads a page of a transcript, before or after a sequence number or else the latest messages,
    /// and returns what `show` makes of it.
    pub async fn history<R: Send + 'static>(
        &self,
        who: &Principal,
        part: GetHistory,
        show: impl FnOnce(TranscriptPage) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, Fault> {
        let GetHistory {
            session_key,
            before,
            after,
            tools,
            limit: PageSize(limit),
        } = part;
        let session = self.session_id(who, &session_key)?;
        let tools = tools.unwrap_or(true);
        let rows = move |tx: &mut dyn Tx| {
            let messages = match (before, after) {
                (_, Some(after)) => messages::after(tx, session, after, limit + 1, tools)?,
                (before, None) => {
                    let before = before.unwrap_or(i64::MAX);
                    messages::before(tx, session, before, limit + 1, tools)?
                }
            };
            let delegated = read::delegated(tx, &messages)?;
            Ok((messages, delegated))
        };
        let shown = move |(mut messages, delegated): (Vec<StoredMessage>, _)| {
            let truncated = messages.len() > limit as usize;
            if truncated && after.is_some() {
                messages.truncate(limit as usize);
            } else if truncated {
                messages.remove(0);
            }
            show(TranscriptPage {
                messages,
                delegated,
                truncated,
            })
        };
        self.inner.store.read_then(rows, shown).await
    }

    /// A page of a session's inbox, oldest first.
    pub async fn inbox(&self, who: &Principal, request: GetInbox) -> Result<Page<Announce>, Fault> {
        let session = self.session_id(who, &request.session_key)?;
        let (acked, limit) = (request.acked, request.limit.0);
        let after = place(request.cursor)?.unwrap_or(0);
        let mut found = self
            .inner
            .store
            .read(move |tx| {
                let entries = outbox::inbox(tx, session, acked, after, limit + 1)?;
                entries
                    .into_iter()
                    .map(|entry| Ok((entry.seq, inbox_entry(tx, session, entry)?)))
                    .collect::<Result<Vec<_>, DbError>>()
            })
            .await?;
        let next = cut(&mut found, limit, |(seq, _)| *seq);
        Ok(Page {
            items: found.into_iter().filter_map(|(_, entry)| entry).collect(),
            next,
        })
    }

    /// Once this returns, these announces of the session's inbox are acknowledged; all or none.
    pub async fn ack(
        &self,
        who: &Principal,
        key: &SessionKey,
        ids: Vec<AnnounceId>,
    ) -> Result<Vec<AnnounceId>, Fault> {
        let command = Ack {
            org: who.org.clone(),
            session: key.clone(),
            ids,
        };
        self.inner.store.submit(command).await
    }

    /// One run of the tenant.
    pub async fn run(&self, who: &Principal, id: RunId) -> Result<RunDetail, Fault> {
        let (shown, todo) = self.inner.store.read_now(|tx| {
            let shown = read::run(tx, id)?;
            let todo = match &shown {
                Some(shown) => steps::todo(tx, &shown.run)?,
                None => None,
            };
            Ok((shown, todo))
        })?;
        match shown.filter(|shown| shown.run.org == who.org) {
            Some(shown) => Ok(RunDetail {
                todo,
                ..self.detail(shown)
            }),
            None => Err(self.missing(who, id)?),
        }
    }

    /// The fault for a missing run, which says if retention has removed it.
    fn missing(&self, who: &Principal, id: RunId) -> Result<Fault, Fault> {
        let removed = self
            .inner
            .store
            .read_now(|tx| expired::removed_at(tx, &who.org, id))?;
        Ok(match removed {
            Some(at) => Fault::new(
                Kind::NotFound,
                format!("run {id} had ended and was removed {at} by retention.runs"),
            )
            .with("id", id.to_string())
            .with(EXPIRED, true),
            None => Fault::not_found("run", id),
        })
    }

    /// Reads a page of runs, newest first, with the total count if requested, and returns what
    /// `show` makes of it.
    pub async fn runs<R: Send + 'static>(
        &self,
        who: &Principal,
        filter: ListRuns,
        show: impl FnOnce(Page<RunDetail>, Option<u64>) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, Fault> {
        let limit = filter.limit.0;
        let mut query = read::RunQuery {
            org: who.org.clone(),
            session: self.opt_session_id(who, filter.session_key.as_ref())?,
            requester: self.opt_session_id(who, filter.parent.as_ref())?,
            states: filter.states.iter().map(ToString::to_string).collect(),
            agent: filter.agent,
            label: filter.label,
            tree: filter.tree,
            undelivered: filter.undelivered,
            needs_review: filter.needs_review,
            meta: filter.meta.into_iter().flatten().map(meta_field).collect(),
            created_after: filter.created_after,
            created_before: filter.created_before,
            before: place(filter.cursor)?,
            limit: limit + 1,
        };
        let registry = self.clone();
        let shown = move |(mut found, total): (Vec<read::ShownRun>, Option<u64>)| {
            let next = cut(&mut found, limit, |shown| shown.seq);
            let items = found.into_iter().map(|shown| registry.detail(shown));
            let page = Page {
                items: items.collect(),
                next,
            };
            show(page, total)
        };
        let rows = move |tx: &mut dyn Tx| {
            let found = read::runs(tx, &query)?;
            query.before = None;
            let total = filter.total.then(|| read::count_runs(tx, &query));
            Ok((found, total.transpose()?))
        };
        self.inner.store.read_then(rows, shown).await
    }

    /// A page of a run's journal, oldest first.
    pub async fn steps(
        &self,
        who: &Principal,
        id: RunId,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<StepPage, Fault> {
        self.run(who, id).await?;
        let after = u32::try_from(place(cursor)?.unwrap_or(0))
            .map_err(|_| Fault::params("cursor", "not a cursor of this list"))?;
        let mut found = self
            .inner
            .store
            .read(move |tx| {
                let children = runs::delegated_by(tx, &[id])?;
                let child = |step: &Step| {
                    let of =
                        |run: &&Run| run.delegated.as_ref().map(|of| of.step) == Some(step.seq);
                    children.iter().find(of).map(|run| run.id)
                };
                let steps = steps::after(tx, id, after, limit + 1)?.into_iter();
                Ok(steps.map(|step| (child(&step), step)).collect::<Vec<_>>())
            })
            .await?;
        let next = cut(&mut found, limit, |(_, step)| i64::from(step.seq));
        let items = found.into_iter().map(|(child, step)| (step, child));
        Ok(Page {
            items: items.collect(),
            next,
        })
    }

    /// Counts of live work: of all orgs for the owner of the daemon, otherwise of the caller's.
    pub async fn counts(&self, who: &Principal) -> Result<Counts, Fault> {
        let org = (!who.is_owner()).then(|| who.org.clone());
        self.inner
            .store
            .read(move |tx| {
                let org = org.as_deref();
                let [queued, running, paused, settling] = runs::count_live(tx, org)?;
                // A due follow-up of an exchange counts as a pending announce.
                let pending = outbox::count_pending(tx, org)? + sends::count_due(tx, org)?;
                Ok(Counts {
                    queued,
                    running,
                    paused,
                    settling,
                    pending_announces: u64::try_from(pending).unwrap_or(0),
                    approvals: approvals::count_open(tx, org)?,
                    questions: questions::count_open(tx, org)?,
                    environments: environment::count_applied(tx, org)?,
                })
            })
            .await
    }

    pub(crate) fn detail(&self, shown: read::ShownRun) -> RunDetail {
        let moment = self.inner.clock.moment();
        let run = shown.run;
        let left = run.remaining_at(moment.steady);
        let waits = run.state == crate::kernel::run::RunState::Queued;
        let closed = self.inner.options().lanes.closed(run.lane);
        RunDetail {
            step: shown.step,
            announce: announce_state(&run, shown.announce.as_ref()),
            queue_blocked: closed.filter(|_| waits),
            questions: shown.questions,
            approvals: shown.approvals,
            todo: None,
            reviews: shown.reviews,
            missing_env: shown.missing_values,
            provider_wait: shown.provider_wait,
            undelivered_reason: shown.announce.and_then(|entry| entry.held),
            elapsed_ms: run.used_at(moment.steady),
            deadline_at: match left {
                Some(left) if !run.state.is_terminal() && !waits => Some(moment.wall.plus_ms(left)),
                _ => None,
            },
            run,
        }
    }

    fn session_id(&self, who: &Principal, key: &SessionKey) -> Result<SessionId, Fault> {
        self.inner
            .store
            .read_now(|tx| read::session_id(tx, &who.org, key))?
            .ok_or_else(|| Fault::not_found("session", key))
    }

    fn opt_session_id(
        &self,
        who: &Principal,
        key: Option<&SessionKey>,
    ) -> Result<Option<SessionId>, Fault> {
        key.map(|key| self.session_id(who, key)).transpose()
    }
}

/// A metadata field in the encoding of the store's index.
fn meta_field((name, value): (String, MetaValue)) -> (String, String) {
    let value = match value {
        MetaValue::Text(text) => format!("t{text}"),
        MetaValue::Number(number) => format!("i{number}"),
        MetaValue::Flag(flag) => flag.to_string(),
    };
    (name, value)
}

fn announce_state(run: &Run, entry: Option<&outbox::OutboxEntry>) -> AnnounceState {
    match entry {
        None if !run.owes_announce() => AnnounceState::None,
        None => AnnounceState::Open,
        Some(entry) if entry.acked_at.is_some() => AnnounceState::Acked,
        Some(entry) => match entry.state.as_str() {
            "delivered" => AnnounceState::Delivered,
            "undelivered" => AnnounceState::Undelivered,
            "dismissed" => AnnounceState::Dismissed,
            _ => AnnounceState::Pending,
        },
    }
}

fn inbox_entry(
    tx: &mut dyn Tx,
    session: SessionId,
    entry: outbox::OutboxEntry,
) -> Result<Option<Announce>, DbError> {
    let Some(run) = runs::get(tx, entry.run)? else {
        return Ok(None);
    };
    let (Some(note), Some(seq)) = (AnnounceNote::of(&run), entry.message_seq) else {
        return Ok(None);
    };
    let Some(message) = read::message_id_at(tx, session, seq)? else {
        return Ok(None);
    };
    Ok(Some(Announce {
        announce_id: entry.announce,
        run_id: run.id,
        session_key: note.session_key,
        label: note.label,
        agent: note.agent,
        outcome: note.outcome.as_str().into(),
        error: note.error,
        result: note.result,
        truncated: note.truncated,
        duration_ms: note.duration_ms,
        usage: note.usage,
        at: entry.delivered_at.unwrap_or_default(),
        meta: run.meta,
        acked_at: entry.acked_at,
        message_id: MessageId(message),
        seq,
    }))
}

/// Parses a cursor: the position at which the previous page ended.
pub(crate) fn place(cursor: Option<String>) -> Result<Option<i64>, Fault> {
    cursor
        .map(|text| {
            text.parse::<i64>()
                .map_err(|_| Fault::params("cursor", "not a cursor of this list"))
        })
        .transpose()
}

/// Truncates a page to `limit`; returns the next page's cursor if there are more items.
pub(crate) fn cut<T>(found: &mut Vec<T>, limit: u32, place: impl Fn(&T) -> i64) -> Option<String> {
    if found.len() <= limit as usize {
        return None;
    }
    found.truncate(limit as usize);
    found.last().map(|last| place(last).to_string())
}
