//! Events in a session of `abide chat` while no turn is followed: results of background runs,
//! requests of runs, and reconnects to the daemon.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use uuid::Uuid;

use crate::cli::asking::open_requests;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids;
use crate::cli::link::discover::Where;
use crate::cli::link::watch::{EventWatch, LogPosition, WatchItem};
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::tree;
use crate::cli::output::markdown::Markdown;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, HEAD, styled};
use crate::cli::output::text::{COLUMNS, line, short};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::{Event, SubscribeEvents};

/// Interval of polling for open requests, which runs of other sessions make, too.
const QUIET: Duration = Duration::from_secs(2);

/// Event subscription of a session between turns.
pub(super) struct Idle<'a> {
    watch: EventWatch<'a>,
    key: SessionKey,
    quiet: Interval,
    /// Runs whose results are already on the screen.
    shown: HashSet<RunId>,
    /// Requests that were already announced to the user.
    announced: HashSet<Uuid>,
    /// An ended run whose result was not shown yet.
    ended: Option<RunId>,
}

impl<'a> Idle<'a> {
    /// Subscribes to the session; no later event is missed.
    pub(super) async fn open(
        link: DaemonLink,
        place: &'a Where,
        key: &SessionKey,
    ) -> Result<Idle<'a>, Failure> {
        let request = SubscribeEvents {
            session_key: Some(key.clone()),
            kinds: vec!["run.ended".to_owned()],
            ..SubscribeEvents::default()
        };
        let mut watch = EventWatch::open(link, place, request, print::note).await?;
        // The initial snapshot carries the log position.
        while watch.seen().await?.is_none() {
            watch.come_back(print::note).await?;
        }
        let mut quiet = interval(QUIET);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Idle {
            watch,
            key: key.clone(),
            quiet,
            shown: HashSet::new(),
            announced: HashSet::new(),
            ended: None,
        })
    }

    /// Current position in the event log.
    pub(super) fn position(&self) -> LogPosition {
        self.watch.position()
    }

    /// Records that the run's result is shown elsewhere.
    pub(super) fn is_shown(&mut self, run: RunId) {
        self.shown.insert(run);
    }

    /// Takes over what its predecessor has announced, so that nothing is announced twice.
    pub(super) fn goes_on_from(&mut self, before: Idle<'_>) {
        self.shown = before.shown;
        self.announced = before.announced;
    }

    /// Waits for the next text for the user. Cancel-safe.
    pub(super) async fn next(&mut self, mut say: impl FnMut(&str)) -> Result<String, Failure> {
        loop {
            if let Some(run) = self.ended {
                let text = self.answer(run).await;
                self.ended = None;
                match text {
                    Ok(Some(text)) => return Ok(text),
                    Ok(None) => {}
                    // The connection is restored below.
                    Err(lost) if link::is_broken(&lost) => self.ended = Some(run),
                    Err(failure) => return Err(failure),
                }
            }
            tokio::select! {
                seen = self.watch.seen() => match seen? {
                    Some(WatchItem::Event(event)) => self.hear(&event),
                    Some(WatchItem::Picture(..)) => {}
                    None => {
                        // While a turn was followed, the lost connection was reported there
                        // already.
                        self.watch.relink().await;
                        self.watch.come_back(&mut say).await?;
                    }
                },
                _ = self.quiet.tick() => {
                    if let Some(text) = self.asks().await? {
                        return Ok(text);
                    }
                }
            }
        }
    }

    fn hear(&mut self, event: &Event) {
        if let Some(run) = event.run_id.filter(|run| !self.shown.contains(run)) {
            self.ended = Some(run);
        }
    }

    /// Result of a run that the user did not follow; `None` if the run no longer exists.
    async fn answer(&mut self, run: RunId) -> Result<Option<String>, Failure> {
        let run = match ids::details(&self.watch.link, run).await {
            Ok(run) => run,
            Err(gone) if gone.code == exit::NOT_FOUND => return Ok(None),
            Err(failure) => return Err(failure),
        };
        self.shown.insert(run.run_id);
        let head = match (&*run.state, &run.error) {
            ("ok", _) => format!("{} has answered ({})", tree::name(&run), short(run.run_id)),
            (state, Some(error)) => format!("a turn ended {state}: {}", error.message),
            (state, None) => format!("a turn ended {state}"),
        };
        let mut text = styled(DIM, line(&head, print::note_room(0).max(COLUMNS)));
        if let Some(result) = run
            .result
            .as_deref()
            .filter(|result| !result.trim().is_empty())
        {
            let columns = print::notes_width().unwrap_or(COLUMNS);
            text.push('\n');
            text.push_str(&Markdown::render(result, columns));
            text.push('\n');
        }
        Ok(Some(text))
    }

    /// Announcement of requests that the user has not seen; `None` if there are none.
    async fn asks(&mut self) -> Result<Option<String>, Failure> {
        let asked = match open_requests::in_brief(&self.watch.link, &self.key).await {
            Ok(asked) => asked,
            // The subscription reconnects.
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let now = Clock::system().now();
        let new: Vec<String> = asked
            .iter()
            .filter(|one| self.announced.insert(one.id()))
            .map(|one| styled(HEAD, one.in_short(now, print::notes_width())))
            .collect();
        let hint = "press Enter on an empty line to see all of it and to answer";
        Ok((!new.is_empty()).then(|| format!("{}\n{}", new.join("\n"), styled(DIM, hint))))
    }
}
