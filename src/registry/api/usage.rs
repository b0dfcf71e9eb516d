//! Usage statistics: counts, tokens and cost, grouped as the client requests.

use crate::kernel::fault::Fault;
use crate::kernel::run::usage::{Tally, UsageBy};
use crate::kernel::time::Timestamp;
use crate::registry::{Principal, Registry};
use crate::store::tables::usage::Only;
use crate::store::tables::{read, usage};
use crate::wire::usage::{Row, Summarize, Summary};

/// Default time range, in milliseconds.
const DAY: i64 = 24 * 3_600_000;

impl Registry {
    /// Sums of the tenant's usage.
    pub async fn usage(&self, who: &Principal, query: Summarize) -> Result<Summary, Fault> {
        let now = self.inner.clock.now();
        let until = query.until.unwrap_or(Timestamp(now.0 + 1));
        let since = query.since.unwrap_or(Timestamp(until.0 - DAY));
        if since >= until {
            return Err(Fault::params("since", "it must be before until"));
        }
        let org = who.org.clone();
        let by = query.by.unwrap_or(UsageBy::Agent);
        let limit = query.limit.0 as usize;
        let found = self.inner.store.read(move |tx| {
            let session = match &query.session_key {
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
        Ok(Summary {
            since,
            until,
            rows: rows
                .into_iter()
                .map(|(name, tally)| row(Some(name), &tally))
                .collect(),
            total: row(None, &total),
            omitted,
        })
    }
}

fn row(name: Option<String>, tally: &Tally) -> Row {
    Row {
        name,
        calls: tally.calls(),
        ok: tally.ok,
        failed: tally.failed,
        cancelled: tally.cancelled,
        p50_ms: tally.percentile(50),
        p95_ms: tally.percentile(95),
        model_calls: tally.used.model_calls,
        input_tokens: tally.used.input_tokens,
        output_tokens: tally.used.output_tokens,
        cost_micros: tally.used.cost_micros,
    }
}
