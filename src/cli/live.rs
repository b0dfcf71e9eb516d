//! Live display of runs: feeds events into the view, reads what was missed, and asks the present
//! user about requests of the runs. Used by `follow.rs` and `attach`.
//!
//! After a restart of the daemon, events continue from the last one that was seen. Rows are read at
//! each snapshot, and where events do not carry enough.

pub(crate) mod follow;
pub(crate) mod stream;
pub(crate) mod tree;
pub(crate) mod view;

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::chat::slash::{self, Slash};
use super::link::{self, DaemonLink};
use crate::cli::asking::open_requests;
use crate::cli::asking::open_requests::{OpenRequest, Prompted};
use crate::cli::asking::person::{LineProgress, Person};
use crate::cli::common::failure::Failure;
use crate::cli::link::discover::Where;
use crate::cli::link::watch::{EventWatch, WatchItem};
use crate::cli::live::view::{FRAME, View};
use crate::cli::output::print;
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::wire::events::{Event, SubscribeEvents};

/// Prompt of a line that is typed ahead.
const NEXT: &str = "next> ";
/// Interval of polling for open requests of which no event arrives.
const QUIET: Duration = Duration::from_secs(2);

/// Live state of the followed runs.
pub(crate) struct LiveDisplay<'a> {
    pub(crate) watch: EventWatch<'a>,
    /// `None` if nothing is shown.
    pub(crate) view: Option<View>,
    /// Session whose subtree is searched for open requests.
    pub(crate) session: Option<SessionKey>,
    person: Option<&'a mut Person>,
    /// The request that the user is being asked now.
    open: Option<Prompted>,
    asked: Vec<OpenRequest>,
    /// The open requests must be read again.
    are_requests_stale: bool,
    frames: Interval,
    quiet: Interval,
    clock: Clock,
    /// Set once the user stops following.
    pub(crate) stop_reason: Option<StopReason>,
}

/// Why the user stops following a conversation turn, which continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Quit the conversation.
    Conversation,
    /// Answer the open request later.
    Question,
}

/// Result of [`Live::next`].
pub(crate) enum LiveUpdate {
    /// An event arrived.
    Event(Box<Event>),
    /// The subscription has started or resumed: anything may have happened.
    Anew,
    /// No event arrived for a while.
    Quiet,
    /// The user stopped following: see [`Live::left`].
    Left,
}

impl<'a> LiveDisplay<'a> {
    /// Subscribes. Every later change is an event, so none is missed between two reads of the rows.
    pub(crate) async fn open(
        link: DaemonLink,
        place: &'a Where,
        request: SubscribeEvents,
        view: Option<View>,
        person: Option<&'a mut Person>,
    ) -> Result<LiveDisplay<'a>, Failure> {
        let watch = EventWatch::open(link, place, request, print::note).await?;
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut quiet = interval(QUIET);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(LiveDisplay {
            watch,
            view,
            session: None,
            person,
            open: None,
            asked: Vec::new(),
            are_requests_stale: true,
            frames,
            quiet,
            clock: Clock::system(),
            stop_reason: None,
        })
    }

    /// Waits for the next news. Meanwhile it draws the view and asks the user about requests.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<LiveUpdate, Failure> {
        let keys = self.view.as_ref().is_some_and(View::takes_keys);
        let talks = self.is_conversation();
        loop {
            tokio::select! {
                seen = self.watch.seen() => match seen? {
                    Some(WatchItem::Event(event)) => {
                        self.hear(&event);
                        return Ok(LiveUpdate::Event(event));
                    }
                    Some(WatchItem::Picture(..)) => return Ok(LiveUpdate::Anew),
                    None => {
                        self.come_back().await?;
                        return Ok(LiveUpdate::Anew);
                    }
                },
                typed = typed(&mut self.person, keys), if talks || self.open.is_some() => {
                    match typed {
                        LineProgress::More => self.prompt(),
                        LineProgress::Line(None) if talks => self.stop_reason = Some(StopReason::Conversation),
                        LineProgress::Line(line) if self.open.is_none() => self.types_ahead(line),
                        LineProgress::Line(line) => self.answer(line).await?,
                    }
                    if self.stop_reason.is_some() {
                        return Ok(LiveUpdate::Left);
                    }
                },
                _ = self.frames.tick(), if self.is_watched() => self.show().await?,
                _ = self.quiet.tick() => {
                    self.are_requests_stale = true;
                    return Ok(LiveUpdate::Quiet);
                }
            }
        }
    }

    /// True for a conversation turn, in which the user may type at any time.
    fn is_conversation(&self) -> bool {
        self.view.as_ref().is_some_and(View::is_of_conversation)
    }

    /// Queues a line that is not an answer; it is sent after this turn.
    fn types_ahead(&mut self, line: Option<String>) {
        if let (Some(line), Some(person)) = (line, &mut self.person) {
            person.types_ahead(line);
        }
        self.prompt();
    }

    /// True if there is a view or a user.
    fn is_watched(&self) -> bool {
        self.view.is_some() || self.person.is_some()
    }

    fn hear(&mut self, event: &Event) {
        if let Some(view) = &mut self.view {
            view.hear(event);
        }
        let kind = event.kind.as_str();
        // A paused run may wait for a value.
        self.are_requests_stale |=
            kind.starts_with("question.") || kind.starts_with("approval.") || kind == "run.paused";
    }

    async fn come_back(&mut self) -> Result<(), Failure> {
        self.are_requests_stale = true;
        let view = &mut self.view;
        let say = |text: &str| match view {
            Some(view) => view.note(text),
            None => print::note(text),
        };
        self.watch.come_back(say).await
    }

    /// Reads missing rows, asks the user about the next request, and draws the view.
    async fn show(&mut self) -> Result<(), Failure> {
        match self.read().await {
            // The subscription reconnects; until then the last view stays on the screen.
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {}
            read => read?,
        }
        self.put().await;
        match &mut self.view {
            Some(view) => view.draw(),
            None => Ok(()),
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        if let Some(view) = &mut self.view {
            view.catch_up(&self.watch.link).await?;
        }
        let Some(session) = self.session.as_ref().filter(|_| self.are_requests_stale) else {
            return Ok(());
        };
        self.asked = open_requests::open(&self.watch.link, Some(session)).await?;
        self.are_requests_stale = false;
        if let Some(view) = &mut self.view {
            view.set_open_requests(self.asked.clone());
        }
        let is_open = |open: &Prompted| self.asked.iter().any(|one| one.id() == open.asked.id());
        if let Some(gone) = self.open.take_if(|open| !is_open(open)) {
            let what = open_requests::how_closed(&self.watch.link, &gone.asked).await?;
            self.unprompt();
            // If the terminal echoes the typed text itself, the prompt's line must be ended first.
            let keys = self.view.as_ref().is_some_and(View::takes_keys);
            let end = if keys { "" } else { "\n" };
            self.note(&format!("{end}{what}"));
        }
        Ok(())
    }

    /// Asks the user about the next request that was not asked yet.
    async fn put(&mut self) {
        if self.open.is_some() {
            return;
        }
        // A pipe never answers: its lines were written before any request was made.
        let Some(person) = self.person.as_mut().filter(|person| person.is_there) else {
            return;
        };
        let Some(asked) = person.next_of(&self.asked) else {
            return;
        };
        self.open = Some(Prompted::of(asked, self.clock.now()));
        self.turn_page().await;
    }

    /// Shows the next page of the open request and prompts for it. Input typed before is set aside:
    /// it cannot answer an unseen page.
    async fn turn_page(&mut self) {
        if let Some(page) = self.open.as_mut().and_then(Prompted::next_page) {
            self.set_prompted();
            self.note(&page);
        }
        if let Some(person) = &mut self.person {
            person.set_aside().await;
        }
        self.prompt();
    }

    /// Draws the prompt of the open request, or the typed-ahead line of a conversation.
    fn prompt(&mut self) {
        let talks = self.is_conversation();
        let (Some(open), Some(person)) = (&self.open, &self.person) else {
            if let (true, Some(view), Some(person)) = (talks, &mut self.view, &self.person) {
                match person.typed() {
                    "" => view.hide_prompt(),
                    typed => view.ask(&print::styled(print::DIM, NEXT), typed),
                }
            }
            return;
        };
        let text = print::styled(print::HEAD, format!("{}> ", open.prompt()));
        match &mut self.view {
            Some(view) if open.asked.is_secret() => {
                let hidden = "•".repeat(person.typed().chars().count());
                view.ask(&text, &hidden);
            }
            Some(view) => view.ask(&text, person.typed()),
            None if person.is_there => print::prompt(&text),
            None => {}
        }
    }

    /// Removes the prompt of a request that is no longer asked.
    fn unprompt(&mut self) {
        if let Some(person) = &mut self.person {
            person.restore_typed();
        }
        if let Some(view) = &mut self.view {
            view.set_prompted(None);
            view.hide_prompt();
        }
        if self.is_conversation() {
            self.prompt();
        }
    }

    /// Sends the user's reply to the open request; an empty line leaves it open.
    async fn answer(&mut self, line: Option<String>) -> Result<(), Failure> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.unprompt();
        let Some(said) = line else {
            return Ok(());
        };
        let mut said = said.trim();
        let slash;
        if self.is_conversation() && !open.asked.is_secret() {
            slash = slash::at_a_question(said);
            match &slash {
                Slash::Answer(answer) => said = answer,
                Slash::Say(text) => {
                    self.note(text);
                    self.ask_again(open).await;
                    return Ok(());
                }
                Slash::Leave => {
                    self.stop_reason = Some(StopReason::Conversation);
                    return Ok(());
                }
            }
        }
        match said {
            "" if !open.unshown_pages.is_empty() => {
                self.open = Some(open);
                self.turn_page().await;
                return Ok(());
            }
            "" => {
                self.postpone(&open);
                return Ok(());
            }
            "later" if !open.unshown_pages.is_empty() => {
                self.postpone(&open);
                return Ok(());
            }
            _ if open.is_undecidable_yet(said) => {
                self.note("not decided yet: press Enter to see the rest first");
                self.ask_again(open).await;
                return Ok(());
            }
            _ => {}
        }
        match open.asked.answer(&self.watch.link, said).await {
            Ok(true) => self.note(&print::styled(print::DIM, open.asked.decided(said))),
            Ok(false) => {
                self.note("answer yes or no");
                self.ask_again(open).await;
            }
            // The daemon went away just now: it is asked again.
            Err(lost) if link::is_broken(&lost) || lost.kind == "unavailable" => {
                self.note("the answer was not delivered; asking again");
                if let Some(person) = &mut self.person {
                    person.unmark_asked(open.asked.id());
                }
            }
            // It expired, another client answered first, or the file has changed since: if it is
            // still open, it is asked again with its current content.
            Err(refused) if refused.kind == "conflict" || open.asked.is_secret() => {
                self.note(&refused.to_string());
                let id = open.asked.id();
                if refused.kind == "conflict" && !open.asked.is_secret() {
                    self.asked.retain(|one| one.id() != id);
                    if let Some(person) = &mut self.person {
                        person.unmark_asked(id);
                    }
                }
            }
            Err(failure) => return Err(failure),
        }
        self.are_requests_stale = true;
        Ok(())
    }

    /// Prompts once more for the open request.
    async fn ask_again(&mut self, open: Prompted) {
        self.open = Some(open);
        if let Some(person) = &mut self.person {
            person.set_aside().await;
        }
        self.set_prompted();
        self.prompt();
    }

    fn set_prompted(&mut self) {
        if let Some(view) = &mut self.view {
            view.set_prompted(self.open.as_ref());
        }
    }

    /// Leaves the request open; a conversation turn is then no longer followed.
    fn postpone(&mut self, open: &Prompted) {
        if !self.is_conversation() {
            return;
        }
        if let Some(person) = &mut self.person {
            person.unmark_asked(open.asked.id());
        }
        self.stop_reason = Some(StopReason::Question);
    }

    /// Prints a note that stays on the screen.
    pub(crate) fn note(&mut self, text: &str) {
        match &mut self.view {
            Some(view) => view.note(text),
            None => print::note(text),
        }
    }

    /// Prints text as a part of the answer.
    pub(crate) fn says(&mut self, text: &str) -> Result<(), Failure> {
        match &mut self.view {
            Some(view) => view.says(text),
            None => print::answer(text),
        }
    }
}

/// Reads the user's input, key by key or as whole lines.
async fn typed(person: &mut Option<&mut Person>, keys: bool) -> LineProgress {
    match person {
        Some(person) if keys => person.key().await,
        Some(person) => LineProgress::Line(person.line().await),
        None => std::future::pending().await,
    }
}
