//! Open work of a session: its turns, and the runs that it has requested. Used by `attach`.

use super::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::kernel::ids::SessionKey;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, State};

/// Counts of the open runs in a session and of those that it has requested.
pub(crate) struct UnderWay {
    turns: usize,
    /// Open runs in other sessions that this one has requested.
    children: usize,
    is_running: bool,
}

impl UnderWay {
    /// Reads the current counts.
    pub(crate) async fn of(link: &DaemonLink, key: &SessionKey) -> Result<UnderWay, Failure> {
        let open = ListRuns {
            states: State::OPEN.into(),
            limit: PageSize(PAGE_LIMIT),
            ..ListRuns::default()
        };
        let turns = ListRuns {
            session_key: Some(key.clone()),
            ..open.clone()
        };
        let children = ListRuns {
            parent: Some(key.clone()),
            ..open
        };
        let turns = link.ask(&turns).await?.runs;
        let children = link.ask(&children).await?.runs;
        let mut all = turns.iter().chain(&children);
        Ok(UnderWay {
            is_running: all.any(|run| &*run.state == "running"),
            turns: turns.len(),
            children: children.len(),
        })
    }

    /// True if there is open work and none of it is running.
    pub(crate) fn waits(&self) -> bool {
        self.turns + self.children > 0 && !self.is_running
    }

    /// If no turn is open: a note about it, with what to do.
    pub(crate) fn idle(&self, key: &SessionKey) -> Option<String> {
        let work = match self.children {
            _ if self.turns > 0 => return None,
            0 => "is idle: no work is open".to_owned(),
            1 => "waits for 1 child run: abide ps".to_owned(),
            count => format!("waits for {count} child runs: abide ps"),
        };
        Some(format!(
            "{key} {work}\n  new events are shown here; Ctrl-C detaches\n  \
             to send a message: abide send {key} \"…\""
        ))
    }
}
