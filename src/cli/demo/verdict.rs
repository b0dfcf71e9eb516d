//! Final checks of the demo: every run ended ok, its quotes match the files, and each end was
//! announced once.

use std::time::Duration;

use serde_json::json;

use super::findings;
use super::show::Show;
use super::summary::Answer;
use super::{QUESTIONS, broken};
use crate::cli::common::failure::Failure;
use crate::cli::common::ids;
use crate::cli::link::Link;
use crate::cli::output::text::short;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::sessions::{Ack, Acked, GetHistory, GetInbox, History, Inbox};

/// Deadline for an announcement after its run has ended.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);

/// Polling interval of the inbox.
const LOOK: Duration = Duration::from_millis(50);

impl Show {
    /// Checks that every run ended ok and that its quotes match the files; returns the findings.
    pub(super) async fn check_answers(
        &self,
        link: &Link,
        runs: &[RunId],
    ) -> Result<Vec<Answer>, Failure> {
        let mut all = Vec::new();
        for (id, (label, task)) in runs.iter().zip(QUESTIONS) {
            let run = ids::details(link, *id).await?;
            if run.state != "ok" {
                let why = run.error.map_or(String::new(), |error| error.message);
                let detail = format!("run {} ended {}: {why}", short(id), run.state);
                return Err(broken("every run ends ok", detail));
            }
            let found = findings::read(run.result.as_deref().unwrap_or_default());
            for finding in &found {
                finding
                    .check(&self.place.folder)
                    .map_err(|detail| broken("each quoted file:line exists", detail))?;
            }
            if found.is_empty() && self.place.is_sample {
                return Err(broken("the sample answers every question", task));
            }
            all.push(Answer { label, task, found });
        }
        Ok(all)
    }

    /// Checks that each end is once in the parent's inbox and once in its transcript. All
    /// announcements are acknowledged and the inbox is empty once this returns.
    pub(super) async fn check_announces(
        &mut self,
        link: &Link,
        parent: &SessionKey,
        runs: &[RunId],
    ) -> Result<(), Failure> {
        let began = self.clock.monotonic();
        let inbox = loop {
            let inbox = inbox(link, parent).await?;
            let late = self.clock.monotonic() - began > ANNOUNCE_LIMIT;
            if inbox.announces.len() >= runs.len() || late {
                break inbox;
            }
            tokio::time::sleep(LOOK).await;
        };
        let history: History = link
            .ask(&GetHistory {
                session_key: parent.clone(),
                before: None,
                after: None,
                tools: None,
                limit: PageSize(PAGE_LIMIT),
            })
            .await?;
        for id in runs {
            let told = inbox
                .announces
                .iter()
                .filter(|one| one.run_id == *id)
                .count();
            let written = history
                .messages
                .iter()
                .filter(|message| message.kind == "announce" && message.run_id == Some(*id))
                .count();
            if (told, written) != (1, 1) {
                let detail = format!(
                    "run {}: {told} times in the inbox, {written} times in the transcript",
                    short(id)
                );
                return Err(broken("each announce arrives exactly once", detail));
            }
            self.say(
                &format!("announced once: {}", short(id)),
                "announced",
                json!({ "runId": id, "inbox": told, "transcript": written }),
            )?;
        }
        let ids: Vec<_> = inbox.announces.iter().map(|one| one.announce_id).collect();
        let request = Ack {
            session_key: parent.clone(),
            announce_ids: ids,
        };
        let _: Acked = link.ask(&request).await?;
        let left = self::inbox(link, parent).await?.announces.len();
        if left != 0 {
            return Err(broken(
                "acknowledged announcements leave the inbox",
                format!("{left} left"),
            ));
        }
        Ok(())
    }
}

async fn inbox(link: &Link, parent: &SessionKey) -> Result<Inbox, Failure> {
    link.ask(&GetInbox {
        session_key: parent.clone(),
        acked: false,
        limit: PageSize(PAGE_LIMIT),
        cursor: None,
    })
    .await
}
