//! What was done, and what it took and cost, by whatever people ask for.

use super::{Principal, Registry};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;
use crate::kernel::usage::{Tally, UsageBy};
use crate::store::usage::Only;
use crate::store::{read, usage};

/// So far back is looked where nobody says, milliseconds.
const DAY: i64 = 24 * 3_600_000;

/// What of the use is asked for.
#[derive(Clone, Debug)]
pub struct UsageQuery {
    /// By what it is summed.
    pub by: UsageBy,
    /// From this point; a day ago if unset.
    pub since: Option<Timestamp>,
    /// Up to this point; now if unset.
    pub until: Option<Timestamp>,
    /// Of this user.
    pub user: Option<String>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// In this session.
    pub session: Option<SessionKey>,
    /// Below this root run, and its own.
    pub tree: Option<RunId>,
    /// So many sums at most, the largest.
    pub limit: u32,
}

/// Sums of use.
#[derive(Clone, Debug)]
pub struct UsageView {
    /// From this point.
    pub since: Timestamp,
    /// Up to this one.
    pub until: Timestamp,
    /// By name, what cost most first.
    pub rows: Vec<(String, Tally)>,
    /// All of them together, those that are left out too.
    pub total: Tally,
    /// How many are left out.
    pub omitted: usize,
}

impl Registry {
    /// Sums of the tenant's use.
    pub async fn usage(&self, who: &Principal, query: UsageQuery) -> Result<UsageView, Fault> {
        let now = self.inner.clock.now();
        let until = query.until.unwrap_or(Timestamp(now.0 + 1));
        let since = query.since.unwrap_or(Timestamp(until.0 - DAY));
        if since >= until {
            return Err(Fault::params("since", "it lies behind until"));
        }
        let org = who.org.clone();
        let (by, limit) = (query.by, query.limit as usize);
        let found = self.inner.store.read(move |tx| {
            let session = match &query.session {
                Some(key) => match read::session_id(tx, &org, key)? {
                    Some(id) => Some(id),
                    None => return Ok(None),
                },
                None => None,
            };
            let only = Only {
                user: query.user,
                agent: query.agent,
                model: query.model,
                session,
                tree: query.tree,
            };
            usage::summary(tx, &org, by, (since, until), &only).map(Some)
        });
        let sums = found
            .await?
            .ok_or_else(|| Fault::params("sessionKey", "no such session"))?;
        let mut total = Tally::default();
        for tally in sums.values() {
            total.add(tally);
        }
        let mut rows: Vec<(String, Tally)> = sums.into_iter().collect();
        let weight = |tally: &Tally| {
            let used = tally.used;
            let tokens = used.input_tokens.saturating_add(used.output_tokens);
            (used.cost_micros, tokens, tally.calls())
        };
        rows.sort_by_key(|(_, tally)| std::cmp::Reverse(weight(tally)));
        let omitted = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        Ok(UsageView {
            since,
            until,
            rows,
            total,
            omitted,
        })
    }
}
