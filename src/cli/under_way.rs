//! What is under way in a session, turns and what they had others do. Used by `attach`.

use super::failure::Failure;
use super::link::Link;
use crate::kernel::ids::SessionKey;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};

/// The open runs in and of a session.
pub(crate) struct UnderWay {
    turns: usize,
    /// In other sessions, asked for by this one.
    children: usize,
    is_running: bool,
}

impl UnderWay {
    /// In this session, as of now.
    pub(crate) async fn of(link: &Link, key: &SessionKey) -> Result<UnderWay, Failure> {
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
        let turns = link.ask::<Runs>("runs.list", turns).await?.runs;
        let children = link.ask::<Runs>("runs.list", children).await?.runs;
        let mut all = turns.iter().chain(&children);
        Ok(UnderWay {
            is_running: all.any(|run| &*run.state == "running"),
            turns: turns.len(),
            children: children.len(),
        })
    }

    /// Something is to be done, and none of it goes on by itself.
    pub(crate) fn waits(&self) -> bool {
        self.turns + self.children > 0 && !self.is_running
    }

    /// Where no turn is under way: that this is so, and what to do.
    pub(crate) fn idle(&self, key: &SessionKey) -> Option<String> {
        let work = match self.children {
            _ if self.turns > 0 => return None,
            0 => "is idle: nothing is under way".to_owned(),
            1 => "waits for 1 run that it asked for: abide ps".to_owned(),
            count => format!("waits for {count} runs that it asked for: abide ps"),
        };
        Some(format!(
            "{key} {work}\n  what happens next is shown here; Ctrl-C leaves\n  \
             to send a message: abide send {key} \"…\""
        ))
    }
}
