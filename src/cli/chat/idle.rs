//! What happens in a session of `abide chat` while no turn is under way: answers to what ended in
//! the background, what runs ask people, and a daemon that goes away and comes back.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use uuid::Uuid;

use crate::cli::asked;
use crate::cli::discover::Where;
use crate::cli::failure::{Failure, exit};
use crate::cli::link::{self, Link};
use crate::cli::markdown::Markdown;
use crate::cli::print::{self, DIM, HEAD, styled};
use crate::cli::text::{COLUMNS, line, short};
use crate::cli::watch::{Position, Seen, Watch};
use crate::cli::{ids, tree};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::{Event, SubscribeEvents};

/// How often it is asked what people are asked: runs of other sessions ask, too.
const QUIET: Duration = Duration::from_secs(2);

/// A session that is looked at.
pub(super) struct Idle<'a> {
    watch: Watch<'a>,
    key: SessionKey,
    quiet: Interval,
    /// Runs whose answers stand on the screen.
    shown: HashSet<RunId>,
    /// What a run asks and the person was told of.
    told: HashSet<Uuid>,
    /// An end that was heard and not told yet.
    ended: Option<RunId>,
}

impl<'a> Idle<'a> {
    /// From here on nothing of the session is missed.
    pub(super) async fn open(
        link: Link,
        place: &'a Where,
        key: &SessionKey,
    ) -> Result<Idle<'a>, Failure> {
        let request = SubscribeEvents {
            session_key: Some(key.clone()),
            kinds: vec!["run.ended".to_owned()],
            ..SubscribeEvents::default()
        };
        let mut watch = Watch::open(link, place, request, print::note).await?;
        // The picture that it begins with says where in the log it is.
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
            told: HashSet::new(),
            ended: None,
        })
    }

    /// Where in the log it is.
    pub(super) fn position(&self) -> Position {
        self.watch.position()
    }

    /// The answer of this run is shown by others.
    pub(super) fn is_shown(&mut self, run: RunId) {
        self.shown.insert(run);
    }

    /// What was told by the one before it is not told again.
    pub(super) fn goes_on_from(&mut self, before: Idle<'_>) {
        self.shown = before.shown;
        self.told = before.told;
    }

    /// The next thing that a person should see. Nothing is lost when this is dropped.
    pub(super) async fn next(&mut self, mut say: impl FnMut(&str)) -> Result<String, Failure> {
        loop {
            if let Some(run) = self.ended {
                let text = self.answer(run).await;
                self.ended = None;
                match text {
                    Ok(Some(text)) => return Ok(text),
                    Ok(None) => {}
                    // It is found again below.
                    Err(lost) if link::is_broken(&lost) => self.ended = Some(run),
                    Err(failure) => return Err(failure),
                }
            }
            tokio::select! {
                seen = self.watch.seen() => match seen? {
                    Some(Seen::Event(event)) => self.hear(&event),
                    Some(Seen::Picture(..)) => {}
                    None => {
                        // While a turn was followed, this was told already.
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

    /// What a turn has come to that the person did not wait for.
    async fn answer(&mut self, run: RunId) -> Result<Option<String>, Failure> {
        let run = match ids::details(&self.watch.link, run).await {
            Ok(run) => run,
            Err(gone) if gone.code == exit::NOT_FOUND => return Ok(None),
            Err(failure) => return Err(failure),
        };
        self.shown.insert(run.run_id);
        let head = match (&*run.state, &run.error) {
            ("ok", _) => format!(
                "{} answers in the meantime ({})",
                tree::name(&run),
                short(run.run_id)
            ),
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

    /// What runs ask that the person does not know of.
    async fn asks(&mut self) -> Result<Option<String>, Failure> {
        let asked = match asked::in_brief(&self.watch.link, &self.key).await {
            Ok(asked) => asked,
            // The subscription finds the daemon again.
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let now = Clock::system().now();
        let new: Vec<String> = asked
            .iter()
            .filter(|one| self.told.insert(one.id()))
            .map(|one| styled(HEAD, one.in_short(now, print::notes_width())))
            .collect();
        let hint = "to see it whole and to answer it: Enter on an empty line";
        Ok((!new.is_empty()).then(|| format!("{}\n{}", new.join("\n"), styled(DIM, hint))))
    }
}
