//! The tool `search_history`: finds words in the transcripts of sessions. One call looks at a bounded
//! number of entries and sessions; its cursor says where the next one continues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::doors::mcp::transcript::text_of;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;
use crate::wire::error::WireError;
use crate::wire::input::{self, PAGE_LIMIT, PageSize};
use crate::wire::sessions::{GetHistory, ListSessions, SessionKind};
use crate::wire::shapes::{Message, Word};

/// Maximum number of entries that one call looks at.
const LOOKED_AT: usize = 5_000;
/// Number of sessions that are listed at a time.
const SESSIONS: u32 = 20;
/// Maximum number of matches of a call that names no limit.
const MATCHES: u32 = 20;
/// Length of the text around a match, in characters.
const AROUND: usize = 240;

/// Searches transcripts.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SearchHistory {
    /// Words that a message must all contain; case does not matter.
    #[serde(deserialize_with = "input::text")]
    #[schemars(length(min = 1))]
    query: String,
    /// Only this session; all sessions if unset.
    session_key: Option<SessionKey>,
    /// Maximum number of matches, 1 to 500; 20 if unset.
    limit: Option<PageSize>,
    /// `nextCursor` of the previous call.
    cursor: Option<String>,
}

/// Matches; within a session newest first.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SearchOutput {
    /// The matches.
    matches: Vec<SearchMatch>,
    /// Pass it as `cursor` to search on; absent once everything was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A message with all of the words.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SearchMatch {
    /// The session.
    session_key: SessionKey,
    /// Position of the message in the session.
    seq: i64,
    /// When it was stored.
    at: Timestamp,
    /// `user`, `assistant`, `tool` or `system`.
    role: Word,
    /// Run that stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The text around the first of the words.
    text: String,
}

/// Where a search continues: in the session `position` of a page of sessions, before the entry
/// `before`.
#[derive(Default, Serialize, Deserialize)]
struct Position {
    /// Cursor of the page; the first page if unset.
    page: Option<String>,
    /// Number of sessions of the page that were searched.
    session: usize,
    /// Only entries before this one; all if unset.
    before: Option<i64>,
}

impl McpTool for SearchHistory {
    const NAME: &'static str = "search_history";
    const TITLE: &'static str = "Search transcripts";
    const ABOUT: &'static str = "Search the transcripts of sessions: messages that contain all words of the \
        query, from the newest session to the oldest. If nextCursor is returned, more \
        may be found with it.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = SearchOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<SearchOutput, WireError> {
        let words = self.query.split_whitespace().map(str::to_lowercase);
        let position = match &self.cursor {
            None => Position::default(),
            Some(cursor) => serde_json::from_str(cursor)
                .map_err(|_| Fault::params("cursor", "it is not one of this tool"))?,
        };
        let search = Search {
            api: &call.api,
            words: words.collect(),
            limit: self.limit.map_or(MATCHES, |limit| limit.0) as usize,
            left: LOOKED_AT,
            matches: Vec::new(),
        };
        let (matches, next) = match self.session_key {
            Some(key) => search.one(key, position).await?,
            None => search.all(position).await?,
        };
        let next_cursor = next.map(|next| serde_json::to_string(&next));
        Ok(SearchOutput {
            matches,
            next_cursor: next_cursor.transpose().map_err(Fault::internal)?,
        })
    }
}

/// A search in progress.
struct Search<'a, A> {
    api: &'a A,
    words: Vec<String>,
    limit: usize,
    /// Number of entries and sessions that may still be looked at.
    left: usize,
    matches: Vec<SearchMatch>,
}

type Found = (Vec<SearchMatch>, Option<Position>);

impl<A: Api> Search<'_, A> {
    async fn one(mut self, key: SessionKey, position: Position) -> Result<Found, WireError> {
        let before = self.session(&key, position.before).await?;
        let next = before.map(|before| Position {
            before: Some(before),
            ..Position::default()
        });
        Ok((self.matches, next))
    }

    async fn all(mut self, position: Position) -> Result<Found, WireError> {
        let mut position = position;
        loop {
            let request = ListSessions {
                kind: Some(SessionKind::All),
                archived: true,
                limit: PageSize(SESSIONS),
                cursor: position.page.clone(),
                ..ListSessions::default()
            };
            let page = ask(self.api, &request).await?;
            for session in page.sessions.iter().skip(position.session) {
                let stopped = match self.session(&session.key, position.before).await {
                    // It was deleted meanwhile.
                    Err(error) if error.kind() == Some(Kind::NotFound) => None,
                    stopped => stopped?,
                };
                if let Some(before) = stopped {
                    position.before = Some(before);
                    return Ok((self.matches, Some(position)));
                }
                position.before = None;
                position.session += 1;
            }
            let Some(next) = page.next_cursor else {
                return Ok((self.matches, None));
            };
            position = Position {
                page: Some(next),
                ..Position::default()
            };
        }
    }

    /// Searches one session, newest entries first. Returns where to continue if the search has to
    /// stop in it.
    async fn session(
        &mut self,
        key: &SessionKey,
        before: Option<i64>,
    ) -> Result<Option<i64>, WireError> {
        let mut before = before;
        loop {
            if self.left == 0 || self.matches.len() >= self.limit {
                return Ok(Some(before.unwrap_or(i64::MAX)));
            }
            let request = GetHistory {
                session_key: key.clone(),
                before,
                after: None,
                tools: None,
                limit: PageSize(
                    u32::try_from(self.left)
                        .unwrap_or(PAGE_LIMIT)
                        .min(PAGE_LIMIT),
                ),
            };
            // A session counts, too: there may be many without entries.
            self.left -= 1;
            let page = ask(self.api, &request).await?;
            for message in page.messages.iter().rev() {
                if self.matches.len() >= self.limit {
                    return Ok(Some(message.seq + 1));
                }
                self.left = self.left.saturating_sub(1);
                let text = text_of(message);
                if let Some(text) = excerpt(&text, &self.words) {
                    self.matches.push(found(key, message, text));
                }
            }
            match page.messages.first() {
                Some(first) if page.truncated => before = Some(first.seq),
                _ => return Ok(None),
            }
        }
    }
}

fn found(key: &SessionKey, message: &Message, text: String) -> SearchMatch {
    SearchMatch {
        session_key: key.clone(),
        seq: message.seq,
        at: message.at,
        role: message.role.clone(),
        run_id: message.run_id,
        text,
    }
}

/// The part of `text` around the first of the words; `None` unless it contains all of them.
fn excerpt(text: &str, words: &[String]) -> Option<String> {
    let lower = text.to_lowercase();
    let first = words
        .iter()
        .map(|word| lower.find(word.as_str()))
        .collect::<Option<Vec<usize>>>()?
        .into_iter()
        .min()?;
    // Lower case may have another length, so the place is counted in characters.
    let place = lower[..first].chars().count();
    let start = place.saturating_sub(AROUND / 3);
    let part: String = text.chars().skip(start).take(AROUND).collect();
    let before = if start > 0 { "…" } else { "" };
    let after = match text.chars().nth(start + AROUND) {
        Some(_) => "…",
        None => "",
    };
    Some(format!("{before}{}{after}", part.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_has_all_words_and_shows_the_first() {
        let words = |text: &str| -> Vec<String> {
            text.split_whitespace().map(str::to_lowercase).collect()
        };
        let text = format!(
            "{} The Parser fails on ÄPFEL. {}",
            "x".repeat(500),
            "y".repeat(500)
        );
        let found = excerpt(&text, &words("äpfel parser")).unwrap();
        assert!(found.contains("The Parser fails on ÄPFEL."), "{found}");
        assert!(found.starts_with('…') && found.ends_with('…'), "{found}");
        assert!(found.chars().count() <= AROUND + 2);
        assert_eq!(excerpt(&text, &words("parser missing")), None);
        assert_eq!(excerpt("short text", &words("TEXT")).unwrap(), "short text");
    }
}
