//! Usage statistics: counts, tokens and cost, grouped as the client requests.

use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::usage::{Tally, UsageBy};
use crate::kernel::time::Timestamp;
use crate::registry::{Principal, Registry};
use crate::store::tables::usage::Only;
use crate::store::tables::{read, usage};

/// Default time range, in milliseconds.
const DAY: i64 = 24 * 3_600_000;

/// Parameters of a usage query; filters are combined with AND.
#[derive(Clone, Debug)]
pub struct UsageQuery {
    /// The grouping of the sums.
    pub by: UsageBy,
    /// Start of the range; one day before its end if unset.
    pub since: Option<Timestamp>,
    /// End of the range; now if unset.
    pub until: Option<Timestamp>,
    /// Only usage of this user.
    pub user: Option<String>,
    /// Only usage of this agent.
    pub agent: Option<String>,
    /// Only usage of this model.
    pub model: Option<String>,
    /// Only usage in this session.
    pub session: Option<SessionKey>,
    /// Only usage in the tree of this root run.
    pub tree: Option<RunId>,
    /// Maximum number of rows, the largest first.
    pub limit: u32,
}

/// Sums of usage.
#[derive(Clone, Debug)]
pub struct UsageView {
    /// Start of the range.
    pub since: Timestamp,
    /// End of the range.
    pub until: Timestamp,
    /// The sums by group name, highest cost first.
    pub rows: Vec<(String, Tally)>,
    /// The total, including omitted rows.
    pub total: Tally,
    /// Number of omitted rows.
    pub omitted: usize,
}

impl Registry {
    /// Sums of the tenant's usage.
    pub async fn usage(&self, who: &Principal, query: UsageQuery) -> Result<UsageView, Fault> {
        let now = self.inner.clock.now();
        let until = query.until.unwrap_or(Timestamp(now.0 + 1));
        let since = query.since.unwrap_or(Timestamp(until.0 - DAY));
        if since >= until {
            return Err(Fault::params("since", "it must be before until"));
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
